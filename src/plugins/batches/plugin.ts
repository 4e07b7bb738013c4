import type { Store } from '../../core/store.ts'
import type { BuiltInPlugin, FindKeyById, Services } from '../../kernel/services.ts'
import type { BatchOptions, BatchProcessing } from './batch-worker.ts'

interface BatchSources {
  readonly store: Store
  readonly findKeyById: FindKeyById
  readonly basePath: string
  readonly publicUrl: string | undefined
}

export interface Batches {
  readonly plugin: BuiltInPlugin
  /** Starts the worker of this process with the first call. */
  start(services: Services): void
  work(services: Services): Promise<void>
  stop(): Promise<void>
}

/** Accepts message batches and processes their items. */
export function createBatches(
  options: false | BatchOptions | undefined,
  { store, findKeyById, ...baseUrls }: BatchSources,
): Batches | undefined {
  if (options === false) return undefined
  let processing: Promise<BatchProcessing> | undefined
  const load = async (services: Services): Promise<BatchProcessing> => {
    try {
      const { createBatchProcessing } = await import('./routes.ts')
      return createBatchProcessing(options ?? {}, { store, services, findKeyById })
    } catch (cause) {
      // The next call loads again.
      processing = undefined
      throw cause
    }
  }
  const open = (services: Services): Promise<BatchProcessing> => (processing ??= load(services))
  let isStarted = false
  return {
    plugin: {
      endpoints: async (services) =>
        (await import('./routes.ts')).batchEndpoints(services, () => open(services), baseUrls),
      purge: async (scope, _store, services) => (await open(services)).repository.purge(scope),
    },
    start: (services) => {
      if (isStarted) return
      isStarted = true
      open(services).then(
        ({ worker }) => worker.wake(),
        (cause: unknown) => {
          isStarted = false
          services.log.failure('the batch module could not be loaded', cause)
        },
      )
    },
    work: async (services) => (await open(services)).worker.work(),
    stop: async () => (await processing)?.worker.stop(),
  }
}
