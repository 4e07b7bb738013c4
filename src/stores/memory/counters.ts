import { GatewayError } from '../../core/errors.ts'
import type { Charge, Claim, Level, ReserveRequest, ReserveResult } from '../../core/ports.ts'
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

const GREATEST = Number.MAX_SAFE_INTEGER

/** How long a ticket can still be settled after its hold has lapsed. */
const LATE_MS = 2 * 3_600_000

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
    return counter === undefined ? 0 : Math.min(GREATEST, counter.spent + counter.held)
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
    if (tickets.has(request.ticket)) throw new RangeError('The ticket is taken: tickets must be unique for ever.')
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
      counter.spent = Math.min(GREATEST, counter.spent + amount)
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

type Decision = { readonly refused: number } | { readonly granted: number }

/**
 * What elastic claims get, or the first claim that does not fit; Infinity where no claim is elastic. Room is a difference
 * of safe integers, so it is exact.
 */
function decide({ claims, least }: ReserveRequest, before: readonly number[]): Decision {
  let granted = Infinity
  for (const [index, { max, amount, elastic }] of claims.entries()) {
    const room = max - (before[index] ?? 0)
    const needed = elastic === true ? Math.min(amount, least ?? amount) : amount
    if (needed > room) return { refused: index }
    if (elastic === true) granted = Math.min(granted, amount, room)
  }
  return { granted }
}

function amountOf({ elastic, amount }: Claim, granted: number): number {
  return elastic === true ? granted : amount
}

function checkRequest({ claims, least, lapsesAfterMs }: ReserveRequest, at: number): void {
  if (hasDuplicates(claims)) {
    throw new RangeError('Two claims of one reservation name the same counter; join them into one.')
  }
  for (const claim of claims) {
    checkAmount(claim.counter, claim.amount)
    checkAmount(claim.counter, claim.max)
    if (claim.expiresAt > at) continue
    throw new RangeError(
      `The counter ${claim.counter} ends before the store's present: the store and its user need the same clock.`,
    )
  }
  if (least !== undefined) checkAmount('least', least)
  if (!(lapsesAfterMs > 0)) throw new RangeError('lapsesAfterMs must be above 0.')
}

/** Claims are few: comparing them is cheaper than a set. */
function hasDuplicates(claims: readonly Claim[]): boolean {
  return claims.some(({ counter }, index) => {
    for (let other = index + 1; other < claims.length; other++) if (claims[other]?.counter === counter) return true
    return false
  })
}

/** NaN, fractions, negative amounts and unsafe integers would quietly break every later comparison. */
function checkAmount(name: string, amount: number): void {
  if (Number.isSafeInteger(amount) && amount >= 0) return
  throw new RangeError(`The amount of ${name} is ${amount}; a whole number from 0 to 2^53 - 1 was expected.`)
}

function overfull(what: string): GatewayError {
  return new GatewayError(
    'overloaded',
    `The in-memory store has no room for more ${what}. Try again later, raise its bounds, or use a store that keeps its data elsewhere.`,
  )
}
