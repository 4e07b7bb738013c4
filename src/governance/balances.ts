import { chain, isPromise, type MaybePromise } from '../core/async.ts'
import type { GatewayError } from '../core/errors.ts'
import { DURATION_CODES, type DurationCode, type Level, type Period, periodOf, type Store } from '../core/store.ts'
import type { Caller } from './caller.ts'
import { earlierSteps } from './levels.ts'
import { limitError } from './limit-error.ts'
import { counterName, type Limit, MAX_CLOCK_ROLLBACK_MS, type RateStatus, rateStatus } from './limits.ts'
import { claimsFor, coveredOutputTokens, type Quote, type Recount, recountFor } from './reservation.ts'
import type { SharedLimits } from './stored-records.ts'
import {
  billedTallyName,
  CARRY_OVER_CACHE_MS,
  type CarriedLimits,
  type CarryOver,
  currentLimits,
  hourFieldName,
  needsCarryOver,
} from './windows.ts'

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

export async function forecast(caller: LimitedCaller, quote: Quote, context: ForecastContext): Promise<Forecast> {
  for (let current = quote; ;) {
    const { recount, ...result } = await tryForecast(caller, current, context)
    if (recount === undefined) return result
    current = await recount.run()
  }
}

type LimitedCaller = Pick<Caller, 'key' | 'levels'>

interface ForecastContext {
  readonly expiresAfterMs: number
  readonly store: Pick<Store, 'levels' | 'tallies'>
  readonly shared: SharedLimits
  readonly now: () => number
}

