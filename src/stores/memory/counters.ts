import { GatewayError } from '../../core/errors.ts'
import type { Charge, Level, ReserveRequest, ReserveResult, Tally } from '../../core/store.ts'
import {
  amountOf,
  checkAmount,
  checkRequest,
  decide,
  LATE_MS,
  MAX_AMOUNT,
  takenReservationId,
} from '../reservation-rules.ts'
import { createExpiryQueue, type Dated } from './sorted.ts'

/** Counters of requests, tokens and money, and the reservations that hold parts of them. */
export interface MemoryCounters {
  reserve(request: ReserveRequest): ReserveResult
  /** False when the reservation is unknown or settled. */
  settle(reservationId: string, charges: readonly Charge[]): boolean
  level(counter: string): Level
  clear(): void
}

interface Counter extends Dated {
  readonly name: string
  spent: number
  held: number
}

/** An open reservation. A settled one is deleted, because an unknown id settles nothing. */
interface Reservation extends Dated {
  readonly name: string
  holds: readonly { readonly counter: Counter; readonly amount: number }[]
  isExpired: boolean
}

/** Neither pool drops entries to make space, because they decide about money. A full pool refuses new ones. */
export function createCounters(
  now: () => number,
  bounds: { readonly counters: number; readonly reservations: number },
): MemoryCounters {
  const counters = new Map<string, Counter>()
  const reservations = new Map<string, Reservation>()
  const endings = createExpiryQueue<Counter>()
  const expirations = createExpiryQueue<Reservation>()

  function sweep(at: number): void {
    for (let ended = expirations.due(at); ended !== undefined; ended = expirations.due(at)) {
      if (ended.isExpired) reservations.delete(ended.name)
      else expire(ended, at)
    }
    for (let counter = endings.due(at); counter !== undefined; counter = endings.due(at)) counters.delete(counter.name)
  }

  function expire(reservation: Reservation, at: number): void {
    release(reservation)
    reservation.isExpired = true
    expirations.schedule(reservation, at + LATE_MS)
  }

  /** Releases the holds. Their counter objects exist even if the counters have expired. */
  function release(reservation: Reservation): void {
    for (const { counter, amount } of reservation.holds) counter.held -= amount
    reservation.holds = []
  }

  function level(name: string): Level {
    sweep(now())
    const counter = counters.get(name)
    return { spent: counter?.spent ?? 0, held: counter?.held ?? 0 }
  }

  function sum(name: string): number {
    const counter = counters.get(name)
    return counter === undefined ? 0 : Math.min(MAX_AMOUNT, counter.spent + counter.held)
  }

  function touch(name: string, expiresAt: number): Counter {
    let counter = counters.get(name)
    if (counter === undefined) {
      counter = { name, spent: 0, held: 0, dueAt: Infinity }
      counters.set(name, counter)
    }
    if (counter.dueAt === Infinity || counter.dueAt < expiresAt) endings.schedule(counter, expiresAt)
    return counter
  }

  function refuseOverfull(wanted: readonly { readonly counter: string }[]): void {
    if (counters.size + wanted.length <= bounds.counters) return
    const fresh = wanted.filter(({ counter }) => !counters.has(counter)).length
    if (counters.size + fresh > bounds.counters) throw overfull('counters')
  }

  function reserve(request: ReserveRequest): ReserveResult {
    const at = now()
    checkRequest(request, at)
    sweep(at)
    if (reservations.has(request.reservationId)) throw takenReservationId()
    const before = request.claims.map((claim) => sum(claim.counter))
    const decision = decide(request, before)
    if ('refused' in decision) return { accepted: false, refused: decision.refused, levels: before }
    refuseOverfull(request.claims)
    if (reservations.size >= bounds.reservations) throw overfull('open reservations')
    const { granted } = decision
    const holds = request.claims.map((claim) => {
      const counter = touch(claim.counter, claim.expiresAt)
      const amount = amountOf(claim, granted)
      counter.held += amount
      return { counter, amount }
    })
    const reservation: Reservation = { name: request.reservationId, holds, isExpired: false, dueAt: Infinity }
    reservations.set(reservation.name, reservation)
    expirations.schedule(reservation, at + request.expiresAfterMs)
    const levels = before.map((found, index) => found + (holds[index]?.amount ?? 0))
    return { accepted: true, granted: granted === Infinity ? 0 : granted, levels }
  }

  function settle(name: string, charges: readonly Charge[]): boolean {
    const at = now()
    sweep(at)
    const reservation = reservations.get(name)
    if (reservation === undefined) return false
    const isPresent = (charge: Charge): boolean => charge.expiresAt > at || counters.has(charge.counter)
    const present = charges.every(isPresent) ? charges : charges.filter(isPresent)
    for (const charge of present) checkAmount(charge.counter, charge.amount)
    refuseOverfull(present)
    release(reservation)
    reservations.delete(name)
    expirations.schedule(reservation, Infinity)
    for (const { counter: charged, amount, expiresAt } of present) {
      const counter = touch(charged, expiresAt)
      counter.spent = Math.min(MAX_AMOUNT, counter.spent + amount)
    }
    return true
  }

  function clear(): void {
    counters.clear()
    reservations.clear()
    endings.clear()
    expirations.clear()
  }

  return { reserve, settle, level, clear }
}

