import type { LogEntry, LogQuery } from '../../core/ports.ts'

/** Append-only logs that share one bound; full, they drop the oldest entry of all. */
export interface Logs {
  append(log: string, entry: { readonly at: number; readonly value: string; readonly ttlMs?: number }): void
  entries(log: string, query: LogQuery): readonly LogEntry[]
  clear(): void
}

interface Line extends LogEntry {
  readonly log: string
  readonly bytes: number
  readonly expiresAt: number
}

/** A list that is read at its head and written at its end. */
interface Queue {
  lines: Line[]
  head: number
}

const OVERHEAD = 160
/** Digits of a cursor, so that cursors compare as text. */
const CURSOR_DIGITS = 16

export function createLogs(
  now: () => number,
  bounds: { readonly entries: number; readonly bytes: number; readonly entriesOfOneLog: number },
): Logs {
  const all: Queue = { lines: [], head: 0 }
  const logs = new Map<string, Queue>()
  let bytes = 0
  let dead = 0
  let sequence = 0

  function append(log: string, entry: { readonly at: number; readonly value: string; readonly ttlMs?: number }): void {
    sequence += 1
    const line: Line = {
      log,
      cursor: String(sequence).padStart(CURSOR_DIGITS, '0'),
      at: entry.at,
      value: entry.value,
      bytes: 2 * (log.length + entry.value.length) + OVERHEAD,
      expiresAt: entry.ttlMs === undefined ? Infinity : now() + entry.ttlMs,
    }
    const own = logs.get(log) ?? { lines: [], head: 0 }
    logs.set(log, own)
    own.lines.push(line)
    all.lines.push(line)
    bytes += line.bytes
    if (sizeOf(own) > bounds.entriesOfOneLog) {
      forgetFirst(own, log)
      dead += 1
    }
    dropOldest()
    if (dead > sizeOf(all) / 2) dropDead()
  }

  /** The order of one log is the order of all, so the oldest of all is the first of its log. */
  function dropOldest(): void {
    const at = now()
    for (let first = firstOf(all); first !== undefined; first = firstOf(all)) {
      const gone = isDead(first)
      const full = sizeOf(all) - dead > bounds.entries || bytes > bounds.bytes
      if (!gone && !full && first.expiresAt > at) return
      shift(all)
      if (gone) dead -= 1
      else forgetFirst(logs.get(first.log), first.log)
    }
  }

  function isDead(line: Line): boolean {
    const first = firstOf(logs.get(line.log))
    return first === undefined || line.cursor < first.cursor
  }

  function dropDead(): void {
    all.lines = all.lines.slice(all.head).filter((line) => !isDead(line))
    all.head = 0
    dead = 0
  }

  function forgetFirst(queue: Queue | undefined, log: string): void {
    const line = queue === undefined ? undefined : shift(queue)
    bytes -= line?.bytes ?? 0
    if (queue !== undefined && sizeOf(queue) === 0) logs.delete(log)
  }

  function entries(log: string, query: LogQuery): readonly LogEntry[] {
    const queue = logs.get(log)
    if (queue === undefined) return []
    const at = now()
    const found: LogEntry[] = []
    for (let index = firstAfter(queue, query.after); index < queue.lines.length; index += 1) {
      const line = queue.lines[index]
      if (line === undefined || found.length >= query.limit) break
      if (line.expiresAt <= at || line.at < (query.from ?? -Infinity) || line.at >= (query.to ?? Infinity)) continue
      found.push({ cursor: line.cursor, at: line.at, value: line.value })
    }
    return found
  }

  function clear(): void {
    all.lines = []
    all.head = 0
    logs.clear()
    bytes = 0
    dead = 0
  }

  return { append, entries, clear }
}

function sizeOf(queue: Queue): number {
  return queue.lines.length - queue.head
}

function firstOf(queue: Queue | undefined): Line | undefined {
  return queue?.lines[queue.head]
}

function shift(queue: Queue): Line | undefined {
  const line = queue.lines[queue.head]
  queue.head += 1
  if (queue.head * 2 >= queue.lines.length) {
    queue.lines = queue.lines.slice(queue.head)
    queue.head = 0
  }
  return line
}

/** The index of the first entry after a cursor, by binary search. */
function firstAfter(queue: Queue, cursor: string | undefined): number {
  if (cursor === undefined) return queue.head
  let low = queue.head
  let high = queue.lines.length
  while (low < high) {
    const middle = (low + high) >> 1
    if ((queue.lines[middle]?.cursor ?? '') > cursor) high = middle
    else low = middle + 1
  }
  return low
}
