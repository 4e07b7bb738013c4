import type { LogEntry, LogQuery, NewLogEntry } from '../../core/store.ts'
import { bytesOf, refuseGiant, type BulkLimits } from '../bounds.ts'
import { decodeText, encodeText } from '../wire.ts'
import { NEVER, numberIn, textIn, type Sql } from './database.ts'

export interface SqliteLogs {
  /** Runs within a transaction of the caller. */
  append(log: string, entry: NewLogEntry): void
  entries(log: string, query: LogQuery): readonly LogEntry[]
}

/** Digits of a cursor, so that cursors compare as text. */
const CURSOR_DIGITS = 16
/** Maximum number of expired entries that one append removes. */
const SWEEP = 1_000
/** Maximum time value of a Date, in milliseconds. */
const MAX_TIME = 8.64e15

export function createLogs(sql: Sql, now: () => number, limits: BulkLimits): SqliteLogs {
  function append(log: string, { at, value, ttlMs, quota }: NewLogEntry): void {
    const bytes = bytesOf(log, value)
    refuseGiant(bytes, limits.logs, quota)
    const time = now()
    sql.run(
      'DELETE FROM log_entries WHERE id IN (SELECT id FROM log_entries WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)',
      time,
      SWEEP,
    )
    const share = encodeText(quota === undefined ? `log:${log}` : `quota:${quota.name}`)
    if (quota !== undefined) {
      while (isOver('SELECT entries, bytes FROM shares WHERE pool = ? AND share = ?', ['logs', share], bytes, quota)) {
        dropFrom(share)
      }
    }
    const all = { maxEntries: limits.logs.entries, maxBytes: limits.logs.bytes }
    while (isOver('SELECT entries, bytes FROM pools WHERE pool = ?', ['logs'], bytes, all)) dropFromLargest()
    sql.run(
      'INSERT INTO log_entries (log, at, value, bytes, share, expires_at) VALUES (?, ?, ?, ?, ?, ?)',
      encodeText(log),
      at,
      encodeText(value),
      bytes,
      share,
      ttlMs === undefined ? NEVER : time + ttlMs,
    )
  }

  function isOver(
    select: string,
    names: readonly string[],
    bytes: number,
    most: { readonly maxEntries: number; readonly maxBytes: number },
  ): boolean {
    const row = sql.row(select, ...names)
    const entries = numberIn(row, 'entries')
    return entries > 0 && (entries + 1 > most.maxEntries || numberIn(row, 'bytes') + bytes > most.maxBytes)
  }

  function dropFromLargest(): void {
    const row = sql.row('SELECT share FROM shares WHERE pool = ? ORDER BY bytes DESC LIMIT 1', 'logs')
    if (row !== undefined) dropFrom(textIn(row, 'share'))
  }

  function dropFrom(share: string): void {
    sql.run('DELETE FROM log_entries WHERE id = (SELECT min(id) FROM log_entries WHERE share = ?)', share)
  }

  function entries(
    log: string,
    { from = -MAX_TIME, to = MAX_TIME, after = '0', limit }: LogQuery,
  ): readonly LogEntry[] {
    const rows = sql.rows(
      `SELECT id, at, value FROM log_entries
       WHERE log = ? AND id > ? AND at >= ? AND at < ? AND expires_at > ?
       ORDER BY id LIMIT ?`,
      encodeText(log),
      cursorNumber(after),
      from,
      to,
      now(),
      limit,
    )
    return rows.map((row) => ({
      cursor: String(numberIn(row, 'id')).padStart(CURSOR_DIGITS, '0'),
      at: numberIn(row, 'at'),
      value: decodeText(textIn(row, 'value')),
    }))
  }

  return { append, entries }
}

/** An unknown cursor starts from the beginning. */
function cursorNumber(cursor: string): number {
  return /^\d{1,16}$/.test(cursor) ? Number(cursor) : 0
}
