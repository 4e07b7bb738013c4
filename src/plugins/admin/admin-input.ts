import { sha256 } from '#hash'
import * as z from 'zod/mini'
import { GatewayError, expectedText, unknownOptionText } from '../../core/errors.ts'
import type { WireForm } from '../../core/field-names.ts'
import { isJsonObject } from '../../core/json.ts'
import { DURATION_CODES } from '../../core/store.ts'
import type {
  BudgetChange,
  ConfiguredBudget,
  ConfiguredKey,
  ConfiguredRateLimit,
  GovernanceConfiguration,
  KeyChange,
  KeyProvider,
  NewKey,
  RateLimitChange,
} from './admin-api.ts'
import { SAFE_ID } from '../../governance/stored-records.ts'
import { hashSecret, type KeyFormat, PLAN_NAMES, prefixOfSecret, UNLIMITED } from '../../governance/virtual-key.ts'
import { TIMESTAMP_FORMAT, isTimestamp } from '../../governance/timestamps.ts'

/** $9,000,000 in cents. The largest safe integer of nano-dollars is about $9,007,199. */
const MAX_CENTS = 900_000_000
const MAX_COUNT = 1_000_000_000_000
const MAX_NAME_LENGTH = 200
const MAX_RECORDS = 100_000

function customSchema<Value>(expectation: string, accepts: (value: unknown) => boolean): z.ZodMiniType<Value> {
  return z.custom<Value>(accepts, { error: expectation })
}

function isIntegerWithin(value: unknown, min: number, max: number): boolean {
  return Number.isSafeInteger(value) && Number(value) >= min && Number(value) <= max
}

function text(min: number, max: number): z.ZodMiniType<string> {
  const accepts = (value: unknown): boolean => typeof value === 'string' && value.length >= min && value.length <= max
  return customSchema(`a string of ${min} to ${max} characters`, accepts)
}

function matching(pattern: RegExp, expectation: string): z.ZodMiniType<string> {
  return customSchema(expectation, (value) => typeof value === 'string' && pattern.test(value))
}

function oneOf<Value extends string>(values: readonly Value[]): z.ZodMiniType<Value> {
  return customSchema(`one of ${values.join(', ')}`, (value) => values.includes(value as Value))
}

function numberUpTo(max: number, noun = 'a number'): z.ZodMiniType<number> {
  const accepts = (value: unknown): boolean => typeof value === 'number' && value >= 0 && value <= max
  return customSchema(`${noun} from 0 to ${max}`, accepts)
}

function limitUpTo(max: number): z.ZodMiniType<number> {
  const accepts = (value: unknown): boolean => value === UNLIMITED || isIntegerWithin(value, 0, max)
  return customSchema(`an integer from 0 to ${max} (or null for no limit)`, accepts)
}

function list<Item>(item: z.ZodMiniType<Item>, max: number): z.ZodMiniType<Item[]> {
  return z
    .array(item, { error: 'a list' })
    .check(z.refine((items) => items.length <= max, { error: `at most ${max} entries` }))
}

function record<Shape extends z.core.$ZodLooseShape>(
  shape: Shape,
  ignoredFields: readonly string[] = [],
): z.ZodMiniObject<Shape, z.core.$strict> {
  return z.strictObject(
    { ...Object.fromEntries(ignoredFields.map((name) => [name, z.optional(z.unknown())])), ...shape },
    {
      error: (issue) =>
        issue.code === 'unrecognized_keys'
          ? unknownOptionText(issue.keys[0] ?? '', Object.keys(shape), 'field')
          : 'a JSON object',
    },
  )
}

/** Clients send back records that they have read, so fields that clients cannot set are ignored. */
const IGNORED_FIELDS = ['object', 'hash', 'key_prefix', 'created_at', 'current_usage_cents', 'is_admin']
const UNCHANGED_FIELDS = [...IGNORED_FIELDS, 'id', 'key_format', 'resets_at']

const nullish = <Value>(schema: z.ZodMiniType<Value>) => z.optional(z.nullable(schema))

const flag = customSchema<boolean>('true or false', (value) => typeof value === 'boolean')
const displayName = text(1, MAX_NAME_LENGTH)
const recordId = matching(
  SAFE_ID,
  'an id of 1 to 128 letters, digits, dots, hyphens and underscores, other than "." and ".."',
)
const duration = oneOf(DURATION_CODES)
const dollars = numberUpTo(MAX_CENTS / 100, 'a number of dollars')
const modelNames = list(text(1, MAX_NAME_LENGTH), 1_000)

const providerSchema = record({
  provider: matching(/^[\w.-]{1,100}$/, 'the name of a provider'),
  weight: z.optional(numberUpTo(1_000_000)),
  allowed_models: nullish(modelNames),
})

