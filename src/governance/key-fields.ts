import { GatewayError } from '../core/errors.ts'
import { cents, toCents, type NanoUsd } from '../core/money.ts'
import type { DurationCode } from '../core/period.ts'
import { UNLIMITED } from './field-schema.ts'
import type { KeyChange, KeyProvider, KeyRecord, ListedKey, NewKey } from './admin-api.ts'
import type { WireForm } from '../core/field-names.ts'
import { limitsOf } from './plans.ts'
import type { Allowance, Permissions, ProviderConfig, VirtualKey } from './virtual-key.ts'

/** What a new key has before any field is set. */
export type BareKey = Pick<VirtualKey, 'id' | 'hash' | 'prefix' | 'createdAt'>

/** A key as its creation or its configuration describes it. */
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

/** The key with the given fields set: absent ones stay, `null` takes away. */
export function changeKey(key: VirtualKey, fields: WireForm<KeyChange>): VirtualKey {
  const { budget, requests, tokens, budgetId, rateLimitId, plan, expiresAt, ...rest } = {
    ...key,
    ...limits(key, fields),
  }
  const chosen = {
    budgetId: choose(fields.budget_id, budgetId),
    rateLimitId: choose(fields.rate_limit_id, rateLimitId),
    plan: choose(fields.plan, plan),
    expiresAt: choose(toMoment(fields.expires_at), expiresAt),
  }
  return {
    ...rest,
    name: fields.name ?? key.name,
    description: fields.description === undefined ? key.description : (fields.description ?? ''),
    active: fields.is_active ?? key.active,
    providers: fields.provider_configs === undefined ? key.providers : (fields.provider_configs ?? []).map(toConfig),
    permissions: changePermissions(key.permissions, fields),
    ...(budget !== undefined && { budget }),
    ...(requests !== undefined && { requests }),
    ...(tokens !== undefined && { tokens }),
    ...(chosen.budgetId !== undefined && { budgetId: chosen.budgetId }),
    ...(chosen.rateLimitId !== undefined && { rateLimitId: chosen.rateLimitId }),
    ...(chosen.plan !== undefined && { plan: chosen.plan }),
    ...(chosen.expiresAt !== undefined && { expiresAt: chosen.expiresAt }),
  }
}

interface Limits {
  readonly budget: Allowance<NanoUsd> | undefined
  readonly requests: Allowance | undefined
  readonly tokens: Allowance | undefined
}

function limits(key: VirtualKey, fields: WireForm<KeyChange>): Limits {
  return {
    budget: allowance(key.budget, {
      max: toMoney(fields.budget_limit_cents),
      every: fields.budget_reset_duration,
      otherwise: '1M',
      field: 'budget_reset_duration',
    }),
    requests: allowance(key.requests, {
      max: fields.rate_limit_requests,
      every: fields.rate_limit_reset_duration,
      otherwise: '1h',
      field: 'rate_limit_reset_duration',
    }),
    tokens: allowance(key.tokens, {
      max: fields.rate_limit_tokens,
      every: fields.token_reset_duration,
      otherwise: '1h',
      field: 'token_reset_duration',
    }),
  }
}

interface AllowanceFields<amount> {
  readonly max: amount | null | undefined
  readonly every: DurationCode | null | undefined
  readonly otherwise: DurationCode
  readonly field: string
}

function allowance<amount extends number>(
  current: Allowance<amount> | undefined,
  { max, every, otherwise, field }: AllowanceFields<amount>,
): Allowance<amount> | undefined {
  if (max === null || max === UNLIMITED) return undefined
  const limit = max ?? current?.max
  if (limit !== undefined) return { max: limit, every: every ?? current?.every ?? otherwise }
  if (every === undefined || every === null) return undefined
  throw new GatewayError(
    'invalid-admin-request',
    `${field}: the key has no limit that this duration could apply to. Set the limit, too.`,
    {
      param: field,
    },
  )
}

function changePermissions(permissions: Permissions, fields: WireForm<KeyChange>): Permissions {
  const allowedModels = choose(fields.allowed_models, permissions.allowedModels)
  const maxTokens = choose(fields.max_tokens, permissions.maxTokens)
  const disableTools = choose(fields.disable_tools, permissions.disableTools)
  return {
    ...(allowedModels !== undefined && { allowedModels }),
    ...(maxTokens !== undefined && { maxTokens }),
    ...(disableTools !== undefined && { disableTools }),
  }
}

function choose<value>(given: value | null | undefined, current: value | undefined): value | undefined {
  return given === undefined ? current : (given ?? undefined)
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

/** A key as the admin API shows it, without its hash. `spentCents` is what its own counters state. */
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

/** A key as lists show it. */
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
