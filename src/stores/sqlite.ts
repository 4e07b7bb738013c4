import { checkOptions, numberFrom, objectWith, oneOf, optionsOf, withDefaults } from '../core/check-options.ts'
import type { Charge, Level, ReserveRequest, ReserveResult, Store, Tally } from '../core/store.ts'
import { DEFAULT_BULK_LIMITS, type BulkLimits, decodeText, encodeText, STORE_CHECKS } from './durable-store.ts'
import { createSql, migrateSqlite, NEVER, numberIn, type Sql, type SqliteDatabase, textIn } from './sqlite/database.ts'
import { createLogs, createValues } from './sqlite/values.ts'
import {
  addAmount,
  bytesOf,
  checkAmount,
  checkReserveRequest,
  createStoreClock,
  decideReservation,
  duplicateReservationError,
  heldAmount,
  isOversized,
  LATE_SETTLEMENT_MS,
  MAX_AMOUNT,
  type StoreClock,
} from './store-rules.ts'

/** Options for `sqliteStore()`. */
export interface SqliteStoreOptions {
  /** An open database of `node:sqlite`, libsql, better-sqlite3 or `bun:sqlite`. The caller closes it. */
  readonly database: SqliteDatabase
  /** Maximum wait for another process's write, in milliseconds. The wait blocks the event loop. @default 2,000 */
  readonly busyTimeoutMs?: number
  /**
   * `normal`: a committed operation survives a process crash, but a power failure can lose the most recent operations.
   * `full`: a committed operation survives a power failure, at the cost of one disk flush per write.
   * @default 'normal'
   */
  readonly synchronous?: 'normal' | 'full'
  /** Limits on the data that requests write. @default 1,000,000 entries and 1 GiB each */
  readonly limits?: Partial<BulkLimits>
  /** Returns the time in milliseconds since 1970. @default the `runtime.now` of the gateway, otherwise Date.now */
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
 * Creates a store in one SQLite file, which survives restarts and can be shared by several processes on one host. Each
 * write is one transaction. Creates or migrates the schema immediately.
 *
 * @example
 * const store = sqliteStore({ database: new DatabaseSync('gateway.db') }) // node:sqlite
 * const gateway = createGateway({ providers: [openai()], store })
 */
export function sqliteStore(options: SqliteStoreOptions): Store {
  checkOptions('sqliteStore', options, CHECK)
  const { database, busyTimeoutMs = BUSY_TIMEOUT_MS, synchronous = 'normal' } = options
  const { clock, useClock } = createStoreClock(options.now, Date.now)
  const limits = withDefaults(DEFAULT_BULK_LIMITS, options.limits)
  const sql = createSql(database)
  // Must precede the switch to WAL, which waits for a lock that another process may hold.
  sql.row(`PRAGMA busy_timeout = ${Math.ceil(busyTimeoutMs)}`)
  sql.row('PRAGMA journal_mode = WAL')
  database.exec(`PRAGMA synchronous = ${synchronous === 'full' ? 'FULL' : 'NORMAL'}`)
  migrateSqlite(sql, (script) => database.exec(script))
  const counters = new SqliteCounters(sql, clock)
  const logs = createLogs(sql, clock, limits)
  return {
    ...createValues(sql, clock, limits),
    reserve: (request) => sql.atomically(() => counters.reserve(request)),
    settle: ({ reservationId, charges, tallies, entries = [] }) =>
      sql.atomically(() => {
        if (!counters.settle(reservationId, charges)) return false
        for (const tally of tallies) counters.addTally(tally)
        for (const { log, ...entry } of entries) {
          // An oversized entry must not prevent the settlement.
          if (!isOversized(bytesOf(log, entry.value), limits.logs, entry.quota)) logs.append(log, entry)
        }
        return true
      }),
    levels: (names) => names.map((name) => counters.level(name)),
    tallies: (names) => names.map((name) => counters.tally(name)),
    append: (log, entry) =>
      sql.atomically(() => {
        for (const name of [log].flat()) logs.append(name, entry)
      }),
    entries: async (log, query) => logs.entries(log, query),
    useClock,
    ping: async () => void sql.row('SELECT 1'),
    warnings: async () => (isInMemory(sql) ? [IN_MEMORY_WARNING] : []),
    close: async () => {},
  }
}

const IN_MEMORY_WARNING =
  'The SQLite database is in memory or temporary: keys, budgets and usage are lost when the process ends, and no other process shares them. Open a file.'

function isInMemory(sql: Sql): boolean {
  return sql.rows('PRAGMA database_list').some((row) => textIn(row, 'name') === 'main' && textIn(row, 'file') === '')
}

const SWEEP_INTERVAL_MS = 1_000

/** `reserve`, `settle` and `addTally` must run within a transaction. */
class SqliteCounters {
  readonly #sql: Sql
  readonly #clock: StoreClock
  #nextSweepAt = 0

  constructor(sql: Sql, clock: StoreClock) {
    this.#sql = sql
    this.#clock = clock
  }

  #releaseExpired(time: number): void {
    const expired = this.#sql.rows(
      'SELECT counter, sum(amount) AS amount FROM holds WHERE expires_at <= ? GROUP BY counter',
      time,
    )
    for (const row of expired) this.#release(row)
    if (expired.length > 0) this.#sql.run('DELETE FROM holds WHERE expires_at <= ?', time)
    if (time >= this.#nextSweepAt) this.#sweep(time)
  }

