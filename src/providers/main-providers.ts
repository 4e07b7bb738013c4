import { defaultTransport } from '#transport'
import { lazy } from '../core/async.ts'
import type { Embedder } from '../core/cache.ts'
import { checkDate, checkFlag, checkOptions, integerFrom, type OptionCheck, optionsOf } from '../core/check-options.ts'
import type { Provider } from '../core/ports.ts'
import { fetchTransport } from '../http/transport-fetch.ts'
import { CHAT_FORMAT, MESSAGES_FORMAT } from './http-provider.ts'
import anthropicCatalog from './models/anthropic.json' with { type: 'json' }
import openaiCatalog from './models/openai.json' with { type: 'json' }
import {
  type ApiKey,
  checkBaseUrl,
  checkFetch,
  checkHeaders,
  checkKey,
  checkNonEmpty,
  checkUsd,
  definedFields,
  keyCredentials,
  optionError,
  trimTrailingSlashes,
} from './provider-options.ts'
import {
  COMMON_CHECKS,
  type KnownModel,
  pricedModels,
  readCatalog,
  VENDOR_CHECKS,
  type VendorOptions,
  vendorProvider,
} from './vendor.ts'

/** Options of `openaiCompatible()`. */
export interface OpenaiCompatibleOptions extends VendorOptions {
  /** The first part of `<provider>/<model_id>`. */
  readonly name: string
  /** The URL before `/chat/completions` and `/embeddings`, usually ending in `/v1`. */
  readonly baseUrl: string
  /** The key, or a function that returns the key for each call. Sent as a bearer token. @default no key is sent */
  readonly apiKey?: ApiKey | undefined
  /** True if the service has `/responses`. Requests in this format are then not translated. @default false */
  readonly responses?: boolean
  /** The family of models whose id does not name a family. @default the provider's name */
  readonly family?: string | undefined
}

const checkCompatible: OptionCheck = optionsOf(
  { ...VENDOR_CHECKS, responses: checkFlag, family: checkNonEmpty } satisfies Record<
    keyof OpenaiCompatibleOptions,
    OptionCheck
  >,
  ['name', 'baseUrl'],
)

/**
 * Creates a provider for a service with the chat-completions format. Throws `invalid-request` for invalid options.
 *
 * @example
 * const local = openaiCompatible({
 *   name: 'local',
 *   baseUrl: 'http://127.0.0.1:8000/v1',
 *   models: [
 *     { id: 'qwen', family: 'qwen', contextWindowTokens: 32_768, maxOutputTokens: 4096, price: { input: 0.1, output: 0.3 } },
 *   ],
 * })
 * const gateway = createGateway({ providers: [local] }) // local/qwen
 */
export function openaiCompatible(options: OpenaiCompatibleOptions): Provider {
  checkOptions('openaiCompatible', options, checkCompatible)
  const { name, models = [], defaultPrice, prices } = options
  if (models.length === 0 && defaultPrice === undefined && prices === undefined) {
    throw optionError(
      'openaiCompatible',
      'models: expected at least one model unless defaultPrice or prices is set, got none',
    )
  }
  return chatProvider('openaiCompatible', options, prices?.applyTo([], name) ?? [])
}

export function chatProvider(
  functionName: string,
  options: OpenaiCompatibleOptions,
  known: readonly KnownModel[],
  variables: readonly string[] = [],
): Provider {
  const { name, apiKey, family = name, responses = false } = options
  const hasKey = apiKey !== undefined || variables.length > 0
  const base = trimTrailingSlashes(options.baseUrl)
  return vendorProvider(options, {
    functionName,
    name,
    family,
    known,
    format: CHAT_FORMAT,
    urls: {
      create: `${base}/chat/completions`,
      embed: `${base}/embeddings`,
      ping: `${base}/models`,
      base,
      ...(responses && { responses: `${base}/responses` }),
    },
    credentials: hasKey ? keyCredentials({ provider: name, apiKey, variables }) : undefined,
  })
}

/** Options of `openai()`. */
export type OpenaiOptions = Omit<VendorOptions, 'headers'>

const checkOpenai: OptionCheck = optionsOf(COMMON_CHECKS)

/**
 * Published by the vendor: `pricedAt` is the date on which the price was last seen. docs/vendors.md names the sources of the
 * prices of tiers.
 */
export const OPENAI_MODELS: readonly KnownModel[] = readCatalog(openaiCatalog.models, {
  family: 'gpt',
  kind: 'chat',
  tokenizer: 'o200k',
  small: openaiCatalog.small,
})

const OPENAI_CATALOG = [
  ...OPENAI_MODELS,
  ...readCatalog(openaiCatalog.embeddings, { family: 'gpt', kind: 'embedding', tokenizer: 'cl100k' }),
]

/**
 * Creates a provider for OpenAI. `apiKey` defaults to OPENAI_API_KEY. Throws `invalid-request` for invalid options.
 *
 * @example
 * const gateway = createGateway({ providers: [openai()] }) // openai/gpt-5-mini, …
 */
