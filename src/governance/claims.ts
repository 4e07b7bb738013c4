import { GatewayError, type FailureDetails } from '../core/errors.ts'
import { formatUsd, toNanoUsd } from '../core/money.ts'
import { type Claim, type DurationCode, periodOf } from '../core/store.ts'
import { counterExpiry, type Limit } from './limits.ts'
import type { Quote, RateStatus, Recount } from './reservation.ts'
import { UNLIMITED } from './virtual-key.ts'

/** The claims of a request on its limits. */
export interface LimitClaims {
  /** In the order of `claims`. */
  readonly limits: readonly Limit[]
  readonly claims: readonly Claim[]
  /** Worst-case cost in nano-dollars. */
  readonly worstCost: number
  /** Smallest acceptable grant, in nano-dollars. */
  readonly minGrant: number
  readonly tokens: number
}

/** Length of the shortest useful answer in tokens, unless the request has a lower limit. */
const MIN_OUTPUT = 16
/**
 * Maximum share of a partial grant that the estimated part of the prompt may take. Above this share, the prompt is
 * counted first, because an exact count could allow a considerably longer answer.
 */
const MAX_UNCOUNTED_SHARE = 0.1

/**
 * Returns the claims of a request. A free request claims no amount from a budget, except from a budget of 0, which must
 * reject the request. Skips values that no limit needs, because counting a long prompt takes time.
 */
export function claimsFor(keyLimits: readonly Limit[], quote: Quote): LimitClaims {
  const limits = quote.isRequestOnly === true ? keyLimits.filter(({ kind }) => kind === 'requests') : keyLimits
  const worstCost = hasKind('budget', limits) ? toAmount(quote.cost(quote.outputTokens)) : 0
  const tokens = hasKind('tokens', limits) ? Math.max(1, toAmount(quote.promptTokens)) : 1
  const minGrant = worstCost > 0 ? minGrantOf(quote, worstCost) : 0
  const claimedLimits: Limit[] = []
  const claims: Claim[] = []
  for (const limit of limits) {
    if (limit.kind === 'budget' && worstCost === 0 && limit.max !== 0) continue
    claimedLimits.push(limit)
    claims.push(toClaim(limit, tokens, worstCost))
  }
  return { limits: claimedLimits, claims, worstCost, minGrant: Math.max(1, minGrant), tokens }
}

function minGrantOf(quote: Quote, worstCost: number): number {
  const { uncountedCost = 0 } = quote
  return Math.max(minUsefulCost(quote), Math.min(worstCost, toAmount(uncountedCost / MAX_UNCOUNTED_SHARE)))
}

function minUsefulCost(quote: Quote): number {
  return toAmount(quote.cost(Math.min(MIN_OUTPUT, quote.outputTokens)))
}

/**
 * Returns the recount after which a rejected request may fit the limit, or undefined if no recount can help. Prevents
 * recounts for keys whose budgets are exhausted.
 */
export function recountFor(limit: Limit, level: number, quote: Quote): Recount | undefined {
  const remaining = limit.max - (limit.carriedAmount ?? 0) - level
  if (remaining <= 0 || limit.kind === 'requests') return undefined
  if (limit.kind === 'tokens') return quote.recount?.tokens
  return minUsefulCost(quote) - (quote.uncountedCost ?? 0) <= remaining ? quote.recount?.budget : undefined
}

function hasKind(kind: Limit['kind'], limits: readonly Limit[]): boolean {
  return limits.some((limit) => limit.kind === kind)
}

/** The amount is at least 1. Otherwise, a limit of 0 would accept free requests. */
function toClaim(limit: Limit, tokens: number, worstCost: number): Claim {
  const { counter, kind, carriedAmount = 0 } = limit
  const max = Math.max(0, limit.max - carriedAmount)
  const expiresAt = counterExpiry(limit)
  if (kind === 'budget') return { counter, max, expiresAt, amount: Math.max(1, worstCost), elastic: true }
  return { counter, max, expiresAt, amount: kind === 'requests' ? 1 : tokens }
}

