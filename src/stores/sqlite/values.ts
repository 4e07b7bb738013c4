import {
  type LogEntry,
  type LogQuery,
  type NewLogEntry,
  type Quota,
  quotaExceeded,
  type WriteOptions,
} from '../../core/store.ts'
import {
  type BulkLimits,
  bytesOf,
  decodeText,
  encodeText,
  logShareOf,
  type PoolLimit,
  type ValuePool,
  poolOf,
  rejectOversized,
  shareOf,
} from '../durable-store.ts'
import { NEVER, numberIn, type Row, type Sql, textIn } from './database.ts'

export interface SqliteValues {
  get(key: string): string | undefined
  set(key: string, value: string, options?: WriteOptions): void
  swap(key: string, expected: string | undefined, value: string | undefined, options?: WriteOptions): boolean
  delete(key: string): boolean
  list(prefix: string, after: string | undefined, limit: number): readonly string[]
}

interface Entry {
  readonly key: string
  readonly value: string
  readonly bytes: number
  readonly pool: ValuePool
  readonly share: string
  readonly expiresAt: number
}

const MAX_SWEPT = 1_000

export function createValues(sql: Sql, now: () => number, limits: BulkLimits): SqliteValues {
  function get(key: string): string | undefined {
    const row = sql.row('SELECT value FROM entries WHERE key = ? AND expires_at > ?', encodeText(key), now())
    return row === undefined ? undefined : decodeText(textIn(row, 'value'))
  }

  function sweep(): void {
    sql.run(
      'DELETE FROM entries WHERE id IN (SELECT id FROM entries WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)',
      now(),
      MAX_SWEPT,
    )
  }

  function write(key: string, value: string, options: WriteOptions): void {
    sweep()
    const { ttlMs, quota, mustFit = false } = options
    const entry: Entry = {
      key: encodeText(key),
      value: encodeText(value),
      bytes: bytesOf(key, value),
      pool: poolOf(options),
      share: encodeText(shareOf(key, quota)),
      expiresAt: ttlMs === undefined ? NEVER : now() + ttlMs,
    }
    if (entry.pool === 'expiring') rejectOversized(entry.bytes, limits.expiring, quota)
    const old = sql.row('SELECT bytes, pool, share FROM entries WHERE key = ?', entry.key)
    if (entry.pool === 'owned' && quota !== undefined && !mustFit) throwIfFull(entry, old, quota)
    if (old !== undefined) sql.run('DELETE FROM entries WHERE key = ?', entry.key)
    if (ttlMs !== undefined && !(ttlMs > 0)) return
    if (entry.pool === 'expiring')
      dropOldest(sql, { pool: 'expiring', share: entry.share, bytes: entry.bytes }, { quota, limit: limits.expiring })
    sql.run(
      'INSERT INTO entries (key, value, bytes, pool, share, expires_at) VALUES (?, ?, ?, ?, ?, ?)',
      entry.key,
      entry.value,
      entry.bytes,
      entry.pool,
      entry.share,
      entry.expiresAt,
    )
  }

  /** Throws if a value without an expiry does not fit. A value may always replace one that is at least as large. */
  function throwIfFull(entry: Entry, old: Row | undefined, quota: Quota): void {
    const isReplaced = old?.['pool'] === 'owned' && old['share'] === entry.share
    const moreEntries = isReplaced ? 0 : 1
    const moreBytes = entry.bytes - (isReplaced ? numberIn(old, 'bytes') : 0)
    if (moreEntries === 0 && moreBytes <= 0) return
    const held = sizeOfShare(sql, 'owned', entry.share)
    const all = sizeOfPool(sql, 'owned')
    // A key may use at most as much as remains free, which leaves capacity for other keys.
    const maxEntries = Math.min(quota.maxEntries, limits.owned.entries - all.entries - moreEntries)
    const maxBytes = Math.min(quota.maxBytes, limits.owned.bytes - all.bytes - moreBytes)
    if (held.entries + moreEntries > maxEntries || held.bytes + moreBytes > maxBytes) throw quotaExceeded(quota)
  }

  function remove(key: string): boolean {
    sweep()
    const name = encodeText(key)
    if (sql.row('SELECT 1 FROM entries WHERE key = ?', name) === undefined) return false
    sql.run('DELETE FROM entries WHERE key = ?', name)
    return true
  }

  /** Keys with a common prefix are contiguous, so the list ends before the first key without the prefix. */
  function list(prefix: string, after: string | undefined, limit: number): readonly string[] {
    const start = encodeText(prefix)
    const rows = sql.rows(
      `SELECT key FROM entries WHERE key >= ? AND key > ? AND expires_at > ?
       ORDER BY key LIMIT ?`,
      start,
      after === undefined ? '' : encodeText(after),
      now(),
      limit,
    )
    const keys = rows.map((row) => textIn(row, 'key'))
    const end = keys.findIndex((key) => !key.startsWith(start))
    return keys.slice(0, end === -1 ? keys.length : end).map(decodeText)
  }

  return {
    get,
    set: (key, value, options = {}) => sql.atomically(() => write(key, value, options)),
    swap: (key, expected, value, options = {}) =>
      sql.atomically(() => {
        if (get(key) !== expected) return false
        if (value === undefined) remove(key)
        else write(key, value, options)
        return true
      }),
    delete: (key) => sql.atomically(() => remove(key)),
    list,
  }
}

