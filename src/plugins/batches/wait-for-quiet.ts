import type { Runtime } from '../../core/ports.ts'
import type { RequestTracker } from '../../kernel/request-tracker.ts'

/** Maximum number of running requests at which batches are processed. */
const MAX_REQUESTS = 8

/** Without this limit, a busy gateway might never process batches. */
const MAX_WAIT_MS = 30_000

/** Resolves when few requests are in progress, when the maximum wait has passed, or when the signal is aborted. */
export function waitForQuiet(
  tracker: Pick<RequestTracker, 'count' | 'onLeave'>,
  signal: AbortSignal,
  { after }: Pick<Runtime, 'after'>,
): Promise<void> {
  if (tracker.count <= MAX_REQUESTS || signal.aborted) return Promise.resolve()
  return new Promise((resolve) => {
    const proceed = (): void => {
      cancelTimer()
      signal.removeEventListener('abort', proceed)
      tracker.onLeave.delete(check)
      resolve()
    }
    const check = (): void => {
      if (tracker.count <= MAX_REQUESTS) proceed()
    }
    const cancelTimer = after(MAX_WAIT_MS, proceed)
    tracker.onLeave.add(check)
    signal.addEventListener('abort', proceed)
  })
}
