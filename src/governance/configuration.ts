import { sha256 } from '#hash'
import * as z from 'zod/mini'
import type { WireForm } from '../core/field-names.ts'
import type {
  BudgetChange,
  KeyChange,
  KeyProvider,
  NewBudget,
  NewKey,
  NewRateLimit,
  RateLimitChange,
} from './admin-api.ts'
import * as field from './field-schema.ts'
import { hashSecret, type KeyFormat, PLAN_NAMES, prefixOfSecret } from './virtual-key.ts'

/**
 * Keys, budgets and rate limits that are created or updated at startup, at most 100,000 of each. Uses the field names
 * of the HTTP API.
 */
export interface GovernanceConfiguration {
  readonly virtual_keys?: readonly WireForm<ConfiguredKey>[] | undefined
  readonly budgets?: readonly WireForm<ConfiguredBudget>[] | undefined
  readonly rate_limits?: readonly WireForm<ConfiguredRateLimit>[] | undefined
}

/** A key in the configuration. Set either `value` or `valueSha256`. */
export interface ConfiguredKey extends NewKey {
  /** Id of the key. Stable across restarts. @default derived from the secret's hash */
  readonly id?: string | undefined
  /** SHA-256 of the secret as 64 hex digits. Keeps the secret out of the configuration. */
  readonly valueSha256?: string | undefined
}

/** A shared budget in the configuration. */
export interface ConfiguredBudget extends NewBudget {
  readonly id: string
}

/** Shared rate limits in the configuration. */
export interface ConfiguredRateLimit extends NewRateLimit {
  readonly id: string
}

const nullish = <Value>(schema: z.ZodMiniType<Value>) => z.optional(z.nullable(schema))

const modelNamesSchema = field.list(field.text(1, 200), 1_000)

const providerSchema = field.record({
  provider: field.matching(/^[\w.-]{1,100}$/, 'the name of a provider'),
  weight: z.optional(field.weight),
  allowed_models: nullish(modelNamesSchema),
})

const keySettingsFields = {
  description: nullish(field.text(0, 2_000)),
  budget_limit_cents: nullish(field.centsLimit),
  budget_reset_duration: nullish(field.duration),
  rate_limit_requests: nullish(field.countLimit),
  rate_limit_reset_duration: nullish(field.duration),
  rate_limit_tokens: nullish(field.countLimit),
  token_reset_duration: nullish(field.duration),
  provider_configs: nullish(field.list<WireForm<KeyProvider>>(providerSchema, 100)),
  allowed_models: nullish(modelNamesSchema),
  max_tokens: nullish(field.integer(1, 1_000_000_000)),
  disable_tools: nullish(field.flag),
  plan: nullish(field.oneOf(PLAN_NAMES)),
  expires_at: nullish(field.timestamp),
  budget_id: nullish(field.recordId),
  rate_limit_id: nullish(field.recordId),
  is_active: z.optional(field.flag),
}

const KEY_FORMATS: readonly KeyFormat[] = ['sk-bf', 'sk-svc']

const newKeyFields = {
  ...keySettingsFields,
  name: field.name,
  key_format: z.optional(field.oneOf(KEY_FORMATS)),
  value: z.optional(field.text(16, 512)),
}

export const newKeySchema: z.ZodMiniType<WireForm<NewKey>> = field.record(newKeyFields, field.ignoredFields(['id']))

/** The body of a request that updates a key. `value` must be the key's current secret. */
export interface ParsedKeyChange extends WireForm<KeyChange> {
  readonly value?: string | undefined
}

export const keyChangeSchema: z.ZodMiniType<ParsedKeyChange> = field.record(
  { ...keySettingsFields, name: z.optional(field.name), value: newKeyFields.value },
  field.ignoredFields(['id', 'key_format']),
)

const configuredKeySchema: z.ZodMiniType<WireForm<ConfiguredKey>> = field
  .record({
    ...newKeyFields,
    id: z.optional(field.recordId),
    value_sha256: z.optional(field.matching(/^[0-9a-fA-F]{64}$/, 'the SHA-256 of the secret as 64 hex digits')),
  })
  .check(
    z.refine((key) => (key.value === undefined) !== (key.value_sha256 === undefined), {
      error: 'either value or value_sha256',
    }),
  )

type WireSchema<T> = z.ZodMiniType<WireForm<T>>

const budgetChangeFields = {
  name: z.optional(field.name),
  max_limit: z.optional(field.dollars),
  reset_duration: z.optional(field.duration),
}

const budgetFields = { ...budgetChangeFields, id: field.recordId, max_limit: field.dollars }

export const newBudgetSchema: WireSchema<ConfiguredBudget> = field.record(
  budgetFields,
  field.ignoredFields(['resets_at']),
)
export const budgetChangeSchema: WireSchema<BudgetChange> = field.record(
  budgetChangeFields,
  field.ignoredFields(['id', 'resets_at']),
)

const rateLimitChangeFields = {
  name: z.optional(field.name),
  request_max_limit: nullish(field.countLimit),
  request_reset_duration: nullish(field.duration),
  token_max_limit: nullish(field.countLimit),
  token_reset_duration: nullish(field.duration),
}

const rateLimitFields = { ...rateLimitChangeFields, id: field.recordId }

export const newRateLimitSchema: WireSchema<ConfiguredRateLimit> = field.record(
  rateLimitFields,
  field.ignoredFields([]),
)
export const rateLimitChangeSchema: WireSchema<RateLimitChange> = field.record(
  rateLimitChangeFields,
  field.ignoredFields(['id']),
)

const MAX_RECORDS = 100_000

const configurationSchema: z.ZodMiniType<GovernanceConfiguration> = field.record({
  virtual_keys: z.optional(field.list(configuredKeySchema, MAX_RECORDS)),
  budgets: z.optional(field.list<WireForm<ConfiguredBudget>>(field.record(budgetFields), MAX_RECORDS)),
  rate_limits: z.optional(field.list<WireForm<ConfiguredRateLimit>>(field.record(rateLimitFields), MAX_RECORDS)),
})

export interface ParsedConfiguration {
  readonly keys: readonly HashedKey[]
  readonly budgets: readonly WireForm<ConfiguredBudget>[]
  readonly rateLimits: readonly WireForm<ConfiguredRateLimit>[]
}

/** A configured key with its secret replaced by the hash. */
export interface HashedKey {
  readonly id: string
  readonly hash: string
  readonly prefix: string
  readonly fields: WireForm<NewKey>
}

/** Throws a GatewayError with the path of the first invalid field. */
export function parseConfiguration(value: unknown): ParsedConfiguration {
  const {
    virtual_keys = [],
    budgets = [],
    rate_limits: rateLimits = [],
  } = field.parseOption(configurationSchema, value)
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
  list: string,
  records: readonly Readonly<Record<Name, string>>[],
  name: Name,
): void {
  const seen = new Set<string>()
  const duplicate = records.findIndex((record) => seen.size === seen.add(record[name]).size)
  if (duplicate === -1) return
  const label = name === 'hash' ? 'secret' : name
  throw field.invalidOptionError(
    `governance.${list}[${duplicate}]`,
    `an earlier entry has the same ${label}. Use unique values.`,
  )
}
