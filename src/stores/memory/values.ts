import { GatewayError } from '../../core/errors.ts'
import { type Quota, quotaExceededError, type WriteOptions } from '../../core/store.ts'
import {
  bytesOf,
  exceedsQuota,
  growthOf,
  wouldExceed,
  limitOf,
  type PoolLimit,
  poolOf,
  type PoolSize,
  shareOf,
  type ValuePool,
} from '../store-rules.ts'
import { createExpiryQueue, createOrderedKeys, type Schedulable } from './sorted-collections.ts'

export interface MemoryValues {
  get(key: string): string | undefined
  set(key: string, value: string, options?: WriteOptions): void
  delete(key: string): boolean
  list(prefix: string, after: string | undefined, limit: number): readonly string[]
  clear(): void
}

export function createValues(now: () => number, limits: Readonly<Record<ValuePool, PoolLimit>>): MemoryValues {
  const pools = {
    durable: createPool(limits.durable),
    owned: createPool(limits.owned),
    expiring: createPool(limits.expiring),
  }
  const { durable, owned, expiring } = pools
  const keys = createOrderedKeys()
  const expiries = createExpiryQueue<PoolEntry>()

  function remove(entry: PoolEntry): void {
    entry.pool.remove(entry)
    expiries.schedule(entry, Infinity)
    keys.remove(entry.key)
  }

  function find(key: string): PoolEntry | undefined {
    expiries.forEachDue(now(), remove)
    return durable.get(key) ?? owned.get(key) ?? expiring.get(key)
  }

  function get(key: string): string | undefined {
    const entry = find(key)
    if (entry?.pool === expiring) expiring.markUsed(entry)
    return entry?.value
  }

  function set(key: string, value: string, options: WriteOptions = {}): void {
    const { ttlMs, quota, mayExceedQuota = false } = options
    const old = find(key)
    const pool = pools[poolOf(options)]
    const bytes = bytesOf(key, value)
    const entry: PoolEntry = { key, value, bytes, pool, share: shareOf(key, quota), dueAt: Infinity }
    if (pool === expiring) rejectOversized(entry, quota)
    else if (!mayExceedQuota) throwIfFull(entry, old, quota)
    if (old !== undefined) remove(old)
    if (ttlMs !== undefined && !(ttlMs > 0)) return
    if (pool === expiring) dropUntilFits(entry, quota)
    pool.put(entry)
    keys.add(key)
    if (ttlMs !== undefined) expiries.schedule(entry, now() + ttlMs)
  }

  function dropUntilFits({ share, bytes }: PoolEntry, quota: Quota | undefined): void {
    const nextToDrop = (): PoolEntry | undefined => {
      const isQuotaExceeded = quota !== undefined && wouldExceed(expiring.sizeOfShare(share), bytes, limitOf(quota))
      if (isQuotaExceeded) return expiring.oldestOf(share)
      return wouldExceed(expiring, bytes, expiring.limit) ? expiring.oldestOfLargest(share) : undefined
    }
    for (let entry = nextToDrop(); entry !== undefined; entry = nextToDrop()) remove(entry)
  }

  function deleteValue(key: string): boolean {
    const entry = find(key)
    if (entry !== undefined) remove(entry)
    return entry !== undefined
  }

  function list(prefix: string, after: string | undefined, limit: number): readonly string[] {
    expiries.forEachDue(now(), remove)
    return keys.list(prefix, after, limit)
  }

  function clear(): void {
    for (const collection of [durable, owned, expiring, keys, expiries]) collection.clear()
  }

  return { get, set, delete: deleteValue, list, clear }
}

/** Throws if a value would not fit even if all other values were dropped. */
function rejectOversized({ pool, bytes }: PoolEntry, quota: Quota | undefined): void {
  if (quota !== undefined && (bytes > quota.maxBytes || quota.maxEntries < 1)) throw quotaExceededError(quota)
  if (bytes > pool.limit.bytes) throw storeFullError()
}