export function openai(options: OpenaiOptions = {}): Provider {
  checkOptions('openai', options, checkOpenai)
  const { name = 'openai', baseUrl = 'https://api.openai.com/v1' } = options
  const completeOptions = { ...options, name, family: 'gpt', baseUrl, responses: true }
  const known = pricedModels('openai', 'openai', options, OPENAI_CATALOG)
  return chatProvider('openai', completeOptions, known, ['OPENAI_API_KEY'])
}

/** Options of `anthropic()`. */
export interface AnthropicOptions extends Omit<VendorOptions, 'headers'> {
  /** With or without `/v1` at its end. @default 'https://api.anthropic.com' */
  readonly baseUrl?: string | undefined
  /** Sent as `anthropic-version` unless the caller sends this header. @default '2023-06-01' */
  readonly version?: string | undefined
}

const checkAnthropic: OptionCheck = optionsOf({ ...COMMON_CHECKS, version: checkDate })

/** As for `OPENAI_MODELS`. */
export const ANTHROPIC_MODELS: readonly KnownModel[] = readCatalog(anthropicCatalog.models, {
  family: 'claude',
  small: anthropicCatalog.small,
})

/**
 * Creates a provider for Anthropic or another service with the messages format. Without `apiKey`, the key is read from
 * ANTHROPIC_API_KEY. Throws `invalid-request` for invalid options.
 *
 * @example
 * const gateway = createGateway({ providers: [anthropic()] }) // anthropic/claude-sonnet-4-5, …
 */
export function anthropic(options: AnthropicOptions = {}): Provider {
  checkOptions('anthropic', options, checkAnthropic)
  const { name = 'anthropic', apiKey, baseUrl = 'https://api.anthropic.com', version = '2023-06-01' } = options
  const root = `${trimTrailingSlashes(baseUrl).replace(/\/v1$/, '')}/v1`
  return vendorProvider(options, {
    functionName: 'anthropic',
    name,
    family: 'claude',
    known: pricedModels('anthropic', 'anthropic', options, ANTHROPIC_MODELS),
    format: MESSAGES_FORMAT,
    urls: { create: `${root}/messages`, count: `${root}/messages/count_tokens`, ping: `${root}/models?limit=1` },
    headers: { 'anthropic-version': version },
    forwardedHeaders: ['anthropic-version', 'anthropic-beta'],
    credentials: keyCredentials({ provider: name, header: 'x-api-key', apiKey, variables: ['ANTHROPIC_API_KEY'] }),
  })
}

/** Options of `openaiEmbedder()`. */
export interface OpenaiEmbedderOptions {
  /** The URL before `/embeddings`, such as `https://api.openai.com/v1`. */
  readonly baseUrl: string
  readonly model: string
  /** Sent as `Authorization: Bearer`. @default no key is sent */
  readonly apiKey?: string | undefined
  /** The length of the vectors. @default 1024 */
  readonly dimensions?: number
  /** US dollars per million tokens, for the actual cost of requests with `savings.embedder`. @default 0 */
  readonly price?: number
  /** Additional headers of each call. @default none */
  readonly headers?: Readonly<Record<string, string>>
  /** Maximum duration of a call, in milliseconds. @default 5000 */
  readonly timeoutMs?: number
  /** Replaces the transport of the platform. Called as `fetch(url, init)`. */
  readonly fetch?: typeof globalThis.fetch
}

const checkOpenaiEmbedder: OptionCheck = optionsOf(
  {
    baseUrl: checkBaseUrl,
    model: checkNonEmpty,
    apiKey: checkKey,
    dimensions: integerFrom(1),
    price: checkUsd,
    headers: checkHeaders,
    timeoutMs: integerFrom(1, undefined, 'milliseconds'),
    fetch: checkFetch,
  } satisfies Record<keyof OpenaiEmbedderOptions, OptionCheck>,
  ['baseUrl', 'model'],
)

const loadInternalCalls = lazy(() => import('./internal-calls.ts'))

/**
 * Creates an embedder for an endpoint that uses OpenAI's format. `embed` rejects with `upstream` if the response does not
 * have one vector of the expected length for each text. Throws `invalid-request` for invalid options.
 *
 * @example
 * const embedder = openaiEmbedder({
 *   baseUrl: 'https://api.openai.com/v1',
 *   model: 'text-embedding-3-small',
 *   apiKey: process.env['OPENAI_API_KEY'],
 * })
 * const gateway = createGateway({ providers: [openai()], cache: { embedder } })
 */
export function openaiEmbedder(options: OpenaiEmbedderOptions): Embedder {
  checkOptions('openaiEmbedder', options, checkOpenaiEmbedder)
  const { baseUrl, model, apiKey, dimensions = 1024, headers = {}, timeoutMs = 5000, fetch, price } = options
  const endpoint = {
    url: `${trimTrailingSlashes(baseUrl)}/embeddings`,
    model,
    dimensions,
    headers: { ...(apiKey !== undefined && { authorization: `Bearer ${apiKey}` }), ...definedFields(headers) },
    timeoutMs,
    transport: fetch === undefined ? defaultTransport() : fetchTransport(fetch),
  }
  return {
    name: `openai:${model}`,
    dimensions,
    ...(price !== undefined && { price }),
    embed: async (texts, signal) => (await loadInternalCalls()).embedTexts(endpoint, texts, signal),
  }
}
