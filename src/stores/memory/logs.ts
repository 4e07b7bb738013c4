import { flatten } from '../../core/json.ts'
import type { LogEntry, LogQuery, NewLogEntry } from '../../core/store.ts'
import { ExpiryQueue, findFirstIndex, type Schedulable } from './collections.ts'
import {
  type BoundedPool,
  dropUntilFits,
  logShareOf,
  type PoolLimit,
  type PoolSize,
  type StoreClock,
} from '../store-rules.ts'

interface Line extends Pick<LogEntry, 'at'> {
  readonly log: Queue
  readonly sequence: number
  value: string
  readonly bytes: number
  readonly expiresAt: number
  /** Dropped lines in the middle of a queue are removed later, many at once. */
  isDropped: boolean
}

interface Queue {
  readonly name: string
  /** Elements before `head` are undefined, which lets the garbage collector free removed lines. */
  lines: (Line | undefined)[]
  head: number
  droppedCount: number
}

interface Share extends Schedulable {
  readonly queue: Queue
  entries: number
  bytes: number
}

const EMPTY: PoolSize = { entries: 0, bytes: 0 }

const OVERHEAD_BYTES = 160
/** Sizes are compared in coarse steps, so that a new line rarely changes the order of the shares. */
const ORDER_STEPS = 8192
/** Cursors are zero-padded, because they are compared as strings. */
const CURSOR_DIGITS = 16

/** Log entries in memory, by log and by share. */
export class MemoryLogs {
  readonly #clock: StoreClock
  readonly #bounds: PoolLimit & { readonly maxEntriesPerLog: number }
  readonly #logs = new Map<string, Queue>()
  readonly #shares = new Map<string, Share>()
  /** Scheduled at their negative bytes, so that `peek` returns the largest share. */
  readonly #sharesByBytes = new ExpiryQueue<Share>()
  readonly #pool: BoundedPool
  readonly #size = { entries: 0, bytes: 0 }
  #sequence = 0

  constructor(clock: StoreClock, bounds: PoolLimit & { readonly maxEntriesPerLog: number }) {
    this.#clock = clock
    this.#bounds = bounds
    this.#pool = {
      limit: bounds,
      size: this.#size,
      sizeOfShare: (name) => this.#shares.get(name) ?? EMPTY,
      largestShare: (newShare) => this.#largestShare(newShare),
      dropOldest: (name) => this.#dropFirst(this.#shares.get(name)),
    }
  }

  isOversized(log: string, { value, quota }: NewLogEntry): boolean {
    return quota !== undefined && bytesOfLine(log, value) > quota.maxBytes
  }

  /** The entry must not be oversized. */
  append(log: string, { at, value, ttlMs, quota }: NewLogEntry): void {
    const name = logShareOf(log, quota)
    const bytes = bytesOfLine(log, value)
    const { maxEntriesPerLog: maxEntries, bytes: maxBytes } = this.#bounds
    this.#dropExpired(this.#shares.get(name))
    dropUntilFits(this.#pool, { share: name, bytes, quota: quota ?? { name, maxEntries, maxBytes } })
    this.#sequence += 1
    const expiresAt = ttlMs === undefined ? Infinity : this.#clock.now() + ttlMs
    const queue = this.#logs.get(log) ?? emptyQueue(log)
    this.#logs.set(log, queue)
    const share = this.#shares.get(name) ?? emptyShare(name)
    this.#shares.set(name, share)
    const line: Line = {
      log: queue,
      sequence: this.#sequence,
      at,
      value: flatten(value),
      bytes,
      expiresAt,
      isDropped: false,
    }
    queue.lines.push(line)
    share.queue.lines.push(line)
    share.entries += 1
    share.bytes += bytes
    this.#size.bytes += bytes
    this.#size.entries += 1
    this.#updateOrder(share)
  }

  entries(log: string, query: LogQuery): readonly LogEntry[] {
    const queue = this.#logs.get(log)
    if (queue === undefined) return []
    const time = this.#clock.now()
    const results: LogEntry[] = []
    for (let index = firstAfter(queue, query.after); index < queue.lines.length; index += 1) {
      const line = queue.lines[index]
      if (line === undefined || results.length >= query.limit) break
      if (line.isDropped || line.expiresAt <= time) continue
      if (line.at < (query.from ?? -Infinity) || line.at >= (query.to ?? Infinity)) continue
      results.push({ cursor: cursorOf(line), at: line.at, value: line.value })
    }
    return results
  }

  #updateOrder(share: Share): void {
    const steps = Math.ceil((share.bytes / this.#bounds.bytes) * ORDER_STEPS)
    this.#sharesByBytes.schedule(share, share.entries === 0 ? Infinity : -steps)
  }

  #largestShare(newShare: string): string | undefined {
    const largest = this.#sharesByBytes.peek()
    const own = this.#shares.get(newShare)
    return (own?.dueAt === largest?.dueAt ? own : largest)?.queue.name
  }

  #dropExpired(share: Share | undefined): void {
    if (share === undefined) return
    const time = this.#clock.now()
    while ((firstOf(share.queue)?.expiresAt ?? Infinity) <= time) this.#dropFirst(share)
  }

  #dropFirst(share: Share | undefined): void {
    if (share === undefined) return
    const line = shift(share.queue)
    if (line === undefined) return
    share.entries -= 1
    share.bytes -= line.bytes
    this.#size.bytes -= line.bytes
    this.#size.entries -= 1
    this.#updateOrder(share)
    if (share.entries === 0) this.#shares.delete(share.queue.name)
    this.#dropFromLog(line)
  }

  #dropFromLog(line: Line): void {
    const { log } = line
    line.isDropped = true
    line.value = ''
    log.droppedCount += 1
    while (firstOf(log)?.isDropped === true) {
      shift(log)
      log.droppedCount -= 1
    }
    if (lineCount(log) === 0) this.#logs.delete(log.name)
    else if (log.droppedCount * 2 >= lineCount(log)) {
      log.lines = log.lines.slice(log.head).filter((entry) => entry?.isDropped === false)
      log.head = 0
      log.droppedCount = 0
    }
  }
}

function emptyShare(name: string): Share {
  return { queue: emptyQueue(name), entries: 0, bytes: 0, dueAt: Infinity, position: 0 }
}

function bytesOfLine(log: string, value: string): number {
  return 2 * (log.length + value.length) + OVERHEAD_BYTES
}

function emptyQueue(name: string): Queue {
  return { name, lines: [], head: 0, droppedCount: 0 }
}

function lineCount(queue: Queue): number {
  return queue.lines.length - queue.head
}

function firstOf(queue: Queue): Line | undefined {
  return queue.lines[queue.head]
}

function shift(queue: Queue): Line | undefined {
  const line = queue.lines[queue.head]
  queue.lines[queue.head] = undefined
  queue.head += 1
  if (queue.head * 2 >= queue.lines.length) {
    queue.lines = queue.lines.slice(queue.head)
    queue.head = 0
  }
  return line
}

function cursorOf({ sequence }: Line): string {
  return String(sequence).padStart(CURSOR_DIGITS, '0')
}

function firstAfter({ lines, head }: Queue, cursor: string | undefined): number {
  if (cursor === undefined) return head
  return findFirstIndex(lines.length, (index) => {
    const line = lines[index]
    return line !== undefined && cursorOf(line) > cursor
  })
}
