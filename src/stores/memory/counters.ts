import type { Charge, Level, ReserveRequest, ReserveResult, Tally } from '../../core/store.ts'
import {
  checkAmount,
  checkReserveRequest,
  decideReservation,
  LATE_SETTLEMENT_MS,
  MAX_AMOUNT,
  duplicateReservationError,
  heldAmount,
} from '../store-rules.ts'
import { createExpiryQueue, type Schedulable } from './sorted-collections.ts'
import { storeFullError } from './values.ts'

export interface MemoryCounters {
  reserve(request: ReserveRequest): ReserveResult
  /** Returns false if the reservation is unknown or already settled. */
  settle(reservationId: string, charges: readonly Charge[]): boolean
  level(counter: string): Level
  clear(): void
}

interface Counter extends Schedulable {
  readonly name: string
  spent: number
  held: number
}

interface Reservation extends Schedulable {
  readonly id: string
  holds: readonly { readonly counter: Counter; readonly amount: number }[]
  isExpired: boolean
}

/**
 * Counters and reservations are not evicted before their expiry, because they enforce budgets. Above the limits,
 * `reserve` and `settle` throw.
 */
export function createCounters(
  now: () => number,
  limits: { readonly counters: number; readonly reservations: number },
): MemoryCounters {
  const counters = new Map<string, Counter>()
  const reservations = new Map<string, Reservation>()
  const counterExpiries = createExpiryQueue<Counter>()
  const reservationExpiries = createExpiryQueue<Reservation>()

  function sweep(at: number): void {
    reservationExpiries.forEachDue(at, expire)
    counterExpiries.forEachDue(at, removeCounter)
  }

  /** Releases an expired reservation, which can still be settled. Removes the reservation when it is due again. */
  function expire(reservation: Reservation, at: number): void {
    if (reservation.isExpired) {
      reservations.delete(reservation.id)
      return
    }
    release(reservation)
    reservation.isExpired = true
    reservationExpiries.schedule(reservation, at + LATE_SETTLEMENT_MS)
  }

  function removeCounter({ name }: Counter): void {
    counters.delete(name)
  }

  /** A reservation still references its counter objects after the counters have expired. */
  function release(reservation: Reservation): void {
    for (const { counter, amount } of reservation.holds) counter.held -= amount
    reservation.holds = []
  }

  function level(name: string): Level {
    sweep(now())
    const counter = counters.get(name)
    return { spent: counter?.spent ?? 0, held: counter?.held ?? 0 }
  }

  function levelSum(name: string): number {
    const counter = counters.get(name)
    return counter === undefined ? 0 : Math.min(MAX_AMOUNT, counter.spent + counter.held)
  }

  /** Creates the counter, or extends its expiry. */
  function getOrCreate(name: string, expiresAt: number): Counter {
    let counter = counters.get(name)
    if (counter === undefined) {
      counter = { name, spent: 0, held: 0, dueAt: Infinity }
      counters.set(name, counter)
    }
    if (counter.dueAt === Infinity || counter.dueAt < expiresAt) counterExpiries.schedule(counter, expiresAt)
    return counter
  }

  function throwIfFull(amounts: readonly { readonly counter: string }[]): void {
    if (counters.size + amounts.length <= limits.counters) return
    const added = amounts.filter(({ counter }) => !counters.has(counter)).length
    if (counters.size + added > limits.counters) throw storeFullError('counters')
  }

  function reserve(request: ReserveRequest): ReserveResult {
    const at = now()
    checkReserveRequest(request, at)
    sweep(at)
    if (reservations.has(request.reservationId)) throw duplicateReservationError()
    const levelsBefore = request.claims.map((claim) => levelSum(claim.counter))
    const decision = decideReservation(request, levelsBefore)
    if ('rejectedIndex' in decision)
      return { accepted: false, rejectedIndex: decision.rejectedIndex, levels: levelsBefore }
    throwIfFull(request.claims)
    if (reservations.size >= limits.reservations) throw storeFullError('open reservations')
    const { granted } = decision
    const holds = request.claims.map((claim) => {
      const counter = getOrCreate(claim.counter, claim.expiresAt)
      const amount = heldAmount(claim, granted)
      counter.held += amount
      return { counter, amount }
    })
    const reservation: Reservation = { id: request.reservationId, holds, isExpired: false, dueAt: Infinity }
    reservations.set(reservation.id, reservation)
    reservationExpiries.schedule(reservation, at + request.expiresAfterMs)
    const levels = levelsBefore.map((sum, index) => sum + (holds[index]?.amount ?? 0))
    return { accepted: true, granted: granted === Infinity ? 0 : granted, levels }
  }

  function settle(reservationId: string, charges: readonly Charge[]): boolean {
    const at = now()
    sweep(at)
    const reservation = reservations.get(reservationId)
    if (reservation === undefined) return false
    const isOpen = (charge: Charge): boolean => charge.expiresAt > at || counters.has(charge.counter)
    const openCharges = charges.every(isOpen) ? charges : charges.filter(isOpen)
    for (const charge of openCharges) checkAmount(charge.counter, charge.amount)
    throwIfFull(openCharges)
    release(reservation)
    reservations.delete(reservationId)
    reservationExpiries.schedule(reservation, Infinity)
    for (const { counter: name, amount, expiresAt } of openCharges) {
      const counter = getOrCreate(name, expiresAt)
      counter.spent = Math.min(MAX_AMOUNT, counter.spent + amount)
    }
    return true
  }

  function clear(): void {
    counters.clear()
    reservations.clear()
    counterExpiries.clear()
    reservationExpiries.clear()
  }

  return { reserve, settle, level, clear }
}

