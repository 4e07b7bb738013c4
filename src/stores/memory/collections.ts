import { GatewayError } from '../../core/errors.ts'
import type { PoolLimit, PoolSize } from '../store-rules.ts'

/** An item of at most one queue. Only the queue changes these fields. */
export interface Schedulable {
  /** Infinity while the item is not scheduled. */
  dueAt: number
  /** The index of a scheduled item in the heap. */
  position: number
}

/** A binary heap, ordered by `dueAt`, without a timer. */
export class ExpiryQueue<Item extends Schedulable> {
  readonly #heap: Item[] = []

  schedule(item: Item, dueAt: number): void {
    if (item.dueAt === dueAt) return
    const isNew = item.dueAt === Infinity
    item.dueAt = dueAt
    if (dueAt !== Infinity) return place(this.#heap, item, isNew ? this.#heap.length : item.position)
    const last = this.#heap.pop()
    if (last !== undefined && last !== item) place(this.#heap, last, item.position)
  }

  forEachDue(now: number, handle: (item: Item, now: number) => void): void {
    for (let first = this.#heap[0]; first !== undefined && first.dueAt <= now; first = this.#heap[0]) {
      this.schedule(first, Infinity)
      handle(first, now)
    }
  }

  peek(): Item | undefined {
    return this.#heap[0]
  }
}

/** Moves later parents down and earlier children up until the item fits. */
function place<Item extends Schedulable>(heap: Item[], item: Item, from: number): void {
  let position = from
  const replaceBy = (other: Item, otherPosition: number): void => {
    heap[position] = other
    other.position = position
    position = otherPosition
  }
  while (position > 0) {
    const parentPosition = (position - 1) >> 1
    const parent = heap[parentPosition]
    if (parent === undefined || parent.dueAt <= item.dueAt) break
    replaceBy(parent, parentPosition)
  }
  for (;;) {
    const left = 2 * position + 1
    const isRightEarlier = (heap[left + 1]?.dueAt ?? Infinity) < (heap[left]?.dueAt ?? Infinity)
    const childPosition = isRightEarlier ? left + 1 : left
    const child = heap[childPosition]
    if (child === undefined || child.dueAt >= item.dueAt) break
    replaceBy(child, childPosition)
  }
  heap[position] = item
  item.position = position
}

const MAX_BUCKET = 512

/** Keys in UTF-16 order, in sorted buckets, so that `add` and `remove` shift few keys. */
export class OrderedKeys {
  readonly #buckets: string[][] = []

  add(key: string): void {
    const buckets = this.#buckets
    if (buckets.length === 0) buckets.push([])
    const index = Math.min(this.#findBucketIndex(key), buckets.length - 1)
    const bucket = buckets[index] ?? []
    const position = findPosition(bucket, key)
    if (bucket[position] === key) return
    bucket.splice(position, 0, key)
    if (bucket.length > MAX_BUCKET) buckets.splice(index + 1, 0, bucket.splice(MAX_BUCKET / 2))
  }

  remove(key: string): void {
    const index = this.#findBucketIndex(key)
    const bucket = this.#buckets[index]
    if (bucket === undefined) return
    const position = findPosition(bucket, key)
    if (bucket[position] !== key) return
    bucket.splice(position, 1)
    if (bucket.length === 0) this.#buckets.splice(index, 1)
  }

  list(prefix: string, after: string | undefined, limit: number): string[] {
    const from = after !== undefined && after > prefix ? after : prefix
    const matches: string[] = []
    const first = this.#findBucketIndex(from)
    for (let index = first; index < this.#buckets.length; index += 1) {
      const bucket = this.#buckets[index] ?? []
      for (let position = index === first ? findPosition(bucket, from) : 0; position < bucket.length; position += 1) {
        const key = bucket[position] ?? ''
        if (matches.length >= limit || !key.startsWith(prefix)) return matches
        if (key !== after) matches.push(key)
      }
    }
    return matches
  }

  #findBucketIndex(key: string): number {
    return findFirstIndex(this.#buckets.length, (index) => (this.#buckets[index]?.at(-1) ?? '') >= key)
  }
}

function findPosition(sorted: readonly string[], key: string): number {
  return findFirstIndex(sorted.length, (index) => (sorted[index] ?? '') >= key)
}

/** Returns the first matching index, or `length`, by binary search. All indexes after a matching index must match. */
export function findFirstIndex(length: number, matches: (index: number) => boolean): number {
  let low = 0
  let high = length
  while (low < high) {
    const middle = (low + high) >> 1
    if (matches(middle)) high = middle
    else low = middle + 1
  }
  return low
}

export interface PoolEntry extends Schedulable {
  readonly key: string
  readonly value: string
  readonly bytes: number
  readonly pool: Pool
  readonly share: string
}

interface Share extends Schedulable {
  readonly name: string
  /** In insertion order. `markUsed` moves an entry to the end. */
  readonly entries: Set<PoolEntry>
  bytes: number
}

const EMPTY: PoolSize = { entries: 0, bytes: 0 }

export class Pool {
  readonly limit: PoolLimit
  readonly size = { entries: 0, bytes: 0 }
  readonly #shares = new Map<string, Share>()
  /** Scheduled at their negative bytes, so that `peek` returns the largest share. */
  readonly #sharesByBytes = new ExpiryQueue<Share>()

  constructor(limit: PoolLimit) {
    this.limit = limit
  }

  sizeOfShare(name: string): PoolSize {
    const share = this.#shares.get(name)
    return share === undefined ? EMPTY : { entries: share.entries.size, bytes: share.bytes }
  }

  put(entry: PoolEntry): void {
    const { share: name, bytes } = entry
    const share = this.#shares.get(name) ?? {
      name,
      entries: new Set<PoolEntry>(),
      bytes: 0,
      dueAt: Infinity,
      position: 0,
    }
    this.#shares.set(name, share)
    share.entries.add(entry)
    share.bytes += bytes
    this.size.bytes += bytes
    this.size.entries += 1
    this.#updateOrder(share)
  }

  remove(entry: PoolEntry): void {
    const share = this.#shares.get(entry.share)
    if (share === undefined) return
    share.entries.delete(entry)
    share.bytes -= entry.bytes
    this.size.bytes -= entry.bytes
    this.size.entries -= 1
    this.#updateOrder(share)
    if (share.entries.size === 0) this.#shares.delete(share.name)
  }

  markUsed(entry: PoolEntry): void {
    const entries = this.#shares.get(entry.share)?.entries
    if (entries?.delete(entry) === true) entries.add(entry)
  }

  oldestOf(share: string): PoolEntry | undefined {
    return this.#shares.get(share)?.entries.values().next().value
  }

  largestShare(newShare: string): string | undefined {
    const largest = this.#sharesByBytes.peek()
    const own = this.#shares.get(newShare)
    return (own?.dueAt === largest?.dueAt ? own : largest)?.name
  }

  #updateOrder(share: Share): void {
    this.#sharesByBytes.schedule(share, share.entries.size === 0 ? Infinity : -share.bytes)
  }
}

export function storeFullError(items = 'values'): GatewayError {
  return new GatewayError(
    'overloaded',
    `The in-memory store has no capacity for more ${items}. Raise the limits of memoryStore(), or use another store.`,
  )
}
