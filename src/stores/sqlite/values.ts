import { type Quota, type WriteOptions, quotaExceeded } from '../../core/store.ts'
import { bytesOf, poolOf, refuseGiant, shareOf, type BulkLimits, type PoolLimit, type PoolName } from '../bounds.ts'
import { decodeText, encodeText } from '../wire.ts'
import { NEVER, numberIn, textIn, type Row, type Sql } from './database.ts'

export interface SqliteValues {
  get(key: string): string | undefined
  set(key: string, value: string, options?: WriteOptions): void
  swap(key: string, expected: string | undefined, value: string | undefined, options?: WriteOptions): boolean
  delete(key: string): boolean
  list(prefix: string, after: string | undefined, limit: number): readonly string[]
}

/** A value to write, with the texts as the database stores them. */
interface Entry {
  readonly key: string
  readonly value: string
  readonly bytes: number
  readonly pool: Exclude<PoolName, 'logs'>
  readonly share: string
  readonly expiresAt: number
}

/** Maximum number of expired values that one write removes. */
const SWEEP = 1_000

export function createValues(sql: Sql, now: () => number, limits: BulkLimits): SqliteValues {
  function get(key: string): string | undefined {
    const row = sql.row('SELECT value FROM entries WHERE key = ? AND expires_at > ?', encodeText(key), now())
    return row === undefined ? undefined : decodeText(textIn(row, 'value'))
  }

  function sweep(): void {
    sql.run(
      'DELETE FROM entries WHERE id IN (SELECT id FROM entries WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)',
      now(),
      SWEEP,
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
    if (entry.pool === 'expiring') refuseGiant(entry.bytes, limits.expiring, quota)
    const old = sql.row('SELECT bytes, pool, share FROM entries WHERE key = ?', entry.key)
    if (entry.pool === 'owned' && quota !== undefined && !mustFit) refuseOverfull(entry, old, quota)
    if (old !== undefined) sql.run('DELETE FROM entries WHERE key = ?', entry.key)
    if (ttlMs !== undefined && !(ttlMs > 0)) return
    if (entry.pool === 'expiring') dropOldest(entry, quota)
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

  /** Refuses a value that is never dropped. Replacing a value by one that is not larger is always possible. */
  function refuseOverfull(entry: Entry, old: Row | undefined, quota: Quota): void {
    const isReplaced = old?.['pool'] === 'owned' && old['share'] === entry.share
    const moreEntries = isReplaced ? 0 : 1
    const moreBytes = entry.bytes - (isReplaced ? numberIn(old, 'bytes') : 0)
    if (moreEntries === 0 && moreBytes <= 0) return
    const held = sizeOf(sql.row('SELECT entries, bytes FROM shares WHERE pool = ? AND share = ?', 'owned', entry.share))
    const all = sizeOf(sql.row('SELECT entries, bytes FROM pools WHERE pool = ?', 'owned'))
    // A key uses at most as much as remains free, so the next key can also store values.
    const maxEntries = Math.min(quota.maxEntries, limits.owned.entries - all.entries - moreEntries)
    const maxBytes = Math.min(quota.maxBytes, limits.owned.bytes - all.bytes - moreBytes)
    if (held.entries + moreEntries > maxEntries || held.bytes + moreBytes > maxBytes) throw quotaExceeded(quota)
  }

  /** Drops values until the new one fits: first the oldest of its quota, then the oldest of the largest share. */
  function dropOldest({ share, bytes }: Entry, quota: Quota | undefined): void {
    if (quota !== undefined) {
      const most = { entries: quota.maxEntries, bytes: quota.maxBytes }
      const held = (): PoolLimit =>
        sizeOf(sql.row('SELECT entries, bytes FROM shares WHERE pool = ? AND share = ?', 'expiring', share))
      while (isOver(held(), bytes, most)) dropFrom(share)
    }
    const all = (): PoolLimit => sizeOf(sql.row('SELECT entries, bytes FROM pools WHERE pool = ?', 'expiring'))
    while (isOver(all(), bytes, limits.expiring)) {
      const largest = sql.row('SELECT share FROM shares WHERE pool = ? ORDER BY bytes DESC LIMIT 1', 'expiring')
      if (largest === undefined) return
      dropFrom(textIn(largest, 'share'))
    }
  }

  function dropFrom(share: string): void {
    sql.run(
      'DELETE FROM entries WHERE id = (SELECT min(id) FROM entries WHERE pool = ? AND share = ?)',
      'expiring',
      share,
    )
  }

  function remove(key: string): boolean {
    sweep()
    const name = encodeText(key)
    if (sql.row('SELECT 1 FROM entries WHERE key = ?', name) === undefined) return false
    sql.run('DELETE FROM entries WHERE key = ?', name)
    return true
  }

  /** Keys with a prefix are contiguous in the order of keys, so the first key without it ends the list. */
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

function sizeOf(row: Row | undefined): PoolLimit {
  return { entries: numberIn(row, 'entries'), bytes: numberIn(row, 'bytes') }
}

function isOver({ entries, bytes }: PoolLimit, more: number, most: PoolLimit): boolean {
  return entries > 0 && (entries + 1 > most.entries || bytes + more > most.bytes)
}
