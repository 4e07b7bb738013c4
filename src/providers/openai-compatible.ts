import * as z from 'zod/mini'
import { GatewayError } from '../core/errors.ts'
import type { Price } from '../core/money.ts'
import type { Provider, Transport } from '../core/ports.ts'
import type { Format } from '../formats/format.ts'
import { openaiFormat } from '../formats/openai/format.ts'
import { fetchTransport } from '../http/transport-fetch.ts'
import type { KnownModel } from './known-model.ts'
import { httpProvider } from './http-provider.ts'
import { createModelBook } from './model-book.ts'
import {
  apiKeySchema,
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

/** Any service that speaks the chat-completions format: a hosted one, a local one, another gateway. */
export interface OpenaiCompatibleOptions {
  /** The first part of `<provider>/<model_id>`. */
  readonly name: string
  /** The address that `/chat/completions` and `/embeddings` follow, usually ending in `/v1`. */
  readonly baseUrl: string
  /** Sent as `Authorization: Bearer`. @default none is sent */
  readonly apiKey?: string
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
  /** Used instead of the gateway's own transport, called as `fetch(url, init)`. */
  readonly fetch?: typeof globalThis.fetch
}

const schema: z.ZodMiniType<OpenaiCompatibleOptions> = z.strictObject({
  name: providerName,
  baseUrl: baseUrlSchema,
  apiKey: z.exactOptional(apiKeySchema),
  models: z.exactOptional(z.array(modelEntrySchema)),
  defaultPrice: z.exactOptional(priceSchema),
  headers: z.exactOptional(headersSchema),
  responses: z.exactOptional(z.boolean()),
  family: z.exactOptional(nonEmpty),
  fetch: z.exactOptional(fetchSchema),
})

/** Throws `invalid-request` with the path and the expectation for options that are not as described. */
export function openaiCompatible(options: OpenaiCompatibleOptions): Provider {
  const parsed = parseOptions('openaiCompatible', schema, options)
  if ((parsed.models ?? []).length === 0 && parsed.defaultPrice === undefined) {
    throw new GatewayError(
      'invalid-request',
      'openaiCompatible: options.models: expected at least one model, or a defaultPrice in dollars per million tokens ' +
        'for whatever model is asked for',
    )
  }
  return chatProvider('openaiCompatible', parsed, [])
}

/** A provider of the chat format; `known` are the catalogue's models of the vendor. */
export function chatProvider(who: string, options: OpenaiCompatibleOptions, known: readonly KnownModel[]): Provider {
  const { name, apiKey, models, defaultPrice, headers, family = name, responses = false } = options
  const baseUrl = trimSlash(options.baseUrl)
  return httpProvider({
    name,
    format: openaiFormat,
    ...(responses && { second: { dialect: 'responses', load: responsesFormat, create: `${baseUrl}/responses` } }),
    ...createModelBook({ who, family, known, entries: models, defaultPrice }),
    urls: {
      create: `${baseUrl}/chat/completions`,
      embed: `${baseUrl}/embeddings`,
      ping: `${baseUrl}/models`,
      ...(responses && { responses: `${baseUrl}/responses` }),
    },
    headers: { ...(apiKey !== undefined && { authorization: `Bearer ${apiKey}` }), ...headers },
    secrets: [...(apiKey === undefined ? [] : [apiKey]), ...Object.values(headers ?? {})].filter(isLong),
    ...transportOf(options.fetch),
  })
}

async function responsesFormat(): Promise<Format> {
  const loaded = await import('../formats/responses/format.ts')
  return loaded.responsesFormat
}

/** A provider's own fetch replaces the gateway's transport. */
export function transportOf(fetch: typeof globalThis.fetch | undefined): { readonly transport?: Transport } {
  return fetch === undefined ? {} : { transport: fetchTransport((url, init) => fetch(url, init)) }
}

/** Short header values are words, not secrets. */
export function isLong(text: string): boolean {
  return text.length >= 8
}
