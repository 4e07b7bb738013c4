/** Something that is due at a moment: milliseconds since 1970, Infinity for never. Only the queue writes `dueAt`. */
export interface Dated {
  dueAt: number
}

/** Items by the moment they are due. The queue has no timer: its user asks which items are due. */
export interface ExpiryQueue<item extends Dated> {
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
const SLACK = 64

/** A binary heap: every step costs O(log n), the removal of stale slots is amortised. */
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
