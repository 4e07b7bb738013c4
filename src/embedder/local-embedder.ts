import { accessSync, constants } from 'node:fs'
import { basename } from 'node:path'
import type { Embedder } from '../core/cache.ts'
import { checkOptions, expects, integerFrom, oneOf, type OptionCheck, optionsOf } from '../core/check-options.ts'
import { GatewayError } from '../core/errors.ts'
import type { Runtime } from '../core/ports.ts'
import { EmbeddingQueue } from './embedding-queue.ts'
import { type ModelWorker, startWorker, type StartWorker } from './model-worker.ts'
import { RUNTIME_NAMES, type RuntimeName } from './onnx-runtime.ts'
import type { Pooling } from './text-model.ts'

/** Options of `localEmbedder()`. */
export interface LocalEmbedderOptions {
  /** Path of the model, an ONNX file such as `models/all-MiniLM-L6-v2/model.onnx`. */
  readonly model: string
  /** Path of the `tokenizer.json` that belongs to the model. */
  readonly tokenizer: string
  /** Length of the model's vectors. @default 384 */
  readonly dimensions?: number
  /** How the vectors of a transformer's tokens become one vector. The model's documentation states it. @default 'mean' */
  readonly pooling?: Pooling
  /** Maximum tokens that are read of a text. Twice as many tokens take twice as long. @default 256 */
  readonly maxTokens?: number
  /** The package that runs the model. @default 'onnxruntime-node', or 'onnxruntime-web' if only that one is installed */
  readonly runtime?: RuntimeName
  /** CPU threads of one call. @default 1 */
  readonly threads?: number
  /** Maximum duration of a call, including its time in the queue and loading the model, in milliseconds. @default 30_000 */
  readonly timeoutMs?: number
  /** Maximum texts that wait or are being embedded. Calls that exceed it are rejected. @default 8192 */
  readonly maxQueuedTexts?: number
}

/** An embedder that runs a model in a thread of this process. */
export interface LocalEmbedder extends Embedder {
  /** Loads the model, which otherwise happens at the first call. Rejects if the model cannot be used. */
  load(): Promise<void>
  /** Rejects all calls and ends the thread. */
  close(): Promise<void>
  embed(texts: readonly string[], signal?: AbortSignal): Promise<readonly Float32Array[]>
}

const checkPath = expects('the path of a file', (value) => typeof value === 'string' && value !== '')
const checkLocalEmbedder: OptionCheck = optionsOf(
  {
    model: checkPath,
    tokenizer: checkPath,
    dimensions: integerFrom(1, 65_536),
    pooling: oneOf('mean', 'cls'),
    maxTokens: integerFrom(8, 8192),
    runtime: oneOf(...RUNTIME_NAMES),
    threads: integerFrom(1, 64),
    timeoutMs: integerFrom(1, 600_000, 'milliseconds'),
    maxQueuedTexts: integerFrom(1, 1_000_000),
  },
  ['model', 'tokenizer'],
)

/** A model needs 0.1 to 1 seconds for so many long texts, so calls end within the time limit of `savings.embedder`. */
const TEXTS_PER_CALL = 8

/** No tokenizer of a common model makes tokens longer than this on average. */
const MAX_CHARACTERS_PER_TOKEN = 10

/**
 * Creates an embedder for `savings.embedder` and `cache.embedder` that runs a sentence-embedding model in a thread of
 * this process. Requires the packages `onnxruntime-node` (or `onnxruntime-web`) and `@huggingface/tokenizers`. Throws
 * `invalid-request` for invalid options and missing files.
 *
 * @example
 * const embedder = localEmbedder({ model: 'models/model.onnx', tokenizer: 'models/tokenizer.json' })
 * await embedder.load()
 * const gateway = createGateway({ providers: [openai()], savings: { embedder } })
 */
export function localEmbedder(options: LocalEmbedderOptions): LocalEmbedder {
  return createLocalEmbedder(options, { startWorker, after })
}

interface Dependencies {
  readonly startWorker: StartWorker
  readonly after: Runtime['after']
}

export function createLocalEmbedder(options: LocalEmbedderOptions, dependencies: Dependencies): LocalEmbedder {
  checkOptions('localEmbedder', options, checkLocalEmbedder)
  const { model, tokenizer, dimensions = 384, pooling = 'mean', maxTokens = 256, runtime, threads = 1 } = options
  const { timeoutMs = 30_000, maxQueuedTexts = 8192 } = options
  checkFile('model', model)
  checkFile('tokenizer', tokenizer)
  const runtimes = runtime === undefined ? RUNTIME_NAMES : [runtime]
  const settings = { model, tokenizer, dimensions, pooling, maxTokens, runtimes, threads }
  let worker: ModelWorker | undefined
  let isClosed = false

  const run = async (texts: readonly string[]): Promise<readonly Float32Array[]> => {
    const current = (worker ??= dependencies.startWorker(settings, () => (worker = undefined)))
    try {
      return await current.run(texts)
    } catch (error) {
      // The next call starts another thread, because the files or packages may have been repaired.
      await current.stop(new Error('The model could not embed the texts.', { cause: error }))
      throw error
    }
  }
  const onStuck = (error: Error): void => void worker?.stop(error)
  const { after } = dependencies
  const queue = new EmbeddingQueue({ run, onStuck, timeoutMs, maxTexts: maxQueuedTexts, after })
  const embed = async (texts: readonly string[], signal?: AbortSignal): Promise<readonly Float32Array[]> => {
    if (isClosed) throw closedError()
    return queue.embed(
      texts.map((text) => text.slice(0, maxTokens * MAX_CHARACTERS_PER_TOKEN)),
      signal,
    )
  }

  return {
    name: `local:${basename(model)}`,
    dimensions,
    textsPerCall: TEXTS_PER_CALL,
    embed,
    load: async () => void (await embed(['load'])),
    close: async () => {
      isClosed = true
      queue.rejectAll(closedError())
      await worker?.stop(closedError())
    },
  }
}

function checkFile(option: 'model' | 'tokenizer', path: string): void {
  try {
    accessSync(path, constants.R_OK)
  } catch (cause) {
    const message = `localEmbedder: ${option}: the file "${path}" cannot be read. Expected a file that you have downloaded. Check the path.`
    throw new GatewayError('invalid-request', message, { param: option, cause })
  }
}

function closedError(): GatewayError {
  return new GatewayError('cancelled', 'The local embedder is closed. Create another one.')
}

function after(ms: number, callback: () => void): () => void {
  const timer = setTimeout(callback, ms)
  return () => clearTimeout(timer)
}
