import { chain, isPromise, type MaybePromise } from '../core/async.ts'
import { periodOf } from '../core/period.ts'
import type { Level, Store } from '../core/store.ts'
import { findShared, limitsOfKey, type Limit, type SharedLimits, type SharedOfKey } from './limits.ts'
import { billedTallies, tallyTargets, type TallyTarget } from './usage-tally.ts'
import type { VirtualKey } from './virtual-key.ts'

/** The limits and tallies of a key in the current windows. */
export interface KeyWindows {
  /** Limits in the order of their checks. Budgets are last. */
  readonly limits: readonly Limit[]
  readonly tallies: readonly TallyTarget[]
}

interface Known {
  readonly windows: KeyWindows
  readonly shared: SharedOfKey
  /** First time at which the windows apply, in milliseconds since 1970. */
  readonly from: number
  /** End of the windows, exclusive, in milliseconds since 1970. */
  readonly until: number
}

/** Returns the limits and tallies of a key. Records are compared by identity, because a change creates a new object. */
export type FindWindows = (key: VirtualKey, at: number) => MaybePromise<KeyWindows>

/** Computes the windows once per key and window. */
export function createKeyWindows(shared: SharedLimits, carryOver: CarryOver): FindWindows {
  const known = new WeakMap<VirtualKey, Known>()
  return (key, at) =>
    chain(findShared(key, shared), (found) => {
      const last = known.get(key)
      if (last !== undefined && at >= last.from && at < last.until && isSame(last.shared, found)) return last.windows
      return chain(carryOver(limitsOfKey(key, found, at), at), (limits) => {
        const fresh = knownOf(key, { limits, shared: found, at })
        known.set(key, fresh)
        return fresh.windows
      })
    })
}

function isSame(one: SharedOfKey, other: SharedOfKey): boolean {
  return one.rate === other.rate && one.budget === other.budget
}

interface Computed {
  readonly limits: readonly Limit[]
  readonly shared: SharedOfKey
  readonly at: number
}

function knownOf(key: VirtualKey, { limits, shared, at }: Computed): Known {
  // Days, weeks and months begin with an hour.
  const periods = [periodOf(at, '1h'), ...limits.map(({ period }) => period)]
  return {
    windows: { limits, tallies: tallyTargets(key, at) },
    shared,
    from: Math.max(...periods.map(({ start }) => start)),
    until: Math.min(at + CARRIED_MS, ...periods.map(({ end }) => end)),
  }
}

/** One window of the budget of an owner. */
export type BudgetWindow = Pick<Limit, 'counter' | 'owner' | 'every' | 'period'>

/** The amount billed in a window, including the time before the budget had this window. */
export interface SpentInWindow extends Level {
  /** The part of `spent` that is missing in the counter. */
  readonly carried: number
}

/**
 * Returns the amount spent in each window. A counter contains only amounts that were billed while its window was in
 * force. If the budget is new or its window has changed, the missing amount is read from the usage tallies.
 *
 * The tallies are read before the counters. A settlement adds to both in one step, so a settlement between the two
 * reads cannot be taken for a missing amount.
 */
export function readSpent(
  store: Pick<Store, 'levels' | 'tallies'>,
  windows: readonly BudgetWindow[],
  now: number,
): MaybePromise<readonly SpentInWindow[]> {
  if (windows.length === 0) return []
  const billed = windows.map((window) => billedTallies(window, now))
  const names = [...new Set(billed.flatMap((of) => of.names))]
  return chain(names.length === 0 ? [] : store.tallies(names), (tallies) => {
    const amountsOf = new Map(names.map((name, index) => [name, tallies[index]]))
    return chain(store.levels(windows.map(({ counter }) => counter)), (levels) =>
      billed.map((of, index) => {
        const sum = of.names.reduce((total, name) => total + (amountsOf.get(name)?.[of.field] ?? 0), 0)
        const { spent, held } = levels[index] ?? { spent: 0, held: 0 }
        return { spent: Math.max(spent, sum), held, carried: Math.max(0, sum - spent) }
      }),
    )
  })
}

/** Time after which the carried amounts are read again. Requests that ran during a change have ended by then. */
export const CARRIED_MS = 60_000
const MAX_REMEMBERED = 10_000

/** Returns the limits with the amounts that they carry over. */
export type CarryOver = (limits: readonly Limit[], now: number) => MaybePromise<readonly Limit[]>

/** @param toleratesFailure True if a budget uses the last amount that was read, or 0, while the store fails. */
export function createCarryOver(store: Pick<Store, 'levels' | 'tallies'>, toleratesFailure: boolean): CarryOver {
  /** Keyed by owner, because a budget that returns to an earlier window lacks the amounts billed in between. */
  const known = new Map<string, { readonly counter: string; readonly carried: number; readonly until: number }>()

  /** Settlements between the reads of tallies and counters lower the result, so an earlier, greater one stays. */
  function remember(limit: Limit, carried: number, now: number): void {
    const greatest = Math.max(carried, recall(limit)?.carried ?? 0)
    if (known.size >= MAX_REMEMBERED) known.clear()
    known.set(limit.owner, { counter: limit.counter, carried: greatest, until: now + CARRIED_MS })
  }

  function recall({ kind, owner, counter }: Limit): { readonly carried: number; readonly until: number } | undefined {
    const last = kind === 'budget' ? known.get(owner) : undefined
    return last?.counter === counter ? last : undefined
  }

  function withCarried(limits: readonly Limit[]): readonly Limit[] {
    return limits.map((limit) => {
      const carried = recall(limit)?.carried ?? 0
      return carried === 0 ? limit : { ...limit, carried }
    })
  }

  return (limits, now) => {
    const unread = limits.filter((limit) => limit.kind === 'budget' && (recall(limit)?.until ?? 0) <= now)
    if (unread.length === 0) return withCarried(limits)
    const read = chain(readSpent(store, unread, now), (spent) => {
      for (const [index, limit] of unread.entries()) remember(limit, spent[index]?.carried ?? 0, now)
      return withCarried(limits)
    })
    return toleratesFailure && isPromise(read) ? read.catch(() => withCarried(limits)) : read
  }
}
