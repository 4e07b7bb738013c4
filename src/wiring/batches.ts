import { lazy } from '../core/async.ts'
import { aFunction, optionsOf, wholeFrom, type OptionCheck } from '../core/option-checks.ts'
import type { BatchOptions, OpenBatches, BatchSources } from './batch-parts.ts'

export type { BatchOptions } from './batch-parts.ts'

/** The check of `batches` in the gateway's options. */
export const checkBatches: OptionCheck = optionsOf({
  concurrency: wholeFrom(0, 1000),
  leaseMs: wholeFrom(1000),
  waitUntil: aFunction('waitUntil(promise)'),
})

/** The batches of a gateway. Their code is loaded on demand. */
export interface Batches {
  room(): Promise<OpenBatches>
  /** Starts polling for batches on its first call. */
  start(): void
  /** Processes items until none can be processed at the moment. */
  work(): Promise<void>
  stop(): Promise<void>
}

export function createBatches(options: BatchOptions | undefined, parts: BatchSources): Batches {
  const load = lazy(async () => {
    const { openBatches } = await import('./batch-parts.ts')
    return openBatches(options ?? {}, parts)
  })
  let isWanted = false
  const room = (): Promise<OpenBatches> => {
    isWanted = true
    return load()
  }
  let started = false
  return {
    room,
    start: () => {
      if (started) return
      started = true
      room().then(
        ({ work }) => work.wake(),
        (cause: unknown) => {
          started = false
          parts.services.observers.failed('the code of batches could not be loaded', cause)
        },
      )
    },
    work: async () => (await room()).work.work(),
    stop: async () => {
      if (isWanted) await (await load()).work.stop()
    },
  }
}