const keySettingsFields = {
  description: nullish(text(0, 2_000)),
  budget_limit_cents: nullish(limitUpTo(MAX_CENTS)),
  budget_reset_duration: nullish(duration),
  rate_limit_requests: nullish(limitUpTo(MAX_COUNT)),
  rate_limit_reset_duration: nullish(duration),
  rate_limit_tokens: nullish(limitUpTo(MAX_COUNT)),
  token_reset_duration: nullish(duration),
  provider_configs: nullish(list<WireForm<KeyProvider>>(providerSchema, 100)),
  allowed_models: nullish(modelNames),
  max_tokens: nullish(
    customSchema<number>('an integer from 1 to 1000000000', (value) => isIntegerWithin(value, 1, 1_000_000_000)),
  ),
  disable_tools: nullish(flag),
  cache_similar: nullish(flag),
  plan: nullish(oneOf(PLAN_NAMES)),
  expires_at: nullish(customSchema<string>(TIMESTAMP_FORMAT, isTimestamp)),
  budget_id: nullish(recordId),
  rate_limit_id: nullish(recordId),
  is_active: z.optional(flag),
}

const newKeyFields = {
  ...keySettingsFields,
  name: displayName,
  key_format: z.optional(oneOf<KeyFormat>(['sk-bf', 'sk-svc'])),
  value: z.optional(text(16, 512)),
}

const newKeySchema: z.ZodMiniType<WireForm<NewKey>> = record(newKeyFields, [...IGNORED_FIELDS, 'id'])

/** `value` must be the current secret of the key. */
export interface ParsedKeyChange extends WireForm<KeyChange> {
  readonly value?: string | undefined
}

const keyChangeSchema: z.ZodMiniType<ParsedKeyChange> = record(
  { ...keySettingsFields, name: z.optional(displayName), value: newKeyFields.value },
  [...IGNORED_FIELDS, 'id', 'key_format'],
)

const configuredKeySchema: z.ZodMiniType<WireForm<ConfiguredKey>> = record({
  ...newKeyFields,
  id: z.optional(recordId),
  value_sha256: z.optional(matching(/^[0-9a-fA-F]{64}$/, 'the SHA-256 of the secret as 64 hex digits')),
}).check(
  z.refine((key) => (key.value === undefined) !== (key.value_sha256 === undefined), {
    error: 'either value or value_sha256',
  }),
)

const budgetChangeFields = {
  name: z.optional(displayName),
  max_limit: z.optional(dollars),
  reset_duration: z.optional(duration),
}
const budgetFields = { ...budgetChangeFields, id: recordId, max_limit: dollars }

type WireSchema<T> = z.ZodMiniType<WireForm<T>>

const newBudgetSchema: WireSchema<ConfiguredBudget> = record(budgetFields, [...IGNORED_FIELDS, 'resets_at'])
const budgetChangeSchema: WireSchema<BudgetChange> = record(budgetChangeFields, [...IGNORED_FIELDS, 'id', 'resets_at'])

const rateLimitChangeFields = {
  name: z.optional(displayName),
  request_max_limit: nullish(limitUpTo(MAX_COUNT)),
  request_reset_duration: nullish(duration),
  token_max_limit: nullish(limitUpTo(MAX_COUNT)),
  token_reset_duration: nullish(duration),
}
const rateLimitFields = { ...rateLimitChangeFields, id: recordId }

const newRateLimitSchema: WireSchema<ConfiguredRateLimit> = record(rateLimitFields, IGNORED_FIELDS)
const rateLimitChangeSchema: WireSchema<RateLimitChange> = record(rateLimitChangeFields, [...IGNORED_FIELDS, 'id'])

const configurationSchema: z.ZodMiniType<GovernanceConfiguration> = record({
  virtual_keys: z.optional(list(configuredKeySchema, MAX_RECORDS)),
  budgets: z.optional(list<WireForm<ConfiguredBudget>>(record(budgetFields), MAX_RECORDS)),
  rate_limits: z.optional(list<WireForm<ConfiguredRateLimit>>(record(rateLimitFields), MAX_RECORDS)),
})

export function parseNewKey(body: unknown): WireForm<NewKey> {
  return parse(newKeySchema, body, '{"name": "app"}')
}

export function parseKeyChange(body: unknown): ParsedKeyChange {
  return parseChange(keyChangeSchema, body, '{"is_active": true}')
}

export function parseNewBudget(body: unknown): WireForm<ConfiguredBudget> {
  return parse(newBudgetSchema, body, '{"id": "team", "max_limit": 50}')
}

export function parseBudgetChange(body: unknown): WireForm<BudgetChange> {
  return parseChange(budgetChangeSchema, body, '{"max_limit": 50}')
}

