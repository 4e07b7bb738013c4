import { watchedStore, type WatchedStore } from './watched-store.ts'

/** A reservation that the budget refused. */
export interface Refusal {
  readonly max: number
  /** Sum of the spent and held amounts at the refusal. */
  readonly level: number
  /** Minimum grant of the request. */
  readonly minGrant: number
}

export interface TightStore extends WatchedStore {
  readonly refusals: readonly Refusal[]
  /** Grants above a limit, and refusals of claims that fit. */
  readonly violations: readonly string[]
}

/** A watched store that records grants above a limit and refusals of claims that fit. Calls `decided` after each reservation. */
export function tightStore(
  now: () => number,
  decided: (so: Pick<TightStore, 'reservationIds' | 'refusals'>) => void = () => {},
): TightStore {
  const store = watchedStore(now)
  const refusals: Refusal[] = []
  const violations: string[] = []
  return {
    ...store,
    refusals,
    violations,
    reserve: async (request) => {
      const result = await store.reserve(request)
      for (const [index, { max, elastic, amount, counter }] of request.claims.entries()) {
        const level = result.levels[index] ?? 0
        if (result.accepted && level > max) violations.push(`${counter}: ${level} of ${max} granted`)
        if (result.accepted || index !== result.rejectedIndex) continue
        const minGrant = elastic === true ? Math.min(amount, request.minGrant ?? amount) : amount
        refusals.push({ max, level, minGrant })
        if (max - level >= minGrant) violations.push(`${counter}: ${minGrant} refused at ${level} of ${max}`)
      }
      decided({ reservationIds: store.reservationIds, refusals })
      return result
    },
  }
}
