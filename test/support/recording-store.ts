import type { Settlement, Store } from '../../src/core/store.ts'
import { memoryStore } from '../../src/index.ts'

/** A memory store that records reservations and settlements. */
export interface RecordingStore extends Store {
  /** Ids of accepted reservations, oldest first. */
  readonly reservationIds: readonly string[]
  /** All calls of `settle`, including repeated ones. */
  readonly settlements: readonly Settlement[]
  /** Resolves when all reservations are settled. */
  waitUntilSettled(): Promise<void>
  /** Returns the largest amount that a counter holds. */
  maxHeld(): Promise<number>
  /** Returns the sums of the daily tallies: requests, tokens, and costs in nano-dollars. */
  dailyTotals(): DailyTotals
  /** Returns the largest spent amount of the counters of a kind. */
  spent(kind: 'budget' | 'requests' | 'tokens'): Promise<number>
}

export interface DailyTotals {
  readonly requests: number
  readonly prompt: number
  readonly completion: number
  readonly actual: number
  readonly billed: number
}

function sumDailyTallies(settlements: readonly Settlement[]): DailyTotals {
  const tallies = settlements.flatMap((settlement) => settlement.tallies)
  const days = tallies.filter(({ name }) => name.startsWith('usage:') && name.includes(':1d:'))
  const sum = (field: string): number => days.reduce((total, { amounts }) => total + (amounts[field] ?? 0), 0)
  const [requests, prompt, completion] = [sum('requests'), sum('prompt'), sum('completion')]
  return { requests, prompt, completion, actual: sum('actual'), billed: sum('billed') }
}

export function recordingStore(now?: () => number): RecordingStore {
  const store = memoryStore(now === undefined ? {} : { now })
  const reservationIds: string[] = []
  const settlements: Settlement[] = []
  const counters = new Set<string>()
  const waiting = new Set<() => void>()
  const isSettled = (reservationId: string): boolean =>
    settlements.some((settlement) => settlement.reservationId === reservationId)
  return {
    ...store,
    reservationIds,
    settlements,
    reserve: async (request) => {
      const result = await store.reserve(request)
      if (result.accepted) reservationIds.push(request.reservationId)
      for (const { counter } of request.claims) counters.add(counter)
      return result
    },
    settle: async (settlement) => {
      const first = await store.settle(settlement)
      settlements.push(settlement)
      for (const { counter } of settlement.charges) counters.add(counter)
      for (const check of waiting) check()
      return first
    },
    waitUntilSettled: () =>
      new Promise((resolve) => {
        const look = (): void => {
          if (!reservationIds.every(isSettled)) return
          waiting.delete(look)
          resolve()
        }
        waiting.add(look)
        look()
      }),
    maxHeld: async () => {
      const levels = await store.levels([...counters])
      return Math.max(0, ...levels.map((level) => level.held))
    },
    dailyTotals: () => sumDailyTallies(settlements),
    spent: async (kind) => {
      const levels = await store.levels([...counters].filter((counter) => counter.startsWith(`${kind}:`)))
      // The counters of a key and of its shared budget contain the same money.
      return Math.max(0, ...levels.map((level) => level.spent))
    },
  }
}
