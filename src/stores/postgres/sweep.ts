import type { BulkLimits } from '../bounds.ts'
import { LATE_MS } from '../reservation-rules.ts'
import type { CallFunction } from './client.ts'

/** Removes ended rows beside the writes of this process. Reads ignore such rows, so a failure only delays the removal. */
export interface Sweep {
  /** Begins a sweep when the last one was long enough ago. Returns at once. */
  start(): void
  /** Resolves when no sweep is running. */
  finish(): Promise<void>
}

const INTERVAL_MS = 10_000

export function createSweep(call: CallFunction, limits: BulkLimits): Sweep {
  let startedAt = Date.now()
  let running: Promise<unknown> = Promise.resolve()

  async function sweep(): Promise<void> {
    try {
      await call('sweep', { late: LATE_MS, limits })
      await call('create_partitions', {})
    } catch {}
  }

  return {
    start: () => {
      if (Date.now() - startedAt < INTERVAL_MS) return
      startedAt = Date.now()
      running = sweep()
    },
    finish: async () => void (await running),
  }
}
