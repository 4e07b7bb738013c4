import { chain, isPromise, type MaybePromise } from '../core/async.ts'
import type { GatewayError } from '../core/errors.ts'
import { DURATION_CODES, type Level, periodOf, type Store } from '../core/store.ts'
import {
  CARRY_OVER_CACHE_MS,
  type CarriedLimits,
  type CarryOver,
  billedTallyName,
  counterName,
  hourFieldName,
  type Limit,
  limitError,
  currentLimits,
  MAX_CLOCK_ROLLBACK_MS,
  type RateStatus,
  rateStatus,
} from './limits.ts'
import { claimsFor, coveredOutputTokens, type Quote, type Recount, recountFor } from './reservation.ts'
import type { SharedLimits } from './stored-records.ts'
import type { VirtualKey } from './virtual-key.ts'

export interface Forecast {
  readonly rate: RateStatus
  readonly quote: Quote
  readonly outputTokens: number
  readonly error?: GatewayError
  readonly limits: readonly LimitBalance[]
}

export interface LimitBalance {
  readonly limit: Limit
  readonly remaining: number
  /** For a budget, the worst-case cost. A smaller grant may suffice. */
  readonly claimedAmount: number
}

export async function forecast(key: VirtualKey, quote: Quote, context: ForecastContext): Promise<Forecast> {
  for (let current = quote; ;) {
    const { recount, ...result } = await tryForecast(key, current, context)
    if (recount === undefined) return result
    current = await recount.run()
  }
}

interface ForecastContext {
  readonly expiresAfterMs: number
  readonly store: Pick<Store, 'levels' | 'tallies'>
  readonly shared: SharedLimits
  readonly now: () => number
}

async function tryForecast(
  key: VirtualKey,
  quote: Quote,
  context: ForecastContext,
): Promise<Forecast & { readonly recount: Recount | undefined }> {
  const at = context.now()
  const { expiresAfterMs } = context
  const addCarryOver = createCarryOver(context.store, { expiresAfterMs, toleratesFailure: false })
  const carried = await addCarryOver(await currentLimits(key, context.shared, at), at)
  const limitClaims = claimsFor(carried.limits, quote)
  const { limits, claims, worstCost, minGrant, tokens } = limitClaims
  const levels = limits.length === 0 ? [] : await context.store.levels(limits.map((limit) => limit.counter))
  const amounts = limits.map((_, index) => (levels[index]?.spent ?? 0) + (levels[index]?.held ?? 0))
  const balances = limits.map((limit, index) => ({
    limit,
    remaining: Math.max(0, limit.max - (limit.carriedAmount ?? 0) - (amounts[index] ?? 0)),
    claimedAmount: claims[index]?.amount ?? 0,
  }))
  const requiredAmount = ({ limit, claimedAmount }: LimitBalance): number =>
    limit.kind === 'budget' ? Math.min(claimedAmount, minGrant) : claimedAmount
  const exceeded = balances.find((balance) => requiredAmount(balance) > balance.remaining)
  const rate = rateStatus(limits, amounts, { now: at, exceeded: exceeded?.limit })
  const budgets = balances.filter(({ limit }) => limit.kind === 'budget')
  const grantedCost = Math.min(worstCost, ...budgets.map(({ remaining }) => remaining))
  return {
    rate,
    quote,
    outputTokens: coveredOutputTokens(limitClaims, quote, grantedCost),
    ...(exceeded !== undefined && {
      error: limitError(exceeded.limit, { rate, now: at, tokens, isCounted: quote.recount?.tokens === undefined }),
    }),
    limits: balances,
    recount:
      exceeded === undefined ? undefined : recountFor(exceeded.limit, amounts[balances.indexOf(exceeded)] ?? 0, quote),
  }
}

export type BudgetWindow = Pick<Limit, 'counter' | 'owner' | 'every' | 'period'>

interface WindowSpending extends Level {
  /** The part of `spent` that is missing from the counter. */
  readonly carried: number
}

/** A counter lacks amounts billed in another window of the budget. Tallies supply them, except in one-minute windows. */
export function readSpent(
  store: Pick<Store, 'levels' | 'tallies'>,
  windows: readonly BudgetWindow[],
  now: number,
): MaybePromise<readonly WindowSpending[]> {
  if (windows.length === 0) return []
  const billed = windows.map((window) => billedTallies(window, now))
  const names = [...new Set(billed.flatMap(({ names }) => names))]
  // A settlement between the two reads is not mistaken for a missing amount, because the tallies are read first.
  return chain(names.length === 0 ? [] : store.tallies(names), (tallies) => {
    const tallyByName = new Map(names.map((name, index) => [name, tallies[index]]))
    return chain(store.levels(windows.map(({ counter }) => counter)), (levels) =>
      billed.map(({ names, field }, index) => {
        const sum = names.reduce((total, name) => total + (tallyByName.get(name)?.[field] ?? 0), 0)
        const { spent, held } = levels[index] ?? { spent: 0, held: 0 }
        return { spent: Math.max(spent, sum), held, carried: Math.max(0, sum - spent) }
      }),
    )
  })
}

