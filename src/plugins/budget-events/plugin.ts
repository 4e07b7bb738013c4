import { chain, lazy, type MaybePromise } from '../../core/async.ts'
import type { BudgetObserver } from '../../governance/budget-observer.ts'
import type { BuiltInPlugin } from '../../kernel/services.ts'
import type { BudgetEventsOptions, BudgetWorker } from './budget-worker.ts'

export interface BudgetEvents {
  readonly plugin: BuiltInPlugin
  readonly observer: () => MaybePromise<BudgetObserver | undefined>
  /** Starts to deliver events with the first call. */
  start(): void
}

/** Returns undefined if no plugin has `onBudget`. The code is loaded with the first request. */
export function createBudgetEvents(options: BudgetEventsOptions): BudgetEvents | undefined {
  const listeners = options.plugins?.filter(({ onBudget }) => onBudget !== undefined) ?? []
  if (listeners.length === 0) return undefined
  let loaded: BudgetWorker | undefined
  const load = lazy(async () => {
    const { BudgetWorker } = await import('./budget-worker.ts')
    return (loaded = new BudgetWorker({ ...options, listeners }))
  })
  // Requests are served without events if the code cannot be loaded.
  const worker = (): MaybePromise<BudgetWorker | undefined> =>
    loaded ??
    load().catch((cause: unknown) => {
      options.log.failure('budget events could not be loaded', cause)
      return undefined
    })
  let isStarted = false
  return {
    plugin: { close: async () => loaded?.close() },
    observer: worker,
    start: () => {
      if (isStarted) return
      isStarted = true
      void chain(worker(), (started) => started?.start())
    },
  }
}
