import { defaultTransport } from '#transport'
import * as z from 'zod/mini'
import { lazy } from '../core/async.ts'
import type { Embedder } from '../core/cache-ports.ts'
import type { Transport } from '../core/ports.ts'
import { fetchTransport } from '../http/transport-fetch.ts'
import type { EmbeddingEndpoint } from './embedding-request.ts'
import {
  apiKeySchema,
  baseUrlSchema,
  dimensionsSchema,
  fetchSchema,
  headersSchema,
  millisecondsSchema,
  nonEmptySchema,
  parseOptions,
  trimTrailingSlashes,
} from './provider-options.ts'

/** Options of `openaiEmbedder()`. */
export interface OpenaiEmbedderOptions {
  /** The URL before `/embeddings`, such as `https://api.openai.com/v1`. */
  readonly baseUrl: string
  readonly model: string
  /** Sent as `Authorization: Bearer`. @default no key is sent */
  readonly apiKey?: string
  /** The length of the vectors. @default 1024 */
  readonly dimensions?: number
  /**
   * US dollars per million tokens. Counts toward the actual cost of requests if used as `savings.embedder`. @default 0
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
  model: nonEmptySchema,
  apiKey: z.exactOptional(apiKeySchema),
  dimensions: z.exactOptional(dimensionsSchema),
  price: z.exactOptional(z.number().check(z.minimum(0))),
  headers: z.exactOptional(headersSchema),
  timeoutMs: z.exactOptional(millisecondsSchema),
  fetch: z.exactOptional(fetchSchema),
})

const loadRequestModule = lazy(() => import('./embedding-request.ts'))

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
    url: `${trimTrailingSlashes(baseUrl)}/embeddings`,
    model,
    dimensions,
    headers: {
      'content-type': 'application/json',
      accept: 'application/json',
      ...(apiKey !== undefined && { authorization: `Bearer ${apiKey}` }),
      ...headers,
    },
    timeoutMs,
    transport: () => (transport ??= fetch === undefined ? defaultTransport() : fetchTransport(fetch)),
  }
  return {
    name: `openai:${model}`,
    dimensions,
    ...(price !== undefined && { price }),
    embed: async (texts, signal) => (await loadRequestModule()).embedTexts(endpoint, texts, signal),
  }
}
