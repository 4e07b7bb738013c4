import type { Settlement, Store } from '../../src/core/store.ts'
import { memoryStore } from '../../src/index.ts'

/** A memory store that remembers what was reserved and settled. */
export interface WatchedStore extends Store {
  /** The reservations that were granted, oldest first. */
  readonly tickets: readonly string[]
  /** Every call of `settle`, also those that came too often. */
  readonly settlements: readonly Settlement[]
  /** Resolves as soon as every reservationId so far has been settled. */
  allSettled(): Promise<void>
  /** The most that one counter still holds. */
  held(): Promise<number>
  /** What all settlements together wrote into the reports of days: tokens, and money in nano-dollars. */
  booked(): Booked
  /** What all counters with this beginning have spent. */
  spent(kind: 'budget' | 'requests' | 'tokens'): Promise<number>
}

export interface Booked {
  readonly requests: number
  readonly prompt: number
  readonly completion: number
  readonly actual: number
  readonly billed: number
}

function bookedBy(settlements: readonly Settlement[]): Booked {
  const tallies = settlements.flatMap((settlement) => settlement.tallies)
  const days = tallies.filter(({ name }) => name.startsWith('usage:') && name.includes(':1d:'))
  const sum = (field: string): number => days.reduce((total, { amounts }) => total + (amounts[field] ?? 0), 0)
  const [requests, prompt, completion] = [sum('requests'), sum('prompt'), sum('completion')]
  return { requests, prompt, completion, actual: sum('actual'), billed: sum('billed') }
}

export function watchedStore(now?: () => number): WatchedStore {
  const store = memoryStore(now === undefined ? {} : { now })
  const tickets: string[] = []
  const settlements: Settlement[] = []
  const counters = new Set<string>()
  const waiting = new Set<() => void>()
  const isSettled = (reservationId: string): boolean =>
    settlements.some((settlement) => settlement.reservationId === reservationId)
  return {
    ...store,
    tickets,
    settlements,
    reserve: async (request) => {
      const result = await store.reserve(request)
      if (result.accepted) tickets.push(request.reservationId)
      for (const { counter } of request.claims) counters.add(counter)
      return result
    },
    settle: async (settlement) => {
      const first = await store.settle(settlement)
      settlements.push(settlement)
      for (const { counter } of settlement.charges) counters.add(counter)
      for (const look of waiting) look()
      return first
    },
    allSettled: () =>
      new Promise((resolve) => {
        const look = (): void => {
          if (!tickets.every(isSettled)) return
          waiting.delete(look)
          resolve()
        }
        waiting.add(look)
        look()
      }),
    held: async () => {
      const levels = await store.levels([...counters])
      return Math.max(0, ...levels.map((level) => level.held))
    },
    booked: () => bookedBy(settlements),
    spent: async (kind) => {
      const levels = await store.levels([...counters].filter((counter) => counter.startsWith(`${kind}:`)))
      // The same money is counted for the key and for its shared budget.
      return Math.max(0, ...levels.map((level) => level.spent))
    },
  }
}
