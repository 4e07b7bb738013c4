import * as z from 'zod/mini'
import { GatewayError } from '../core/errors.ts'
import type { MaybePromise } from '../core/async.ts'
import type { Price } from '../core/money.ts'
import type { Provider } from '../core/ports.ts'
import type { UpstreamFormatModule } from '../formats/format.ts'
import { fetchTransport } from '../http/transport-fetch.ts'
import { httpProvider, type HttpProviderOptions } from './http-provider.ts'
import type { SignRequest } from './http-request.ts'
import { createProviderModels, type KnownModel, type PriceList } from './models.ts'
import {
  apiKeySchema,
  baseUrlSchema,
  fetchSchema,
  functionSchema,
  headersSchema,
  modelEntrySchema,
  priceSchema,
  providerNameSchema,
  type ModelEntry,
} from './provider-options.ts'

/**
 * A key, or a function that returns the current key. The function is called for each request, so that keys can rotate.
 */
export type ApiKey = string | (() => MaybePromise<string>)

/** The options of every vendor. */
export interface VendorOptions {
  /** First part of `<provider>/<model_id>`. Set another name for a second account. @default the vendor's name */
  readonly name?: string
  /**
   * The key, or a function that returns the key for each call. @default the vendor's environment variable, which is
   * read for each call
   */
  readonly apiKey?: ApiKey
  /** @default the vendor's URL */
  readonly baseUrl?: string
  /** Models in addition to those in the catalog. Their fields override the catalog. @default none */
  readonly models?: readonly ModelEntry[]
  /**
   * Prices from a file. They override the catalog, and models that appear only in the file are served too. @default the
   * prices in the catalog
   */
  readonly prices?: PriceList
  /**
   * Dollars per million tokens for all other models. If set, every model id is accepted. @default other models are not
   * served
   */
  readonly defaultPrice?: Price
  /** Additional headers of each call. @default none */
  readonly headers?: Readonly<Record<string, string>>
  /** Replaces the transport of the gateway. Called as `fetch(url, init)`. */
  readonly fetch?: typeof globalThis.fetch
}

type OptionFields<O> = {
  readonly [Field in keyof O]-?: z.ZodMiniExactOptional<z.ZodMiniType<NonNullable<O[Field]>>>
}

export const apiKeyOptionSchema: z.ZodMiniType<ApiKey> = z.union([
  apiKeySchema,
  functionSchema<() => MaybePromise<string>>('the key as a string, or a function that returns it'),
])

/** Excludes `headers`, which `openai` and `anthropic` do not accept. */
export const commonFields: OptionFields<Omit<VendorOptions, 'headers'>> = {
  name: z.exactOptional(providerNameSchema),
  apiKey: z.exactOptional(apiKeyOptionSchema),
  baseUrl: z.exactOptional(baseUrlSchema),
  models: z.exactOptional(z.array(modelEntrySchema)),
  prices: z.exactOptional(
    z.custom<PriceList>((value) => typeof value === 'object' && value !== null && 'applyTo' in value, {
      error: 'expected the result of priceList()',
    }),
  ),
  defaultPrice: z.exactOptional(priceSchema),
  fetch: z.exactOptional(fetchSchema),
}

export const vendorFields: OptionFields<VendorOptions> = {
  ...commonFields,
  headers: z.exactOptional(headersSchema),
}

interface VendorDefinition extends Pick<
  HttpProviderOptions,
  'name' | 'format' | 'secondFormat' | 'urls' | 'forwardedHeaders'
> {
  /** The name of the function in error messages. */
  readonly functionName: string
  readonly family: string
  readonly known: readonly KnownModel[]
  /** Headers that the format requires. @default none */
  readonly headers?: Readonly<Record<string, string>>
  /** @default no credentials are sent */
  readonly credentials?: Credentials | undefined
}

/** Creates a provider for a vendor. Throws `invalid-request` for an invalid model. */
export function vendorProvider(options: VendorOptions, vendor: VendorDefinition): Provider {
  const { functionName, family, known, credentials = {}, headers, ...endpoint } = vendor
  const { models: entries, defaultPrice, headers: extraHeaders, fetch } = options
  const signedValues: string[] = []
  const keys = Object.values(credentials.headers ?? {}).map(withoutScheme)
  return httpProvider({
    ...endpoint,
    ...createProviderModels({ functionName, family, known, entries, defaultPrice }),
    headers: { ...headers, ...credentials.headers, ...extraHeaders },
    secrets: () => secretsIn([...keys, ...signedValues], Object.values(extraHeaders ?? {}).map(withoutScheme)),
    sign: credentials.sign && recordSignedValues(credentials.sign, signedValues),
    ...(fetch !== undefined && { transport: fetchTransport(fetch) }),
  })
}

