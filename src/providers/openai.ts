import * as z from 'zod/mini'
import type { Price } from '../core/money.ts'
import type { Provider } from '../core/ports.ts'
import { OPENAI_EMBEDDING_MODELS } from './openai-embedding-models.ts'
import { OPENAI_MODELS } from './openai-models.ts'
import { chatProvider } from './openai-compatible.ts'
import {
  apiKeySchema,
  baseUrlSchema,
  fetchSchema,
  modelEntrySchema,
  parseOptions,
  priceSchema,
  providerName,
  type ModelEntry,
} from './provider-options.ts'

const KNOWN = [...OPENAI_MODELS, ...OPENAI_EMBEDDING_MODELS]

export interface OpenaiOptions {
  /** The first part of `<provider>/<model_id>`: for a second account. @default 'openai' */
  readonly name?: string
  readonly apiKey: string
  /** @default 'https://api.openai.com/v1' */
  readonly baseUrl?: string
  /** Adds to the catalogue's models, or changes them: a field given here wins. @default the catalogue's models */
  readonly models?: readonly ModelEntry[]
  /** Dollars per million tokens for models that are neither known nor given; with it any model id is passed on. */
  readonly defaultPrice?: Price
  /** Used instead of the gateway's own transport, called as `fetch(url, init)`. */
  readonly fetch?: typeof globalThis.fetch
}

const schema: z.ZodMiniType<OpenaiOptions> = z.strictObject({
  name: z.exactOptional(providerName),
  apiKey: apiKeySchema,
  baseUrl: z.exactOptional(baseUrlSchema),
  models: z.exactOptional(z.array(modelEntrySchema)),
  defaultPrice: z.exactOptional(priceSchema),
  fetch: z.exactOptional(fetchSchema),
})

/** The provider `openai`. Throws `invalid-request` with the path and the expectation for wrong options. */
export function openai(options: OpenaiOptions): Provider {
  const parsed = parseOptions('openai', schema, options)
  const { name = 'openai', baseUrl = 'https://api.openai.com/v1' } = parsed
  return chatProvider('openai', { ...parsed, name, family: 'gpt', baseUrl, responses: true }, KNOWN)
}
