import { GatewayError } from '../../core/errors.ts'
import { type Quota, type WriteOptions, quotaExceeded } from '../../core/store.ts'
import { createExpiryQueue, createOrderedKeys } from './sorted.ts'
import { createPool, type PoolEntry, type PoolBounds } from './pool.ts'

/** Texts by key, in three independent pools. */
export interface MemoryValues {
  get(key: string): string | undefined
  set(key: string, value: string, options?: WriteOptions): void
  delete(key: string): boolean
  list(prefix: string, after: string | undefined, limit: number): readonly string[]
  clear(): void
}

export interface ValueBounds {
  /** Values without an expiry and without a quota. A full pool refuses new values with `overloaded`. */
  readonly durable: PoolBounds
  /** Values without an expiry that count against a quota. A write is refused if the quota would use more than remains free. */
  readonly owned: PoolBounds
  /** Values with an expiry. A full pool drops the least recently used value of its largest share. */
  readonly expiring: PoolBounds
}

/** The approximate overhead of an entry in bytes. */
const OVERHEAD = 128

export function createValues(now: () => number, bounds: ValueBounds): MemoryValues {
  const durable = createPool(bounds.durable)
  const owned = createPool(bounds.owned)
  const expiring = createPool(bounds.expiring)
  const keys = createOrderedKeys()
  const expiries = createExpiryQueue<PoolEntry>()

  function remove(entry: PoolEntry): void {
    entry.pool.remove(entry)
    expiries.schedule(entry, Infinity)
    keys.remove(entry.key)
  }

  function sweep(): void {
    const at = now()
    for (let entry = expiries.due(at); entry !== undefined; entry = expiries.due(at)) remove(entry)
  }

  function find(key: string): PoolEntry | undefined {
    sweep()
    return durable.get(key) ?? owned.get(key) ?? expiring.get(key)
  }

  function get(key: string): string | undefined {
    const entry = find(key)
    if (entry?.pool === expiring) expiring.touch(entry)
    return entry?.value
  }

  function set(key: string, value: string, { ttlMs, quota, mustFit = false }: WriteOptions = {}): void {
    const old = find(key)
    const pool = ttlMs !== undefined ? expiring : quota !== undefined ? owned : durable
    const bytes = 2 * (key.length + value.length) + OVERHEAD
    const entry: PoolEntry = { key, value, bytes, pool, share: quota?.name ?? kindOf(key), dueAt: Infinity }
    if (pool === expiring) refuseGiant(entry, quota)
    else if (!mustFit) refuseOverfull(entry, old, quota)
    if (old !== undefined) remove(old)
    if (ttlMs !== undefined && !(ttlMs > 0)) return
    if (pool === expiring) makeRoom(entry, quota)
    pool.put(entry)
    keys.add(key)
    if (ttlMs !== undefined) expiries.schedule(entry, now() + ttlMs)
  }

  function makeRoom({ share, bytes }: PoolEntry, quota: Quota | undefined): void {
    if (quota !== undefined) {
      const most = { entries: quota.maxEntries, bytes: quota.maxBytes }
      dropWhile(
        () => isOver(expiring.shareOf(share), bytes, most),
        () => expiring.oldestOf(share),
      )
    }
    dropWhile(
      () => isOver(expiring, bytes, expiring.bounds),
      () => expiring.oldestOfLargest(share),
    )
  }

  function dropWhile(isFull: () => boolean, next: () => PoolEntry | undefined): void {
    while (isFull()) {
      const entry = next()
      if (entry === undefined) return
      remove(entry)
    }
  }

  function deleteValue(key: string): boolean {
    const entry = find(key)
    if (entry !== undefined) remove(entry)
    return entry !== undefined
  }

  function list(prefix: string, after: string | undefined, limit: number): readonly string[] {
    sweep()
    return keys.list(prefix, after, limit)
  }

  function clear(): void {
    for (const part of [durable, owned, expiring, keys, expiries]) part.clear()
  }

  return { get, set, delete: deleteValue, list, clear }
}

/** Returns true if a further entry of this size exceeds the bounds. */
function isOver({ entries, bytes }: PoolBounds, more: number, most: PoolBounds): boolean {
  return entries + 1 > most.entries || bytes + more > most.bytes
}

/** Throws for a value that exceeds the limits even if all others are dropped. */
function refuseGiant({ pool, bytes }: PoolEntry, quota: Quota | undefined): void {
  if (quota !== undefined && (bytes > quota.maxBytes || quota.maxEntries < 1)) throw quotaExceeded(quota)
  if (bytes > pool.bounds.bytes) throw overfull()
}

/** Refuses a value that is never dropped. Replacing a value by one that is not larger is always possible. */
function refuseOverfull(entry: PoolEntry, old: PoolEntry | undefined, quota: Quota | undefined): void {
  const { pool, share, bytes } = entry
  const isReplaced = old?.pool === pool && old.share === share
  const moreEntries = isReplaced ? 0 : 1
  const moreBytes = bytes - (isReplaced ? old.bytes : 0)
  if (moreEntries === 0 && moreBytes <= 0) return
  const free = {
    entries: pool.bounds.entries - pool.entries - moreEntries,
    bytes: pool.bounds.bytes - pool.bytes - moreBytes,
  }
  if (quota === undefined) {
    if (free.entries < 0 || free.bytes < 0) throw overfull()
    return
  }
  // A key uses at most as much as remains free, so the next key can also store values.
  const held = pool.shareOf(share)
  const fits =
    held.entries + moreEntries <= Math.min(quota.maxEntries, free.entries) &&
    held.bytes + moreBytes <= Math.min(quota.maxBytes, free.bytes)
  if (!fits) throw quotaExceeded(quota)
}

/** Returns the first word of a key, with its colon. */
function kindOf(key: string): string {
  return key.slice(0, key.indexOf(':') + 1)
}

function overfull(): GatewayError {
  return new GatewayError(
    'overloaded',
    'The in-memory store is full. Raise the limits of memoryStore(), or use another store.',
  )
}