function overfull(what: string): GatewayError {
  return new GatewayError(
    'overloaded',
    `The in-memory store has no capacity for more ${what}. Retry later, raise the limits of memoryStore(), or use another store.`,
  )
}

/** Sums for reports. No decision depends on them, so a full pool drops the least recently updated sum. */
interface Tallies {
  add(tally: Tally): void
  get(name: string): Readonly<Record<string, number>>
  clear(): void
}

interface Sums extends Dated {
  readonly name: string
  readonly amounts: Map<string, number>
}

/** Maximum number of fields of one tally. Further fields are ignored. */
const MAX_FIELDS = 4_096
const GREATEST = Number.MAX_SAFE_INTEGER

/** `most` counts tallies and their fields together. */
export function createTallies(now: () => number, most: number): Tallies {
  const tallies = new Map<string, Sums>()
  const endings = createExpiryQueue<Sums>()
  let size = 0

  function sweep(at: number): void {
    for (let sums = endings.due(at); sums !== undefined; sums = endings.due(at)) remove(sums)
  }

  function remove(sums: Sums): void {
    tallies.delete(sums.name)
    endings.schedule(sums, Infinity)
    size -= 1 + sums.amounts.size
  }

  function add({ name, amounts, expiresAt }: Tally): void {
    const at = now()
    sweep(at)
    if (expiresAt !== undefined && expiresAt <= at) return
    const sums = moveToEnd(name)
    if (expiresAt !== undefined) endings.schedule(sums, expiresAt)
    size -= sums.amounts.size
    for (const field of Object.keys(amounts)) addField(sums.amounts, field, amounts[field] ?? 0)
    size += sums.amounts.size
    dropOldest()
  }

  /** A Map keeps the order of insertion, so its first entry is the least recently updated. */
  function moveToEnd(name: string): Sums {
    const found = tallies.get(name)
    if (found === undefined) size += 1
    else tallies.delete(name)
    const sums = found ?? { name, amounts: new Map(), dueAt: Infinity }
    tallies.set(name, sums)
    return sums
  }

  function dropOldest(): void {
    for (const sums of tallies.values()) {
      if (size <= most) return
      remove(sums)
    }
  }

  function get(name: string): Readonly<Record<string, number>> {
    sweep(now())
    return Object.fromEntries(tallies.get(name)?.amounts ?? [])
  }

  function clear(): void {
    tallies.clear()
    size = 0
    endings.clear()
  }

  return { add, get, clear }
}

/** Adds to one field within the bounds of a tally. An amount that is not a safe integer is ignored. */
export function addField(amounts: Map<string, number>, field: string, amount: number): void {
  if (!Number.isSafeInteger(amount)) return
  if (!amounts.has(field) && amounts.size >= MAX_FIELDS) return
  const sum = (amounts.get(field) ?? 0) + amount
  amounts.set(field, Math.min(GREATEST, Math.max(-GREATEST, sum)))
}
