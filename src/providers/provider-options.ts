import * as z from 'zod/mini'
import type { MaybePromise } from '../core/async.ts'
import { GatewayError, expectedText, pathText, unknownOptionText } from '../core/errors.ts'
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

type Schema<T> = z.ZodMiniType<T>

function positiveInteger(noun: string): Schema<number> {
  return z.int({ error: 'expected an integer' }).check(z.gte(1, { error: `expected at least 1 ${noun}` }))
}

export const tokenCountSchema: Schema<number> = positiveInteger('token')

export const dimensionsSchema: Schema<number> = positiveInteger('dimension')

export const millisecondsSchema: Schema<number> = positiveInteger('millisecond')

/** The lower bound rejects prices that are mistakenly given per token. */
export const dollarsSchema: Schema<number> = z.number({ error: 'expected dollars per million tokens' }).check(
  z.refine((value) => value === 0 || (value >= 0.001 && value <= 10_000), {
    error: 'expected dollars per million tokens: 0, or from 0.001 to 10000 (0.000003 per token is 3)',
  }),
)

const priceFields = {
  input: dollarsSchema,
  output: dollarsSchema,
  cacheRead: z.exactOptional(dollarsSchema),
  cacheWrite: z.exactOptional(dollarsSchema),
  cacheWrite1h: z.exactOptional(dollarsSchema),
}

export const priceSchema: Schema<Model['price']> = z.strictObject({
  ...priceFields,
  long: z.exactOptional(z.strictObject({ ...priceFields, aboveTokens: tokenCountSchema })),
})

export const modelIdSchema: Schema<string> = z.string().check(
  z.refine(isSafeModelName, {
    error: 'expected up to 200 letters, digits, . : @ + / _ - without the path segments . and ..',
  }),
)

export const nonEmptySchema: Schema<string> = z.string().check(z.minLength(1, { error: 'expected a non-empty string' }))

const numberBetween = (min: number, max: number): Schema<number> => {
  const error = `expected a number from ${min} to ${max}`
  return z.number({ error }).check(z.gte(min, { error }), z.lte(max, { error }))
}

export const samplingSchema: Schema<NonNullable<Model['defaults']>> = z.strictObject({
  temperature: z.exactOptional(numberBetween(0, 2)),
  topP: z.exactOptional(numberBetween(0, 1)),
})

export const thresholdFactorSchema: Schema<number> = numberBetween(0.001, 100)

const modelFields = {
  family: z.exactOptional(nonEmptySchema),
  displayName: z.exactOptional(nonEmptySchema),
  kind: z.exactOptional(z.enum(['chat', 'embedding'], { error: 'expected chat or embedding' })),
  created: z.exactOptional(z.int({ error: 'expected seconds since 1970 as an integer' })),
  contextWindowTokens: z.exactOptional(tokenCountSchema),
  maxOutputTokens: z.exactOptional(tokenCountSchema),
  enforcesMaxOutput: z.exactOptional(z.boolean()),
  price: z.exactOptional(priceSchema),
  pricedAt: z.exactOptional(z.iso.date({ error: 'expected a date, YYYY-MM-DD' })),
  small: z.exactOptional(modelIdSchema),
  defaults: z.exactOptional(samplingSchema),
  rejectsTemperatureWithTopP: z.exactOptional(z.boolean()),
  rejectsSamplingParameters: z.exactOptional(z.boolean()),
  efforts: z.exactOptional(z.array(nonEmptySchema)),
  withoutThinking: z.exactOptional(z.record(z.string(), z.json())),
  thresholdFactor: z.exactOptional(thresholdFactorSchema),
  tokenizer: z.exactOptional(z.enum(['o200k', 'cl100k'], { error: 'expected o200k or cl100k' })),
  tokenFactor: z.exactOptional(numberBetween(1, 10)),
  imageTokens: z.exactOptional(tokenCountSchema),
}

export const modelEntrySchema: Schema<ModelEntry> = z.strictObject({ id: modelIdSchema, ...modelFields })

export const providerNameSchema: Schema<string> = z.string().check(
  z.regex(/^[a-z0-9][a-z0-9._-]{0,63}$/i, {
    error: 'expected a letter or digit, then up to 63 letters, digits, . _ -',
  }),
)

export const baseUrlSchema: Schema<string> = z
  .string()
  .check(z.refine(isPlainUrl, { error: 'expected an http or https URL without credentials, query or fragment' }))

function isPlainUrl(text: string): boolean {
  if (!URL.canParse(text)) return false
  const { protocol, username, password, search, hash } = new URL(text)
  return (protocol === 'https:' || protocol === 'http:') && username + password + search + hash === ''
}

export function trimTrailingSlashes(url: string): string {
  return url.replace(/\/+$/, '')
}

export const apiKeySchema: Schema<string> = z
  .string({ error: 'expected the key as a string' })
  .check(z.regex(/^[\x21-\x7e]+$/, { error: 'expected a key of ASCII characters without spaces' }))