/** Throws if a value without an expiry does not fit. A value may always replace one that is at least as large. */
function throwIfFull({ pool, share, bytes }: PoolEntry, old: PoolEntry | undefined, quota: Quota | undefined): void {
  const isReplaced = old?.pool === pool && old.share === share
  const growth = growthOf(bytes, isReplaced ? old.bytes : undefined)
  if (quota !== undefined) {
    if (exceedsQuota(growth, pool.sizeOfShare(share), pool, quota)) throw quotaExceededError(quota)
    return
  }
  if (growth.entries === 0 && growth.bytes <= 0) return
  const { entries, bytes: poolBytes, limit } = pool
  if (entries + growth.entries > limit.entries || poolBytes + growth.bytes > limit.bytes) throw storeFullError()
}

export function storeFullError(items = 'values'): GatewayError {
  return new GatewayError(
    'overloaded',
    `The in-memory store has no capacity for more ${items}. Raise the limits of memoryStore(), or use another store.`,
  )
}

interface PoolEntry extends Schedulable {
  readonly key: string
  readonly value: string
  readonly bytes: number
  readonly pool: Pool
  /** The name of the quota, or the prefix of the key, such as `turn:`. */
  readonly share: string
}

interface Pool extends PoolSize {
  readonly limit: PoolLimit
  get(key: string): PoolEntry | undefined
  sizeOfShare(name: string): PoolSize
  put(entry: PoolEntry): void
  remove(entry: PoolEntry): void
  markUsed(entry: PoolEntry): void
  oldestOf(share: string): PoolEntry | undefined
  /**
   * Returns the least recently used entry of the largest share. Of equally large shares, prefers `preferredName`, so
   * that a write drops entries of another share only if that share is larger.
   */
  oldestOfLargest(preferredName: string): PoolEntry | undefined
  clear(): void
}

interface Share extends Schedulable {
  readonly name: string
  /** Least recently used first, because a Map preserves insertion order. */
  readonly entries: Map<string, PoolEntry>
  bytes: number
}

const EMPTY: PoolSize = { entries: 0, bytes: 0 }

function createPool(limit: PoolLimit): Pool {
  const entriesByKey = new Map<string, PoolEntry>()
  const shares = new Map<string, Share>()
  /** Scheduled at their negative sizes, so that `takeDue` returns the largest share. */
  const bySize = createExpiryQueue<Share>()
  let bytes = 0

  function updateOrder(share: Share): void {
    const fraction = Math.max(share.entries.size / limit.entries, share.bytes / limit.bytes)
    bySize.schedule(share, share.entries.size === 0 ? Infinity : -fraction)
  }

  function put(entry: PoolEntry): void {
    const share = shares.get(entry.share) ?? { name: entry.share, entries: new Map(), bytes: 0, dueAt: Infinity }
    shares.set(share.name, share)
    share.entries.set(entry.key, entry)
    entriesByKey.set(entry.key, entry)
    share.bytes += entry.bytes
    bytes += entry.bytes
    updateOrder(share)
  }

  function remove(entry: PoolEntry): void {
    const share = shares.get(entry.share)
    if (share === undefined || !share.entries.delete(entry.key)) return
    entriesByKey.delete(entry.key)
    share.bytes -= entry.bytes
    bytes -= entry.bytes
    updateOrder(share)
    if (share.entries.size === 0) shares.delete(share.name)
  }

  function oldestOf(name: string): PoolEntry | undefined {
    return shares.get(name)?.entries.values().next().value
  }

  function oldestOfLargest(preferredName: string): PoolEntry | undefined {
    const largest = bySize.takeDue(0)
    if (largest === undefined) return undefined
    updateOrder(largest)
    const preferred = shares.get(preferredName)
    return oldestOf(preferred?.dueAt === largest.dueAt ? preferred.name : largest.name)
  }

  return {
    limit,
    get entries() {
      return entriesByKey.size
    },
    get bytes() {
      return bytes
    },
    get: (key) => entriesByKey.get(key),
    sizeOfShare: (name) => {
      const share = shares.get(name)
      return share === undefined ? EMPTY : { entries: share.entries.size, bytes: share.bytes }
    },
    put,
    remove,
    markUsed: (entry) => {
      const entries = shares.get(entry.share)?.entries
      if (entries?.delete(entry.key) === true) entries.set(entry.key, entry)
    },
    oldestOf,
    oldestOfLargest,
    clear: () => {
      entriesByKey.clear()
      shares.clear()
      bySize.clear()
      bytes = 0
    },
  }
}
