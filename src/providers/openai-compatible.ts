import * as z from 'zod/mini'
import { GatewayError } from '../core/errors.ts'
import type { Price } from '../core/money.ts'
import type { Provider, Transport } from '../core/ports.ts'
import { CHAT, RESPONSES } from './upstream-formats.ts'
import { fetchTransport } from '../http/transport-fetch.ts'
import { apiKeySourceSchema, keyCredentials, type ApiKey } from './credentials.ts'
import { priceListSchema, type KnownModel, type PriceList } from './known-model.ts'
import { httpProvider } from './http-provider.ts'
import { createModelBook } from './model-book.ts'
import {
  baseUrlSchema,
  fetchSchema,
  headersSchema,
  modelEntrySchema,
  nonEmpty,
  parseOptions,
  priceSchema,
  providerName,
  trimSlash,
  type ModelEntry,
} from './provider-options.ts'

/** Options of `openaiCompatible()`. */
export interface OpenaiCompatibleOptions {
  /** The first part of `<provider>/<model_id>`. */
  readonly name: string
  /** The address that `/chat/completions` and `/embeddings` follow, usually ending in `/v1`. */
  readonly baseUrl: string
  /** Sent as `Authorization: Bearer`: the key, or a function that returns it for each call. @default none is sent */
  readonly apiKey?: ApiKey
  /** What GET /v1/models lists. @default none: then `defaultPrice` must be given, and any model id is passed on */
  readonly models?: readonly ModelEntry[]
  /** Dollars per million tokens for every model that has no price of its own; with it any model id is passed on. */
  readonly defaultPrice?: Price
  /** Further headers for each call. @default none */
  readonly headers?: Readonly<Record<string, string>>
  /**
   * True: the service has `/responses` too. Requests to `POST /v1/responses` then leave in this format, unchanged but for
   * the model. @default false
   */
  readonly responses?: boolean
  /** The family of models whose id does not tell it. @default the name */
  readonly family?: string
  /** Prices from a file. They override those of the catalog. Models that are only in the file are served, too. */
  readonly prices?: PriceList
  /** Used instead of the gateway's own transport, called as `fetch(url, init)`. */
  readonly fetch?: typeof globalThis.fetch
}

/** The schema of each field, for options whose fields are all optional. */
export type OptionFields<options> = {
  readonly [field in keyof options]-?: z.ZodMiniExactOptional<z.ZodMiniType<NonNullable<options[field]>>>
}

type CommonOptions = Partial<Omit<OpenaiCompatibleOptions, 'headers' | 'family' | 'responses'>>

/** The fields that the options of all HTTP providers share. */
export const commonFields: OptionFields<CommonOptions> = {
  name: z.exactOptional(providerName),
  apiKey: z.exactOptional(apiKeySourceSchema),
  baseUrl: z.exactOptional(baseUrlSchema),
  models: z.exactOptional(z.array(modelEntrySchema)),
  prices: z.exactOptional(priceListSchema),
  defaultPrice: z.exactOptional(priceSchema),
  fetch: z.exactOptional(fetchSchema),
}

const schema: z.ZodMiniType<OpenaiCompatibleOptions> = z.strictObject({
  ...commonFields,
  name: providerName,
  baseUrl: baseUrlSchema,
  headers: z.exactOptional(headersSchema),
  responses: z.exactOptional(z.boolean()),
  family: z.exactOptional(nonEmpty),
})

/**
 * Any service that speaks the chat-completions format: hosted, local, or another gateway. Throws `invalid-request` for a
 * wrong option.
 */
export function openaiCompatible(options: OpenaiCompatibleOptions): Provider {
  const parsed = parseOptions('openaiCompatible', schema, options)
  if ((parsed.models ?? []).length === 0 && parsed.defaultPrice === undefined && parsed.prices === undefined) {
    throw new GatewayError(
      'invalid-request',
      'openaiCompatible: models: expected at least one model, or a defaultPrice in dollars per million tokens, or prices; got none of them.',
    )
  }
  return chatProvider('openaiCompatible', parsed, parsed.prices?.over([], parsed.name) ?? [])
}

/**
 * A provider of the chat format. `known` are the catalog's models of the vendor, `variables` name the environment
 * variables that may hold its key; without any, no key is sent where none is given.
 */
export function chatProvider(
  who: string,
  options: OpenaiCompatibleOptions,
  known: readonly KnownModel[],
  variables: readonly string[] = [],
): Provider {
  const { name, apiKey, models, defaultPrice, headers, family = name, responses = false } = options
  const hasKey = apiKey !== undefined || variables.length > 0
  const credentials = hasKey ? keyCredentials({ who: name, apiKey, variables }) : undefined
  const baseUrl = trimSlash(options.baseUrl)
  return httpProvider({
    name,
    format: CHAT,
    ...(responses && { second: { ...RESPONSES, create: `${baseUrl}/responses` } }),
    ...createModelBook({ who, family, known, entries: models, defaultPrice }),
    urls: {
      create: `${baseUrl}/chat/completions`,
      embed: `${baseUrl}/embeddings`,
      ping: `${baseUrl}/models`,
      base: baseUrl,
      ...(responses && { responses: `${baseUrl}/responses` }),
    },
    headers: { ...credentials?.headers, ...headers },
    secrets: () => [...(credentials?.secrets ?? []), ...Object.values(headers ?? {})].filter(isLong),
    sign: credentials?.sign,
    ...transportOf(options.fetch),
  })
}

/** A provider's own fetch replaces the gateway's transport. */
export function transportOf(fetch: typeof globalThis.fetch | undefined): { readonly transport?: Transport } {
  return fetch === undefined ? {} : { transport: fetchTransport((url, init) => fetch(url, init)) }
}

/** Short header values are words, not secrets. */
export function isLong(text: string): boolean {
  return text.length >= 8
}