/** Must be called before `readSpent`. A settlement between the reads is then counted twice instead of missed. */
function readHeldInOtherWindows(
  store: Pick<Store, 'levels'>,
  windows: readonly BudgetWindow[],
  now: number,
  expiresAfterMs: number,
): MaybePromise<readonly number[]> {
  const counters = windows.map((window) => countersOfOtherWindows(window, now - expiresAfterMs, now))
  return chain(store.levels(counters.flat()), (levels) => {
    let offset = 0
    return counters.map(({ length }) =>
      levels.slice(offset, (offset += length)).reduce((sum, { held }) => sum + held, 0),
    )
  })
}

function countersOfOtherWindows({ owner, every }: BudgetWindow, from: number, now: number): readonly string[] {
  const counters: string[] = []
  for (const code of DURATION_CODES) {
    if (code === every) continue
    for (let { start, end } = periodOf(from, code); start <= now; { start, end } = periodOf(end, code)) {
      counters.push(counterName('budget', owner, code, { start, end }))
    }
  }
  return counters
}

const MAX_CACHED_OWNERS = 10_000

interface CachedAmounts {
  readonly counter: string
  readonly carried: number
  readonly held: number
  readonly validUntil: number
}

interface CarryOverOptions {
  readonly expiresAfterMs: number
  /** If true and the store fails, a budget uses the amount that was last read, or 0. */
  readonly toleratesFailure: boolean
}

export function createCarryOver(
  store: Pick<Store, 'levels' | 'tallies'>,
  { expiresAfterMs, toleratesFailure }: CarryOverOptions,
): CarryOver {
  /** Keyed by owner, because the amount of an earlier window is outdated when a budget returns to that window. */
  const cache = new Map<string, CachedAmounts>()

  /** Keeps the greater amount, because settlements between the reads of tallies and counters lower the new one. */
  function cacheAmounts(limit: Limit, newCarried: number, held: number, now: number): void {
    const carried = Math.max(newCarried, cachedAmounts(limit)?.carried ?? 0)
    if (cache.size >= MAX_CACHED_OWNERS) cache.clear()
    cache.set(limit.owner, {
      counter: limit.counter,
      carried,
      held,
      validUntil: held === 0 ? now + CARRY_OVER_CACHE_MS : now,
    })
  }

  function cachedAmounts({ kind, owner, counter }: Limit): CachedAmounts | undefined {
    const cached = kind === 'budget' ? cache.get(owner) : undefined
    return cached?.counter === counter ? cached : undefined
  }

  function addCarriedAmounts(limits: readonly Limit[]): CarriedLimits {
    let isFinal = true
    const adjusted = limits.map((limit) => {
      const cached = cachedAmounts(limit)
      if (cached === undefined || cached.carried + cached.held === 0) return limit
      if (cached.held > 0) isFinal = false
      return { ...limit, carriedAmount: cached.carried + cached.held }
    })
    return { limits: adjusted, isFinal }
  }

  function refresh(limits: readonly Limit[], outdated: readonly Limit[], now: number): MaybePromise<CarriedLimits> {
    return chain(readHeldInOtherWindows(store, outdated, now, expiresAfterMs), (held) =>
      chain(readSpent(store, outdated, now), (spent) => {
        for (const [index, limit] of outdated.entries()) {
          cacheAmounts(limit, spent[index]?.carried ?? 0, held[index] ?? 0, now)
        }
        return addCarriedAmounts(limits)
      }),
    )
  }

  return (limits, now) => {
    const outdated = limits.filter((limit) => limit.kind === 'budget' && (cachedAmounts(limit)?.validUntil ?? 0) <= now)
    if (outdated.length === 0) return addCarriedAmounts(limits)
    const refreshed = refresh(limits, outdated, now)
    return toleratesFailure && isPromise(refreshed) ? refreshed.catch(() => addCarriedAmounts(limits)) : refreshed
  }
}

/** Near midnight, may include the tally of the next day, because the clock may have been set back. */
function billedTallies(
  { owner, every, period }: BudgetWindow,
  now: number,
): { readonly names: readonly string[]; readonly field: string } {
  if (every === '1m') return { names: [], field: 'billed' }
  const names: string[] = []
  const end = Math.min(period.end, Math.max(now, period.start) + MAX_CLOCK_ROLLBACK_MS)
  for (let day = periodOf(period.start, '1d'); day.start < end; day = periodOf(day.end, '1d')) {
    names.push(billedTallyName(owner, day.start))
  }
  return { names, field: every === '1h' ? hourFieldName(period.start) : 'billed' }
}