/**
 * Sums for reports and for the amounts that a budget carries over. Above the maximum size, the least recently updated
 * tally is dropped.
 */
interface Tallies {
  add(tally: Tally): void
  get(name: string): Readonly<Record<string, number>>
  clear(): void
}

interface Sums extends Schedulable {
  readonly name: string
  readonly amounts: Map<string, number>
}

/** Maximum number of fields per tally. Further fields are ignored. */
const MAX_FIELDS = 4_096

/** @param maxSize Maximum number of tallies and fields together. */
export function createTallies(now: () => number, maxSize: number): Tallies {
  const tallies = new Map<string, Sums>()
  const expiries = createExpiryQueue<Sums>()
  let size = 0

  function remove(sums: Sums): void {
    tallies.delete(sums.name)
    expiries.schedule(sums, Infinity)
    size -= 1 + sums.amounts.size
  }

  function add({ name, amounts, expiresAt }: Tally): void {
    const at = now()
    expiries.forEachDue(at, remove)
    if (expiresAt !== undefined && expiresAt <= at) return
    const sums = moveToEnd(name)
    if (expiresAt !== undefined) expiries.schedule(sums, expiresAt)
    size -= sums.amounts.size
    for (const field of Object.keys(amounts)) addAmount(sums.amounts, field, amounts[field] ?? 0)
    size += sums.amounts.size
    dropOldest()
  }

  /** Keeps the Map in the order of updates, least recent first. */
  function moveToEnd(name: string): Sums {
    const existing = tallies.get(name)
    if (existing === undefined) size += 1
    else tallies.delete(name)
    const sums = existing ?? { name, amounts: new Map(), dueAt: Infinity }
    tallies.set(name, sums)
    return sums
  }

  function dropOldest(): void {
    for (const sums of tallies.values()) {
      if (size <= maxSize) return
      remove(sums)
    }
  }

  function get(name: string): Readonly<Record<string, number>> {
    expiries.forEachDue(now(), remove)
    return Object.fromEntries(tallies.get(name)?.amounts ?? [])
  }

  function clear(): void {
    tallies.clear()
    size = 0
    expiries.clear()
  }

  return { add, get, clear }
}

/** Ignores amounts that are not safe integers, and fields beyond the maximum. */
export function addAmount(amounts: Map<string, number>, field: string, amount: number): void {
  if (!Number.isSafeInteger(amount)) return
  if (!amounts.has(field) && amounts.size >= MAX_FIELDS) return
  const sum = (amounts.get(field) ?? 0) + amount
  amounts.set(field, Math.min(MAX_AMOUNT, Math.max(-MAX_AMOUNT, sum)))
}
