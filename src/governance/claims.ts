import type { Claim } from '../core/store.ts'
import { UNLIMITED } from './field-schema.ts'
import { forgottenAt, type Limit } from './limits-in-force.ts'
import type { Quote, Recount } from './reservation.ts'

/** What a request must take of its limits. */
export interface Wanted {
  /** The limits that a claim is made of, in the order of the claims. */
  readonly limits: readonly Limit[]
  readonly claims: readonly Claim[]
  /** The worst case's money. */
  readonly worst: number
  /** The least money that is accepted. */
  readonly least: number
  readonly tokens: number
}

/** Fewer tokens than this are no useful answer, unless the caller asked for fewer. */
const MIN_OUTPUT = 16
/**
 * A grant in part is accepted where the prompt's bound is at most this share of it: there an exact count could lengthen
 * the answer by little. Below that the prompt is counted first.
 */
const UNCOUNTED_SHARE = 0.1

/**
 * The claims of a request. Budgets are not asked where nothing can cost anything, save those of 0. Counting a long prompt
 * costs time: only what a limit asks for is counted.
 */
export function claimsFor(inForce: readonly Limit[], quote: Quote): Wanted {
  const limits = quote.requestOnly === true ? inForce.filter(({ kind }) => kind === 'requests') : inForce
  const worst = has('budget', limits) ? countable(quote.cost(quote.outputTokens)) : 0
  const tokens = has('tokens', limits) ? Math.max(1, countable(quote.promptTokens)) : 1
  const claimed = limits.filter((limit) => limit.kind !== 'budget' || worst > 0 || limit.max === 0)
  const least = worst > 0 ? leastGrant(quote, worst) : 0
  const claims = claimed.map((limit) => claim(limit, tokens, worst))
  return { limits: claimed, claims, worst, least: Math.max(1, least), tokens }
}

function leastGrant(quote: Quote, worst: number): number {
  const { uncounted = 0 } = quote
  return Math.max(shortestCost(quote), Math.min(worst, countable(uncounted / UNCOUNTED_SHARE)))
}

/** The cost of the shortest answer that is of use. */
function shortestCost(quote: Quote): number {
  return countable(quote.cost(Math.min(MIN_OUTPUT, quote.outputTokens)))
}

/**
 * The recount by which a request may still pass a limit that refused it; undefined where no count can help, so that a
 * key whose budget is spent causes no counts.
 */
export function recountFor(limit: Limit, level: number, quote: Quote): Recount | undefined {
  const left = limit.max - (limit.carried ?? 0) - level
  if (left <= 0 || limit.kind === 'requests') return undefined
  if (limit.kind === 'tokens') return quote.recount?.tokens
  return shortestCost(quote) - (quote.uncounted ?? 0) <= left ? quote.recount?.budget : undefined
}

function has(kind: Limit['kind'], limits: readonly Limit[]): boolean {
  return limits.some((limit) => limit.kind === kind)
}

/** A limit of 0 serves nothing, not even what is free. */
function claim(limit: Limit, tokens: number, worst: number): Claim {
  const { counter, kind, carried = 0 } = limit
  const max = Math.max(0, limit.max - carried)
  const expiresAt = forgottenAt(limit.every, limit.period)
  if (kind === 'budget') return { counter, max, expiresAt, amount: Math.max(1, worst), elastic: true }
  return { counter, max, expiresAt, amount: kind === 'requests' ? 1 : tokens }
}

/** The answer's limit for so much granted money. */
export function outputFor(wanted: Wanted, quote: Quote, granted: number): number {
  return granted < wanted.worst && has('budget', wanted.limits) ? paidFor(quote, granted) : quote.outputTokens
}

/** The longest answer whose worst case the grant pays for. `least` saw to it that it pays for the shortest useful one. */
function paidFor(quote: Quote, granted: number): number {
  let paid = Math.min(MIN_OUTPUT, quote.outputTokens)
  let unpaid = quote.outputTokens
  while (unpaid - paid > 1) {
    const middle = Math.floor((paid + unpaid) / 2)
    if (countable(quote.cost(middle)) <= granted) paid = middle
    else unpaid = middle
  }
  return paid
}

/** A whole number from 0 to the greatest safe integer; a price that is no number is dearer than any budget. */
export function countable(amount: number): number {
  return Number.isNaN(amount) ? UNLIMITED : Math.min(UNLIMITED, Math.max(0, Math.ceil(amount)))
}
