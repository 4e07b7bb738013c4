import { GatewayError } from '../../core/errors.ts'
import { type Quota, quotaExceeded, type WriteOptions } from '../../core/store.ts'
import { createExpiryQueue, createOrderedKeys, type Dated } from './sorted.ts'

export interface MemoryValues {
  get(key: string): string | undefined
  set(key: string, value: string, options?: WriteOptions): void
  delete(key: string): boolean
  list(prefix: string, after: string | undefined, limit: number): readonly string[]
  clear(): void
}

export interface ValueBounds {
  readonly durable: PoolBounds
  readonly owned: PoolBounds
  readonly expiring: PoolBounds
}

/** Approximate overhead of a value, in bytes. */
const OVERHEAD_BYTES = 128

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
    const bytes = 2 * (key.length + value.length) + OVERHEAD_BYTES
    const entry: PoolEntry = {
      key,
      value,
      bytes,
      pool,
      share: quota?.name ?? key.slice(0, key.indexOf(':') + 1),
      dueAt: Infinity,
    }
    if (pool === expiring) rejectOversized(entry, quota)
    else if (!mustFit) throwIfFull(entry, old, quota)
    if (old !== undefined) remove(old)
    if (ttlMs !== undefined && !(ttlMs > 0)) return
    if (pool === expiring) dropUntilFits(entry, quota)
    pool.put(entry)
    keys.add(key)
    if (ttlMs !== undefined) expiries.schedule(entry, now() + ttlMs)
  }

  function dropUntilFits({ share, bytes }: PoolEntry, quota: Quota | undefined): void {
    if (quota !== undefined) {
      const own = { entries: quota.maxEntries, bytes: quota.maxBytes }
      dropWhile(
        () => isOver(expiring.sizeOfShare(share), bytes, own),
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

function isOver({ entries, bytes }: PoolBounds, added: number, limit: PoolBounds): boolean {
  return entries + 1 > limit.entries || bytes + added > limit.bytes
}

/** Throws if a value would not fit even if all other values were dropped. */
function rejectOversized({ pool, bytes }: PoolEntry, quota: Quota | undefined): void {
  if (quota !== undefined && (bytes > quota.maxBytes || quota.maxEntries < 1)) throw quotaExceeded(quota)
  if (bytes > pool.bounds.bytes) throw storeFullError()
}

/** Throws if a value without an expiry does not fit. A value may always replace one that is at least as large. */
function throwIfFull(entry: PoolEntry, old: PoolEntry | undefined, quota: Quota | undefined): void {
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
    if (free.entries < 0 || free.bytes < 0) throw storeFullError()
    return
  }
  // A key may use at most as much as remains free, which leaves capacity for other keys.
  const held = pool.sizeOfShare(share)
  const fits =
    held.entries + moreEntries <= Math.min(quota.maxEntries, free.entries) &&
    held.bytes + moreBytes <= Math.min(quota.maxBytes, free.bytes)
  if (!fits) throw quotaExceeded(quota)
}

export function storeFullError(items = 'values'): GatewayError {
  return new GatewayError(
    'overloaded',
    `The in-memory store has no capacity for more ${items}. Raise the limits of memoryStore(), or use another store.`,
  )
}

/**
 * Maximum number of entries and their total size in bytes: two per UTF-16 code unit of key and value, plus the
 * overhead.
 */
export interface PoolBounds {
  readonly entries: number
  readonly bytes: number
}

export interface PoolEntry extends Dated {
  readonly key: string
  readonly value: string
  readonly bytes: number
  readonly pool: Pool
  /** The name of the quota, or the first word of the key (`turn:`). */
  readonly share: string
}

export interface Pool {
  readonly bounds: PoolBounds
  readonly entries: number
  readonly bytes: number
  get(key: string): PoolEntry | undefined
  sizeOfShare(name: string): PoolBounds
  put(entry: PoolEntry): void
  remove(entry: PoolEntry): void
  touch(entry: PoolEntry): void
  oldestOf(share: string): PoolEntry | undefined
  /**
   * Returns the least recently used entry of the largest share, or of the share `writer` if that is equally large. A
   * share therefore loses entries only while no other share is larger.
   */
  oldestOfLargest(writer: string): PoolEntry | undefined
  clear(): void
}

interface Share extends Dated {
  readonly name: string
  /** Least recently used first, because a Map preserves insertion order. */
  readonly entries: Map<string, PoolEntry>
  bytes: number
}

const EMPTY: PoolBounds = { entries: 0, bytes: 0 }

export function createPool(bounds: PoolBounds): Pool {
  const all = new Map<string, PoolEntry>()
  const shares = new Map<string, Share>()
  /** Shares by negative size, so that the largest one is due first. */
  const bySize = createExpiryQueue<Share>()
  let bytes = 0

  function updateOrder(share: Share): void {
    const fraction = Math.max(share.entries.size / bounds.entries, share.bytes / bounds.bytes)
    bySize.schedule(share, share.entries.size === 0 ? Infinity : -fraction)
  }

  function put(entry: PoolEntry): void {
    const share = shares.get(entry.share) ?? { name: entry.share, entries: new Map(), bytes: 0, dueAt: Infinity }
    shares.set(share.name, share)
    share.entries.set(entry.key, entry)
    all.set(entry.key, entry)
    share.bytes += entry.bytes
    bytes += entry.bytes
    updateOrder(share)
  }

  function remove(entry: PoolEntry): void {
    const share = shares.get(entry.share)
    if (share === undefined || !share.entries.delete(entry.key)) return
    all.delete(entry.key)
    share.bytes -= entry.bytes
    bytes -= entry.bytes
    updateOrder(share)
    if (share.entries.size === 0) shares.delete(share.name)
  }

  function oldestOf(name: string): PoolEntry | undefined {
    return shares.get(name)?.entries.values().next().value
  }

  function oldestOfLargest(writer: string): PoolEntry | undefined {
    const largest = bySize.due(0)
    if (largest === undefined) return undefined
    updateOrder(largest)
    const own = shares.get(writer)
    return oldestOf(own?.dueAt === largest.dueAt ? own.name : largest.name)
  }

  return {
    bounds,
    get entries() {
      return all.size
    },
    get bytes() {
      return bytes
    },
    get: (key) => all.get(key),
    sizeOfShare: (name) => {
      const share = shares.get(name)
      return share === undefined ? EMPTY : { entries: share.entries.size, bytes: share.bytes }
    },
    put,
    remove,
    touch: (entry) => {
      const entries = shares.get(entry.share)?.entries
      if (entries?.delete(entry.key) === true) entries.set(entry.key, entry)
    },
    oldestOf,
    oldestOfLargest,
    clear: () => {
      all.clear()
      shares.clear()
      bySize.clear()
      bytes = 0
    },
  }
}
