import { GatewayError } from '../core/errors.ts'
import { chain, type MaybePromise } from '../core/maybe-promise.ts'
import type { Store } from '../core/ports.ts'
import { changeKey, makeKey } from './key-fields.ts'
import type { NewKey } from './admin-api.ts'
import type { WireForm } from '../core/field-names.ts'
import type { ParsedKeyChange } from './key-schema.ts'
import { createRecent, orLast } from './recent.ts'
import { parseKeyRecord } from './record-schema.ts'
import { createRecordTable, type Page, type PageQuery, type RecordTable } from './record-table.ts'
import { createSecret, hashSecret, isSameHash, prefixOfSecret } from './secret.ts'
import type { SharedLimits } from './shared-limits.ts'
import type { VirtualKey } from './virtual-key.ts'

/** The virtual keys. Their records are in the store, their secrets nowhere. */
export interface Keyring {
  /**
   * The key of a secret, undefined for an unknown one; whether it is active and not expired is for the caller to see.
   * Changes of this process are seen at once, those of others within `cacheMs`. Rejects `overloaded` for a record that
   * cannot be read: it must not become a key without limits.
   */
  find(secret: string): MaybePromise<VirtualKey | undefined>
  /** The key as it is now. Throws `not-found`. */
  read(id: string): Promise<VirtualKey>
  /**
   * The secret is returned only here. Throws `invalid-admin-request` when a shared record does not exist, `conflict` for a
   * given secret that another key has.
   */
  create(fields: WireForm<NewKey>): Promise<{ readonly key: VirtualKey; readonly secret: string }>
  /** The key after the change. Throws `not-found` or `invalid-admin-request`. */
  update(id: string, fields: ParsedKeyChange): Promise<VirtualKey>
  /** Throws `not-found`. */
  remove(id: string): Promise<void>
  page(query: PageQuery): Promise<Page<VirtualKey>>
  /** Puts a key of the configuration in place: creates it, or makes it what the configuration says. */
  configure(configured: KeyInPlace): Promise<VirtualKey>
}

/** A key of the configuration with what follows from its secret. */
export interface KeyInPlace {
  readonly id: string
  readonly hash: string
  readonly prefix: string
  readonly fields: WireForm<NewKey>
}

export interface KeyringOptions {
  readonly store: Store
  readonly now: () => number
  readonly uuid: () => string
  readonly shared: SharedLimits
  /** How long a look-up may be answered from memory, in milliseconds. @default 2,000 */
  readonly cacheMs?: number
  /** While the store fails, a look-up returns the key that it last found. @default false: it rejects */
  readonly keepsStale?: boolean
}

const KEYS = 'key:'
/** From the hash of a secret to the id of its key. */
const HASHES = 'key-hash:'
const CACHED = 10_000
const CACHE_MS = 2_000

export function createKeyring(options: KeyringOptions): Keyring {
  const { store, now, uuid, shared, cacheMs = CACHE_MS, keepsStale = false } = options
  const keys: RecordTable<VirtualKey> = createRecordTable({
    store,
    now,
    cacheMs,
    keepsStale,
    prefix: KEYS,
    label: 'virtual key',
    parse: parseKeyRecord,
  })
  /** Two pools, so that a flood of wrong secrets cannot push the right ones out. The full hash is the name. */
  const known = createRecent<string>(CACHED)
  const unknown = createRecent<undefined>(CACHED)

  function find(secret: string): MaybePromise<VirtualKey | undefined> {
    const hash = hashSecret(secret)
    if (hash === undefined) return undefined
    return chain(idOf(hash), (id) =>
      id === undefined
        ? undefined
        : chain(keys.find(id), (key) => (key !== undefined && isSameHash(key.hash, hash) ? key : undefined)),
    )
  }

  /** A look-up that began before a secret was put in place must not remember it as unknown. */
  let placed = 0

  function idOf(hash: string): MaybePromise<string | undefined> {
    const at = now()
    const remembered = known.get(hash, at)
    if (remembered !== undefined) return remembered.value
    if (unknown.get(hash, at) !== undefined) return undefined
    const seen = placed
    const remember = (id: string | undefined): string | undefined => {
      if (id !== undefined) known.put(hash, id, at + cacheMs)
      else if (seen === placed) unknown.put(hash, undefined, at + cacheMs)
      return id
    }
    return orLast(store.get(HASHES + hash), remember, keepsStale ? known.last(hash) : undefined)
  }

  async function point(hash: string, id: string): Promise<void> {
    if (!(await store.swap(HASHES + hash, undefined, id)) && (await store.get(HASHES + hash)) !== id) {
      throw new GatewayError('conflict', 'This secret belongs to another virtual key already. Choose another one.')
    }
    placed += 1
    known.forget(hash)
    unknown.forget(hash)
  }

  async function unpoint(hash: string): Promise<void> {
    await store.delete(HASHES + hash)
    known.forget(hash)
  }

  async function create(fields: WireForm<NewKey>): Promise<{ readonly key: VirtualKey; readonly secret: string }> {
    const secret = fields.value ?? createSecret(fields.key_format ?? 'sk-bf', uuid)
    const hash = hashSecret(secret) ?? ''
    const key = makeKey({ id: uuid(), hash, prefix: prefixOfSecret(secret), createdAt: now() }, fields)
    await checkShared(key)
    if (!(await keys.insert(key.id, key))) {
      throw new GatewayError('conflict', 'The id of the new virtual key is taken. Try again.')
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

  /** Only records that the request names: one that was deleted elsewhere must not block other changes. */
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

  return { find, read: keys.read, create, update, remove, page: keys.page, configure }
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
  throw new GatewayError('invalid-admin-request', `${field}: there is no such record. Create it first.`, {
    param: field,
  })
}
