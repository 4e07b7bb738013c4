import * as z from 'zod/mini'
import { GatewayError } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'
import { expectedText, pathText, unknownOptionText } from '../core/option-checks.ts'
import { DURATION_CODES, type DurationCode } from '../core/store.ts'
import { UNLIMITED } from './virtual-key.ts'

/** $9,000,000 in cents. The largest safe integer of nano-dollars is about $9,007,199. */
const MAX_CENTS = 900_000_000
const MAX_COUNT = 1_000_000_000_000
const MAX_NAME_LENGTH = 200

function customSchema<Value>(expectation: string, accepts: (value: unknown) => boolean): z.ZodMiniType<Value> {
  return z.custom<Value>(accepts, { error: expectation })
}

function isIntegerWithin(value: unknown, min: number, max: number): boolean {
  return Number.isSafeInteger(value) && Number(value) >= min && Number(value) <= max
}

function isText(value: unknown, min: number, max: number): boolean {
  return typeof value === 'string' && value.length >= min && value.length <= max
}

export function text(min: number, max: number): z.ZodMiniType<string> {
  return customSchema(`a string of ${min} to ${max} characters`, (value) => isText(value, min, max))
}

export function matching(pattern: RegExp, expectation: string): z.ZodMiniType<string> {
  return customSchema(expectation, (value) => typeof value === 'string' && pattern.test(value))
}

export function oneOf<Value extends string>(values: readonly Value[]): z.ZodMiniType<Value> {
  return customSchema(`one of ${values.join(', ')}`, (value) => values.includes(value as Value))
}

export function integer(min: number, max: number): z.ZodMiniType<number> {
  return customSchema(`an integer from ${min} to ${max}`, (value) => isIntegerWithin(value, min, max))
}

export function list<Item>(item: z.ZodMiniType<Item>, max: number): z.ZodMiniType<Item[]> {
  return z
    .array(item, { error: 'a list' })
    .check(z.refine((items) => items.length <= max, { error: `at most ${max} entries` }))
}

/** Accepts an object with these fields. Ignored fields may be present. Other fields are rejected. */
export function record<Shape extends z.core.$ZodLooseShape>(
  shape: Shape,
  ignoredFields: Readonly<Record<string, OptionalUnknown>> = {},
): z.ZodMiniObject<Shape, z.core.$strict> {
  return z.strictObject(
    { ...ignoredFields, ...shape },
    {
      error: (issue) =>
        issue.code === 'unrecognized_keys'
          ? unknownOptionText(issue.keys[0] ?? '', Object.keys(shape), 'field')
          : 'a JSON object',
    },
  )
}

export const flag: z.ZodMiniType<boolean> = customSchema('true or false', (value) => typeof value === 'boolean')

export const duration: z.ZodMiniType<DurationCode> = oneOf(DURATION_CODES)

export const name: z.ZodMiniType<string> = text(1, MAX_NAME_LENGTH)

export const recordId: z.ZodMiniType<string> = matching(
  /^[\w.-]{1,128}$/,
  'an id of 1 to 128 letters, digits, dots, hyphens and underscores',
)

export const countLimit: z.ZodMiniType<number> = limitUpTo(MAX_COUNT)

export const centsLimit: z.ZodMiniType<number> = limitUpTo(MAX_CENTS)

function limitUpTo(max: number): z.ZodMiniType<number> {
  const accepts = (value: unknown): boolean => value === UNLIMITED || isIntegerWithin(value, 0, max)
  return customSchema(`an integer from 0 to ${max} (or null for no limit)`, accepts)
}

/** Share of the key's requests, relative to its other providers. */
export const weight: z.ZodMiniType<number> = customSchema(
  'a number from 0 to 1000000',
  (value) => typeof value === 'number' && value >= 0 && value <= 1_000_000,
)

export const dollars: z.ZodMiniType<number> = customSchema(
  `a number of dollars from 0 to ${MAX_CENTS / 100}`,
  (value) => typeof value === 'number' && value >= 0 && value <= MAX_CENTS / 100,
)

export const timestamp: z.ZodMiniType<string> = customSchema(
  'a time with a time zone, such as 2027-01-31T00:00:00Z',
  (value) => z.iso.datetime({ offset: true }).safeParse(value).success && !Number.isNaN(Date.parse(String(value))),
)

/** Clients send back records that they have read, so fields that only the gateway sets are ignored. */
const IGNORED_FIELDS: readonly string[] = [
  'object',
  'hash',
  'key_prefix',
  'created_at',
  'current_usage_cents',
  'is_admin',
]
const IGNORED_IN_CHANGES: readonly string[] = ['id', 'key_format', 'resets_at']

type OptionalUnknown = z.ZodMiniOptional<z.ZodMiniUnknown>

const optionalUnknown: OptionalUnknown = z.optional(z.unknown())

export function ignoredFields<Field extends string>(furtherFields: readonly Field[]): Record<string, OptionalUnknown> {
  return Object.fromEntries([...IGNORED_FIELDS, ...furtherFields].map((field) => [field, optionalUnknown]))
}

/** Throws a GatewayError that names the first invalid field, the expectation and the received value. */
export function parseWith<Value>(schema: z.ZodMiniType<Value>, input: unknown): Value {
  const result = schema.safeParse(input)
  if (result.success) return result.data
  const { path, text } = describeIssue(result.error.issues[0], input)
  const param = path.map(String).join('.').slice(0, MAX_NAME_LENGTH)
  const message = param === '' ? `The body is not valid: ${text}` : `${param}: ${text}`
  throw new GatewayError('invalid-admin-request', message, { ...(param !== '' && { param }) })
}

/** Throws if the body sets no field. `example` is a field that an update can set. */
export function parseChange<Change extends object>(
  schema: z.ZodMiniType<Change>,
  body: unknown,
  example: string,
): Change {
  const change = parseWith(schema, body)
  if (Object.keys(change).some((name) => !IGNORED_FIELDS.includes(name) && !IGNORED_IN_CHANGES.includes(name)))
    return change
  throw new GatewayError(
    'invalid-admin-request',
    `The body contains no field to change. Send at least one field, such as ${example}.`,
  )
}

/** Throws a GatewayError with the path of the first invalid field. */
export function parseOption<Value>(schema: z.ZodMiniType<Value>, input: unknown): Value {
  const result = schema.safeParse(input)
  if (result.success) return result.data
  const { path, text } = describeIssue(result.error.issues[0], input)
  throw invalidOptionError(pathText(['governance', ...path]), text)
}

export function invalidOptionError(param: string, text: string): GatewayError {
  return new GatewayError('invalid-request', `createGateway: ${param}: ${text}`, { param })
}

interface Problem {
  readonly path: readonly PropertyKey[]
  readonly text: string
}

function describeIssue(issue: z.core.$ZodIssue | undefined, input: unknown): Problem {
  const path = issue?.path ?? []
  if (issue?.code === 'unrecognized_keys') return { path: [...path, ...issue.keys.slice(0, 1)], text: issue.message }
  const expectation = issue?.message ?? 'another value'
  if (path.length === 0) return { path, text: `${expectation} was expected.` }
  const value = path.reduce<unknown>(
    (container, segment) =>
      isJsonObject(container) || Array.isArray(container) ? Reflect.get(container, segment) : undefined,
    input,
  )
  return { path, text: expectedText(expectation, value, path.map(String).join('.')) }
}
