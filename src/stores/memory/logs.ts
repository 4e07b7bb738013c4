import { flatten } from '../../core/json.ts'
import type { LogEntry, LogQuery, NewLogEntry } from '../../core/store.ts'
import { ExpiryQueue, findFirstIndex, type Schedulable } from './collections.ts'
import { logShareOf, type PoolLimit, type StoreClock } from '../store-rules.ts'

export interface MemoryLogs {
  /** The entry must not be oversized. */
  append(log: string, entry: NewLogEntry): void
  isOversized(log: string, entry: NewLogEntry): boolean
  entries(log: string, query: LogQuery): readonly LogEntry[]
}

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
  bytes: number
}

const OVERHEAD_BYTES = 160
/** Sizes are compared in coarse steps, so that a new line rarely changes the order of the shares. */
const ORDER_STEPS = 8192
/** Cursors are zero-padded, because they are compared as strings. */
const CURSOR_DIGITS = 16

export function createLogs(clock: StoreClock, bounds: PoolLimit & { readonly maxEntriesPerLog: number }): MemoryLogs {
  const logs = new Map<string, Queue>()
  const shares = new Map<string, Share>()
  /** Scheduled at their negative sizes, so that `peek` returns the largest share. */
  const sharesBySize = new ExpiryQueue<Share>()
  let entryCount = 0
  let bytes = 0
  let sequence = 0

  function isOversized(log: string, { value, quota }: NewLogEntry): boolean {
    return quota !== undefined && bytesOfLine(log, value) > quota.maxBytes
  }

  function append(log: string, entry: NewLogEntry): void {
    const { quota } = entry
    const limit = quota ?? { maxEntries: bounds.maxEntriesPerLog, maxBytes: bounds.bytes }
    const name = logShareOf(log, quota)
    const lineBytes = bytesOfLine(log, entry.value)
    const existingShare = shares.get(name)
    if (existingShare !== undefined) dropExpired(existingShare)
    while (existingShare !== undefined && lineCount(existingShare.queue) > 0) {
      if (lineCount(existingShare.queue) < limit.maxEntries && existingShare.bytes + lineBytes <= limit.maxBytes) break
      dropFirst(existingShare)
    }
    while (entryCount >= bounds.entries || bytes + lineBytes > bounds.bytes) {
      const largest = largestShare(name)
      if (largest === undefined) break
      dropFirst(largest)
    }
    addLine(log, name, entry, lineBytes)
  }

  function addLine(log: string, shareName: string, { at, value, ttlMs }: NewLogEntry, lineBytes: number): void {
    sequence += 1
    const expiresAt = ttlMs === undefined ? Infinity : clock.now() + ttlMs
    let queue = logs.get(log)
    if (queue === undefined) logs.set(log, (queue = emptyQueue(log)))
    const line: Line = {
      log: queue,
      sequence,
      at,
      value: flatten(value),
      bytes: lineBytes,
      expiresAt,
      isDropped: false,
    }
    let share = shares.get(shareName)
    if (share === undefined)
      shares.set(shareName, (share = { queue: emptyQueue(shareName), bytes: 0, dueAt: Infinity, position: 0 }))
    queue.lines.push(line)
    share.queue.lines.push(line)
    share.bytes += lineBytes
    bytes += lineBytes
    entryCount += 1
    updateOrder(share)
  }

  function updateOrder(share: Share): void {
    const fraction = Math.max(lineCount(share.queue) / bounds.entries, share.bytes / bounds.bytes)
    sharesBySize.schedule(share, lineCount(share.queue) === 0 ? Infinity : -Math.ceil(fraction * ORDER_STEPS))
  }

  function largestShare(preferredName: string): Share | undefined {
    const largest = sharesBySize.peek()
    const preferred = shares.get(preferredName)
    return preferred?.dueAt === largest?.dueAt ? preferred : largest
  }

  function dropExpired(share: Share): void {
    const time = clock.now()
    while ((firstOf(share.queue)?.expiresAt ?? Infinity) <= time) dropFirst(share)
  }

  function dropFirst(share: Share): void {
    const line = shift(share.queue)
    if (line === undefined) return
    share.bytes -= line.bytes
    bytes -= line.bytes
    entryCount -= 1
    updateOrder(share)
    if (lineCount(share.queue) === 0) shares.delete(share.queue.name)
    dropFromLog(line)
  }

  function dropFromLog(line: Line): void {
    const { log } = line
    line.isDropped = true
    line.value = ''
    log.droppedCount += 1
    while (firstOf(log)?.isDropped === true) {
      shift(log)
      log.droppedCount -= 1
    }
    if (lineCount(log) === 0) logs.delete(log.name)
    else if (log.droppedCount * 2 >= lineCount(log)) {
      log.lines = log.lines.slice(log.head).filter((entry) => entry?.isDropped === false)
      log.head = 0
      log.droppedCount = 0
    }
  }

  function entries(log: string, query: LogQuery): readonly LogEntry[] {
    const queue = logs.get(log)
    if (queue === undefined) return []
    const time = clock.now()
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

  return { append, isOversized, entries }
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
