import { chain, type MaybePromise } from '../core/async.ts'
import type { Store } from '../core/store.ts'
import { createRecent, orLast } from './recent.ts'
import { parseKeyRecord } from './record-schema.ts'
import { createRecordTable, type RecordTable } from './record-table.ts'
import { hashSecret, isSameHash } from './secret.ts'
import type { VirtualKey } from './virtual-key.ts'

/** Finds virtual keys by their secrets. The store contains their records, but not their secrets. */
export interface KeyLookup {
  /**
   * Returns the key of a secret, undefined for an unknown one. The caller checks whether the key is active and not
   * expired. Changes by this process are found at once, those by others within `cacheMs`. Rejects `overloaded` for a
   * record that cannot be read: it must not become a key without limits.
   */
  find(secret: string): MaybePromise<VirtualKey | undefined>
  readonly keys: RecordTable<VirtualKey>
  /** Forgets the key of a hash, after that changed in the store. */
  forget(hash: string): void
}

export interface KeyLookupOptions {
  readonly store: Store
  readonly now: () => number
  /** How long a look-up may be answered from memory, in milliseconds. @default 2,000 */
  readonly cacheMs?: number
  /** While the store fails, a look-up returns the key that it last found. @default false: it rejects */
  readonly keepsStale?: boolean
}

/** Maps the hash of a secret to the id of its key. */
export const HASHES = 'key-hash:'
const MAX_CACHED = 10_000
const CACHE_MS = 2_000

export function createKeyLookup(options: KeyLookupOptions): KeyLookup {
  const { store, now, cacheMs = CACHE_MS, keepsStale = false } = options
  const keys: RecordTable<VirtualKey> = createRecordTable({
    store,
    now,
    cacheMs,
    keepsStale,
    prefix: 'key:',
    label: 'virtual key',
    parse: parseKeyRecord,
  })
  /** Two pools, so that a flood of wrong secrets cannot push the right ones out. The full hash is the name. */
  const known = createRecent<string>(MAX_CACHED)
  const unknown = createRecent<undefined>(MAX_CACHED)

  function find(secret: string): MaybePromise<VirtualKey | undefined> {
    const hash = hashSecret(secret)
    if (hash === undefined) return undefined
    return chain(idOf(hash), (id) =>
      id === undefined
        ? undefined
        : chain(keys.find(id), (key) => (key !== undefined && isSameHash(key.hash, hash) ? key : undefined)),
    )
  }

  /** A look-up that began before a change of a hash must not cache it as unknown. */
  let changes = 0

  function idOf(hash: string): MaybePromise<string | undefined> {
    const at = now()
    const remembered = known.get(hash, at)
    if (remembered !== undefined) return remembered.value
    if (unknown.get(hash, at) !== undefined) return undefined
    const seen = changes
    const remember = (id: string | undefined): string | undefined => {
      if (id !== undefined) known.put(hash, id, at + cacheMs)
      else if (seen === changes) unknown.put(hash, undefined, at + cacheMs)
      return id
    }
    return orLast(store.get(HASHES + hash), remember, keepsStale ? known.last(hash) : undefined)
  }

  function forget(hash: string): void {
    changes += 1
    known.forget(hash)
    unknown.forget(hash)
  }

  return { find, keys, forget }
}
