import { GatewayError } from '../core/errors.ts'
import type { Store } from '../core/store.ts'
import { changeKey, makeKey } from './key-fields.ts'
import type { NewKey } from './admin-api.ts'
import type { WireForm } from '../core/field-names.ts'
import type { ParsedKeyChange } from './key-schema.ts'
import { HASHES, type KeyLookup } from './key-lookup.ts'
import type { Page, PageQuery, RecordTable } from './record-table.ts'
import { createSecret, hashSecret, prefixOfSecret } from './secret.ts'
import type { Configured, KeyInPlace } from './configuration.ts'
import type { SharedLimits } from './shared-limits.ts'
import type { VirtualKey } from './virtual-key.ts'

/** Reads and changes virtual keys. */
export interface Keyring extends Pick<KeyLookup, 'find'> {
  /** Returns the current key. Throws `not-found`. */
  read(id: string): Promise<VirtualKey>
  /**
   * The secret is returned only here. Throws `invalid-admin-request` when a shared record does not exist, `conflict` for a
   * given secret that another key has.
   */
  create(fields: WireForm<NewKey>): Promise<{ readonly key: VirtualKey; readonly secret: string }>
  /** Returns the key after the change. Throws `not-found` or `invalid-admin-request`. */
  update(id: string, fields: ParsedKeyChange): Promise<VirtualKey>
  /** Throws `not-found`. */
  remove(id: string): Promise<void>
  page(query: PageQuery): Promise<Page<VirtualKey>>
  /** Applies a key of the configuration: creates it, or changes it to match the configuration. */
  configure(configured: KeyInPlace): Promise<VirtualKey>
}

export interface KeyringOptions {
  readonly store: Store
  readonly now: () => number
  readonly uuid: () => string
  readonly shared: SharedLimits
  readonly lookup: KeyLookup
}

/** Creates the keyring. Only the admin API and the configuration need it. */
export function createKeyring({ store, now, uuid, shared, lookup }: KeyringOptions): Keyring {
  const { keys } = lookup

  async function point(hash: string, id: string): Promise<void> {
    if (!(await store.swap(HASHES + hash, undefined, id)) && (await store.get(HASHES + hash)) !== id) {
      throw new GatewayError('conflict', 'The secret belongs to another virtual key. Choose another secret.')
    }
    lookup.forget(hash)
  }

  async function unpoint(hash: string): Promise<void> {
    await store.delete(HASHES + hash)
    lookup.forget(hash)
  }

  async function create(fields: WireForm<NewKey>): Promise<{ readonly key: VirtualKey; readonly secret: string }> {
    const secret = fields.value ?? createSecret(fields.key_format ?? 'sk-bf', uuid)
    const hash = hashSecret(secret) ?? ''
    const key = makeKey({ id: uuid(), hash, prefix: prefixOfSecret(secret), createdAt: now() }, fields)
    await checkShared(key)
    if (!(await keys.insert(key.id, key))) {
      throw new GatewayError('conflict', 'The generated id of the new virtual key is taken. Retry.')
    }
    await point(hash, key.id).catch(async (error: unknown) => {
      await keys.remove(key.id)
      throw error
    })
    return { key, secret }
  }

  async function update(id: string, fields: ParsedKeyChange): Promise<VirtualKey> {
    const key = await keys.read(id)
    if (fields.value !== undefined && hashSecret(fields.value) !== key.hash) throw secretGiven()
    await checkShared(changeKey(key, fields), fields)
    return (await keys.change(id, (key) => changeKey(key, fields))).after
  }

  /** Checks only records in the request, because a record that was deleted elsewhere must not block other changes. */
  async function checkShared(key: VirtualKey, fields: ParsedKeyChange | undefined = undefined): Promise<void> {
    const named = fields ?? { budget_id: key.budgetId, rate_limit_id: key.rateLimitId }
    await checkExists('budget_id', named.budget_id, shared.budgets)
    await checkExists('rate_limit_id', named.rate_limit_id, shared.rateLimits)
  }

  async function remove(id: string): Promise<void> {
    const key = await keys.remove(id)
    if (key !== undefined) await unpoint(key.hash)
  }

  async function configure({ id, hash, prefix, fields }: KeyInPlace): Promise<VirtualKey> {
    const wanted = (createdAt: number): VirtualKey => makeKey({ id, hash, prefix, createdAt }, fields)
    await checkShared(wanted(0))
    await point(hash, id)
    const fresh = wanted(now())
    if (await keys.insert(id, fresh)) return fresh
    const { before, after } = await keys.change(id, (present) => ({
      ...wanted(present.createdAt),
      active: fields.is_active ?? present.active,
    }))
    if (before.hash !== hash) await unpoint(before.hash)
    return after
  }

  return { find: lookup.find, read: keys.read, create, update, remove, page: keys.page, configure }
}

function secretGiven(): GatewayError {
  return new GatewayError(
    'invalid-admin-request',
    'value: the secret of a key cannot be changed. Create a new key with this secret and delete this one.',
    { param: 'value' },
  )
}

async function checkExists(field: string, id: string | null | undefined, table: RecordTable<unknown>): Promise<void> {
  if (id === undefined || id === null || (await table.find(id)) !== undefined) return
  throw new GatewayError(
    'invalid-admin-request',
    `${field}: there is no record with the id ${JSON.stringify(id)}. Create it first.`,
    {
      param: field,
    },
  )
}

/**
 * Applies the configuration. It overrides stored records. Exception: a disabled key stays disabled unless the
 * configuration sets `is_active`. Usage is not changed. Applying it again, also in several processes at once, changes
 * nothing.
 */
export async function applyConfiguration(
  configured: Configured,
  parts: { readonly keyring: Keyring; readonly shared: SharedLimits },
): Promise<void> {
  for (const record of configured.budgets) await putInPlace(parts.shared.budgets, record)
  for (const record of configured.rateLimits) await putInPlace(parts.shared.rateLimits, record)
  for (const key of configured.keys) await parts.keyring.configure(key)
}

async function putInPlace<record extends { readonly id: string }>(
  table: RecordTable<record>,
  record: record,
): Promise<void> {
  if (!(await table.insert(record.id, record))) await table.change(record.id, () => record)
}
