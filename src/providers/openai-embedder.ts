import { defaultTransport } from '#transport'
import * as z from 'zod/mini'
import { asArray, asObject, type JsonObject, parseObject } from '../core/json.ts'
import type { Embedder } from '../core/cache-ports.ts'
import { Cancellation } from '../core/async.ts'
import type { Transport } from '../core/ports.ts'
import { after } from '../http/runtime.ts'
import { fetchTransport } from '../http/transport-fetch.ts'
import { brokenUpstream } from '../upstream/upstream-failure.ts'
import { sendRequest } from './http-call.ts'
import {
  apiKeySchema,
  baseUrlSchema,
  fetchSchema,
  headersSchema,
  nonEmpty,
  parseOptions,
  tokenCount,
  trimSlash,
} from './provider-options.ts'

/** Options of `openaiEmbedder()`. */
export interface OpenaiEmbedderOptions {
  /** The URL before `/embeddings`, such as `https://api.openai.com/v1`. */
  readonly baseUrl: string
  readonly model: string
  /** Sent as `Authorization: Bearer`. @default none is sent */
  readonly apiKey?: string
  /** The length of the vectors. @default 1024 */
  readonly dimensions?: number
  /**
   * US dollars per million tokens. Included in the actual cost of requests if used as `savings.embedder`. @default 0
   */
  readonly price?: number
  /** Additional headers of each call. @default none */
  readonly headers?: Readonly<Record<string, string>>
  /** Maximum duration of a call in milliseconds. The cache has a separate limit. @default 5000 */
  readonly timeoutMs?: number
  /** Replaces the transport of the platform. Called as `fetch(url, init)`. */
  readonly fetch?: typeof globalThis.fetch
}

const schema: z.ZodMiniType<OpenaiEmbedderOptions> = z.strictObject({
  baseUrl: baseUrlSchema,
  model: nonEmpty,
  apiKey: z.exactOptional(apiKeySchema),
  dimensions: z.exactOptional(tokenCount),
  price: z.exactOptional(z.number().check(z.minimum(0))),
  headers: z.exactOptional(headersSchema),
  timeoutMs: z.exactOptional(tokenCount),
  fetch: z.exactOptional(fetchSchema),
})

/** Maximum number of texts per call. Additional texts are sent in consecutive calls. */
const MAX_TEXTS_PER_CALL = 256

/**
 * Creates an embedder for an endpoint that uses OpenAI's format. `embed` rejects with `upstream` unless the answer has
 * one vector of the expected length for each text. The cache treats a rejection as a miss. Throws `invalid-request` for
 * invalid options.
 */
export function openaiEmbedder(options: OpenaiEmbedderOptions): Embedder {
  const {
    baseUrl,
    model,
    apiKey,
    dimensions = 1024,
    headers,
    timeoutMs = 5000,
    fetch,
    price,
  } = parseOptions('openaiEmbedder', schema, options)
  let transport: Transport | undefined
  const endpoint: EmbeddingEndpoint = {
    url: `${trimSlash(baseUrl)}/embeddings`,
    model,
    dimensions,
    headers: {
      'content-type': 'application/json',
      accept: 'application/json',
      ...(apiKey !== undefined && { authorization: `Bearer ${apiKey}` }),
      ...headers,
    },
    timeoutMs,
    transport: () =>
      (transport ??= fetch === undefined ? defaultTransport() : fetchTransport((url, init) => fetch(url, init))),
  }
  return {
    name: `openai:${model}`,
    dimensions,
    ...(price !== undefined && { price }),
    embed: async (texts, signal) => {
      const vectors: Float32Array[] = []
      for (let from = 0; from < texts.length; from += MAX_TEXTS_PER_CALL) {
        vectors.push(...(await embedBatch(endpoint, texts.slice(from, from + MAX_TEXTS_PER_CALL), signal)))
      }
      return vectors
    },
  }
}

interface EmbeddingEndpoint {
  readonly url: string
  readonly model: string
  readonly dimensions: number
  readonly headers: Readonly<Record<string, string>>
  readonly timeoutMs: number
  readonly transport: () => Transport
}

/** Maximum size of an answer in bytes. */
const MAX_ANSWER_BYTES = 32 * 1024 * 1024
const NAME = 'embeddings'

async function embedBatch(
  endpoint: EmbeddingEndpoint,
  texts: readonly string[],
  callerSignal: AbortSignal | undefined,
): Promise<readonly Float32Array[]> {
  const { url, model, dimensions, headers, timeoutMs } = endpoint
  const body = JSON.stringify({ model, input: texts, dimensions, encoding_format: 'float' })
  const response = await sendRequest(
    { method: 'POST', url, headers, body },
    {
      provider: NAME,
      transport: endpoint.transport(),
      runtime: { now: Date.now, after },
      timeouts: { connect: timeoutMs, firstByte: timeoutMs, idle: timeoutMs, total: timeoutMs },
      cancellation: callerSignal === undefined ? new Cancellation() : Cancellation.of(callerSignal),
      connectMs: timeoutMs,
      maxBytes: () => MAX_ANSWER_BYTES,
      isStream: undefined,
      format: undefined,
    },
  )
  if (response.status !== 200) throw brokenUpstream(NAME, `answered with status ${response.status}`)
  const text = 'text' in response ? response.text : undefined
  if (text === undefined) throw brokenUpstream(NAME, `sent more than ${MAX_ANSWER_BYTES} bytes`)
  return readVectors(parseObject(text), texts.length, dimensions)
}

/** Returns the vectors in the order of the texts. */
function readVectors(answer: JsonObject | undefined, count: number, dimensions: number): readonly Float32Array[] {
  const vectors = Array.from({ length: count }, (): Float32Array | undefined => undefined)
  asArray(answer?.['data']).forEach((item, position) => {
    const { index = position, embedding } = asObject(item) ?? {}
    const vector = Float32Array.from(asArray(embedding), (value) => (typeof value === 'number' ? value : Number.NaN))
    const isValid = vector.length === dimensions && vector.every(Number.isFinite)
    if (isValid && typeof index === 'number' && index in vectors) vectors[index] = vector
  })
  return vectors.map((vector) => {
    if (vector === undefined) throw brokenUpstream(NAME, `did not send a vector of ${dimensions} numbers for each text`)
    return vector
  })
}
