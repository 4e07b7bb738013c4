import { defaultTransport } from '#transport'
import * as z from 'zod/mini'
import type { Embedder } from '../core/cache-ports.ts'
import type { Transport } from '../core/ports.ts'
import type { EmbeddingEndpoint } from './embed-batch.ts'
import { fetchTransport } from '../http/transport-fetch.ts'
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
  /** The length of the vectors, requested in each call. @default 1024 */
  readonly dimensions?: number
  /** Additional headers of each call. @default none */
  readonly headers?: Readonly<Record<string, string>>
  /** One call from its start to its end, in milliseconds; the cache waits its own time as well. @default 5000 */
  readonly timeoutMs?: number
  /** Replaces the transport of the platform; called as `fetch(url, init)`. */
  readonly fetch?: typeof globalThis.fetch
}

const schema: z.ZodMiniType<OpenaiEmbedderOptions> = z.strictObject({
  baseUrl: baseUrlSchema,
  model: nonEmpty,
  apiKey: z.exactOptional(apiKeySchema),
  dimensions: z.exactOptional(tokenCount),
  headers: z.exactOptional(headersSchema),
  timeoutMs: z.exactOptional(tokenCount),
  fetch: z.exactOptional(fetchSchema),
})

/** Maximum number of texts per call. More are sent in further calls, one after the other. */
const MAX_TEXTS = 256

/**
 * Embeddings of any endpoint that speaks OpenAI's format. Rejects with `upstream` for an answer that is not one vector of
 * the right length for each text; a cache takes that as a miss. Throws `invalid-request` for wrong options.
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
    embed: async (texts, signal) => {
      const { embedBatch } = await import('./embed-batch.ts')
      const vectors: Float32Array[] = []
      for (let from = 0; from < texts.length; from += MAX_TEXTS) {
        vectors.push(...(await embedBatch(endpoint, texts.slice(from, from + MAX_TEXTS), signal)))
      }
      return vectors
    },
  }
}