export function parseNewRateLimit(body: unknown): WireForm<ConfiguredRateLimit> {
  return parse(newRateLimitSchema, body, '{"id": "fair", "request_max_limit": 100}')
}

export function parseRateLimitChange(body: unknown): WireForm<RateLimitChange> {
  return parseChange(rateLimitChangeSchema, body, '{"request_max_limit": 100}')
}

/** The application may have loaded a language of zod, whose messages would replace ours. */
const PLAIN = { error: () => 'Invalid input' }

export function parse<Value>(schema: z.ZodMiniType<Value>, input: unknown, example: string): Value {
  if (!isJsonObject(input)) {
    // The path hides strings, which may be secrets.
    const problem = expectedText(`an object, such as ${example}`, input, 'value')
    throw new GatewayError('invalid-admin-request', `The record is not valid: ${problem}`)
  }
  const result = schema.safeParse(input, PLAIN)
  if (result.success) return result.data
  const { path, problem } = describeIssue(result.error.issues[0], input)
  const param = path.map(String).join('.').slice(0, MAX_NAME_LENGTH)
  throw new GatewayError('invalid-admin-request', `${param}: ${problem}`, { param })
}

function parseChange<Change extends object>(schema: z.ZodMiniType<Change>, body: unknown, example: string): Change {
  const change = parse(schema, body, example)
  if (Object.keys(change).some((field) => !UNCHANGED_FIELDS.includes(field))) return change
  throw new GatewayError(
    'invalid-admin-request',
    `The record contains no field to change. Send at least one field, such as ${example}.`,
  )
}

function describeIssue(
  issue: z.core.$ZodIssue | undefined,
  input: unknown,
): { readonly path: readonly PropertyKey[]; readonly problem: string } {
  const path = issue?.path ?? []
  if (issue?.code === 'unrecognized_keys') return { path: [...path, ...issue.keys.slice(0, 1)], problem: issue.message }
  const expectation = issue?.message ?? 'another value'
  if (path.length === 0) return { path, problem: `${expectation} was expected.` }
  const value = path.reduce<unknown>(
    (container, segment) =>
      isJsonObject(container) || Array.isArray(container) ? Reflect.get(container, segment) : undefined,
    input,
  )
  return { path, problem: expectedText(expectation, value, path.map(String).join('.')) }
}

function pathText(path: readonly PropertyKey[]): string {
  return path
    .map((key) => (typeof key === 'number' ? `[${key}]` : `.${String(key)}`))
    .join('')
    .slice(1)
}

export interface ParsedConfiguration {
  readonly keys: readonly HashedKey[]
  readonly budgets: readonly WireForm<ConfiguredBudget>[]
  readonly rateLimits: readonly WireForm<ConfiguredRateLimit>[]
}

export interface HashedKey {
  readonly id: string
  readonly hash: string
  readonly prefix: string
  readonly fields: WireForm<NewKey>
}

export function parseConfiguration(value: unknown): ParsedConfiguration {
  const result = configurationSchema.safeParse(value, PLAIN)
  if (!result.success) {
    const { path, problem } = describeIssue(result.error.issues[0], value)
    throw configurationError(pathText(['governance', ...path]), problem)
  }
  const { virtual_keys = [], budgets = [], rate_limits: rateLimits = [] } = result.data
  const keys = virtual_keys.map(toHashedKey)
  checkUnique('virtual_keys', keys, 'id')
  checkUnique('virtual_keys', keys, 'hash')
  checkUnique('budgets', budgets, 'id')
  checkUnique('rate_limits', rateLimits, 'id')
  return { keys, budgets, rateLimits }
}

function toHashedKey({ id, value, value_sha256, ...fields }: WireForm<ConfiguredKey>): HashedKey {
  const hash = value === undefined ? (value_sha256 ?? '').toLowerCase() : (hashSecret(value) ?? '')
  const derivedId = `cfg-${sha256(`id of ${hash}`).slice(0, 24)}`
  return { id: id ?? derivedId, hash, prefix: prefixOfSecret(value ?? ''), fields }
}

function checkUnique<Name extends string>(
  listName: string,
  records: readonly Readonly<Record<Name, string>>[],
  name: Name,
): void {
  const seen = new Set<string>()
  const duplicate = records.findIndex((record) => seen.size === seen.add(record[name]).size)
  if (duplicate === -1) return
  const label = name === 'hash' ? 'secret' : name
  throw configurationError(
    `governance.${listName}[${duplicate}]`,
    `an earlier entry has the same ${label}. Use unique values.`,
  )
}

function configurationError(param: string, problem: string): GatewayError {
  return new GatewayError('invalid-request', `createGateway: ${param}: ${problem}`, { param })
}
