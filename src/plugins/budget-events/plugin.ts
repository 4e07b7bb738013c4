import { type LazyWorker, lazyWorker } from '../../core/lazy-worker.ts'
import type { BudgetEventsOptions, BudgetWorker } from './budget-worker.ts'

/** Returns undefined if no plugin has `onBudget`. The code is loaded with the first request. */
export function createBudgetEvents(options: BudgetEventsOptions): LazyWorker<BudgetWorker> | undefined {
  const listeners = options.plugins?.filter(({ onBudget }) => onBudget !== undefined) ?? []
  if (listeners.length === 0) return undefined
  const create = async (): Promise<BudgetWorker> =>
    new (await import('./budget-worker.ts')).BudgetWorker({ ...options, listeners })
  return lazyWorker('budget events', create, options.log)
}
