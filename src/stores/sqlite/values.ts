import {
  type LogEntry,
  type LogQuery,
  type NewLogEntry,
  quotaExceededError,
  type Store,
  type WriteOptions,
} from '../../core/store.ts'
import { type BulkLimits, decodeText, encodeText, rejectOversized } from '../durable-store.ts'
import {
  type BoundedPool,
  bytesOf,
  dropUntilFits,
  exceedsQuota,
  logShareOf,
  type PoolLimit,
  poolOf,
  type PoolSize,
  shareOf,
  type StoreClock,
} from '../store-rules.ts'
import { NEVER, numberIn, type Sql, textIn } from './database.ts'

type Values = Pick<Store, 'get' | 'set' | 'swap' | 'delete' | 'list'>

const MAX_SWEPT_ROWS = 1_000

export function createValues(sql: Sql, clock: StoreClock, limits: BulkLimits): Values {
  const owned = poolIn(sql, 'owned', limits.owned)
  const expiring = poolIn(sql, 'expiring', limits.expiring)

  function get(key: string): string | undefined {
    const row = sql.row('SELECT value FROM entries WHERE key = ? AND expires_at > ?', encodeText(key), clock.now())
    return row === undefined ? undefined : decodeText(textIn(row, 'value'))
  }

  function write(key: string, value: string, options: WriteOptions): void {
    removeExpired(sql, 'entries', clock.now())
    const { ttlMs, quota, mayExceedQuota = false } = options
    const pool = poolOf(options)
    const encodedKey = encodeText(key)
    const share = encodeText(shareOf(key, quota))
    const bytes = bytesOf(key, value)
    if (pool === 'expiring') rejectOversized(bytes, limits.expiring, quota)
    const old = sql.row('SELECT bytes, pool, share FROM entries WHERE key = ?', encodedKey)
    if (pool === 'owned' && quota !== undefined && !mayExceedQuota) {
      const isReplaced = textIn(old, 'pool') === pool && textIn(old, 'share') === share
      const replacedBytes = isReplaced ? numberIn(old, 'bytes') : undefined
      if (exceedsQuota(owned, { share, bytes, quota }, replacedBytes)) throw quotaExceededError(quota)
    }
    if (old !== undefined) sql.run('DELETE FROM entries WHERE key = ?', encodedKey)
    if (ttlMs !== undefined && !(ttlMs > 0)) return
    if (pool === 'expiring') dropUntilFits(expiring, { share, bytes, quota })
    sql.run(
      'INSERT INTO entries (key, value, bytes, pool, share, expires_at) VALUES (?, ?, ?, ?, ?, ?)',
      encodedKey,
      encodeText(value),
      bytes,
      pool,
      share,
      ttlMs === undefined ? NEVER : clock.now() + ttlMs,
    )
  }

  function remove(key: string): boolean {
    removeExpired(sql, 'entries', clock.now())
    const encodedKey = encodeText(key)
    if (sql.row('SELECT 1 FROM entries WHERE key = ?', encodedKey) === undefined) return false
    sql.run('DELETE FROM entries WHERE key = ?', encodedKey)
    return true
  }

  function list(prefix: string, after: string | undefined, limit: number): readonly string[] {
    const start = encodeText(prefix)
    const rows = sql.rows(
      'SELECT key FROM entries WHERE key >= ? AND key > ? AND expires_at > ? ORDER BY key LIMIT ?',
      start,
      after === undefined ? '' : encodeText(after),
      clock.now(),
      limit,
    )
    const keys = rows.map((row) => textIn(row, 'key'))
    return keys.filter((key) => key.startsWith(start)).map(decodeText)
  }

  return {
    get,
    set: async (key, value, options = {}) => sql.atomically(() => write(key, value, options)),
    swap: async (key, expected, value, options = {}) =>
      sql.atomically(() => {
        if (get(key) !== expected) return false
        if (value === undefined) remove(key)
        else write(key, value, options)
        return true
      }),
    delete: async (key) => sql.atomically(() => remove(key)),
    list: async (prefix, { after, limit }) => list(prefix, after, limit),
  }
}

function removeExpired(sql: Sql, table: 'entries' | 'log_entries', time: number): void {
  const expired = `SELECT id FROM ${table} WHERE expires_at <= ? ORDER BY expires_at LIMIT ?`
  sql.run(`DELETE FROM ${table} WHERE id IN (${expired})`, time, MAX_SWEPT_ROWS)
}

function poolIn(sql: Sql, pool: 'owned' | 'expiring' | 'logs', limit: PoolLimit): BoundedPool {
  const table = pool === 'logs' ? 'log_entries' : 'entries'
  const condition = pool === 'logs' ? 'share = ?' : `pool = '${pool}' AND share = ?`
  return {
    limit,
    get size() {
      return sizeOf(sql.row('SELECT entries, bytes FROM pools WHERE pool = ?', pool))
    },
    sizeOfShare: (share) =>
      sizeOf(sql.row('SELECT entries, bytes FROM shares WHERE pool = ? AND share = ?', pool, share)),
    largestShare: (newShare) => {
      const order = 'ORDER BY bytes DESC, share = ? DESC LIMIT 1'
      const largest = sql.row(`SELECT share FROM shares WHERE pool = ? ${order}`, pool, newShare)
      return largest === undefined ? undefined : textIn(largest, 'share')
    },
    dropOldest: (share) =>
      sql.run(`DELETE FROM ${table} WHERE id = (SELECT min(id) FROM ${table} WHERE ${condition})`, share),
  }
}

function sizeOf(row: unknown): PoolSize {
  return { entries: numberIn(row, 'entries'), bytes: numberIn(row, 'bytes') }
}

export interface SqliteLogs {
  /** Must run within a transaction. */
  append(log: string, entry: NewLogEntry): void
  entries(log: string, query: LogQuery): readonly LogEntry[]
}

/** Cursors are zero-padded, so that a later cursor is the greater string. */
const CURSOR_DIGITS = 16
const MAX_TIME = 8.64e15

export function createLogs(sql: Sql, clock: StoreClock, limits: BulkLimits): SqliteLogs {
  const pool = poolIn(sql, 'logs', limits.logs)

  function append(log: string, { at, value, ttlMs, quota }: NewLogEntry): void {
    const bytes = bytesOf(log, value)
    rejectOversized(bytes, limits.logs, quota)
    const time = clock.now()
    removeExpired(sql, 'log_entries', time)
    const share = encodeText(logShareOf(log, quota))
    dropUntilFits(pool, { share, bytes, quota })
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
      clock.now(),
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

function cursorNumber(cursor: string): number {
  return /^\d{1,16}$/.test(cursor) ? Number(cursor) : 0
}