async function tryForecast(
  { key, levels: callerLevels }: LimitedCaller,
  quote: Quote,
  context: ForecastContext,
): Promise<Forecast & { readonly recount: Recount | undefined }> {
  const at = context.now()
  const { expiresAfterMs } = context
  const addCarryOver = createCarryOver(context.store, { expiresAfterMs, toleratesFailure: false })
  const ofKey = await currentLimits(key, context.shared, at)
  const ofLevels = callerLevels.flatMap((level) => level.limitsAt(at, expiresAfterMs))
  const carried = await addCarryOver([...ofKey, ...ofLevels], at)
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

/** A calendar window of a budget. */
export interface BudgetWindow {
  readonly counter: string
  readonly owner: string
  readonly every: DurationCode
  readonly period: Period
}

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

/**
 * Amounts that running requests hold, but not in this window, because they began before the budget got it. Must be called
 * before `readSpent`. A settlement between the reads is then counted twice instead of missed.
 */
function readHeldInOtherWindows(
  store: Pick<Store, 'levels'>,
  windows: readonly BudgetWindow[],
  now: number,
  { expiresAfterMs, isNew }: { readonly expiresAfterMs: number; readonly isNew: (owner: string) => boolean },
): MaybePromise<readonly number[]> {
  const plans = windows.map((window) => {
    const codes = DURATION_CODES.filter((code) => code !== window.every)
    const others = codes.map((code) => ({
      // Requests that began with both windows hold the same amount in both.
      isShared: windows.some(({ owner, every }) => owner === window.owner && every === code),
      counters: countersOfWindow(window.owner, code, now - expiresAfterMs, now),
    }))
    return { owner: window.owner, own: window.counter, others }
  })
  const counters = plans.flatMap(({ own, others }) => [own, ...others.flatMap((other) => other.counters)])
  return chain(store.levels(counters), (levels) => {
    let offset = 0
    const nextHeld = (count: number): number =>
      levels.slice(offset, (offset += count)).reduce((sum, { held }) => sum + held, 0)
    return plans.map(({ owner, others }) => {
      const own = nextHeld(1)
      let total = 0
      let largestExcess = 0
      for (const { isShared, counters } of others) {
        const held = nextHeld(counters.length)
        if (isShared) largestExcess = isNew(owner) ? Math.max(largestExcess, held - own) : largestExcess
        else total += held
      }
      return total + largestExcess
    })
  })
}

function countersOfWindow(owner: string, code: DurationCode, from: number, now: number): readonly string[] {
  const counters: string[] = []
  for (let { start, end } = periodOf(from, code); start <= now; { start, end } = periodOf(end, code)) {
    counters.push(counterName('budget', owner, code, { start }))
  }
  return counters
}

const MAX_CACHED_COUNTERS = 10_000

/** After this part of a step, no process reserves in the step before: clocks differ, and a call of the store takes time. */
const MAX_CLOCK_SKEW_MS = 5_000

interface CachedAmounts {
  readonly carried: number
  readonly held: number
  readonly validUntil: number
}

interface CarryOverOptions {
  readonly expiresAfterMs: number
  /** If true and the store fails, a budget uses the amount that was last read, or 0. */
  readonly toleratesFailure: boolean
}

/**
 * A calendar budget lacks what was billed before it was added. A rolling window lacks its earlier steps. A budget for some
 * models lacks what they cost before it was added, because tallies for it do not exist.
 */
export function createCarryOver(
  store: Pick<Store, 'levels' | 'tallies'>,
  { expiresAfterMs, toleratesFailure }: CarryOverOptions,
): CarryOver {
  const cache = new Map<string, CachedAmounts>()
  /** The windows of each owner. When they change, its cached amounts are outdated. */
  const windowsByOwner = new Map<string, { readonly names: string; readonly since: number }>()

  /** Keeps the greater amount of a budget, because settlements between the reads of tallies and counters lower the new one. */
  function cacheAmounts(limit: Limit, newCarried: number, held: number, now: number): void {
    const known = limit.window.type === 'rolling' ? 0 : (cachedAmounts(limit)?.carried ?? 0)
    const carried = Math.max(newCarried, known)
    if (cache.size >= MAX_CACHED_COUNTERS) cache.clear()
    const mayChange = held > 0 || (limit.window.type === 'rolling' && now < limit.period.start + MAX_CLOCK_SKEW_MS)
    cache.set(limit.counter, { carried, held, validUntil: mayChange ? now : now + CARRY_OVER_CACHE_MS })
  }

  function cachedAmounts(limit: Limit): CachedAmounts | undefined {
    return needsCarryOver(limit) ? cache.get(limit.counter) : undefined
  }

  function addCarriedAmounts(limits: readonly Limit[], now: number): CarriedLimits {
    let isFinal = true
    const adjusted = limits.map((limit) => {
      const cached = cachedAmounts(limit)
      if (cached !== undefined && cached.validUntil <= now) isFinal = false
      if (cached === undefined || cached.carried + cached.held === 0) return limit
      return { ...limit, carriedAmount: cached.carried + cached.held, carriedHeld: cached.held }
    })
    return { limits: adjusted, isFinal }
  }

  function refresh(limits: readonly Limit[], outdated: readonly Limit[], now: number): MaybePromise<CarriedLimits> {
    const rolling = outdated.filter(({ window }) => window.type === 'rolling')
    const budgets = outdated.flatMap((limit) => calendarBudget(limit) ?? [])
    return chain(readEarlierSteps(store, rolling), (steps) => {
      for (const [index, limit] of rolling.entries()) {
        const { spent = 0, held = 0 } = steps[index] ?? {}
        cacheAmounts(limit, spent, held, now)
      }
      if (budgets.length === 0) return addCarriedAmounts(limits, now)
      return chain(
        readHeldInOtherWindows(store, budgets, now, { expiresAfterMs, isNew: (owner) => isNew(owner, now) }),
        (held) =>
          chain(readSpent(store, budgets, now), (spent) => {
            for (const [index, { limit }] of budgets.entries()) {
              cacheAmounts(limit, spent[index]?.carried ?? 0, held[index] ?? 0, now)
            }
            return addCarriedAmounts(limits, now)
          }),
      )
    })
  }

  /** Requests that hold amounts in only some windows of the owner may still be running. */
  function isNew(owner: string, now: number): boolean {
    return now - (windowsByOwner.get(owner)?.since ?? now) < expiresAfterMs
  }

  function forgetChangedOwners(limits: readonly Limit[], now: number): void {
    for (const [owner, counters] of budgetsByOwner(limits)) {
      const names = counters.map(({ window }) => (window.type === 'calendar' ? window.every : '')).join()
      if (windowsByOwner.get(owner)?.names === names) continue
      for (const { counter } of counters) cache.delete(counter)
      if (windowsByOwner.size >= MAX_CACHED_COUNTERS) windowsByOwner.clear()
      windowsByOwner.set(owner, { names, since: now })
    }
  }

  return (limits, now) => {
    forgetChangedOwners(limits, now)
    const outdated = limits.filter((limit) => needsCarryOver(limit) && (cachedAmounts(limit)?.validUntil ?? 0) <= now)
    if (outdated.length === 0) return addCarriedAmounts(limits, now)
    const refreshed = refresh(limits, outdated, now)
    return toleratesFailure && isPromise(refreshed) ? refreshed.catch(() => addCarriedAmounts(limits, now)) : refreshed
  }
}

function budgetsByOwner(limits: readonly Limit[]): ReadonlyMap<string, readonly Limit[]> {
  const groups = new Map<string, Limit[]>()
  for (const limit of limits) {
    if (limit.kind !== 'budget' || !needsCarryOver(limit)) continue
    const group = groups.get(limit.owner)
    if (group === undefined) groups.set(limit.owner, [limit])
    else group.push(limit)
  }
  return groups
}

export function calendarBudget(limit: Limit): (BudgetWindow & { readonly limit: Limit }) | undefined {
  const { counter, owner, window, period } = limit
  return window.type === 'calendar' ? { counter, owner, every: window.every, period, limit } : undefined
}

function readEarlierSteps(store: Pick<Store, 'levels'>, limits: readonly Limit[]): MaybePromise<readonly Level[]> {
  if (limits.length === 0) return []
  const counters = limits.map(earlierSteps)
  return chain(store.levels(counters.flat()), (levels) => {
    let offset = 0
    return counters.map(({ length }) =>
      levels
        .slice(offset, (offset += length))
        .reduce((sum, { spent, held }) => ({ spent: sum.spent + spent, held: sum.held + held }), NO_LEVEL),
    )
  })
}

const NO_LEVEL: Level = { spent: 0, held: 0 }

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
