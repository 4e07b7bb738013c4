import * as z from 'zod/mini'
import type { Price } from '../core/money.ts'
import type { Provider } from '../core/ports.ts'
import type { ApiKey } from './credentials.ts'
import type { PriceList } from './known-model.ts'
import { OPENAI_EMBEDDING_MODELS } from './openai-embedding-models.ts'
import { OPENAI_MODELS } from './openai-models.ts'
import { chatProvider, commonFields } from './openai-compatible.ts'
import { parseOptions, type ModelEntry } from './provider-options.ts'

const KNOWN = [...OPENAI_MODELS, ...OPENAI_EMBEDDING_MODELS]

/** Options of `openai()`. */
export interface OpenaiOptions {
  /** The name of the provider in `<provider>/<model_id>`. Set it for a second account. @default 'openai' */
  readonly name?: string
  /** The key, or a function that returns it for each call. @default the environment variable OPENAI_API_KEY, read by the first call */
  readonly apiKey?: ApiKey
  /** @default 'https://api.openai.com/v1' */
  readonly baseUrl?: string
  /** Models in addition to the catalog. Fields override those of the catalog. @default the models of the catalog */
  readonly models?: readonly ModelEntry[]
  /** Dollars per million tokens for unknown models. If set, every model id is accepted. */
  readonly defaultPrice?: Price
  /** Prices from a file. They override those of the catalog. Models that are only in the file are served, too. */
  readonly prices?: PriceList
  /** Replaces the transport of the gateway; called as `fetch(url, init)`. */
  readonly fetch?: typeof globalThis.fetch
}

const schema: z.ZodMiniType<OpenaiOptions> = z.strictObject(commonFields)

/**
 * The models of OpenAI. The API key is read from OPENAI_API_KEY unless `apiKey` is given. Throws `invalid-request` with
 * the path and the expected value for invalid options.
 */
export function openai(options: OpenaiOptions = {}): Provider {
  const parsed = parseOptions('openai', schema, options)
  const { name = 'openai', baseUrl = 'https://api.openai.com/v1' } = parsed
  return chatProvider(
    'openai',
    { ...parsed, name, family: 'gpt', baseUrl, responses: true },
    parsed.prices?.over(KNOWN, 'openai') ?? KNOWN,
    ['OPENAI_API_KEY'],
  )
}
