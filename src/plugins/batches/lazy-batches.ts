import { lazy } from '../../core/async.ts'
import type { BatchOptions, BatchDependencies, createBatchProcessing } from './batch-worker.ts'

type BatchProcessing = ReturnType<typeof createBatchProcessing>

interface Batches {
  open(): Promise<BatchProcessing>
  start(): void
  work(): Promise<void>
  stop(): Promise<void>
}

export function createBatches(options: BatchOptions | undefined, dependencies: BatchDependencies): Batches {
  const load = lazy(async () => (await import('./batch-worker.ts')).createBatchProcessing(options ?? {}, dependencies))
  let isOpened = false
  let isStarted = false
  const open = (): Promise<BatchProcessing> => {
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
