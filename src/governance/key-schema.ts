import * as z from 'zod/mini'
import { GatewayError } from '../core/errors.ts'
import type { ConfiguredKey, KeyChange, KeyProvider, KeySettings, NewKey } from './admin-api.ts'
import type { WireForm } from '../core/field-names.ts'
import * as field from './field-schema.ts'
import { PLAN_NAMES } from './plans.ts'
import type { KeyFormat } from './secret.ts'

/** The settings of a key in the names of the wire. */
export type KeyFields = WireForm<KeySettings>

const optional = <value>(schema: z.ZodMiniType<value>) => z.optional(z.nullable(schema))

const modelNames = field.list(field.text(1, 200), 1_000)

const provider = field.record({
  provider: field.matching(/^[\w.-]{1,100}$/, 'the name of a provider'),
  weight: z.optional(field.weight),
  allowed_models: optional(modelNames),
})

const settable = {
  description: optional(field.text(0, 2_000)),
  budget_limit_cents: optional(field.cents),
  budget_reset_duration: optional(field.duration),
  rate_limit_requests: optional(field.count),
  rate_limit_reset_duration: optional(field.duration),
  rate_limit_tokens: optional(field.count),
  token_reset_duration: optional(field.duration),
  provider_configs: optional(field.list<WireForm<KeyProvider>>(provider, 100)),
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
const created = {
  ...settable,
  name: field.name,
  key_format: z.optional(field.oneOf(formats)),
  value: z.optional(field.text(16, 512)),
}

const newKey: z.ZodMiniType<WireForm<NewKey>> = field.record(created, field.ignored(['id']))

/** A key that was created may be sent back whole: its secret is compared with the key's own, and never changed. */
export interface ParsedKeyChange extends WireForm<KeyChange> {
  readonly value?: string | undefined
}

const keyChange: z.ZodMiniType<ParsedKeyChange> = field.record(
  { ...settable, name: z.optional(field.name), value: created.value },
  field.ignored(['id', 'key_format']),
)

/** Reads the body of a creation. Fields that only the gateway sets are ignored, other unknown ones are refused. */
export function parseNewKey(body: unknown): WireForm<NewKey> {
  return field.parseWith(newKey, body)
}

/** Reads the body of an update, which must change something. */
export function parseKeyChange(body: unknown): ParsedKeyChange {
  const change = field.parseWith(keyChange, body)
  const changes = ['name', 'value', ...Object.keys(settable)]
  if (Object.keys(change).some((name) => changes.includes(name))) return change
  throw new GatewayError(
    'invalid-admin-request',
    'The body changes nothing. Send the fields to change, such as is_active.',
  )
}

/** The schema of a configured key, for the schema of the whole configuration. */
export const configuredKey: z.ZodMiniType<WireForm<ConfiguredKey>> = field
  .record({
    ...created,
    id: z.optional(field.recordId),
    value_sha256: z.optional(field.matching(/^[0-9a-fA-F]{64}$/, 'the SHA-256 of the secret as 64 hex digits')),
  })
  .check(
    z.refine((key) => (key.value === undefined) !== (key.value_sha256 === undefined), {
      error: 'either value or value_sha256',
    }),
  )
