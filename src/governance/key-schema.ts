import * as z from 'zod/mini'
import { GatewayError } from '../core/errors.ts'
import type { DurationCode } from '../core/period.ts'
import * as field from './field-schema.ts'
import { PLAN_NAMES, type PlanName } from './plans.ts'
import type { KeyFormat } from './secret.ts'

/** A provider of a key, as the admin API and the configuration write it. */
export interface ProviderConfigInput {
  readonly provider: string
  /** @default 1 */
  readonly weight?: number | undefined
  /** @default all */
  readonly allowed_models?: readonly string[] | null | undefined
}

/** The fields of a key that can be set. `null` means none; absent means none at creation, unchanged at an update. */
export interface KeyFields {
  readonly description?: string | null | undefined
  readonly budget_limit_cents?: number | null | undefined
  /** @default '1M' */
  readonly budget_reset_duration?: DurationCode | null | undefined
  readonly rate_limit_requests?: number | null | undefined
  /** @default '1h' */
  readonly rate_limit_reset_duration?: DurationCode | null | undefined
  readonly rate_limit_tokens?: number | null | undefined
  /** @default '1h' */
  readonly token_reset_duration?: DurationCode | null | undefined
  readonly provider_configs?: readonly ProviderConfigInput[] | null | undefined
  readonly allowed_models?: readonly string[] | null | undefined
  readonly max_tokens?: number | null | undefined
  readonly disable_tools?: boolean | null | undefined
  readonly plan?: PlanName | null | undefined
  /** ISO 8601 with a time zone. */
  readonly expires_at?: string | null | undefined
  readonly budget_id?: string | null | undefined
  readonly rate_limit_id?: string | null | undefined
  /** @default true */
  readonly is_active?: boolean | undefined
}

/** The body that creates a key. */
export interface NewKey extends KeyFields {
  readonly name: string
  /** @default 'sk-bf' */
  readonly key_format?: KeyFormat | undefined
}

/** The body that changes a key. */
export interface KeyChange extends KeyFields {
  readonly name?: string | undefined
}

const optional = <value>(schema: z.ZodMiniType<value>) => z.optional(z.nullable(schema))

const modelNames = field.list(field.text(1, 200), 1_000)

const provider = z.strictObject(
  {
    provider: field.matching(/^[\w.-]{1,100}$/, 'the name of a provider'),
    weight: z.optional(field.weight),
    allowed_models: optional(modelNames),
  },
  { error: field.objectError },
)

const settable = {
  description: optional(field.text(0, 2_000)),
  budget_limit_cents: optional(field.cents),
  budget_reset_duration: optional(field.duration),
  rate_limit_requests: optional(field.count),
  rate_limit_reset_duration: optional(field.duration),
  rate_limit_tokens: optional(field.count),
  token_reset_duration: optional(field.duration),
  provider_configs: optional(field.list<ProviderConfigInput>(provider, 100)),
  allowed_models: optional(modelNames),
  max_tokens: optional(field.whole(1, 1_000_000_000)),
  disable_tools: optional(field.flag),
  plan: optional(field.oneOf(PLAN_NAMES)),
  expires_at: optional(field.moment),
  budget_id: optional(field.recordId),
  rate_limit_id: optional(field.recordId),
  is_active: z.optional(field.flag),
}

const formats: readonly KeyFormat[] = ['sk-bf', 'sk-svc']
const created = { ...settable, name: field.name, key_format: z.optional(field.oneOf(formats)) }

const newKey: z.ZodMiniType<NewKey> = z.strictObject(
  { ...field.ignored(['id']), ...created },
  { error: field.objectError },
)

const keyChange: z.ZodMiniType<KeyChange> = z.strictObject(
  { ...field.ignored(['id', 'key_format']), ...settable, name: z.optional(field.name) },
  { error: field.objectError },
)

/** Reads the body of a creation. Fields that only the gateway sets are ignored, other unknown ones are refused. */
export function parseNewKey(body: unknown): NewKey {
  return field.parseWith(newKey, body)
}

/** Reads the body of an update, which must change something. */
export function parseKeyChange(body: unknown): KeyChange {
  const change = field.parseWith(keyChange, body)
  const settableNames = Object.keys(settable)
  if (Object.keys(change).some((name) => name === 'name' || settableNames.includes(name))) return change
  throw new GatewayError(
    'invalid-admin-request',
    'The body changes nothing. Send the fields to change, such as is_active.',
  )
}

/** A key of the configuration: its secret or, so that no file holds it, the secret's SHA-256. */
export interface ConfiguredKey extends NewKey {
  /** Stable over restarts. @default derived from the secret's hash */
  readonly id?: string | undefined
  readonly value?: string | undefined
  /** The SHA-256 of the secret as 64 hex digits. */
  readonly value_sha256?: string | undefined
}

/** The schema of a configured key, for the schema of the whole configuration. */
export const configuredKey: z.ZodMiniType<ConfiguredKey> = z
  .strictObject(
    {
      ...created,
      id: z.optional(field.recordId),
      value: z.optional(field.text(16, 512)),
      value_sha256: z.optional(field.matching(/^[0-9a-fA-F]{64}$/, 'the SHA-256 of the secret as 64 hex digits')),
    },
    { error: field.objectError },
  )
  .check(
    z.refine((key) => (key.value === undefined) !== (key.value_sha256 === undefined), {
      error: 'either value or value_sha256 was expected',
    }),
  )