interface NewRow {
  readonly pool: 'expiring' | 'logs'
  readonly share: string
  readonly bytes: number
}

/**
 * Drops rows until the new row fits: first the oldest of its own share while that share exceeds its quota, then the
 * oldest of the largest share.
 */
function dropOldest(
  sql: Sql,
  { pool, share, bytes }: NewRow,
  { quota, limit }: { readonly quota: Quota | undefined; readonly limit: PoolLimit },
): void {
  const table = pool === 'logs' ? 'log_entries' : 'entries'
  const condition = pool === 'logs' ? 'share = ?' : `pool = 'expiring' AND share = ?`
  const dropFrom = (name: string): void =>
    sql.run(`DELETE FROM ${table} WHERE id = (SELECT min(id) FROM ${table} WHERE ${condition})`, name)
  if (quota !== undefined) {
    const own = { entries: quota.maxEntries, bytes: quota.maxBytes }
    while (isOver(sizeOfShare(sql, pool, share), bytes, own)) dropFrom(share)
  }
  while (isOver(sizeOfPool(sql, pool), bytes, limit)) {
    const largest = sql.row('SELECT share FROM shares WHERE pool = ? ORDER BY bytes DESC LIMIT 1', pool)
    if (largest === undefined) return
    dropFrom(textIn(largest, 'share'))
  }
}

interface PoolSize {
  readonly entries: number
  readonly bytes: number
}

function sizeOfShare(sql: Sql, pool: string, share: string): PoolSize {
  return sizeOf(sql.row('SELECT entries, bytes FROM shares WHERE pool = ? AND share = ?', pool, share))
}

function sizeOfPool(sql: Sql, pool: string): PoolSize {
  return sizeOf(sql.row('SELECT entries, bytes FROM pools WHERE pool = ?', pool))
}

function sizeOf(row: Row | undefined): PoolSize {
  return { entries: numberIn(row, 'entries'), bytes: numberIn(row, 'bytes') }
}

function isOver({ entries, bytes }: PoolSize, added: number, limit: PoolLimit): boolean {
  return entries > 0 && (entries + 1 > limit.entries || bytes + added > limit.bytes)
}

export interface SqliteLogs {
  /** Must run within a transaction. */
  append(log: string, entry: NewLogEntry): void
  entries(log: string, query: LogQuery): readonly LogEntry[]
}

/** Cursors are zero-padded, because they are sorted as strings. */
const CURSOR_DIGITS = 16
const MAX_TIME = 8.64e15

export function createLogs(sql: Sql, now: () => number, limits: BulkLimits): SqliteLogs {
  function append(log: string, { at, value, ttlMs, quota }: NewLogEntry): void {
    const bytes = bytesOf(log, value)
    rejectOversized(bytes, limits.logs, quota)
    const time = now()
    sql.run(
      'DELETE FROM log_entries WHERE id IN (SELECT id FROM log_entries WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)',
      time,
      MAX_SWEPT,
    )
    const share = encodeText(logShareOf(log, quota))
    dropOldest(sql, { pool: 'logs', share, bytes }, { quota, limit: limits.logs })
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