  #sweep(time: number): void {
    this.#nextSweepAt = time + SWEEP_INTERVAL_MS
    this.#sql.run('DELETE FROM reservations WHERE expires_at <= ?', time - LATE_SETTLEMENT_MS)
    this.#sql.run('DELETE FROM holds WHERE counter IN (SELECT name FROM counters WHERE ends_at <= ?)', time)
    this.#sql.run('DELETE FROM counters WHERE ends_at <= ?', time)
    this.#sql.run('DELETE FROM tallies WHERE ends_at <= ?', time)
  }

  #release(hold: unknown): void {
    this.#sql.run(
      'UPDATE counters SET held = held - ? WHERE name = ?',
      numberIn(hold, 'amount'),
      textIn(hold, 'counter'),
    )
  }

  reserve(request: ReserveRequest): ReserveResult {
    const { claims } = request
    const time = this.#clock.now()
    checkReserveRequest(request, time)
    this.#releaseExpired(time)
    const id = encodeText(request.reservationId)
    if (this.#isOpenReservation(id)) throw duplicateReservationError()
    const counters = claims.map(({ counter }) => this.#readCounter(encodeText(counter), time))
    const levels = counters.map((level) => (level === undefined ? 0 : Math.min(MAX_AMOUNT, level.spent + level.held)))
    const result = decideReservation(request, levels)
    if (!result.accepted) return result
    const expiresAt = time + request.expiresAfterMs
    this.#sql.run('INSERT INTO reservations VALUES (?, ?)', id, expiresAt)
    for (const [index, claim] of claims.entries()) {
      const amount = heldAmount(claim, result.granted)
      const counter = encodeText(claim.counter)
      this.#writeCounter(counter, counters[index], { spent: 0, held: amount }, claim.expiresAt)
      this.#sql.run('INSERT INTO holds VALUES (?, ?, ?, ?)', id, counter, amount, expiresAt)
    }
    return result
  }

  settle(reservationId: string, charges: readonly Charge[]): boolean {
    const time = this.#clock.now()
    this.#releaseExpired(time)
    const id = encodeText(reservationId)
    if (!this.#isOpenReservation(id)) return false
    for (const { counter, amount } of charges) checkAmount(counter, amount)
    for (const hold of this.#sql.rows('SELECT counter, amount FROM holds WHERE reservation = ?', id))
      this.#release(hold)
    this.#sql.run('DELETE FROM holds WHERE reservation = ?', id)
    this.#sql.run('DELETE FROM reservations WHERE id = ?', id)
    for (const charge of charges) this.#addCharge(charge, time)
    return true
  }

  /** Does not create a counter that has already expired, because no request can read it. */
  #addCharge({ counter, amount, expiresAt }: Charge, time: number): void {
    const name = encodeText(counter)
    const current = this.#readCounter(name, time)
    if (current === undefined && expiresAt <= time) return
    this.#writeCounter(name, current, { spent: amount, held: 0 }, expiresAt)
  }

  /** If `current` is undefined, the counter is new or has expired, and its old amounts are dropped. */
  #writeCounter(counter: string, current: Level | undefined, change: Level, endsAt: number): void {
    if (current === undefined) {
      this.#sql.run('DELETE FROM holds WHERE counter = ?', counter)
      this.#sql.run('INSERT OR REPLACE INTO counters VALUES (?, ?, ?, ?)', counter, change.spent, change.held, endsAt)
      return
    }
    this.#sql.run(
      'UPDATE counters SET spent = ?, held = ?, ends_at = max(ends_at, ?) WHERE name = ?',
      Math.min(MAX_AMOUNT, current.spent + change.spent),
      current.held + change.held,
      endsAt,
      counter,
    )
  }

  #readCounter(counter: string, time: number): Level | undefined {
    const row = this.#sql.row('SELECT spent, held FROM counters WHERE name = ? AND ends_at > ?', counter, time)
    return row === undefined ? undefined : { spent: numberIn(row, 'spent'), held: numberIn(row, 'held') }
  }

  #isOpenReservation(id: string): boolean {
    return this.#sql.row('SELECT 1 FROM reservations WHERE id = ?', id) !== undefined
  }

  /** Subtracts expired holds instead of deleting them, because a deletion requires the write lock. */
  level(name: string): Level {
    const time = this.#clock.now()
    const row = this.#sql.row(
      `SELECT spent, held - coalesce(
         (SELECT sum(amount) FROM holds WHERE holds.counter = counters.name AND expires_at <= ?), 0) AS held
       FROM counters WHERE name = ? AND ends_at > ?`,
      time,
      encodeText(name),
      time,
    )
    return { spent: numberIn(row, 'spent'), held: numberIn(row, 'held') }
  }

  addTally({ name, amounts, expiresAt }: Tally): void {
    if (expiresAt !== undefined && expiresAt <= this.#clock.now()) return
    const sums = new Map(Object.entries(this.tally(name)))
    for (const [field, amount] of Object.entries(amounts)) addAmount(sums, field, amount)
    const text = encodeText(JSON.stringify(Object.fromEntries(sums)))
    this.#sql.run(
      `INSERT INTO tallies VALUES (?, ?, ?) ON CONFLICT DO UPDATE
       SET amounts = excluded.amounts, ends_at = CASE WHEN excluded.ends_at = ${NEVER} THEN ends_at ELSE excluded.ends_at END`,
      encodeText(name),
      text,
      expiresAt ?? NEVER,
    )
  }

  tally(name: string): Readonly<Record<string, number>> {
    const row = this.#sql.row(
      'SELECT amounts FROM tallies WHERE name = ? AND ends_at > ?',
      encodeText(name),
      this.#clock.now(),
    )
    return row === undefined ? {} : readAmounts(decodeText(textIn(row, 'amounts')))
  }
}

function readAmounts(text: string): Readonly<Record<string, number>> {
  const value: unknown = JSON.parse(text)
  if (typeof value !== 'object' || value === null) return {}
  return Object.fromEntries(Object.entries(value).filter(([, amount]) => typeof amount === 'number'))
}
