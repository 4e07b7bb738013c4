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
  /** The first part of `<provider>/<model_id>`: for a second account. @default 'openai' */
  readonly name?: string
  /** The key, or a function that returns it for each call. @default the environment variable OPENAI_API_KEY, read by the first call */
  readonly apiKey?: ApiKey
  /** @default 'https://api.openai.com/v1' */
  readonly baseUrl?: string
  /** Adds to the catalogue's models, or changes them: a field given here wins. @default the catalogue's models */
  readonly models?: readonly ModelEntry[]
  /** Dollars per million tokens for models that are neither known nor given; with it any model id is passed on. */
  readonly defaultPrice?: Price
  /** Prices of your own file, which win over the catalogue's; its other models are served as well. */
  readonly prices?: PriceList
  /** Used instead of the gateway's own transport, called as `fetch(url, init)`. */
  readonly fetch?: typeof globalThis.fetch
}

const schema: z.ZodMiniType<OpenaiOptions> = z.strictObject(commonFields)

/** The models of OpenAI. The API key is read from OPENAI_API_KEY unless `apiKey` is given. Throws `invalid-request` with the path and the expectation for wrong options. */
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
