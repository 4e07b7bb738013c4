import { GatewayError } from '../../core/errors.ts'
import type { WireForm } from '../../core/field-names.ts'
import { type NanoUsd, toCents, toNanoUsd } from '../../core/money.ts'
import type { DurationCode, Store } from '../../core/store.ts'
import { type KeyChange, type KeyProvider, type KeyRecord, type ListedKey, type NewKey } from './admin-api.ts'
import type { HashedKey, ParsedKeyChange } from './admin-input.ts'
import {
  HASH_PREFIX,
  type KeyLookup,
  type Page,
  type PageQuery,
  type RecordTable,
  type SharedLimits,
} from '../../governance/stored-records.ts'
import {
  type Allowance,
  createSecret,
  hashSecret,
  effectiveRateLimits,
  type Permissions,
  prefixOfSecret,
  type ProviderConfig,
  UNLIMITED,
  type VirtualKey,
} from '../../governance/virtual-key.ts'
import { invalidFieldError } from '../../governance/page-query.ts'

const NANO_USD_PER_CENT = 1e7

export interface Keyring {
  read(id: string): Promise<VirtualKey>
  create(fields: WireForm<NewKey>): Promise<{ readonly key: VirtualKey; readonly secret: string }>
  update(id: string, fields: ParsedKeyChange): Promise<VirtualKey>
  remove(id: string): Promise<void>
  page(query: PageQuery): Promise<Page<VirtualKey>>
  configure(configured: HashedKey): Promise<VirtualKey>
}

export function createKeyring(dependencies: {
  readonly store: Store
  readonly now: () => number
  readonly uuid: () => string
  readonly shared: SharedLimits
  readonly lookup: KeyLookup
}): Keyring {
  const { store, now, uuid, shared, lookup } = dependencies
  const { keys } = lookup

  async function mapHash(hash: string, id: string): Promise<void> {
    if (!(await store.swap(HASH_PREFIX + hash, undefined, id)) && (await store.get(HASH_PREFIX + hash)) !== id) {
      throw new GatewayError('conflict', 'The secret belongs to another virtual key. Choose another secret.')
    }
    lookup.forget(hash)
  }

  async function unmapHash(hash: string): Promise<void> {
    await store.delete(HASH_PREFIX + hash)
    lookup.forget(hash)
  }

  async function create(fields: WireForm<NewKey>): Promise<{ readonly key: VirtualKey; readonly secret: string }> {
    const secret = fields.value ?? createSecret(fields.key_format ?? 'sk-bf', uuid)
    const hash = hashSecret(secret) ?? ''
    const key = makeKey({ id: uuid(), hash, prefix: prefixOfSecret(secret), createdAt: now() }, fields)
    await checkShared(fields)
    if (!(await keys.insert(key.id, key))) {
      throw new GatewayError('conflict', 'The generated id of the new virtual key is already in use. Retry.')
    }
    await mapHash(hash, key.id).catch(async (error: unknown) => {
      await keys.remove(key.id)
      throw error
    })
    return { key, secret }
  }

  async function update(id: string, fields: ParsedKeyChange): Promise<VirtualKey> {
    const key = await keys.read(id)
    if (fields.value !== undefined && hashSecret(fields.value) !== key.hash) {
      throw invalidFieldError(
        'value',
        'the secret of a key cannot be changed. Create a new key with this secret and delete this one.',
      )
    }
    await checkShared(fields)
    return (await keys.change(id, (key) => changeKey(key, fields))).after
  }

  /** Checks only the ids in the request, because a deleted shared record must not block changes to other fields. */
  async function checkShared(fields: Pick<ParsedKeyChange, 'budget_id' | 'rate_limit_id'>): Promise<void> {
    await checkExists('budget_id', fields.budget_id, shared.budgets)
    await checkExists('rate_limit_id', fields.rate_limit_id, shared.rateLimits)
  }

  async function remove(id: string): Promise<void> {
    const key = await keys.remove(id)
    if (key !== undefined) await unmapHash(key.hash)
  }

  async function configure({ id, hash, prefix, fields }: HashedKey): Promise<VirtualKey> {
    const configuredKey = (createdAt: number): VirtualKey => makeKey({ id, hash, prefix, createdAt }, fields)
    const key = configuredKey(now())
    await checkShared(fields)
    await mapHash(hash, id)
    if (await keys.insert(id, key)) return key
    const { before, after } = await keys.change(id, (stored) => ({
      ...configuredKey(stored.createdAt),
      active: fields.is_active ?? stored.active,
    }))
    if (before.hash !== hash) await unmapHash(before.hash)
    return after
  }

  return { read: keys.read, create, update, remove, page: keys.page, configure }
}

