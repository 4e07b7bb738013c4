/** Something that is due at a moment: milliseconds since 1970, Infinity for never. Only the queue writes `dueAt`. */
export interface Dated {
  dueAt: number
}

/** Items by the moment they are due. The queue has no timer: its user asks which items are due. */
interface ExpiryQueue<item extends Dated> {
  /** Sets or moves the moment; Infinity takes the item out. */
  schedule(item: item, at: number): void
  /** Takes out and returns one item that is due, the earliest first. */
  due(now: number): item | undefined
  clear(): void
}

interface Slot<item> {
  readonly at: number
  readonly item: item
}

/** Moved and cancelled items leave stale slots behind; above this many the heap is rebuilt once half of it is stale. */
const SLACK = 256

/** A binary heap: every step costs O(log n), the removal of stale slots is amortized. */
export function createExpiryQueue<item extends Dated>(): ExpiryQueue<item> {
  let heap: Slot<item>[] = []
  let scheduled = 0

  function schedule(item: item, at: number): void {
    if (item.dueAt === at) return
    if (item.dueAt !== Infinity) scheduled -= 1
    item.dueAt = at
    if (at === Infinity) return
    scheduled += 1
    heap.push({ at, item })
    rise(heap, heap.length - 1)
    if (heap.length > 2 * scheduled + SLACK) rebuild()
  }

  function rebuild(): void {
    const live = new Map<item, Slot<item>>()
    for (const slot of heap) if (slot.item.dueAt === slot.at) live.set(slot.item, slot)
    heap = [...live.values()].sort((a, b) => a.at - b.at)
  }

  function due(now: number): item | undefined {
    for (let first = heap[0]; first !== undefined && first.at <= now; first = heap[0]) {
      removeFirst(heap)
      if (first.item.dueAt !== first.at) continue
      first.item.dueAt = Infinity
      scheduled -= 1
      return first.item
    }
    return undefined
  }

  function clear(): void {
    heap = []
    scheduled = 0
  }

  return { schedule, due, clear }
}

function rise<item>(heap: Slot<item>[], from: number): void {
  let index = from
  while (index > 0) {
    const parent = (index - 1) >> 1
    if (!swapIfEarlier(heap, index, parent)) return
    index = parent
  }
}

function removeFirst<item>(heap: Slot<item>[]): void {
  const last = heap.pop()
  if (last === undefined || heap.length === 0) return
  heap[0] = last
  let index = 0
  for (;;) {
    const left = 2 * index + 1
    const child = isEarlier(heap, left + 1, left) ? left + 1 : left
    if (!swapIfEarlier(heap, child, index)) return
    index = child
  }
}

function isEarlier<item>(heap: readonly Slot<item>[], index: number, than: number): boolean {
  const a = heap[index]
  const b = heap[than]
  return a !== undefined && b !== undefined && a.at < b.at
}

function swapIfEarlier<item>(heap: Slot<item>[], index: number, than: number): boolean {
  const a = heap[index]
  const b = heap[than]
  if (a === undefined || b === undefined || a.at >= b.at) return false
  heap[index] = b
  heap[than] = a
  return true
}

/** A set of texts in ascending order of their UTF-16 units. */
interface OrderedKeys {
  add(key: string): void
  remove(key: string): void
  /** Those with this prefix and after `after`, at most `limit`. */
  list(prefix: string, after: string | undefined, limit: number): string[]
  clear(): void
}

/** A bucket that grows past this is cut in two. */
const BUCKET = 512

/** Sorted buckets: adding and removing move at most one bucket's entries. */
export function createOrderedKeys(): OrderedKeys {
  let buckets: string[][] = []

  /** The first bucket whose last key is not below `key`; the number of buckets when there is none. */
  const bucketFor = (key: string): number =>
    firstAtLeast(buckets.length, (index) => (buckets[index]?.at(-1) ?? '') >= key)

  function add(key: string): void {
    if (buckets.length === 0) buckets.push([])
    const index = Math.min(bucketFor(key), buckets.length - 1)
    const bucket = buckets[index] ?? []
    const at = placeIn(bucket, key)
    if (bucket[at] === key) return
    bucket.splice(at, 0, key)
    if (bucket.length > BUCKET) buckets.splice(index + 1, 0, bucket.splice(BUCKET / 2))
  }

  function remove(key: string): void {
    const index = bucketFor(key)
    const bucket = buckets[index]
    if (bucket === undefined) return
    const at = placeIn(bucket, key)
    if (bucket[at] !== key) return
    bucket.splice(at, 1)
    if (bucket.length === 0) buckets.splice(index, 1)
  }

  function list(prefix: string, after: string | undefined, limit: number): string[] {
    const from = after !== undefined && after > prefix ? after : prefix
    const found: string[] = []
    const first = bucketFor(from)
    for (let index = first; index < buckets.length; index += 1) {
      const bucket = buckets[index] ?? []
      for (let at = index === first ? placeIn(bucket, from) : 0; at < bucket.length; at += 1) {
        const key = bucket[at] ?? ''
        if (found.length >= limit || !key.startsWith(prefix)) return found
        if (key !== after) found.push(key)
      }
    }
    return found
  }

  return { add, remove, list, clear: () => void (buckets = []) }
}

/** The index of `key` in a sorted list, or the index at which it would be inserted. */
function placeIn(sorted: readonly string[], key: string): number {
  return firstAtLeast(sorted.length, (index) => (sorted[index] ?? '') >= key)
}

/** Binary search: the first index below `length` that `reaches`, else `length`. */
function firstAtLeast(length: number, reaches: (index: number) => boolean): number {
  let low = 0
  let high = length
  while (low < high) {
    const middle = (low + high) >> 1
    if (reaches(middle)) high = middle
    else low = middle + 1
  }
  return low
}
