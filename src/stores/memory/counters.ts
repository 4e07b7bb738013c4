import { GatewayError } from '../../core/errors.ts'
import type { Charge, Level, ReserveRequest, ReserveResult } from '../../core/ports.ts'
import { amountOf, checkAmount, checkRequest, decide, LATE_MS, MAX_AMOUNT, takenTicket } from '../reservation-rules.ts'
import { createExpiryQueue, type Dated } from './expiry-queue.ts'

/** Counters of requests, tokens and money, and the tickets that hold parts of them. */
export interface Counters {
  reserve(request: ReserveRequest): ReserveResult
  /** False when the ticket is unknown or settled. */
  settle(ticket: string, charges: readonly Charge[]): boolean
  level(counter: string): Level
  clear(): void
}

interface Counter extends Dated {
  readonly name: string
  spent: number
  held: number
}

/** An open ticket. Settled ones are forgotten at once: an unknown ticket settles nothing, so nothing can happen twice. */
interface Ticket extends Dated {
  readonly name: string
  holds: readonly { readonly counter: Counter; readonly amount: number }[]
  lapsed: boolean
}

/** Neither pool ever forgets to make room: what decides over money refuses instead. */
export function createCounters(
  now: () => number,
  bounds: { readonly counters: number; readonly tickets: number },
): Counters {
  const counters = new Map<string, Counter>()
  const tickets = new Map<string, Ticket>()
  const endings = createExpiryQueue<Counter>()
  const lapses = createExpiryQueue<Ticket>()

  function sweep(at: number): void {
    for (let ticket = lapses.due(at); ticket !== undefined; ticket = lapses.due(at)) {
      if (ticket.lapsed) tickets.delete(ticket.name)
      else lapse(ticket, at)
    }
    for (let counter = endings.due(at); counter !== undefined; counter = endings.due(at)) counters.delete(counter.name)
  }

  function lapse(ticket: Ticket, at: number): void {
    release(ticket)
    ticket.lapsed = true
    lapses.schedule(ticket, at + LATE_MS)
  }

  /** A counter that was forgotten in the meantime is still the object that the hold was taken from. */
  function release(ticket: Ticket): void {
    for (const { counter, amount } of ticket.holds) counter.held -= amount
    ticket.holds = []
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
    const counter = counters.get(name) ?? { name, spent: 0, held: 0, dueAt: Infinity }
    counters.set(name, counter)
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
    if (tickets.has(request.ticket)) throw takenTicket()
    const before = request.claims.map((claim) => sum(claim.counter))
    const decision = decide(request, before)
    if ('refused' in decision) return { accepted: false, refused: decision.refused, levels: before }
    refuseOverfull(request.claims)
    if (tickets.size >= bounds.tickets) throw overfull('open reservations')
    const { granted } = decision
    const holds = request.claims.map((claim) => {
      const counter = touch(claim.counter, claim.expiresAt)
      const amount = amountOf(claim, granted)
      counter.held += amount
      return { counter, amount }
    })
    const ticket: Ticket = { name: request.ticket, holds, lapsed: false, dueAt: Infinity }
    tickets.set(ticket.name, ticket)
    lapses.schedule(ticket, at + request.lapsesAfterMs)
    const levels = before.map((found, index) => found + (holds[index]?.amount ?? 0))
    return { accepted: true, granted: granted === Infinity ? 0 : granted, levels }
  }

  function settle(name: string, charges: readonly Charge[]): boolean {
    const at = now()
    sweep(at)
    const ticket = tickets.get(name)
    if (ticket === undefined) return false
    const isPresent = (charge: Charge): boolean => charge.expiresAt > at || counters.has(charge.counter)
    const present = charges.every(isPresent) ? charges : charges.filter(isPresent)
    for (const charge of present) checkAmount(charge.counter, charge.amount)
    refuseOverfull(present)
    release(ticket)
    tickets.delete(name)
    lapses.schedule(ticket, Infinity)
    for (const { counter: charged, amount, expiresAt } of present) {
      const counter = touch(charged, expiresAt)
      counter.spent = Math.min(MAX_AMOUNT, counter.spent + amount)
    }
    return true
  }

  function clear(): void {
    counters.clear()
    tickets.clear()
    endings.clear()
    lapses.clear()
  }

  return { reserve, settle, level, clear }
}

function overfull(what: string): GatewayError {
  return new GatewayError(
    'overloaded',
    `The in-memory store has no room for more ${what}. Try again later, raise its bounds, or use a store that keeps its data elsewhere.`,
  )
}
