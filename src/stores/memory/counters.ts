import type { Charge, Level, ReserveRequest, ReserveResult, Tally } from '../../core/store.ts'
import {
  addAmount,
  checkAmount,
  checkReserveRequest,
  decideReservation,
  LATE_SETTLEMENT_MS,
  MAX_AMOUNT,
  duplicateReservationError,
  heldAmount,
  type StoreClock,
} from '../store-rules.ts'
import { ExpiryQueue, type Schedulable, storeFullError } from './collections.ts'

export interface MemoryCounters {
  reserve(request: ReserveRequest): ReserveResult
  settle(reservationId: string, charges: readonly Charge[]): boolean
  level(counter: string): Level
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

/** Above the limits, `reserve` and `settle` throw, because evicting a counter would lift a budget. */
export function createCounters(
  clock: StoreClock,
  limits: { readonly counters: number; readonly reservations: number },
): MemoryCounters {
  const counters = new Map<string, Counter>()
  const reservations = new Map<string, Reservation>()
  const counterExpiries = new ExpiryQueue<Counter>()
  const reservationExpiries = new ExpiryQueue<Reservation>()

  function sweep(time: number): void {
    reservationExpiries.forEachDue(time, expire)
    counterExpiries.forEachDue(time, removeCounter)
  }

  /** An expired reservation can still be settled, so the first call does not remove it. */
  function expire(reservation: Reservation, time: number): void {
    if (reservation.isExpired) {
      reservations.delete(reservation.id)
      return
    }
    release(reservation)
    reservation.isExpired = true
    reservationExpiries.schedule(reservation, time + LATE_SETTLEMENT_MS)
  }

  function removeCounter({ name }: Counter): void {
    counters.delete(name)
  }

  /** A hold refers to a counter object, so a counter that was created later under the same name does not change. */
  function release(reservation: Reservation): void {
    for (const { counter, amount } of reservation.holds) counter.held -= amount
    reservation.holds = []
  }

  function level(name: string): Level {
    sweep(clock.now())
    const { spent = 0, held = 0 } = counters.get(name) ?? {}
    return { spent, held }
  }

  function levelSum(name: string): number {
    const counter = counters.get(name)
    return counter === undefined ? 0 : Math.min(MAX_AMOUNT, counter.spent + counter.held)
  }

  function getOrCreate(name: string, expiresAt: number): Counter {
    let counter = counters.get(name)
    if (counter === undefined) {
      counter = { name, spent: 0, held: 0, dueAt: Infinity, position: 0 }
      counters.set(name, counter)
    }
    if (counter.dueAt === Infinity || counter.dueAt < expiresAt) counterExpiries.schedule(counter, expiresAt)
    return counter
  }

  function throwIfFull(changes: readonly { readonly counter: string }[]): void {
    if (counters.size + changes.length <= limits.counters) return
    const added = changes.filter(({ counter }) => !counters.has(counter)).length
    if (counters.size + added > limits.counters) throw storeFullError('counters')
  }

  function reserve(request: ReserveRequest): ReserveResult {
    const { reservationId, claims } = request
    const time = clock.now()
    checkReserveRequest(request, time)
    sweep(time)
    if (reservations.has(reservationId)) throw duplicateReservationError()
    const levels = claims.map(({ counter }) => levelSum(counter))
    const result = decideReservation(request, levels)
    if (!result.accepted) return result
    throwIfFull(claims)
    if (reservations.size >= limits.reservations) throw storeFullError('open reservations')
    const holds = claims.map((claim) => {
      const counter = getOrCreate(claim.counter, claim.expiresAt)
      const amount = heldAmount(claim, result.granted)
      counter.held += amount
      return { counter, amount }
    })
    const reservation: Reservation = { id: reservationId, holds, isExpired: false, dueAt: Infinity, position: 0 }
    reservations.set(reservationId, reservation)
    reservationExpiries.schedule(reservation, time + request.expiresAfterMs)
    return result
  }

  function settle(reservationId: string, charges: readonly Charge[]): boolean {
    const time = clock.now()
    sweep(time)
    const reservation = reservations.get(reservationId)
    if (reservation === undefined) return false
    const isOpen = (charge: Charge): boolean => charge.expiresAt > time || counters.has(charge.counter)
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

  return { reserve, settle, level }
}

interface Tallies {
  add(tally: Tally): void
  get(name: string): Readonly<Record<string, number>>
}

interface Sums extends Schedulable {
  readonly name: string
  readonly amounts: Map<string, number>
}

/** @param maxSize Maximum number of tallies and fields together. */
export function createTallies(clock: StoreClock, maxSize: number): Tallies {
  const tallies = new Map<string, Sums>()
  const expiries = new ExpiryQueue<Sums>()
  let size = 0

  function remove(sums: Sums): void {
    tallies.delete(sums.name)
    expiries.schedule(sums, Infinity)
    size -= 1 + sums.amounts.size
  }

  function add({ name, amounts, expiresAt }: Tally): void {
    const time = clock.now()
    expiries.forEachDue(time, remove)
    if (expiresAt !== undefined && expiresAt <= time) return
    const sums = moveToEnd(name)
    if (expiresAt !== undefined) expiries.schedule(sums, expiresAt)
    size -= sums.amounts.size
    for (const field of Object.keys(amounts)) addAmount(sums.amounts, field, amounts[field] ?? 0)
    size += sums.amounts.size
    dropOldest()
  }

  function moveToEnd(name: string): Sums {
    const existing = tallies.get(name)
    if (existing === undefined) size += 1
    else tallies.delete(name)
    const sums = existing ?? { name, amounts: new Map(), dueAt: Infinity, position: 0 }
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
    expiries.forEachDue(clock.now(), remove)
    return Object.fromEntries(tallies.get(name)?.amounts ?? [])
  }

  return { add, get }
}
