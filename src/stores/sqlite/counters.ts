import type { Charge, Level, ReserveRequest, ReserveResult, Tally } from '../../core/store.ts'
import { addField } from '../memory/counters.ts'
import {
  amountOf,
  checkAmount,
  checkRequest,
  decide,
  LATE_MS,
  MAX_AMOUNT,
  takenReservationId,
} from '../reservation-rules.ts'
import { decodeText, encodeText } from '../wire.ts'
import { NEVER, numberIn, textIn, type Row, type Sql } from './database.ts'

/** Counters, tickets and tallies. `reserve` and `settle` run within a transaction of the caller. */
export interface SqliteCounters {
  reserve(request: ReserveRequest): ReserveResult
  /** Returns false when the reservation is unknown or settled. */
  settle(ticket: string, charges: readonly Charge[]): boolean
  level(name: string): Level
  add(tally: Tally): void
  tally(name: string): Readonly<Record<string, number>>
}

const NOTHING: Level = { spent: 0, held: 0 }
/** Time between two removals of ended rows. */
const COLLECT_MS = 1_000

export function createCounters(sql: Sql, now: () => number): SqliteCounters {
  let collectsAt = 0

  /** Releases the amounts of expired reservations. */
  function lapse(at: number): void {
    const lapsed = sql.rows(
      'SELECT counter, sum(amount) AS amount FROM holds WHERE lapses_at <= ? GROUP BY counter',
      at,
    )
    for (const row of lapsed) release(row)
    if (lapsed.length > 0) sql.run('DELETE FROM holds WHERE lapses_at <= ?', at)
    if (at >= collectsAt) collect(at)
  }

  /** Removes expired rows. Reads ignore them, so the removal may be late. */
  function collect(at: number): void {
    collectsAt = at + COLLECT_MS
    sql.run('DELETE FROM tickets WHERE lapses_at <= ?', at - LATE_MS)
    sql.run('DELETE FROM holds WHERE counter IN (SELECT name FROM counters WHERE ends_at <= ?)', at)
    sql.run('DELETE FROM counters WHERE ends_at <= ?', at)
    sql.run('DELETE FROM tallies WHERE ends_at <= ?', at)
  }

  function release(hold: Row): void {
    sql.run('UPDATE counters SET held = held - ? WHERE name = ?', numberIn(hold, 'amount'), textIn(hold, 'counter'))
  }

  function reserve(request: ReserveRequest): ReserveResult {
    const at = now()
    checkRequest(request, at)
    lapse(at)
    const ticket = encodeText(request.reservationId)
    if (isOpen(ticket)) throw takenReservationId()
    const before = request.claims.map(({ counter }) => {
      const { spent, held } = read(encodeText(counter), at) ?? NOTHING
      return Math.min(MAX_AMOUNT, spent + held)
    })
    const decision = decide(request, before)
    if ('refused' in decision) return { accepted: false, refused: decision.refused, levels: before }
    const { granted } = decision
    const lapsesAt = at + request.expiresAfterMs
    sql.run('INSERT INTO tickets VALUES (?, ?)', ticket, lapsesAt)
    for (const claim of request.claims) {
      const amount = amountOf(claim, granted)
      const counter = encodeText(claim.counter)
      write(counter, read(counter, at), { spent: 0, held: amount }, claim.expiresAt)
      sql.run('INSERT INTO holds VALUES (?, ?, ?, ?)', ticket, counter, amount, lapsesAt)
    }
    const levels = request.claims.map((claim, index) => (before[index] ?? 0) + amountOf(claim, granted))
    return { accepted: true, granted: granted === Infinity ? 0 : granted, levels }
  }

  function settle(name: string, charges: readonly Charge[]): boolean {
    const at = now()
    lapse(at)
    const ticket = encodeText(name)
    if (!isOpen(ticket)) return false
    for (const charge of charges) checkAmount(charge.counter, charge.amount)
    for (const hold of sql.rows('SELECT counter, amount FROM holds WHERE ticket = ?', ticket)) release(hold)
    sql.run('DELETE FROM holds WHERE ticket = ?', ticket)
    sql.run('DELETE FROM tickets WHERE name = ?', ticket)
    for (const one of charges) charge(one, at)
    return true
  }

  /** Drops a charge to an expired counter, which no request can read. */
  function charge({ counter, amount, expiresAt }: Charge, at: number): void {
    const name = encodeText(counter)
    const found = read(name, at)
    if (found === undefined && expiresAt <= at) return
    write(name, found, { spent: amount, held: 0 }, expiresAt)
  }

  /** An expired counter starts again at zero, without its old holds. */
  function write(counter: string, found: Level | undefined, by: Level, endsAt: number): void {
    if (found === undefined) {
      sql.run('DELETE FROM holds WHERE counter = ?', counter)
      sql.run('INSERT OR REPLACE INTO counters VALUES (?, ?, ?, ?)', counter, by.spent, by.held, endsAt)
      return
    }
    sql.run(
      'UPDATE counters SET spent = ?, held = ?, ends_at = max(ends_at, ?) WHERE name = ?',
      Math.min(MAX_AMOUNT, found.spent + by.spent),
      found.held + by.held,
      endsAt,
      counter,
    )
  }

  function read(counter: string, at: number): Level | undefined {
    const row = sql.row('SELECT spent, held FROM counters WHERE name = ? AND ends_at > ?', counter, at)
    return row === undefined ? undefined : { spent: numberIn(row, 'spent'), held: numberIn(row, 'held') }
  }

  function isOpen(ticket: string): boolean {
    return sql.row('SELECT 1 FROM tickets WHERE name = ?', ticket) !== undefined
  }

  /** Reads without the write lock, so expired holds are subtracted instead of removed. */
  function level(name: string): Level {
    const at = now()
    const row = sql.row(
      `SELECT spent, held - coalesce(
         (SELECT sum(amount) FROM holds WHERE holds.counter = counters.name AND lapses_at <= ?), 0) AS held
       FROM counters WHERE name = ? AND ends_at > ?`,
      at,
      encodeText(name),
      at,
    )
    return { spent: numberIn(row, 'spent'), held: numberIn(row, 'held') }
  }

  function add({ name, amounts, expiresAt }: Tally): void {
    if (expiresAt !== undefined && expiresAt <= now()) return
    const sums = new Map(Object.entries(tally(name)))
    for (const [field, amount] of Object.entries(amounts)) addField(sums, field, amount)
    const text = encodeText(JSON.stringify(Object.fromEntries(sums)))
    sql.run(
      `INSERT INTO tallies VALUES (?, ?, ?) ON CONFLICT DO UPDATE
       SET amounts = excluded.amounts, ends_at = CASE WHEN excluded.ends_at = ${NEVER} THEN ends_at ELSE excluded.ends_at END`,
      encodeText(name),
      text,
      expiresAt ?? NEVER,
    )
  }

  function tally(name: string): Readonly<Record<string, number>> {
    const row = sql.row('SELECT amounts FROM tallies WHERE name = ? AND ends_at > ?', encodeText(name), now())
    return row === undefined ? {} : readAmounts(decodeText(textIn(row, 'amounts')))
  }

  return { reserve, settle, level, add, tally }
}

function readAmounts(text: string): Readonly<Record<string, number>> {
  const value: unknown = JSON.parse(text)
  if (typeof value !== 'object' || value === null) return {}
  return Object.fromEntries(Object.entries(value).filter(([, amount]) => typeof amount === 'number'))
}
