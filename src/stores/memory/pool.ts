import { createExpiryQueue, type Dated } from './sorted.ts'

/** Maximum number of entries and bytes of a pool (two bytes per UTF-16 unit of key and value). */
export interface PoolBounds {
  readonly entries: number
  readonly bytes: number
}

export interface PoolEntry extends Dated {
  readonly key: string
  readonly value: string
  readonly bytes: number
  readonly pool: Pool
  /** The name of its quota, or the first word of its key (`turn:…`) without a quota. */
  readonly share: string
}

/** Entries by key, counted by shares. */
export interface Pool {
  readonly bounds: PoolBounds
  readonly entries: number
  readonly bytes: number
  get(key: string): PoolEntry | undefined
  /** Returns the size of one share. */
  shareOf(name: string): PoolBounds
  /** Adds an entry as the most recently used of its share. */
  put(entry: PoolEntry): void
  remove(entry: PoolEntry): void
  /** Makes an entry the most recently used one of its share. */
  touch(entry: PoolEntry): void
  /** Returns the least recently used entry of a share. */
  oldestOf(share: string): PoolEntry | undefined
  /**
   * Returns the least recently used entry of the largest share, or of `writer` if it is as large. A share therefore
   * loses entries only while it is the largest.
   */
  oldestOfLargest(writer: string): PoolEntry | undefined
  clear(): void
}

interface Share extends Dated {
  readonly name: string
  /** Least recently used first, because a Map keeps the order of insertion. */
  readonly entries: Map<string, PoolEntry>
  bytes: number
}

const NOTHING: PoolBounds = { entries: 0, bytes: 0 }

export function createPool(bounds: PoolBounds): Pool {
  const all = new Map<string, PoolEntry>()
  const shares = new Map<string, Share>()
  /** Orders shares by size, largest first: `dueAt` is the negative size. */
  const bySize = createExpiryQueue<Share>()
  let bytes = 0

  /** Returns the fraction of the pool that a share uses, by entries or bytes. */
  function sort(share: Share): void {
    const part = Math.max(share.entries.size / bounds.entries, share.bytes / bounds.bytes)
    bySize.schedule(share, share.entries.size === 0 ? Infinity : -part)
  }

  function put(entry: PoolEntry): void {
    const share = shares.get(entry.share) ?? { name: entry.share, entries: new Map(), bytes: 0, dueAt: Infinity }
    shares.set(share.name, share)
    share.entries.set(entry.key, entry)
    all.set(entry.key, entry)
    share.bytes += entry.bytes
    bytes += entry.bytes
    sort(share)
  }

  function remove(entry: PoolEntry): void {
    const share = shares.get(entry.share)
    if (share === undefined || !share.entries.delete(entry.key)) return
    all.delete(entry.key)
    share.bytes -= entry.bytes
    bytes -= entry.bytes
    sort(share)
    if (share.entries.size === 0) shares.delete(share.name)
  }

  function oldestOf(name: string): PoolEntry | undefined {
    return shares.get(name)?.entries.values().next().value
  }

  function oldestOfLargest(writer: string): PoolEntry | undefined {
    const largest = bySize.due(0)
    if (largest === undefined) return undefined
    sort(largest)
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
    shareOf: (name) => {
      const share = shares.get(name)
      return share === undefined ? NOTHING : { entries: share.entries.size, bytes: share.bytes }
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