/**
 * Returns the length, in tokens, of the longest answer whose worst-case cost the grant covers. Every grant covers the
 * shortest useful answer.
 */
export function coveredOutputTokens({ worstCost, limits }: LimitClaims, quote: Quote, grantedCost: number): number {
  if (grantedCost >= worstCost || !hasKind('budget', limits)) return quote.outputTokens
  let covered = Math.min(MIN_OUTPUT, quote.outputTokens)
  let uncovered = quote.outputTokens
  while (uncovered - covered > 1) {
    const middle = Math.floor((covered + uncovered) / 2)
    if (toAmount(quote.cost(middle)) <= grantedCost) covered = middle
    else uncovered = middle
  }
  return covered
}

/** Rounds up to an integer from 0 to the maximum safe integer. Returns the maximum for NaN, which no budget covers. */
export function toAmount(amount: number): number {
  return Number.isNaN(amount) ? UNLIMITED : Math.min(UNLIMITED, Math.max(0, Math.ceil(amount)))
}

/**
 * Returns the status of the request or token limit that the request exceeded, or else of the request limit with the
 * fewest remaining requests.
 */
export function rateStatus(
  limits: readonly Limit[],
  levels: readonly number[],
  { now, exceeded }: { readonly now: number; readonly exceeded: Limit | undefined },
): RateStatus {
  let reported: Limit | undefined
  let remaining = Infinity
  for (let index = 0; index < limits.length; index++) {
    const limit = limits[index]
    if (limit === undefined) break
    const limitRemaining = Math.max(0, limit.max - (levels[index] ?? 0))
    const isExceeded = limit === exceeded && limit.kind !== 'budget'
    if (!isExceeded && (limit.kind !== 'requests' || limitRemaining >= remaining)) continue
    reported = limit
    remaining = limitRemaining
    if (isExceeded) break
  }
  if (reported === undefined) return { limit: UNLIMITED, remaining: UNLIMITED, resetAt: periodOf(now, '1h').end }
  return { limit: reported.max, remaining, resetAt: reported.period.end }
}

const WINDOW_NAMES: Readonly<Record<DurationCode, string>> = {
  '1m': 'minute',
  '1h': 'hour',
  '1d': 'day',
  '1w': 'week',
  '1M': 'month',
}

/**
 * Returns the error for the limit that rejected the request. The error must not reveal the usage of other keys that
 * share the limit.
 */
export function limitError(
  limit: Limit,
  { rate, now, tokens }: { readonly rate: RateStatus; readonly now: number; readonly tokens: number },
): GatewayError {
  const retryAt = new Date(limit.period.end).toISOString()
  const window = WINDOW_NAMES[limit.every]
  if (limit.kind === 'budget') {
    return new GatewayError(
      'budget-exceeded',
      `${limit.label} is exceeded: this request could cost more than the amount that remains of ${formatUsd(toNanoUsd(limit.max))} per ${window}. Lower max_tokens, retry after ${retryAt}, or raise the limit.`,
      { rate },
    )
  }
  const isTooLarge = limit.kind === 'tokens' && tokens > limit.max
  const details: FailureDetails = {
    code: 'rate_limit_exceeded',
    retryAfterSeconds: Math.max(1, Math.ceil((limit.period.end - now) / 1000)),
    rate,
    // A later window would reject the request as well.
    ...((limit.max === 0 || isTooLarge) && { advice: { shouldRetry: 'false' } }),
  }
  const text =
    limit.kind === 'requests'
      ? `${limit.max} requests per ${window}. Retry after ${retryAt}.`
      : `this prompt has ${tokens} tokens, which is more than remain of the ${limit.max} per ${window}. ${isTooLarge ? 'Send a shorter prompt.' : `Retry after ${retryAt}.`}`
  return new GatewayError('rate-limited', `${limit.label} is reached: ${text}`, details)
}
