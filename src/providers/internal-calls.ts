import type { Completion } from '../core/completion.ts'
import { asArray, asObject, type JsonObject } from '../core/json.ts'
import { costOf, NO_USAGE, type Usage } from '../core/money.ts'
import type { Route, Runtime, Timeouts, Transport, SmallModel, UpstreamCaller } from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import { after } from '#transport'
import { upstreamError } from '../upstream/attempts.ts'
import { readJson, request } from './http-request.ts'

export interface SmallModelOptions {
  readonly runtime: Runtime
  readonly timeouts: Timeouts
  /** @default the gateway itself */
  readonly caller?: UpstreamCaller | undefined
}

const SMALL_MODEL_TIMEOUT_MS = 30_000

/** The temperature of these calls is rejected in later versions, which `anthropic({ version })` may set. */
const SMALL_MODEL_HEADERS = { 'anthropic-version': '2023-06-01' }

type Question = Parameters<SmallModel['ask']>[0]

export async function askSmallModel(
  question: Question,
  route: Route,
  { runtime, timeouts, caller }: SmallModelOptions,
): ReturnType<SmallModel['ask']> {
  const { provider, model } = route
  const { response } = await provider.complete({
    prompt: promptFor(question, route),
    model,
    runtime,
    signal: question.signal,
    caller,
    timeouts: { ...timeouts, totalMs: Math.min(timeouts.totalMs, SMALL_MODEL_TIMEOUT_MS) },
    headers: provider.dialect === 'messages' ? SMALL_MODEL_HEADERS : {},
  })
  const text = textOf(response)
  return { text, spent: costOf(response.usage ?? estimateUsage(question, text), model.price) }
}

function promptFor(question: Question, { provider, model }: Route): Prompt {
  return {
    // No client uses the gemini format, so prompts never have that dialect.
    native:
      provider.dialect === 'gemini'
        ? { dialect: 'chat', value: {} }
        : // The short output limit leaves no tokens for reasoning.
          { dialect: provider.dialect, value: { ...model.withoutThinking } },
    model: model.id,
    messages: [
      { role: 'system', parts: [{ type: 'text', text: question.instruction }] },
      { role: 'user', parts: [{ type: 'text', text: question.text }] },
    ],
    settings: { maxTokens: question.maxTokens, ...(model.rejectsSamplingParameters !== true && { temperature: 0 }) },
    tools: [],
    stream: false,
  }
}

function textOf({ parts }: Completion): string {
  return parts.map((part) => (part.type === 'text' ? part.text : '')).join('')
}

function estimateUsage(question: Question, text: string): Usage {
  return {
    ...NO_USAGE,
    inputTokens: Math.ceil((question.instruction.length + question.text.length) / 4),
    outputTokens: Math.ceil(text.length / 4),
  }
}

export interface EmbeddingEndpoint {
  readonly url: string
  readonly model: string
  readonly dimensions: number
  readonly headers: Readonly<Record<string, string>>
  readonly timeoutMs: number
  readonly transport: Transport
}

const EMBEDDINGS_PROVIDER = 'embeddings'

const MAX_TEXTS_PER_CALL = 256

export async function embedTexts(
  endpoint: EmbeddingEndpoint,
  texts: readonly string[],
  signal: AbortSignal = new AbortController().signal,
): Promise<readonly Float32Array[]> {
  const vectors: Float32Array[] = []
  for (let from = 0; from < texts.length; from += MAX_TEXTS_PER_CALL) {
    vectors.push(...(await embedBatch(endpoint, texts.slice(from, from + MAX_TEXTS_PER_CALL), signal)))
  }
  return vectors
}

async function embedBatch(
  { url, model, dimensions, headers, timeoutMs, transport }: EmbeddingEndpoint,
  texts: readonly string[],
  signal: AbortSignal,
): Promise<readonly Float32Array[]> {
  const upstream = { name: EMBEDDINGS_PROVIDER, headers }
  const timeouts = { connectMs: timeoutMs, firstByteMs: timeoutMs, idleMs: timeoutMs, totalMs: timeoutMs }
  const call = { signal, timeouts, runtime: { now: Date.now, after, transport } }
  const body = JSON.stringify({ model, input: texts, dimensions, encoding_format: 'float' })
  const response = await request(upstream, call, { method: 'POST', url, body })
  return readVectors(readJson(upstream, call, response).value, texts.length, dimensions)
}

function readVectors(response: JsonObject, count: number, dimensions: number): readonly Float32Array[] {
  const vectors = Array.from({ length: count }, (): Float32Array | undefined => undefined)
  asArray(response['data']).forEach((item, position) => {
    const { index = position, embedding } = asObject(item) ?? {}
    const vector = Float32Array.from(asArray(embedding), (value) => (typeof value === 'number' ? value : Number.NaN))
    const isValid = vector.length === dimensions && vector.every(Number.isFinite)
    if (isValid && typeof index === 'number' && index in vectors) vectors[index] = vector
  })
  return vectors.map((vector) => {
    if (vector === undefined)
      throw upstreamError(EMBEDDINGS_PROVIDER, `did not send a vector of ${dimensions} numbers for each text`)
    return vector
  })
}
