import { chain, type MaybePromise } from '../core/async.ts'
import { periodOf } from '../core/store.ts'
import { findShared, limitsOfKey, type Limit, type SharedLimits, type SharedOfKey } from './limits.ts'
import { tallyTargets, type TallyTarget } from './usage-tally.ts'
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

/** Time after which carried amounts are read again, because another process may change them. */
export const CARRIED_MS = 60_000

/** Limits with the amounts that budgets carry over from earlier windows. */
export interface CarriedLimits {
  readonly limits: readonly Limit[]
  /** False while requests run that began in another window: the amounts change when they end. */
  readonly isFinal: boolean
}

export type CarryOver = (limits: readonly Limit[], now: number) => MaybePromise<CarriedLimits>

/** Returns the limits and tallies of a key. Records are compared by identity, because a change creates a new object. */
export type FindWindows = (key: VirtualKey, at: number) => MaybePromise<KeyWindows>

/** Computes the windows once per key and window. */
export function createKeyWindows(shared: SharedLimits, carryOver: CarryOver): FindWindows {
  const known = new WeakMap<VirtualKey, Known>()
  return (key, at) =>
    chain(findShared(key, shared), (found) => {
      const last = known.get(key)
      if (last !== undefined && at >= last.from && at < last.until && isSame(last.shared, found)) return last.windows
      return chain(carryOver(limitsOfKey(key, found, at), at), (carried) => {
        const fresh = knownOf(key, { ...carried, shared: found, at })
        known.set(key, fresh)
        return fresh.windows
      })
    })
}

function isSame(one: SharedOfKey, other: SharedOfKey): boolean {
  return one.rate === other.rate && one.budget === other.budget
}

interface Computed extends CarriedLimits {
  readonly shared: SharedOfKey
  readonly at: number
}

function knownOf(key: VirtualKey, { limits, isFinal, shared, at }: Computed): Known {
  // Days, weeks and months begin with an hour.
  const periods = [periodOf(at, '1h'), ...limits.map(({ period }) => period)]
  return {
    windows: { limits, tallies: tallyTargets(key, at) },
    shared,
    from: Math.max(...periods.map(({ start }) => start)),
    until: Math.min(isFinal ? at + CARRIED_MS : at, ...periods.map(({ end }) => end)),
  }
}
