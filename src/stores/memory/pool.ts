import type { Dated } from './expiry-queue.ts'

/** A pool of values is full at so many entries, or at so many bytes (two for each UTF-16 unit of key and value). */
export interface PoolBounds {
  readonly entries: number
  readonly bytes: number
}

export interface Entry extends Dated {
  readonly key: string
  readonly value: string
  readonly bytes: number
  readonly pool: Pool
}

/**
 * Entries by key, in shares by the first word of the key (`turn:…`, `recording:…`). When the pool is full the largest share
 * gives, so that no kind of value, however much comes of it, pushes out another.
 */
export interface Pool {
  readonly bounds: PoolBounds
  readonly size: number
  readonly bytes: number
  get(key: string): Entry | undefined
  /** Puts it last in its share. */
  put(entry: Entry): void
  remove(entry: Entry): void
  /** Makes it the last of its share to give. */
  touch(entry: Entry): void
  /** The entry that has to give when the pool is too full: the least recently used one of the largest share. */
  excess(): Entry | undefined
  clear(): void
}

interface Share {
  /** Oldest use first: a Map remembers the order of insertion. */
  readonly entries: Map<string, Entry>
  bytes: number
}

export function createPool(bounds: PoolBounds): Pool {
  const shares = new Map<string, Share>()
  let size = 0
  let bytes = 0

  function shareOf(key: string): Share {
    const name = kindOf(key)
    const known = shares.get(name)
    if (known !== undefined) return known
    const share: Share = { entries: new Map(), bytes: 0 }
    shares.set(name, share)
    return share
  }

  function put(entry: Entry): void {
    const share = shareOf(entry.key)
    share.entries.set(entry.key, entry)
    share.bytes += entry.bytes
    size += 1
    bytes += entry.bytes
  }

  function remove(entry: Entry): void {
    const share = shares.get(kindOf(entry.key))
    if (share?.entries.delete(entry.key) !== true) return
    share.bytes -= entry.bytes
    size -= 1
    bytes -= entry.bytes
    if (share.entries.size === 0) shares.delete(kindOf(entry.key))
  }

  /** Compared by what there is too much of. */
  function excess(): Entry | undefined {
    const isTooLong = bytes > bounds.bytes
    if (!isTooLong && size <= bounds.entries) return undefined
    const weigh = (share: Share): number => (isTooLong ? share.bytes : share.entries.size)
    let largest: Share | undefined
    for (const share of shares.values()) {
      if (largest === undefined || weigh(share) > weigh(largest)) largest = share
    }
    return largest?.entries.values().next().value
  }

  return {
    bounds,
    get size() {
      return size
    },
    get bytes() {
      return bytes
    },
    get: (key) => shares.get(kindOf(key))?.entries.get(key),
    put,
    remove,
    touch: (entry) => {
      const entries = shares.get(kindOf(entry.key))?.entries
      if (entries?.delete(entry.key) === true) entries.set(entry.key, entry)
    },
    excess,
    clear: () => {
      shares.clear()
      size = 0
      bytes = 0
    },
  }
}

function kindOf(key: string): string {
  return key.slice(0, key.indexOf(':') + 1)
}
