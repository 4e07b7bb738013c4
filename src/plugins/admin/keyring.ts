import { GatewayError } from '../../core/errors.ts'
import { type NanoUsd, toCents, toNanoUsd } from '../../core/money.ts'
import type { DurationCode, Store } from '../../core/store.ts'
import type { KeyChange, KeyProvider, KeyRecord, ListedKey, NewKey } from './admin-api.ts'
import type { HashedKey } from './admin-input.ts'
import type { ParsedKeyChange } from './parse-records.ts'
import type { Page, PageQuery, RecordTable } from '../../governance/record-table.ts'
import { HASH_PREFIX, type KeyLookup, type SharedLimits } from '../../governance/stored-records.ts'
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
  create(fields: NewKey): Promise<{ readonly key: VirtualKey; readonly secret: string }>
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

  async function create(fields: NewKey): Promise<{ readonly key: VirtualKey; readonly secret: string }> {
    const secret = fields.value ?? createSecret(fields.keyFormat ?? 'sk-bf', uuid)
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
  async function checkShared(fields: Pick<ParsedKeyChange, 'budgetId' | 'rateLimitId'>): Promise<void> {
    await checkExists('budgetId', fields.budgetId, shared.budgets)
    await checkExists('rateLimitId', fields.rateLimitId, shared.rateLimits)
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
      active: fields.isActive ?? stored.active,
    }))
    if (before.hash !== hash) await unmapHash(before.hash)
    return after
  }

  return {
    read: (id) => keys.read(id),
    create,
    update,
    remove,
    page: (query) => keys.page(query),
    configure,
  }
}

async function checkExists(field: string, id: string | null | undefined, table: RecordTable<unknown>): Promise<void> {
  if (id === undefined || id === null || (await table.find(id)) !== undefined) return
  throw invalidFieldError(field, `there is no record with the id ${JSON.stringify(id)}. Create it first.`)
}

type KeyIdentity = Pick<VirtualKey, 'id' | 'hash' | 'prefix' | 'createdAt'>

export function makeKey(identity: KeyIdentity, fields: NewKey): VirtualKey {
  const { name } = fields
  return changeKey({ ...identity, name, description: '', active: true, providers: [], permissions: {} }, fields)
}

export function changeKey(key: VirtualKey, fields: KeyChange): VirtualKey {
  const { id, hash, prefix, createdAt } = key
  return {
    id,
    hash,
    prefix,
    createdAt,
    name: fields.name ?? key.name,
    description: fields.description === undefined ? key.description : (fields.description ?? ''),
    active: fields.isActive ?? key.active,
    providers:
      fields.providerConfigs === undefined ? key.providers : (fields.providerConfigs ?? []).map(toProviderConfig),
    permissions: changePermissions(key.permissions, fields),
    ...changeLimits(key, fields),
    ...optionalField('budgetId', resolveChange(fields.budgetId, key.budgetId)),
    ...optionalField('rateLimitId', resolveChange(fields.rateLimitId, key.rateLimitId)),
    ...optionalField('plan', resolveChange(fields.plan, key.plan)),
    ...optionalField('customer', resolveChange(fields.customer, key.customer)),
    ...optionalField('trustsContext', resolveChange(fields.trustsContext, key.trustsContext)),
    ...optionalField('expiresAt', resolveChange(toTimestamp(fields.expiresAt), key.expiresAt)),
  }
}

function changeLimits(key: VirtualKey, fields: KeyChange): Pick<VirtualKey, 'budget' | 'requests' | 'tokens'> {
  const budget = changeAllowance(key.budget, {
    max: toBudgetAmount(fields.budgetLimitCents),
    every: fields.budgetResetDuration,
    defaultWindow: '1M',
    field: 'budgetResetDuration',
  })
  const requests = changeAllowance(key.requests, {
    max: fields.rateLimitRequests,
    every: fields.rateLimitResetDuration,
    field: 'rateLimitResetDuration',
  })
  const tokens = changeAllowance(key.tokens, {
    max: fields.rateLimitTokens,
    every: fields.tokenResetDuration,
    field: 'tokenResetDuration',
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

function changePermissions(permissions: Permissions, fields: KeyChange): Permissions {
  return {
    ...optionalField('allowedModels', resolveChange(fields.allowedModels, permissions.allowedModels)),
    ...optionalField('maxTokens', resolveChange(fields.maxTokens, permissions.maxTokens)),
    ...optionalField('disableTools', resolveChange(fields.disableTools, permissions.disableTools)),
    ...optionalField('cacheSimilar', resolveChange(fields.cacheSimilar, permissions.cacheSimilar)),
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

function toProviderConfig(input: KeyProvider): ProviderConfig {
  return { provider: input.provider, weight: input.weight ?? 1, allowedModels: input.allowedModels ?? [] }
}

export function toKeyRecord(key: VirtualKey, spentCents: number): KeyRecord {
  const { requests, tokens } = effectiveRateLimits(key)
  return {
    ...toListedKey(key, spentCents),
    object: 'virtual_key',
    description: key.description,
    createdAt: new Date(key.createdAt).toISOString(),
    expiresAt: key.expiresAt === undefined ? null : new Date(key.expiresAt).toISOString(),
    budgetResetDuration: key.budget?.every ?? null,
    budgetId: key.budgetId ?? null,
    plan: key.plan ?? null,
    customer: key.customer ?? null,
    trustsContext: key.trustsContext ?? false,
    rateLimitRequests: requests?.max ?? UNLIMITED,
    rateLimitResetDuration: requests?.every ?? null,
    rateLimitTokens: tokens?.max ?? UNLIMITED,
    tokenResetDuration: tokens?.every ?? null,
    rateLimitId: key.rateLimitId ?? null,
    providerConfigs: key.providers.map(({ provider, weight, allowedModels }) => ({
      provider,
      weight,
      allowedModels,
    })),
    allowedModels: key.permissions.allowedModels ?? null,
    maxTokens: key.permissions.maxTokens ?? null,
    disableTools: key.permissions.disableTools ?? false,
    cacheSimilar: key.permissions.cacheSimilar ?? null,
  }
}

export function toListedKey(key: VirtualKey, spentCents: number): ListedKey {
  return {
    id: key.id,
    name: key.name,
    keyPrefix: key.prefix,
    isActive: key.active,
    currentUsageCents: spentCents,
    budgetLimitCents: key.budget === undefined ? UNLIMITED : toCents(key.budget.max),
  }
}
