import { lazy } from '../core/async.ts'
import { functionCheck, optionsOf, integerFrom, type OptionCheck } from '../core/option-checks.ts'
import type { Runtime } from '../core/ports.ts'
import type { BatchOptions, BatchDependencies, createBatchProcessing } from '../pipeline/batch-worker.ts'
import type { RequestTracker } from '../pipeline/services.ts'

export const checkBatches: OptionCheck = optionsOf({
  concurrency: integerFrom(0, 1000),
  leaseMs: integerFrom(1000),
  waitUntil: functionCheck('waitUntil(promise)'),
})

type OpenBatches = ReturnType<typeof createBatchProcessing>

/** The batches of a gateway. Their module is loaded on first use. */
export interface Batches {
  open(): Promise<OpenBatches>
  /** Starts polling for batches on its first call. */
  start(): void
  work(): Promise<void>
  stop(): Promise<void>
}

export function createBatches(options: BatchOptions | undefined, dependencies: BatchDependencies): Batches {
  const load = lazy(async () =>
    (await import('../pipeline/batch-worker.ts')).createBatchProcessing(options ?? {}, dependencies),
  )
  let isOpened = false
  let isStarted = false
  const open = (): Promise<OpenBatches> => {
    isOpened = true
    return load()
  }
  return {
    open,
    start: () => {
      if (isStarted) return
      isStarted = true
      open().then(
        ({ worker }) => worker.wake(),
        (cause: unknown) => {
          isStarted = false
          dependencies.services.observers.reportFailure('the batch module could not be loaded', cause)
        },
      )
    },
    work: async () => (await open()).worker.work(),
    stop: async () => {
      if (isOpened) await (await load()).worker.stop()
    },
  }
}

export interface RequestTrackerOptions {
  readonly after: Runtime['after']
  /** Maximum number of running requests at which batches are processed. @default 8 */
  readonly maxRequests?: number
  /**
   * Maximum time that a batch worker waits for running requests, in milliseconds. Prevents starvation of batches.
   * @default 30_000
   */
  readonly maxWaitMs?: number
}

const MAX_REQUESTS = 8
const MAX_WAIT_MS = 30_000

export function createRequestTracker(options: RequestTrackerOptions): RequestTracker {
  const { after, maxRequests = MAX_REQUESTS, maxWaitMs = MAX_WAIT_MS } = options
  const running = new Set<string>()
  const waiting = new Set<() => void>()
  return {
    enter: (id) => void running.add(id),
    leave: (id) => {
      if (!running.delete(id) || running.size > maxRequests) return
      for (const proceed of waiting) proceed()
    },
    waitForQuiet: (signal) =>
      running.size <= maxRequests || signal.aborted
        ? Promise.resolve()
        : new Promise((resolve) => {
            const proceed = (): void => {
              cancelTimer()
              signal.removeEventListener('abort', proceed)
              waiting.delete(proceed)
              resolve()
            }
            const cancelTimer = after(maxWaitMs, proceed)
            waiting.add(proceed)
            signal.addEventListener('abort', proceed)
          }),
  }
}
