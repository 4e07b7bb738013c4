import { GatewayError } from '../core/errors.ts'
import type { WireForm } from '../core/field-names.ts'
import type { Store } from '../core/store.ts'
import type { NewKey } from './admin-api.ts'
import type { HashedKey, ParsedKeyChange } from './configuration.ts'
import { changeKey, makeKey } from './key-fields.ts'
import { createSecret, HASHES, hashSecret, prefixOfSecret, type KeyLookup } from './key-lookup.ts'
import type { SharedLimits } from './limits.ts'
import { wrongField, type Page, type PageQuery, type RecordTable } from './record-table.ts'
import type { VirtualKey } from './virtual-key.ts'

/** Reads and changes virtual keys. */
export interface Keyring extends Pick<KeyLookup, 'find'> {
  /** Returns the current key. Throws `not-found`. */
  read(id: string): Promise<VirtualKey>
  /**
   * Returns the new key with its secret. No other method returns the secret. Throws `invalid-admin-request` if a shared
   * record does not exist, and `conflict` if another key has the given secret.
   */
  create(fields: WireForm<NewKey>): Promise<{ readonly key: VirtualKey; readonly secret: string }>
  /** Returns the key after the change. Throws `not-found` or `invalid-admin-request`. */
  update(id: string, fields: ParsedKeyChange): Promise<VirtualKey>
  /** Deletes a key. Throws `not-found`. */
  remove(id: string): Promise<void>
  page(query: PageQuery): Promise<Page<VirtualKey>>
  /** Applies a key of the configuration: creates it, or changes it to match the configuration. */
  configure(configured: HashedKey): Promise<VirtualKey>
}

export interface KeyringOptions {
  readonly store: Store
  readonly now: () => number
  readonly uuid: () => string
  readonly shared: SharedLimits
  readonly lookup: KeyLookup
}

/** Creates the keyring of the admin API and the configuration. */
export function createKeyring({ store, now, uuid, shared, lookup }: KeyringOptions): Keyring {
  const { keys } = lookup

  async function mapHash(hash: string, id: string): Promise<void> {
    if (!(await store.swap(HASHES + hash, undefined, id)) && (await store.get(HASHES + hash)) !== id) {
      throw new GatewayError('conflict', 'The secret belongs to another virtual key. Choose another secret.')
    }
    lookup.forget(hash)
  }

  async function unmapHash(hash: string): Promise<void> {
    await store.delete(HASHES + hash)
    lookup.forget(hash)
  }

  async function create(fields: WireForm<NewKey>): Promise<{ readonly key: VirtualKey; readonly secret: string }> {
    const secret = fields.value ?? createSecret(fields.key_format ?? 'sk-bf', uuid)
    const hash = hashSecret(secret) ?? ''
    const key = makeKey({ id: uuid(), hash, prefix: prefixOfSecret(secret), createdAt: now() }, fields)
    await checkShared(key)
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
      throw wrongField(
        'value',
        'the secret of a key cannot be changed. Create a new key with this secret and delete this one.',
      )
    }
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
    if (key !== undefined) await unmapHash(key.hash)
  }

  async function configure({ id, hash, prefix, fields }: HashedKey): Promise<VirtualKey> {
    const wanted = (createdAt: number): VirtualKey => makeKey({ id, hash, prefix, createdAt }, fields)
    await checkShared(wanted(0))
    await mapHash(hash, id)
    const fresh = wanted(now())
    if (await keys.insert(id, fresh)) return fresh
    const { before, after } = await keys.change(id, (present) => ({
      ...wanted(present.createdAt),
      active: fields.is_active ?? present.active,
    }))
    if (before.hash !== hash) await unmapHash(before.hash)
    return after
  }

  return { find: lookup.find, read: keys.read, create, update, remove, page: keys.page, configure }
}

async function checkExists(field: string, id: string | null | undefined, table: RecordTable<unknown>): Promise<void> {
  if (id === undefined || id === null || (await table.find(id)) !== undefined) return
  throw wrongField(field, `there is no record with the id ${JSON.stringify(id)}. Create it first.`)
}
