import type { GatewayError } from '../core/errors.ts'
import type { Store } from '../core/store.ts'
import { createCarryOver } from './carried.ts'
import { claimsFor, outputFor, recountFor } from './claims.ts'
import { limitsInForce, type Limit } from './limits-in-force.ts'
import { rateStatus } from './rate-status.ts'
import { refusal } from './refusal.ts'
import type { Quote, RateStatus, Recount } from './reservation.ts'
import type { SharedLimits } from './shared-limits.ts'
import type { VirtualKey } from './virtual-key.ts'

/** What a reservation would say at this moment. */
export interface Forecast {
  readonly rate: RateStatus
  /** The quote by which the limits were looked at. */
  readonly quote: Quote
  /** The answer's limit that the budgets would pay for. */
  readonly outputTokens: number
  /** How the request would be refused; absent: it would not. */
  readonly refused?: GatewayError
  readonly limits: readonly Standing[]
}

/** A limit, and what is left of it: requests, tokens or nano-dollars. */
export interface Standing {
  readonly limit: Limit
  readonly left: number
  /** What the request would take of it; of a budget the worst case, of which less may be enough. */
  readonly takes: number
}

/** Looks and takes nothing: between this and a real request others may take what is left. */
export async function forecast(key: VirtualKey, quote: Quote, parts: ForecastParts): Promise<Forecast> {
  for (let wanted = quote; ;) {
    const { recount, ...seen } = await look(key, wanted, parts)
    if (recount === undefined) return seen
    wanted = await recount.run()
  }
}

interface ForecastParts {
  readonly store: Pick<Store, 'levels' | 'tallies'>
  readonly shared: SharedLimits
  readonly now: () => number
}

interface Look extends Forecast {
  readonly recount: Recount | undefined
}

async function look(key: VirtualKey, quote: Quote, parts: ForecastParts): Promise<Look> {
  const at = parts.now()
  const inForce = await createCarryOver(parts.store, false)(await limitsInForce(key, parts.shared, at), at)
  const wanted = claimsFor(inForce, quote)
  const { limits, claims, worst, least, tokens } = wanted
  const found = limits.length === 0 ? [] : await parts.store.levels(limits.map((limit) => limit.counter))
  const levels = limits.map((_, index) => (found[index]?.spent ?? 0) + (found[index]?.held ?? 0))
  const standings = limits.map((limit, index) => ({
    limit,
    left: Math.max(0, limit.max - (limit.carried ?? 0) - (levels[index] ?? 0)),
    takes: claims[index]?.amount ?? 0,
  }))
  const needed = (standing: Standing): number =>
    standing.limit.kind === 'budget' ? Math.min(standing.takes, least) : standing.takes
  const refused = standings.find((standing) => needed(standing) > standing.left)
  const rate = rateStatus(limits, levels, { now: at, refused: refused?.limit })
  const budgets = standings.filter((standing) => standing.limit.kind === 'budget')
  const granted = Math.min(worst, ...budgets.map((standing) => standing.left))
  return {
    rate,
    quote,
    outputTokens: outputFor(wanted, quote, granted),
    ...(refused !== undefined && { refused: refusal(refused.limit, { rate, now: at, tokens }) }),
    limits: standings,
    recount:
      refused === undefined ? undefined : recountFor(refused.limit, levels[standings.indexOf(refused)] ?? 0, quote),
  }
}