const RESERVED_HEADERS = [
  'host',
  'connection',
  'content-length',
  'content-type',
  'transfer-encoding',
  'accept',
  'accept-encoding',
]

const headerNameSchema = z.string().check(
  z.regex(/^[a-z0-9!#$%&'*+.^_`|~-]+$/, { error: 'expected header names in lowercase' }),
  z.refine((name) => !RESERVED_HEADERS.includes(name), {
    error: 'expected another header: this one is set by the gateway',
  }),
)

export const headersSchema: Schema<Record<string, string>> = z.record(
  headerNameSchema,
  z.string().check(z.regex(/^[\t\x20-\x7e]*$/, { error: 'expected printable ASCII' })),
)

export function functionSchema<Signature>(expected = 'a function'): Schema<Signature> {
  return z.custom<Signature>((value) => typeof value === 'function', { error: `expected ${expected}` })
}

export const fetchSchema: Schema<typeof globalThis.fetch> = functionSchema('a function like the global fetch')

const NO_MESSAGE = 'Invalid input'

export function parseOptions<T>(functionName: string, schema: Schema<T>, options: unknown): T {
  // The application may have loaded a language of zod, whose messages would be mixed with ours.
  const result = schema.safeParse(withoutUndefined(options), { error: () => NO_MESSAGE })
  if (result.success) return result.data
  const problems = result.error.issues.map((issue) => problemOf(issue, schema, options))
  throw new GatewayError('invalid-request', `${functionName}: ${problems.join(' ')}`, {
    param: pathText(result.error.issues[0]?.path ?? []),
  })
}

/** Removes undefined fields, which often come from unset environment variables. */
function withoutUndefined(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutUndefined)
  if (typeof value !== 'object' || value === null || Object.getPrototypeOf(value) !== Object.prototype) return value
  const fields = Object.entries(value).filter(([, field]) => field !== undefined)
  return Object.fromEntries(fields.map(([name, field]) => [name, withoutUndefined(field)]))
}

function problemOf(issue: z.core.$ZodIssue, schema: z.core.$ZodType, options: unknown): string {
  if (issue.code === 'unrecognized_keys') {
    const names = namesAt(schema, issue.path)
    return issue.keys.map((key) => `${pathText([...issue.path, key])}: ${unknownOptionText(key, names)}`).join(' ')
  }
  const path = pathText(issue.path)
  if (issue.code === 'invalid_key') return `${path}: ${issue.issues[0]?.message ?? 'expected another name'}.`
  const expected = expectationOf(issue).replace(/^expected /, '')
  return `${path === '' ? '' : `${path}: `}${expectedText(expected, valueAt(options, issue.path), path)}`
}

function expectationOf(issue: z.core.$ZodIssue): string {
  if (issue.code !== 'invalid_type' || issue.message !== NO_MESSAGE) return issue.message
  return `${/^[aio]/.test(issue.expected) ? 'an' : 'a'} ${issue.expected}`
}

function namesAt(schema: z.core.$ZodType, path: readonly PropertyKey[]): readonly string[] {
  if (schema instanceof z.ZodMiniExactOptional || schema instanceof z.ZodMiniOptional) {
    return namesAt(schema._zod.def.innerType, path)
  }
  const [key, ...rest] = path
  if (schema instanceof z.ZodMiniArray) return namesAt(schema._zod.def.element, rest)
  if (!(schema instanceof z.ZodMiniObject)) return []
  if (key === undefined) return Object.keys(schema._zod.def.shape)
  const field = schema._zod.def.shape[String(key)]
  return field === undefined ? [] : namesAt(field, rest)
}

function valueAt(value: unknown, path: readonly PropertyKey[]): unknown {
  const [key, ...rest] = path
  if (key === undefined) return value
  return typeof value === 'object' && value !== null ? valueAt(Reflect.get(value, key), rest) : undefined
}

export function optionError(functionName: string, problem: string): GatewayError {
  return new GatewayError('invalid-request', `${functionName}: ${problem}.`)
}

/** A key, or a function that returns the current key and is called before each request to the upstream. */
export type ApiKey = string | (() => MaybePromise<string>)

export const apiKeyOptionSchema: z.ZodMiniType<ApiKey> = z.union([
  apiKeySchema,
  functionSchema<() => MaybePromise<string>>('the key as a string, or a function that returns it'),
])

export type Credentials = Partial<Pick<RequestOptions, 'headers' | 'sign'>>

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
    sign: async (request) => {
      const key = apiKey === undefined ? readEnvironment(variables) : await apiKey()
      if (!apiKeySchema.safeParse(key).success || key === undefined) throw missingKey(provider, apiKey ? [] : variables)
      return { ...request, headers: { ...request.headers, ...toHeaders(key) } }
    },
  }
}

export function readEnvironment(variables: readonly string[]): string | undefined {
  return variables.map((name) => globalThis.process?.env?.[name]).find((value) => value)
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
