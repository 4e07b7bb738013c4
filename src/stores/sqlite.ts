import { checkOptions, numberFrom, objectWith, oneOf, optionsOf } from '../core/option-checks.ts'
import type { Store } from '../core/store.ts'
import { BULK_LIMITS, STORE_CHECKS, bytesOf, isGiant, type BulkLimits } from './bounds.ts'
import { createCounters } from './sqlite/counters.ts'
import { createSql, migrateSqlite, type Sql, type SqliteDatabase, textIn } from './sqlite/database.ts'
import { createLogs } from './sqlite/logs.ts'
import { createValues } from './sqlite/values.ts'

/** Options of `sqliteStore()`. */
export interface SqliteStoreOptions {
  /** An open database of `node:sqlite`, libsql, better-sqlite3 or `bun:sqlite`. The caller closes it. */
  readonly database: SqliteDatabase
  /**
   * How long a write waits for another process that writes, in milliseconds. The wait blocks the event loop.
   * @default 2,000
   */
  readonly busyTimeoutMs?: number
  /**
   * `normal`: a committed step survives the end of the process. A power failure can lose the last steps.
   * `full`: a committed step survives a power failure, at the cost of one disk flush per step.
   * @default 'normal'
   */
  readonly synchronous?: 'normal' | 'full'
  /** Limits of batches, recordings and audit records; keys and budgets have none. @default 1,000,000 entries, 1 GiB each */
  readonly limits?: Partial<BulkLimits>
  /** Milliseconds since 1970. @default Date.now */
  readonly now?: () => number
}

const BUSY_TIMEOUT_MS = 2_000
const CHECK = optionsOf(
  {
    ...STORE_CHECKS,
    database: objectWith('an open SQLite database, such as new DatabaseSync(path)', ['exec', 'prepare']),
    busyTimeoutMs: numberFrom(0, 3_600_000),
    synchronous: oneOf('normal', 'full'),
  },
  ['database'],
)

/**
 * Creates a store in one SQLite file. The file survives a restart, and several processes of one host can share it.
 * Each step is one transaction. The schema is created and migrated at once.
 */
export function sqliteStore(options: SqliteStoreOptions): Store {
  checkOptions('sqliteStore', options, CHECK)
  const { database, busyTimeoutMs = BUSY_TIMEOUT_MS, synchronous = 'normal', now = Date.now } = options
  const limits = { ...BULK_LIMITS, ...options.limits }
  const sql = createSql(database)
  // The timeout comes first: switching to WAL needs a lock that another process may have.
  sql.row(`PRAGMA busy_timeout = ${Math.ceil(busyTimeoutMs)}`)
  sql.row('PRAGMA journal_mode = WAL')
  database.exec(`PRAGMA synchronous = ${synchronous === 'full' ? 'FULL' : 'NORMAL'}`)
  migrateSqlite(sql, (script) => database.exec(script))
  const values = createValues(sql, now, limits)
  const counters = createCounters(sql, now)
  const logs = createLogs(sql, now, limits)
  return {
    get: (key) => values.get(key),
    set: async (key, value, how) => values.set(key, value, how),
    swap: async (key, expected, value, how) => values.swap(key, expected, value, how),
    delete: async (key) => values.delete(key),
    list: async (prefix, { after, limit }) => values.list(prefix, after, limit),
    reserve: (request) => sql.atomically(() => counters.reserve(request)),
    settle: ({ reservationId, charges, tallies, entries = [] }) =>
      sql.atomically(() => {
        if (!counters.settle(reservationId, charges)) return false
        for (const tally of tallies) counters.add(tally)
        for (const { log, ...entry } of entries) {
          // An entry that is larger than its quota must not prevent the settlement.
          if (!isGiant(bytesOf(log, entry.value), limits.logs, entry.quota)) logs.append(log, entry)
        }
        return true
      }),
    levels: (names) => names.map((name) => counters.level(name)),
    tallies: (names) => names.map((name) => counters.tally(name)),
    append: (log, entry) =>
      sql.atomically(() => {
        for (const one of [log].flat()) logs.append(one, entry)
      }),
    entries: async (log, query) => logs.entries(log, query),
    ping: async () => void sql.row('SELECT 1'),
    warnings: async () => (isInMemory(sql) ? [IN_MEMORY] : []),
    close: async () => {},
  }
}

const IN_MEMORY =
  'The SQLite database is in memory: keys, budgets and usage end with the process, and no other process shares them. Open a file.'

function isInMemory(sql: Sql): boolean {
  return sql.rows('PRAGMA database_list').some((row) => textIn(row, 'name') === 'main' && textIn(row, 'file') === '')
}
