import * as z from 'zod/mini'
import type { Price } from '../core/money.ts'
import type { Provider } from '../core/ports.ts'
import { MESSAGES } from './upstream-formats.ts'
import { keyCredentials, type ApiKey } from './credentials.ts'
import { ANTHROPIC_MODELS } from './anthropic-models.ts'
import type { PriceList } from './known-model.ts'
import { httpProvider } from './http-provider.ts'
import { createModelBook } from './model-book.ts'
import { commonFields, transportOf } from './openai-compatible.ts'
import { parseOptions, trimSlash, type ModelEntry } from './provider-options.ts'

/** Options of `anthropic()`. */
export interface AnthropicOptions {
  /** The first part of `<provider>/<model_id>`: for a second account, or another service of this format. @default 'anthropic' */
  readonly name?: string
  /** Sent as `x-api-key`: the key, or a function that returns it for each call. @default the environment variable ANTHROPIC_API_KEY, read by the first call */
  readonly apiKey?: ApiKey
  /** With or without `/v1` at its end. @default 'https://api.anthropic.com' */
  readonly baseUrl?: string
  /** Sent as `anthropic-version` where the caller sent none. @default '2023-06-01' */
  readonly version?: string
  /** Models in addition to the catalog. Fields override those of the catalog. @default the models of the catalog */
  readonly models?: readonly ModelEntry[]
  /** Dollars per million tokens for models that are neither known nor given; with it any model id is passed on. */
  readonly defaultPrice?: Price
  /** Prices from a file. They override those of the catalog. Models that are only in the file are served, too. */
  readonly prices?: PriceList
  /** Used instead of the gateway's own transport, called as `fetch(url, init)`. */
  readonly fetch?: typeof globalThis.fetch
}

const schema: z.ZodMiniType<AnthropicOptions> = z.strictObject({
  ...commonFields,
  version: z.exactOptional(z.iso.date({ error: 'expected a day, YYYY-MM-DD' })),
})

/** Anthropic, or any service that speaks the message format. Throws `invalid-request` with the path and the expectation for wrong options. */
export function anthropic(options: AnthropicOptions = {}): Provider {
  const {
    name = 'anthropic',
    apiKey,
    baseUrl = 'https://api.anthropic.com',
    version = '2023-06-01',
    ...parsed
  } = parseOptions('anthropic', schema, options)
  const credentials = keyCredentials({ who: name, header: 'x-api-key', apiKey, variables: ['ANTHROPIC_API_KEY'] })
  const root = `${trimSlash(baseUrl).replace(/\/v1$/, '')}/v1`
  return httpProvider({
    name,
    format: MESSAGES,
    ...createModelBook({
      who: 'anthropic',
      family: 'claude',
      known: parsed.prices?.over(ANTHROPIC_MODELS, 'anthropic') ?? ANTHROPIC_MODELS,
      entries: parsed.models,
      defaultPrice: parsed.defaultPrice,
    }),
    urls: { create: `${root}/messages`, count: `${root}/messages/count_tokens`, ping: `${root}/models?limit=1` },
    ...credentials,
    headers: { ...credentials.headers, 'anthropic-version': version },
    passes: ['anthropic-version', 'anthropic-beta'],
    ...transportOf(parsed.fetch),
  })
}
