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
export class MemoryCounters {
  readonly #clock: StoreClock
  readonly #limits: { readonly counters: number; readonly reservations: number }
  readonly #counters = new Map<string, Counter>()
  readonly #reservations = new Map<string, Reservation>()
  readonly #counterExpiries = new ExpiryQueue<Counter>()
  readonly #reservationExpiries = new ExpiryQueue<Reservation>()

  constructor(clock: StoreClock, limits: { readonly counters: number; readonly reservations: number }) {
    this.#clock = clock
    this.#limits = limits
  }

  #sweep(time: number): void {
    this.#reservationExpiries.forEachDue(time, (reservation) => this.#expire(reservation, time))
    this.#counterExpiries.forEachDue(time, ({ name }) => void this.#counters.delete(name))
  }

  /** An expired reservation can still be settled, so the first call does not remove it. */
  #expire(reservation: Reservation, time: number): void {
    if (reservation.isExpired) {
      this.#reservations.delete(reservation.id)
      return
    }
    this.#release(reservation)
    reservation.isExpired = true
    this.#reservationExpiries.schedule(reservation, time + LATE_SETTLEMENT_MS)
  }

  /** A hold refers to a counter object, so a counter that was created later under the same name does not change. */
  #release(reservation: Reservation): void {
    for (const { counter, amount } of reservation.holds) counter.held -= amount
    reservation.holds = []
  }

  level(name: string): Level {
    this.#sweep(this.#clock.now())
    const { spent = 0, held = 0 } = this.#counters.get(name) ?? {}
    return { spent, held }
  }

  #levelSum(name: string): number {
    const counter = this.#counters.get(name)
    return counter === undefined ? 0 : Math.min(MAX_AMOUNT, counter.spent + counter.held)
  }

  #getOrCreate(name: string, expiresAt: number): Counter {
    let counter = this.#counters.get(name)
    if (counter === undefined) {
      counter = { name, spent: 0, held: 0, dueAt: Infinity, position: 0 }
      this.#counters.set(name, counter)
    }
    if (counter.dueAt === Infinity || counter.dueAt < expiresAt) this.#counterExpiries.schedule(counter, expiresAt)
    return counter
  }

  #throwIfFull(changes: readonly { readonly counter: string }[]): void {
    if (this.#counters.size + changes.length <= this.#limits.counters) return
    const added = changes.filter(({ counter }) => !this.#counters.has(counter)).length
    if (this.#counters.size + added > this.#limits.counters) throw storeFullError('counters')
  }

  reserve(request: ReserveRequest): ReserveResult {
    const { reservationId, claims } = request
    const time = this.#clock.now()
    checkReserveRequest(request, time)
    this.#sweep(time)
    if (this.#reservations.has(reservationId)) throw duplicateReservationError()
    const levels = claims.map(({ counter }) => this.#levelSum(counter))
    const result = decideReservation(request, levels)
    if (!result.accepted) return result
    this.#throwIfFull(claims)
    if (this.#reservations.size >= this.#limits.reservations) throw storeFullError('open reservations')
    const holds = claims.map((claim) => {
      const counter = this.#getOrCreate(claim.counter, claim.expiresAt)
      const amount = heldAmount(claim, result.granted)
      counter.held += amount
      return { counter, amount }
    })
    const reservation: Reservation = { id: reservationId, holds, isExpired: false, dueAt: Infinity, position: 0 }
    this.#reservations.set(reservationId, reservation)
    this.#reservationExpiries.schedule(reservation, time + request.expiresAfterMs)
    return result
  }

  settle(reservationId: string, charges: readonly Charge[]): boolean {
    const time = this.#clock.now()
    this.#sweep(time)
    const reservation = this.#reservations.get(reservationId)
    if (reservation === undefined) return false
    const isOpen = (charge: Charge): boolean => charge.expiresAt > time || this.#counters.has(charge.counter)
    const openCharges = charges.every(isOpen) ? charges : charges.filter(isOpen)
    for (const charge of openCharges) checkAmount(charge.counter, charge.amount)
    this.#throwIfFull(openCharges)
    this.#release(reservation)
    this.#reservations.delete(reservationId)
    this.#reservationExpiries.schedule(reservation, Infinity)
    for (const { counter: name, amount, expiresAt } of openCharges) {
      const counter = this.#getOrCreate(name, expiresAt)
      counter.spent = Math.min(MAX_AMOUNT, counter.spent + amount)
    }
    return true
  }
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
