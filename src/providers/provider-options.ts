import type { UpstreamCaller } from '../core/ports.ts'
import type { MaybePromise } from '../core/async.ts'
import {
  checkDate,
  checkFlag,
  expects,
  expectedText,
  fieldPath,
  fieldsOf,
  firstProblem,
  functionCheck,
  integerFrom,
  listOf,
  matching,
  numberFrom,
  oneOf,
  type OptionCheck,
  optionsOf,
} from '../core/check-options.ts'
import { GatewayError } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'
import type { Model } from '../core/ports.ts'
import { isSafeModelName } from '../core/prompt.ts'
import type { RequestOptions } from './http-request.ts'

/** A model in the options of a provider. */
export interface ModelEntry extends Omit<
  Model,
  'id' | 'family' | 'contextWindowTokens' | 'upstreamWindowTokens' | 'maxOutputTokens' | 'price'
> {
  readonly id: string
  /** Dollars per million tokens. @default the price in `prices` or the catalog, otherwise `defaultPrice` */
  readonly price?: Model['price']
  /** @default the family in the catalog or in the id (`llama` in `llama-3.3`), otherwise a default of the provider */
  readonly family?: string
  /** @default the window in the catalog, otherwise 128_000 */
  readonly contextWindowTokens?: number
  /** @default the maximum in the catalog, otherwise 16_384 or the context window if it is smaller */
  readonly maxOutputTokens?: number
}

const isString = (value: unknown): value is string => typeof value === 'string'

export const checkTokenCount: OptionCheck = integerFrom(1)

/** The lower bound rejects prices that are mistakenly given per token. */
export const checkUsd: OptionCheck = firstProblem(
  expects('dollars per million tokens', Number.isFinite),
  expects(
    'dollars per million tokens: 0, or from 0.001 to 10000 (0.000003 per token is 3)',
    (value) => typeof value === 'number' && (value === 0 || (value >= 0.001 && value <= 10_000)),
  ),
)

const RATES = { input: checkUsd, output: checkUsd, cacheRead: checkUsd, cacheWrite: checkUsd, cacheWrite1h: checkUsd }

const TIER_RATES = {
  ...RATES,
  long: optionsOf({ ...RATES, aboveTokens: checkTokenCount }, ['input', 'output', 'aboveTokens']),
}
const FACTOR_OR_PRICES = 'a factor from 0.01 to 100, or prices'
const checkFactor = numberFrom(0.01, 100, FACTOR_OR_PRICES)
const checkTierRates = optionsOf(TIER_RATES, ['input', 'output'], FACTOR_OR_PRICES)
const checkTier: OptionCheck = (tier, path) => (typeof tier === 'number' ? checkFactor : checkTierRates)(tier, path)
const checkTiers: OptionCheck = (tiers, path) =>
  fieldsOf(
    Object.fromEntries(Object.keys(Object(tiers)).map((name) => [name, checkTier])),
    [],
    'an object',
  )(tiers, path)

export const checkPrice: OptionCheck = optionsOf({ ...TIER_RATES, tiers: checkTiers }, ['input', 'output'], 'an object')

export const checkModelId: OptionCheck = expects(
  'up to 200 letters, digits, . : @ + / _ - without the path segments . and ..',
  (value) => isString(value) && isSafeModelName(value),
)

export const checkNonEmpty: OptionCheck = expects('a non-empty string', (value) => isString(value) && value !== '')

export const checkSampling: OptionCheck = optionsOf({ temperature: numberFrom(0, 2), topP: numberFrom(0, 1) })

export const checkThresholdFactor: OptionCheck = numberFrom(0.001, 100)

export const checkModelEntry: OptionCheck = optionsOf(
  {
    id: checkModelId,
    family: checkNonEmpty,
    displayName: checkNonEmpty,
    kind: oneOf('chat', 'embedding'),
    created: expects('seconds since 1970 as an integer', Number.isSafeInteger),
    contextWindowTokens: checkTokenCount,
    maxOutputTokens: checkTokenCount,
    enforcesMaxOutput: checkFlag,
    price: checkPrice,
    pricedAt: checkDate,
    small: checkModelId,
    defaults: checkSampling,
    rejectsTemperatureWithTopP: checkFlag,
    rejectsSamplingParameters: checkFlag,
    efforts: listOf('a list', checkNonEmpty),
    withoutThinking: expects('an object', isJsonObject),
    thresholdFactor: checkThresholdFactor,
    tokenizer: oneOf('o200k', 'cl100k'),
    tokenFactor: numberFrom(1, 10),
    imageTokens: checkTokenCount,
    cacheSimilar: checkFlag,
  } satisfies Record<keyof ModelEntry, OptionCheck>,
  ['id'],
)

export const checkProviderName: OptionCheck = matching(
  /^[a-z0-9][a-z0-9._-]{0,63}$/i,
  'a letter or digit, then up to 63 letters, digits, . _ -',
)