const MIN_KEY_LENGTH = 4
/** Minimum length of a secret in additional headers. Shorter values, such as a version, are not secrets. */
const MIN_HEADER_VALUE_LENGTH = 8
/** Maximum number of values from signed requests that are redacted. */
const MAX_SIGNED_VALUES = 8

/** Returns the longest secret first, because it may contain a shorter one. */
function secretsIn(keys: readonly string[], headerValues: readonly string[]): readonly string[] {
  const secrets = [
    ...keys.filter(({ length }) => length >= MIN_KEY_LENGTH),
    ...headerValues.filter(({ length }) => length >= MIN_HEADER_VALUE_LENGTH),
  ]
  return secrets.toSorted((a, b) => b.length - a.length)
}

/** Returns a `sign` function that also records the values of the headers that it sets, most recent first. */
function recordSignedValues(sign: SignRequest, values: string[]): SignRequest {
  return async (request) => {
    const signed = await sign(request)
    for (const [name, value] of Object.entries(signed.headers)) {
      if (value === request.headers[name]) continue
      const secret = withoutScheme(String(value))
      const index = values.indexOf(secret)
      if (index !== -1) values.splice(index, 1)
      values.unshift(secret)
    }
    values.splice(MAX_SIGNED_VALUES)
    return signed
  }
}

/** An upstream may echo only the token, so the scheme is removed. */
function withoutScheme(value: string): string {
  return value.replace(/^(bearer|basic|token|(api-?)?key) +/i, '')
}

/**
 * Returns the catalog models with the prices from the options. Throws `invalid-request` if no model has a price,
 * because the provider would then serve no models.
 */
export function pricedModels(
  functionName: string,
  vendor: string,
  { prices, models = [], defaultPrice }: VendorOptions,
  catalog: readonly KnownModel[] = [],
): readonly KnownModel[] {
  const known = prices?.applyTo(catalog, vendor) ?? catalog
  if (known.length > 0 || models.length > 0 || defaultPrice !== undefined) return known
  throw new GatewayError(
    'invalid-request',
    `${functionName}: prices: the catalog has no prices for this vendor. Set prices: priceList(…), models with a price, or defaultPrice.`,
  )
}

/** Static headers, or a function that signs each request. */
export type Credentials = Partial<Pick<HttpProviderOptions, 'headers' | 'sign'>>

interface KeySource {
  /** The provider's name in error messages. */
  readonly provider: string
  /** The header that contains the key. @default 'authorization' */
  readonly header?: string
  readonly apiKey: ApiKey | undefined
  /** Environment variables that are read for each call if `apiKey` is undefined. */
  readonly variables: readonly string[]
}

/** Returns the credentials for a key. Unless `apiKey` is a string, the key is read for each call. */
export function keyCredentials({ provider, header = 'authorization', apiKey, variables }: KeySource): Credentials {
  const toHeaders = (key: string): Record<string, string> => ({
    [header]: header === 'authorization' ? `Bearer ${key}` : key,
  })
  if (typeof apiKey === 'string') return { headers: toHeaders(apiKey) }
  return {
    sign: async (request) => {
      const key = apiKey === undefined ? readEnvironment(variables) : await apiKey()
      if (!apiKeySchema.safeParse(key).success || key === undefined) throw missingKey(provider, apiKey ? [] : variables)
      return { ...request, headers: { ...request.headers, ...toHeaders(key) } }
    },
  }
}

/** Returns the first variable that is set, or undefined on platforms without environment variables. */
export function readEnvironment(variables: readonly string[]): string | undefined {
  return variables.map((name) => globalThis.process?.env?.[name]).find((value) => value)
}

/** The error is not retried and does not open a circuit, because only the operator can fix its cause. */
export function missingKey(provider: string, variables: readonly string[]): GatewayError {
  const remedy = variables.length === 0 ? 'the apiKey option' : `${variables.join(' or ')}, or the apiKey option`
  return new GatewayError('overloaded', `The provider "${provider}" has no valid API key. Set ${remedy}.`, {
    advice: { shouldRetry: 'false' },
    isLocalFault: true,
  })
}

// Each format is loaded on the first request that uses it.

export const CHAT_FORMAT: UpstreamFormatModule = {
  dialect: 'openai',
  load: async () => (await import('../formats/chat/upstream.ts')).chatUpstream,
}

export const MESSAGES_FORMAT: UpstreamFormatModule = {
  dialect: 'anthropic',
  load: async () => (await import('../formats/messages/upstream.ts')).messagesUpstream,
}

export const RESPONSES_FORMAT: UpstreamFormatModule & { readonly dialect: 'responses' } = {
  dialect: 'responses',
  load: async () => (await import('../formats/responses/upstream.ts')).responsesUpstream,
}

export const GEMINI_FORMAT: UpstreamFormatModule = {
  dialect: 'gemini',
  load: async () => (await import('../formats/gemini/upstream.ts')).geminiUpstream,
}