async function checkExists(field: string, id: string | null | undefined, table: RecordTable<unknown>): Promise<void> {
  if (id === undefined || id === null || (await table.find(id)) !== undefined) return
  throw invalidFieldError(field, `there is no record with the id ${JSON.stringify(id)}. Create it first.`)
}

type KeyIdentity = Pick<VirtualKey, 'id' | 'hash' | 'prefix' | 'createdAt'>

export function makeKey(identity: KeyIdentity, fields: WireForm<NewKey>): VirtualKey {
  const { name } = fields
  return changeKey({ ...identity, name, description: '', active: true, providers: [], permissions: {} }, fields)
}

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
    providers:
      fields.provider_configs === undefined ? key.providers : (fields.provider_configs ?? []).map(toProviderConfig),
    permissions: changePermissions(key.permissions, fields),
    ...changeLimits(key, fields),
    ...optionalField('budgetId', resolveChange(fields.budget_id, key.budgetId)),
    ...optionalField('rateLimitId', resolveChange(fields.rate_limit_id, key.rateLimitId)),
    ...optionalField('plan', resolveChange(fields.plan, key.plan)),
    ...optionalField('expiresAt', resolveChange(toTimestamp(fields.expires_at), key.expiresAt)),
  }
}

function changeLimits(
  key: VirtualKey,
  fields: WireForm<KeyChange>,
): Pick<VirtualKey, 'budget' | 'requests' | 'tokens'> {
  const budget = changeAllowance(key.budget, {
    max: toBudgetAmount(fields.budget_limit_cents),
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
  return {
    ...optionalField('budget', budget),
    ...optionalField('requests', requests),
    ...optionalField('tokens', tokens),
  }
}

interface AllowanceChange<Amount> {
  readonly max: Amount | null | undefined
  readonly every: DurationCode | null | undefined
  readonly defaultWindow?: DurationCode
  /** Names the field in the error for a window without a limit. @default such a window is ignored */
  readonly field?: string
}

export function changeAllowance<Amount extends number>(
  current: Allowance<Amount> | undefined,
  { max, every, defaultWindow = '1h', field: windowField }: AllowanceChange<Amount>,
): Allowance<Amount> | undefined {
  if (max === null || max === UNLIMITED) return undefined
  const limit = max ?? current?.max
  if (limit !== undefined) return { max: limit, every: every ?? current?.every ?? defaultWindow }
  if (every === undefined || every === null || windowField === undefined) return undefined
  throw invalidFieldError(
    windowField,
    'this window applies only to a limit that is set on the key. Set the limit in the same request.',
  )
}

function changePermissions(permissions: Permissions, fields: WireForm<KeyChange>): Permissions {
  return {
    ...optionalField('allowedModels', resolveChange(fields.allowed_models, permissions.allowedModels)),
    ...optionalField('maxTokens', resolveChange(fields.max_tokens, permissions.maxTokens)),
    ...optionalField('disableTools', resolveChange(fields.disable_tools, permissions.disableTools)),
    ...optionalField('cacheSimilar', resolveChange(fields.cache_similar, permissions.cacheSimilar)),
  }
}

export function optionalField<Name extends string, Value>(
  name: Name,
  value: Value | undefined,
): { readonly [field in Name]?: Value } {
  return value === undefined ? {} : ({ [name]: value } as { readonly [field in Name]: Value })
}

function resolveChange<Value>(change: Value | null | undefined, current: Value | undefined): Value | undefined {
  return change === undefined ? current : (change ?? undefined)
}

function toTimestamp(text: string | null | undefined): number | null | undefined {
  return typeof text === 'string' ? Date.parse(text) : text
}

function toBudgetAmount(amount: number | null | undefined): NanoUsd | null | undefined {
  if (amount === UNLIMITED) return null
  return typeof amount === 'number' ? toNanoUsd(amount * NANO_USD_PER_CENT) : amount
}

function toProviderConfig(input: WireForm<KeyProvider>): ProviderConfig {
  return { provider: input.provider, weight: input.weight ?? 1, allowedModels: input.allowed_models ?? [] }
}

export function toKeyRecord(key: VirtualKey, spentCents: number): WireForm<KeyRecord> {
  const { requests, tokens } = effectiveRateLimits(key)
  return {
    ...toListedKey(key, spentCents),
    object: 'virtual_key',
    description: key.description,
    created_at: new Date(key.createdAt).toISOString(),
    expires_at: key.expiresAt === undefined ? null : new Date(key.expiresAt).toISOString(),
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
    cache_similar: key.permissions.cacheSimilar ?? null,
  }
}

export function toListedKey(key: VirtualKey, spentCents: number): WireForm<ListedKey> {
  return {
    id: key.id,
    name: key.name,
    key_prefix: key.prefix,
    is_active: key.active,
    current_usage_cents: spentCents,
    budget_limit_cents: key.budget === undefined ? UNLIMITED : toCents(key.budget.max),
  }
}
