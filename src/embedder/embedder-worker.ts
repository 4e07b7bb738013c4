import { readFile } from 'node:fs/promises'
import { parentPort, workerData } from 'node:worker_threads'
import type { Tokenizer } from '@huggingface/tokenizers'
import { isMissing, loadRuntime, messageOf, type RuntimeName } from './onnx-runtime.ts'
import { createTextModel, type EmbedText, type TextModelSettings } from './text-model.ts'

/** What the worker needs, as `workerData`. */
export interface WorkerSettings extends TextModelSettings {
  readonly model: string
  readonly tokenizer: string
  readonly runtimes: readonly RuntimeName[]
  readonly threads: number
}

/** The reply to a list of texts. An empty list only loads the model. */
export type WorkerReply = { readonly vectors: readonly Float32Array[] } | { readonly error: string }

const TOKENIZERS = '@huggingface/tokenizers'

async function loadModel(settings: WorkerSettings): Promise<EmbedText> {
  const { model, threads, runtimes } = settings
  const { name, runtime } = await loadRuntime(runtimes, (module) => import(module))
  const tokenizer = await loadTokenizer(settings.tokenizer)
  if (runtime.env?.wasm !== undefined) runtime.env.wasm.numThreads = threads
  // The WebAssembly package has no access to files.
  const source = name === 'onnxruntime-web' ? new Uint8Array(await readFile(model)) : model
  const options = { intraOpNumThreads: threads, interOpNumThreads: 1 }
  const session = await runtime.InferenceSession.create(source, options).catch((error: unknown) => {
    throw new Error(`${model} could not be loaded as an ONNX model: ${messageOf(error)}`, { cause: error })
  })
  return createTextModel(runtime, session, tokenizer, settings)
}

async function loadTokenizer(path: string): Promise<Tokenizer> {
  const tokenizers = await import('@huggingface/tokenizers').catch((error: unknown) => {
    if (!isMissing(error, TOKENIZERS)) throw error
    throw new Error(`The package ${TOKENIZERS} is not installed. Run npm install ${TOKENIZERS}.`, { cause: error })
  })
  const text = await readFile(path, 'utf8')
  try {
    return new tokenizers.Tokenizer(JSON.parse(text), {})
  } catch (error) {
    throw new Error(`${path} could not be loaded as a tokenizer: ${messageOf(error)}`, { cause: error })
  }
}

async function response(texts: readonly string[], loading: Promise<EmbedText>): Promise<WorkerReply> {
  try {
    const embed = await loading
    const vectors: Float32Array[] = []
    // One text per run, because padding texts to the same length costs more than it saves.
    for (const text of texts) vectors.push(await embed(text))
    return { vectors }
  } catch (error) {
    return { error: messageOf(error) }
  }
}

const loading = loadModel(workerData)
// Reported in the reply to the first texts.
loading.catch(() => {})

parentPort?.on('message', (texts: readonly string[]) => {
  void response(texts, loading).then((reply) => parentPort?.postMessage(reply))
})
