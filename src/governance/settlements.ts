import { chain, isPromise, type MaybePromise } from '../core/maybe-promise.ts'
import type { Settlement, Store } from '../core/ports.ts'

/** Hands settlements to the store, and again those that it did not take. */
export interface Settlements {
  /** Rejects when the store fails; the settlement is then kept and tried again by later calls and by `retry`. */
  settle(settlement: Settlement): MaybePromise<void>
  /** Tries once more what is kept; resolves to how many are still left. */
  retry(): Promise<number>
}

/** Beyond so many the oldest is given up: its hold lapses in the store. */
const MOST_KEPT = 10_000

/** A ticket is settled once, however often it is sent, so sending again is safe. */
export function createSettlements(store: Store): Settlements {
  const kept: Settlement[] = []
  let retrying = false

  function settle(settlement: Settlement): MaybePromise<void> {
    const failed = (error: unknown): never => {
      kept.push(settlement)
      if (kept.length > MOST_KEPT) kept.shift()
      throw error
    }
    let settled: MaybePromise<boolean>
    try {
      settled = store.settle(settlement)
    } catch (error) {
      return failed(error)
    }
    return isPromise(settled) ? settled.then(retryKept, failed) : retryKept()
  }

  function retryKept(): MaybePromise<void> {
    return kept.length === 0 ? undefined : chain(retry(), () => undefined)
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
