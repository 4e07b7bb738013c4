import { chain, type MaybePromise } from '../core/async.ts'
import { periodOf, type DurationCode } from '../core/period.ts'
import {
  counterName,
  findShared,
  forgottenAt,
  keyOwner,
  limitsOfKey,
  sharedOwner,
  type Limit,
  type SharedOfKey,
} from './limits-in-force.ts'
import type { SharedLimits } from './shared-limits.ts'
import { tallyTargets, type TallyTarget } from './usage-tally.ts'
import type { VirtualKey } from './virtual-key.ts'

/** The counter of a budget in a window that is not in force. */
export interface SpareCounter {
  readonly counter: string
  readonly expiresAt: number
  /** True where the owner has a budget: its running requests hold money here too. */
  readonly isHeld: boolean
}

/** Everything that a request of a key is counted in. Computed once per key and window. */
export interface KeyWindows {
  /** In the order in which they are asked; budgets last. */
  readonly limits: readonly Limit[]
  /** Money is held and counted in all windows, so that a budget whose window changes finds what was taken before. */
  readonly spares: readonly SpareCounter[]
  readonly tallies: readonly TallyTarget[]
}

interface Known {
  readonly windows: KeyWindows
  readonly shared: SharedOfKey
  /** The windows are those of the moments from here, */
  readonly from: number
  /** up to, but not including, here. */
  readonly until: number
}

const BUDGET_WINDOWS: readonly DurationCode[] = ['1h', '1d', '1w', '1M']

/** A changed key or shared record is another object. */
export type FindWindows = (key: VirtualKey, at: number) => MaybePromise<KeyWindows>

export function createKeyWindows(shared: SharedLimits): FindWindows {
  const known = new WeakMap<VirtualKey, Known>()
  return (key, at) =>
    chain(findShared(key, shared), (found) => {
      const last = known.get(key)
      if (last !== undefined && at >= last.from && at < last.until && isSame(last.shared, found)) return last.windows
      const fresh = compute(key, found, at)
      known.set(key, fresh)
      return fresh.windows
    })
}

function isSame(one: SharedOfKey, other: SharedOfKey): boolean {
  return one.rate === other.rate && one.budget === other.budget
}

function compute(key: VirtualKey, shared: SharedOfKey, at: number): Known {
  const limits = limitsOfKey(key, shared, at)
  // Days, weeks and months change at the change of an hour.
  const periods = [periodOf(at, '1h'), ...limits.map(({ period }) => period)]
  return {
    windows: { limits, spares: spareCounters(key, limits, at), tallies: tallyTargets(key, at) },
    shared,
    from: Math.max(...periods.map(({ start }) => start)),
    until: Math.min(...periods.map(({ end }) => end)),
  }
}

/** Also a key without a budget is counted: it may be given one, and then finds what it spent in this window. */
function spareCounters(key: VirtualKey, limits: readonly Limit[], at: number): readonly SpareCounter[] {
  const budgets = limits.filter(({ kind }) => kind === 'budget')
  const owners = [keyOwner(key.id), ...(key.budgetId === undefined ? [] : [sharedOwner(key.budgetId)])]
  return owners.flatMap((owner) => {
    const inForce = budgets.filter((limit) => limit.owner === owner)
    return BUDGET_WINDOWS.filter((every) => !inForce.some((limit) => limit.every === every)).map((every) => {
      const period = periodOf(at, every)
      const counter = counterName('budget', owner, every, period)
      return { counter, expiresAt: forgottenAt(every, period), isHeld: inForce.length > 0 }
    })
  })
}
