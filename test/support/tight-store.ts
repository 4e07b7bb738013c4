import { watchedStore, type WatchedStore } from './watched-store.ts'

/** A reservation that the budget refused. */
export interface Refusal {
  readonly max: number
  /** Spent and held when it was refused. */
  readonly level: number
  /** The least that would have been of use. */
  readonly least: number
}

export interface TightStore extends WatchedStore {
  readonly refusals: readonly Refusal[]
  /** Grants that passed a limit, and refusals of what would have fitted. */
  readonly violations: readonly string[]
}

/** A watched store that looks at every reservation: nothing may pass a limit, and nothing that fits be refused. `decided` is told after each. */
export function tightStore(
  now: () => number,
  decided: (so: Pick<TightStore, 'tickets' | 'refusals'>) => void = () => {},
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
        if (result.accepted || index !== result.refused) continue
        const least = elastic === true ? Math.min(amount, request.least ?? amount) : amount
        refusals.push({ max, level, least })
        if (max - level >= least) violations.push(`${counter}: ${least} refused at ${level} of ${max}`)
      }
      decided({ tickets: store.tickets, refusals })
      return result
    },
  }
}
