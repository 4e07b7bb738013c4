import type { WireForm } from '../core/field-names.ts'
import { cents, toCents, type NanoUsd } from '../core/money.ts'
import type { DurationCode } from '../core/store.ts'
import type { KeyChange, KeyProvider, KeyRecord, ListedKey, NewKey } from './admin-api.ts'
import { keyChange, newKey, type ParsedKeyChange } from './configuration.ts'
import * as field from './field-schema.ts'
import { wrongField } from './record-table.ts'
import {
  limitsOf,
  UNLIMITED,
  type Allowance,
  type Permissions,
  type ProviderConfig,
  type VirtualKey,
} from './virtual-key.ts'

/** Parses the body of a creation. Ignores fields that only the gateway sets, and refuses other unknown fields. */
export function parseNewKey(body: unknown): WireForm<NewKey> {
  return field.parseWith(newKey, body)
}

/** Parses the body of an update. */
export function parseKeyChange(body: unknown): ParsedKeyChange {
  return field.parseChange(keyChange, body, 'is_active')
}

/** The fields of a key that its settings do not change. */
export type BareKey = Pick<VirtualKey, 'id' | 'hash' | 'prefix' | 'createdAt'>

/** Returns a new key with the given fields. */
export function makeKey(bare: BareKey, fields: WireForm<NewKey>): VirtualKey {
  const empty: VirtualKey = {
    ...bare,
    name: fields.name,
    description: '',
    active: true,
    providers: [],
    permissions: {},
  }
  return changeKey(empty, fields)
}

/** Returns the key with the given fields set. Absent fields keep their values; `null` removes a value. */
export function changeKey(key: VirtualKey, fields: WireForm<KeyChange>): VirtualKey {
  const { id, hash, prefix, createdAt } = key
  return {
    id,
    hash,
    prefix,
    createdAt,
    name: fields.name ?? key.name,
    description: fields.description === undefined ? key.description : (fields.description ?? ''),
    active: fields.is_active ?? key.active,
    providers: fields.provider_configs === undefined ? key.providers : (fields.provider_configs ?? []).map(toConfig),
    permissions: changePermissions(key.permissions, fields),
    ...changeLimits(key, fields),
    ...given('budgetId', choose(fields.budget_id, key.budgetId)),
    ...given('rateLimitId', choose(fields.rate_limit_id, key.rateLimitId)),
    ...given('plan', choose(fields.plan, key.plan)),
    ...given('expiresAt', choose(toMoment(fields.expires_at), key.expiresAt)),
  }
}

function changeLimits(
  key: VirtualKey,
  fields: WireForm<KeyChange>,
): Pick<VirtualKey, 'budget' | 'requests' | 'tokens'> {
  const budget = changeAllowance(key.budget, {
    max: toMoney(fields.budget_limit_cents),
    every: fields.budget_reset_duration,
    defaultWindow: '1M',
    field: 'budget_reset_duration',
  })
  const requests = changeAllowance(key.requests, {
    max: fields.rate_limit_requests,
    every: fields.rate_limit_reset_duration,
    field: 'rate_limit_reset_duration',
  })
  const tokens = changeAllowance(key.tokens, {
    max: fields.rate_limit_tokens,
    every: fields.token_reset_duration,
    field: 'token_reset_duration',
  })
  return { ...given('budget', budget), ...given('requests', requests), ...given('tokens', tokens) }
}

export interface AllowanceFields<amount> {
  readonly max: amount | null | undefined
  readonly every: DurationCode | null | undefined
  /** The window of a new limit. @default '1h' */
  readonly defaultWindow?: DurationCode
  /** The name of the window's field. If set, a window without a limit is refused. @default such a window is ignored */
  readonly field?: string
}

/** Returns the limit after a change. Returns undefined for no limit. */
export function changeAllowance<amount extends number>(
  current: Allowance<amount> | undefined,
  { max, every, defaultWindow = '1h', field: name }: AllowanceFields<amount>,
): Allowance<amount> | undefined {
  if (max === null || max === UNLIMITED) return undefined
  const limit = max ?? current?.max
  if (limit !== undefined) return { max: limit, every: every ?? current?.every ?? defaultWindow }
  if (every === undefined || every === null || name === undefined) return undefined
  throw wrongField(name, 'the key has no limit that this duration could apply to. Set the limit, too.')
}

function changePermissions(permissions: Permissions, fields: WireForm<KeyChange>): Permissions {
  return {
    ...given('allowedModels', choose(fields.allowed_models, permissions.allowedModels)),
    ...given('maxTokens', choose(fields.max_tokens, permissions.maxTokens)),
    ...given('disableTools', choose(fields.disable_tools, permissions.disableTools)),
  }
}

/** Returns an object with the field, or an empty object if the value is undefined. */
export function given<name extends string, value>(
  name: name,
  value: value | undefined,
): { readonly [field in name]?: value } {
  return value === undefined ? {} : ({ [name]: value } as { readonly [field in name]: value })
}

function choose<value>(change: value | null | undefined, current: value | undefined): value | undefined {
  return change === undefined ? current : (change ?? undefined)
}

function toMoment(text: string | null | undefined): number | null | undefined {
  return typeof text === 'string' ? Date.parse(text) : text
}

function toMoney(amount: number | null | undefined): NanoUsd | null | undefined {
  if (amount === UNLIMITED) return null
  return typeof amount === 'number' ? cents(amount) : amount
}

function toConfig(input: WireForm<KeyProvider>): ProviderConfig {
  return { provider: input.provider, weight: input.weight ?? 1, allowedModels: input.allowed_models ?? [] }
}

/** Returns the record of a key. `spentCents` is the amount in the key's counter. */
export function publicKey(key: VirtualKey, spentCents: number): WireForm<KeyRecord> {
  const { requests, tokens } = limitsOf(key)
  return {
    ...listedKey(key, spentCents),
    object: 'virtual_key',
    description: key.description,
    created_at: iso(key.createdAt),
    expires_at: key.expiresAt === undefined ? null : iso(key.expiresAt),
    budget_reset_duration: key.budget?.every ?? null,
    budget_id: key.budgetId ?? null,
    plan: key.plan ?? null,
    rate_limit_requests: requests?.max ?? UNLIMITED,
    rate_limit_reset_duration: requests?.every ?? null,
    rate_limit_tokens: tokens?.max ?? UNLIMITED,
    token_reset_duration: tokens?.every ?? null,
    rate_limit_id: key.rateLimitId ?? null,
    provider_configs: key.providers.map(({ provider, weight, allowedModels }) => ({
      provider,
      weight,
      allowed_models: allowedModels,
    })),
    allowed_models: key.permissions.allowedModels ?? null,
    max_tokens: key.permissions.maxTokens ?? null,
    disable_tools: key.permissions.disableTools ?? false,
  }
}

/** Returns the fields of a key in a list. */
export function listedKey(key: VirtualKey, spentCents: number): WireForm<ListedKey> {
  return {
    id: key.id,
    name: key.name,
    key_prefix: key.prefix,
    is_active: key.active,
    current_usage_cents: spentCents,
    budget_limit_cents: key.budget === undefined ? UNLIMITED : toCents(key.budget.max),
  }
}

function iso(at: number): string {
  return new Date(at).toISOString()
}
