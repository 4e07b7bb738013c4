import type { Settlement, Store } from '../core/ports.ts'

/** Hands settlements to the store, and again those that it did not take. */
export interface Settlements {
  /** Rejects when the store fails; the settlement is then kept and tried again by later calls and by `retry`. */
  settle(settlement: Settlement): Promise<void>
  /** Tries once more what is kept; resolves to how many are still left. */
  retry(): Promise<number>
}

/** Beyond so many the oldest is given up: its hold lapses in the store. */
const MOST_KEPT = 10_000

/** A ticket is settled once, however often it is sent, so sending again is safe. */
export function createSettlements(store: Store): Settlements {
  const kept: Settlement[] = []
  let retrying = false

  async function settle(settlement: Settlement): Promise<void> {
    try {
      await store.settle(settlement)
    } catch (error) {
      kept.push(settlement)
      if (kept.length > MOST_KEPT) kept.shift()
      throw error
    }
    if (kept.length > 0) await retry()
  }

  async function retry(): Promise<number> {
    if (retrying) return kept.length
    retrying = true
    try {
      for (let next = kept.shift(); next !== undefined; next = kept.shift()) {
        if (!(await taken(next))) return kept.unshift(next)
      }
      return 0
    } finally {
      retrying = false
    }
  }

  async function taken(settlement: Settlement): Promise<boolean> {
    try {
      await store.settle(settlement)
      return true
    } catch {
      return false
    }
  }

  return { settle, retry }
}
