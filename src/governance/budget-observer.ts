import type { SettledEntry } from '../core/store.ts'
import type { Caller } from './caller.ts'
import type { Limit } from './limits.ts'

/** Follows the amounts of budgets. The ledger calls it only for requests that have a budget. */
export interface BudgetObserver {
  /**
   * Returns entries to append with the settlement of an accepted request. `levels[i]` is the amount of `limits[i]` after
   * the reservation. It is absent if the store failed.
   */
  onReserved(caller: BudgetCaller, limits: readonly Limit[], levels: readonly number[]): readonly SettledEntry[]
  /** Called after a settlement whose entries came from `onReserved`. */
  onSettled(): void
  /** Called when a budget does not cover a request. */
  onRefused(caller: BudgetCaller, limit: Limit): void
}

export type BudgetCaller = Pick<Caller, 'key' | 'context'>
