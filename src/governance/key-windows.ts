import { chain, type MaybePromise } from '../core/async.ts'
import { periodOf } from '../core/period.ts'
import { CARRIED_MS, type CarryOver } from './carried.ts'
import { findShared, limitsOfKey, type Limit, type SharedOfKey } from './limits-in-force.ts'
import type { SharedLimits } from './shared-limits.ts'
import { tallyTargets, type TallyTarget } from './usage-tally.ts'
import type { VirtualKey } from './virtual-key.ts'

/** The limits and tallies of a key in the current windows. */
export interface KeyWindows {
  /** In the order in which they are checked. Budgets are last. */
  readonly limits: readonly Limit[]
  readonly tallies: readonly TallyTarget[]
}

interface Known {
  readonly windows: KeyWindows
  readonly shared: SharedOfKey
  /** The windows apply from this time, */
  readonly from: number
  /** until this time, exclusive. */
  readonly until: number
}

/** A changed key or shared record is another object. */
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
  // Days, weeks and months change at the change of an hour.
  const periods = [periodOf(at, '1h'), ...limits.map(({ period }) => period)]
  return {
    windows: { limits, tallies: tallyTargets(key, at) },
    shared,
    from: Math.max(...periods.map(({ start }) => start)),
    until: Math.min(at + CARRIED_MS, ...periods.map(({ end }) => end)),
  }
}
