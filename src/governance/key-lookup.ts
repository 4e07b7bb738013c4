import { sha256 } from '#hash'
import { chain, type MaybePromise } from '../core/async.ts'
import {
  CACHE_MS,
  createRecent,
  createRecordTable,
  MAX_CACHED,
  orLast,
  type LookupOptions,
  type RecordTable,
} from './record-table.ts'
import { storedKey, type VirtualKey } from './virtual-key.ts'

/** Finds virtual keys by their secrets. The store contains the hash of a secret, not the secret. */
export interface KeyLookup {
  /**
   * Returns the key of a secret, or undefined for an unknown one. The caller checks whether the key is active and not
   * expired. Changes by this process are visible immediately, changes by other processes within `cacheMs`. Rejects with
   * `overloaded` for a record that cannot be parsed, because such a key would have no limits.
   */
  find(secret: string): MaybePromise<VirtualKey | undefined>
  readonly keys: RecordTable<VirtualKey>
  /** Removes a hash from memory. Called after a change of its key. */
  forget(hash: string): void
}

/** Prefix of the entries that map the hash of a secret to the id of its key. */
export const HASHES = 'key-hash:'

export function createKeyLookup(options: LookupOptions): KeyLookup {
  const { store, now, cacheMs = CACHE_MS, keepsStale = false } = options
  const keys = createRecordTable({ ...options, prefix: 'key:', label: 'virtual key', schema: storedKey })
  /** Two caches, so that a flood of wrong secrets cannot evict valid ones. Keys of the entries are full hashes. */
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

  /** Counts changes of hashes. A look-up that began before a change must not cache its hash as unknown. */
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

/** Prefix of a generated secret. */
export type KeyFormat = 'sk-bf' | 'sk-svc'

/** Maximum length of a secret. Longer texts are not hashed. */
const MAX_SECRET = 512
const PREFIX_LENGTH = 10

/** Returns a new secret: the format and a version 4 UUID. */
export function createSecret(format: KeyFormat, uuid: () => string): string {
  return `${format}-${uuid()}`
}

/** Returns the SHA-256 of a secret as 64 hex digits, or undefined for a text that cannot be a secret. */
export function hashSecret(secret: string): string | undefined {
  return secret.length === 0 || secret.length > MAX_SECRET ? undefined : sha256(secret)
}

/** Returns the part of a secret that is shown in lists. */
export function prefixOfSecret(secret: string): string {
  return secret.slice(0, PREFIX_LENGTH)
}

/** Compares the hashes of two secrets in constant time. */
export function isSameSecret(given: string, expected: string): boolean {
  return isSameHash(hashSecret(given) ?? '', hashSecret(expected) ?? '-')
}

/** Compares two texts in a time that depends only on their lengths. */
export function isSameHash(given: string, expected: string): boolean {
  if (given.length !== expected.length) return false
  let difference = 0
  for (let index = 0; index < given.length; index += 1) {
    difference |= given.charCodeAt(index) ^ expected.charCodeAt(index)
  }
  return difference === 0
}
