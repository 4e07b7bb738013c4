import * as z from 'zod/mini'
import { lazy } from '../core/lazy.ts'
import type { BatchOptions, BatchRoom, BatchRoomParts } from './batch-room.ts'

export type { BatchOptions } from './batch-room.ts'

export const batchSchema: z.ZodMiniType = z.strictObject({
  concurrency: z.optional(
    z.int({ error: 'a whole number from 0 to 1,000 was expected' }).check(z.minimum(0), z.maximum(1000)),
  ),
  leaseMs: z.optional(z.int({ error: 'a whole number of at least 1,000 was expected' }).check(z.minimum(1000))),
  waitUntil: z.optional(
    z.custom<(promise: Promise<unknown>) => void>((value) => typeof value === 'function', {
      error: 'a function was expected: waitUntil(promise)',
    }),
  ),
})

/** The batches of a gateway, whose code is loaded when it is first needed. */
export interface Batches {
  room(): Promise<BatchRoom>
  /** Begins to look for batches, the first time it is called. */
  start(): void
  /** Works until nothing can be done at the moment. */
  work(): Promise<void>
  stop(): Promise<void>
}

export function createBatches(options: BatchOptions | undefined, parts: BatchRoomParts): Batches {
  const load = lazy(async () => {
    const { openBatchRoom } = await import('./batch-room.ts')
    return openBatchRoom(options ?? {}, parts)
  })
  let isWanted = false
  const room = (): Promise<BatchRoom> => {
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
