import type { GatewayError } from '../core/errors.ts'
import type { Store } from '../core/store.ts'
import { claimsFor, outputFor, rateStatus, recountFor, refusal } from './claims.ts'
import { limitsInForce, type Limit, type SharedLimits } from './limits.ts'
import { createCarryOver } from './carried.ts'
import type { Quote, RateStatus, Recount } from './reservation.ts'
import type { VirtualKey } from './virtual-key.ts'

export { createCarryOver }

/** The result that a reservation would currently have. */
export interface Forecast {
  readonly rate: RateStatus
  /** The quote after recounts. */
  readonly quote: Quote
  /** The output limit in tokens that the budgets would cover. */
  readonly outputTokens: number
  /** The error of the refused request. Absent if the request would be accepted. */
  readonly refused?: GatewayError
  readonly limits: readonly LimitBalance[]
}

/** A limit and its remaining amount: requests, tokens or nano-dollars. */
export interface LimitBalance {
  readonly limit: Limit
  readonly left: number
  /** The amount that the request would claim. For a budget, this is the worst case, although less may suffice. */
  readonly claimed: number
}

/**
 * Computes the result of a reservation without reserving. Concurrent requests may change the result of a later
 * reservation.
 */
export async function forecast(key: VirtualKey, quote: Quote, parts: ForecastParts): Promise<Forecast> {
  for (let wanted = quote; ;) {
    const { recount, ...result } = await tryForecast(key, wanted, parts)
    if (recount === undefined) return result
    wanted = await recount.run()
  }
}

interface ForecastParts {
  readonly store: Pick<Store, 'levels' | 'tallies'>
  readonly shared: SharedLimits
  readonly now: () => number
}

interface ForecastAttempt extends Forecast {
  readonly recount: Recount | undefined
}

async function tryForecast(key: VirtualKey, quote: Quote, parts: ForecastParts): Promise<ForecastAttempt> {
  const at = parts.now()
  const carried = await createCarryOver(parts.store, false)(await limitsInForce(key, parts.shared, at), at)
  const wanted = claimsFor(carried.limits, quote)
  const { limits, claims, worst, minGrant, tokens } = wanted
  const found = limits.length === 0 ? [] : await parts.store.levels(limits.map((limit) => limit.counter))
  const levels = limits.map((_, index) => (found[index]?.spent ?? 0) + (found[index]?.held ?? 0))
  const balances = limits.map((limit, index) => ({
    limit,
    left: Math.max(0, limit.max - (limit.carried ?? 0) - (levels[index] ?? 0)),
    claimed: claims[index]?.amount ?? 0,
  }))
  const needed = (balance: LimitBalance): number =>
    balance.limit.kind === 'budget' ? Math.min(balance.claimed, minGrant) : balance.claimed
  const refused = balances.find((balance) => needed(balance) > balance.left)
  const rate = rateStatus(limits, levels, { now: at, refused: refused?.limit })
  const budgets = balances.filter((balance) => balance.limit.kind === 'budget')
  const granted = Math.min(worst, ...budgets.map((balance) => balance.left))
  return {
    rate,
    quote,
    outputTokens: outputFor(wanted, quote, granted),
    ...(refused !== undefined && { refused: refusal(refused.limit, { rate, now: at, tokens }) }),
    limits: balances,
    recount:
      refused === undefined ? undefined : recountFor(refused.limit, levels[balances.indexOf(refused)] ?? 0, quote),
  }
}
