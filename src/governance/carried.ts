import { chain, isPromise, type MaybePromise } from '../core/async.ts'
import type { Level, Store } from '../core/store.ts'
import type { Limit } from './limits-in-force.ts'
import { billedTallies } from './usage-tally.ts'

/** One window of the budget of an owner. */
export type BudgetWindow = Pick<Limit, 'counter' | 'owner' | 'every' | 'period'>

/** What was billed in a window, also before the budget had this window. */
export interface SpentInWindow extends Level {
  /** The part of `spent` that is missing in the counter. */
  readonly carried: number
}

/**
 * Returns what was spent in each window. A counter contains only what was billed while its window was in force, so a
 * budget that is new or has another window takes the rest from the usage tallies.
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

/** Time after which the carried amounts are read again: requests that ran during a change have ended since. */
export const CARRIED_MS = 60_000
const MAX_REMEMBERED = 10_000

/** Returns the limits with the amounts that they carry over. */
export type CarryOver = (limits: readonly Limit[], now: number) => MaybePromise<readonly Limit[]>

/** @param toleratesFailure True if a budget uses the amount that was read last, or 0, while the store fails. */
export function createCarryOver(store: Pick<Store, 'levels' | 'tallies'>, toleratesFailure: boolean): CarryOver {
  /** By owner: a budget that returns to an earlier window lacks what was billed in between. */
  const known = new Map<string, { readonly counter: string; readonly carried: number; readonly until: number }>()

  function remember({ owner, counter }: Limit, carried: number, now: number): void {
    if (known.size >= MAX_REMEMBERED) known.clear()
    known.set(owner, { counter, carried, until: now + CARRIED_MS })
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
