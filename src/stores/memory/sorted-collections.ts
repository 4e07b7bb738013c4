/** An item with a due time, which is Infinity while the item is not scheduled. Only the queue writes `dueAt`. */
export interface Schedulable {
  dueAt: number
}

/** Items ordered by due time. The queue has no timer: its owner calls `takeDue` or `forEachDue`. */
interface ExpiryQueue<Item extends Schedulable> {
  /** Replaces the due time of an item. Infinity removes the item from the queue. */
  schedule(item: Item, at: number): void
  /** Removes and returns the item with the earliest due time, if it is due. */
  takeDue(now: number): Item | undefined
  /** Removes all due items, and calls `handle` for each. */
  forEachDue(now: number, handle: (item: Item, now: number) => void): void
  clear(): void
}

interface Slot<Item> {
  readonly at: number
  readonly item: Item
}

/**
 * Rescheduled and removed items leave stale slots. The heap is rebuilt when it has this many more stale slots than live
 * ones.
 */
const MAX_EXCESS_SLOTS = 256

/** A binary heap. Each operation takes O(log n), and the cost of removing stale slots is amortized. */
export function createExpiryQueue<Item extends Schedulable>(): ExpiryQueue<Item> {
  let heap: Slot<Item>[] = []
  let scheduledCount = 0

  function schedule(item: Item, at: number): void {
    if (item.dueAt === at) return
    if (item.dueAt !== Infinity) scheduledCount -= 1
    item.dueAt = at
    if (at === Infinity) return
    scheduledCount += 1
    heap.push({ at, item })
    siftUp(heap, heap.length - 1)
    if (heap.length > 2 * scheduledCount + MAX_EXCESS_SLOTS) rebuild()
  }

  function rebuild(): void {
    const live = new Map<Item, Slot<Item>>()
    for (const slot of heap) if (slot.item.dueAt === slot.at) live.set(slot.item, slot)
    heap = [...live.values()].sort((a, b) => a.at - b.at)
  }

  function takeDue(now: number): Item | undefined {
    for (let first = heap[0]; first !== undefined && first.at <= now; first = heap[0]) {
      removeFirst(heap)
      if (first.item.dueAt !== first.at) continue
      first.item.dueAt = Infinity
      scheduledCount -= 1
      return first.item
    }
    return undefined
  }

  function forEachDue(now: number, handle: (item: Item, now: number) => void): void {
    for (let item = takeDue(now); item !== undefined; item = takeDue(now)) handle(item, now)
  }

  function clear(): void {
    heap = []
    scheduledCount = 0
  }

  return { schedule, takeDue, forEachDue, clear }
}

function siftUp<Item>(heap: Slot<Item>[], from: number): void {
  let index = from
  while (index > 0) {
    const parent = (index - 1) >> 1
    if (!swapIfEarlier(heap, index, parent)) return
    index = parent
  }
}

function removeFirst<Item>(heap: Slot<Item>[]): void {
  const last = heap.pop()
  if (last === undefined || heap.length === 0) return
  heap[0] = last
  let index = 0
  for (;;) {
    const left = 2 * index + 1
    const right = left + 1
    const child = (heap[right]?.at ?? Infinity) < (heap[left]?.at ?? Infinity) ? right : left
    if (!swapIfEarlier(heap, child, index)) return
    index = child
  }
}

function swapIfEarlier<Item>(heap: Slot<Item>[], index: number, otherIndex: number): boolean {
  const a = heap[index]
  const b = heap[otherIndex]
  if (a === undefined || b === undefined || a.at >= b.at) return false
  heap[index] = b
  heap[otherIndex] = a
  return true
}

/** A set of keys in ascending order of their UTF-16 code units. */
interface OrderedKeys {
  add(key: string): void
  remove(key: string): void
  /** Returns at most `limit` keys with this prefix, after the key `after`. */
  list(prefix: string, after: string | undefined, limit: number): string[]
  clear(): void
}

/** Maximum number of keys per bucket. A larger bucket is split. */
const MAX_BUCKET = 512

/** Stores the keys in sorted buckets, so that `add` and `remove` move the keys of at most one bucket. */
export function createOrderedKeys(): OrderedKeys {
  let buckets: string[][] = []

  /** Returns the index of the first bucket whose last key is at least `key`, or the number of buckets. */
  const findBucketIndex = (key: string): number =>
    findFirstIndex(buckets.length, (index) => (buckets[index]?.at(-1) ?? '') >= key)

  function add(key: string): void {
    if (buckets.length === 0) buckets.push([])
    const index = Math.min(findBucketIndex(key), buckets.length - 1)
    const bucket = buckets[index] ?? []
    const position = findPosition(bucket, key)
    if (bucket[position] === key) return
    bucket.splice(position, 0, key)
    if (bucket.length > MAX_BUCKET) buckets.splice(index + 1, 0, bucket.splice(MAX_BUCKET / 2))
  }

  function remove(key: string): void {
    const index = findBucketIndex(key)
    const bucket = buckets[index]
    if (bucket === undefined) return
    const position = findPosition(bucket, key)
    if (bucket[position] !== key) return
    bucket.splice(position, 1)
    if (bucket.length === 0) buckets.splice(index, 1)
  }

  function list(prefix: string, after: string | undefined, limit: number): string[] {
    const from = after !== undefined && after > prefix ? after : prefix
    const matches: string[] = []
    const first = findBucketIndex(from)
    for (let index = first; index < buckets.length; index += 1) {
      const bucket = buckets[index] ?? []
      for (let position = index === first ? findPosition(bucket, from) : 0; position < bucket.length; position += 1) {
        const key = bucket[position] ?? ''
        if (matches.length >= limit || !key.startsWith(prefix)) return matches
        if (key !== after) matches.push(key)
      }
    }
    return matches
  }

  return { add, remove, list, clear: () => void (buckets = []) }
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