export const checkBaseUrl: OptionCheck = expects(
  'an http or https URL without credentials, query or fragment',
  (value) => isString(value) && isPlainUrl(value),
)

function isPlainUrl(text: string): boolean {
  if (!URL.canParse(text)) return false
  const { protocol, username, password, search, hash } = new URL(text)
  return (protocol === 'https:' || protocol === 'http:') && username + password + search + hash === ''
}

export function trimTrailingSlashes(url: string): string {
  return url.replace(/\/+$/, '')
}

export const checkKey: OptionCheck = matching(/^[\x21-\x7e]+$/, 'a key of ASCII characters without spaces')

const RESERVED_HEADERS = [
  'host',
  'connection',
  'content-length',
  'content-type',
  'transfer-encoding',
  'accept',
  'accept-encoding',
]

export const checkHeaders: OptionCheck = (value, path) => {
  if (!isJsonObject(value)) return { path, text: expectedText('an object with headers', value, path) }
  for (const [name, header] of Object.entries(value)) {
    const at = fieldPath(path, name)
    if (RESERVED_HEADERS.includes(name))
      return { path: at, text: 'expected another header: this one is set by the gateway.' }
    if (!/^[a-z0-9!#$%&'*+.^_`|~-]+$/.test(name)) return { path: at, text: 'expected header names in lowercase.' }
    const problem = header === undefined ? undefined : matching(/^[\t\x20-\x7e]*$/, 'printable ASCII')(header, at)
    if (problem !== undefined) return problem
  }
  return undefined
}

export const checkFetch: OptionCheck = functionCheck('like the global fetch')

/** Undefined fields often come from unset environment variables. */
export function definedFields<Fields extends object>(fields: Fields): Fields
export function definedFields(fields: object): object {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined))
}

export function optionError(functionName: string, problem: string): GatewayError {
  return new GatewayError('invalid-request', `${functionName}: ${problem}.`)
}

/**
 * A key, or a function that is called before each request to the upstream. The function returns the current key, which may
 * depend on who makes the request. For `payer: 'customer'`, it must return the key of the customer, or undefined if the
 * customer has none.
 *
 * @example
 * const customerKeys = new Map<string, string>()
 * openai({
 *   apiKey: ({ customer = '', payer }) =>
 *     payer === 'customer' ? customerKeys.get(customer) : process.env['OPENAI_API_KEY'],
 * })
 */
export type ApiKey = string | ((caller: UpstreamCaller) => MaybePromise<string | undefined>)

export const checkApiKey: OptionCheck = (value, path) =>
  typeof value === 'function'
    ? undefined
    : firstProblem(expects('the key as a string, or a function that returns it', isString), checkKey)(value, path)

export type Credentials = Partial<Pick<RequestOptions, 'headers' | 'sign'>> & { readonly usesCallerKeys?: boolean }

interface KeySource {
  readonly provider: string
  readonly header?: string
  readonly apiKey: ApiKey | undefined
  readonly variables: readonly string[]
}

export function keyCredentials({ provider, header = 'authorization', apiKey, variables }: KeySource): Credentials {
  const toHeaders = (key: string): Record<string, string> => ({
    [header]: header === 'authorization' ? `Bearer ${key}` : key,
  })
  if (typeof apiKey === 'string') return { headers: toHeaders(apiKey) }
  return {
    usesCallerKeys: apiKey !== undefined,
    sign: async (request, caller = GATEWAY_CALLER) => {
      const key = apiKey === undefined ? readEnvironment(variables) : await apiKey(caller)
      if (key === undefined || checkKey(key, '') !== undefined) {
        throw caller.payer === 'customer' ? missingCustomerKey(provider) : missingKey(provider, apiKey ? [] : variables)
      }
      return { ...request, headers: { ...request.headers, ...toHeaders(key) } }
    },
  }
}

const GATEWAY_CALLER: UpstreamCaller = { keyId: '', payer: 'operator' }

export function readEnvironment(variables: readonly string[]): string | undefined {
  return variables.map((name) => globalThis.process?.env?.[name]).find((value) => value)
}

/** Falling back to the operator's key would bill the operator. */
function missingCustomerKey(provider: string): GatewayError {
  const message = `The customer pays the vendor, but has no valid key for the provider "${provider}". Store its key, or let the operator pay.`
  return new GatewayError('not-permitted', message, { code: 'customer_key_missing', isLocalFault: true, isFinal: true })
}

/** The error is not retried and does not open a circuit, because only the operator can fix its cause. */
export function missingKey(provider: string, variables: readonly string[]): GatewayError {
  const remedy =
    variables.length === 0
      ? 'Correct the function that returns it'
      : `Set ${variables.join(' or ')}, or the apiKey option`
  return new GatewayError('overloaded', `The provider "${provider}" has no valid API key. ${remedy}.`, {
    advice: { shouldRetry: 'false' },
    isLocalFault: true,
  })
}
