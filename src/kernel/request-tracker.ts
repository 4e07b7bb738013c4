import { isPromise } from '../core/async.ts'
import type { Handler } from './call.ts'
import type { Runtime } from '../core/ports.ts'
import type { RequestTracker } from './services.ts'

/** Maximum number of running requests at which batches are processed. */
const MAX_REQUESTS = 8

/** Without this limit, a busy gateway might never process batches. */
const MAX_WAIT_MS = 30_000

export function createRequestTracker({ after }: Pick<Runtime, 'after'>): RequestTracker {
  const running = new Set<string>()
  const waiting = new Set<() => void>()
  return {
    enter: (id) => void running.add(id),
    leave: (id) => {
      if (!running.delete(id) || running.size > MAX_REQUESTS) return
      for (const proceed of waiting) proceed()
    },
    waitForQuiet: (signal) =>
      running.size <= MAX_REQUESTS || signal.aborted
        ? Promise.resolve()
        : new Promise((resolve) => {
            const proceed = (): void => {
              cancelTimer()
              signal.removeEventListener('abort', proceed)
              waiting.delete(proceed)
              resolve()
            }
            const cancelTimer = after(MAX_WAIT_MS, proceed)
            waiting.add(proceed)
            signal.addEventListener('abort', proceed)
          }),
  }
}

export function trackRequests(requestTracker: RequestTracker, handle: Handler): Handler {
  return (call) => {
    requestTracker.enter(call.id)
    const leave = (): void => requestTracker.leave(call.id)
    try {
      const completion = handle(call)
      if (!isPromise(completion)) return leave()
      void completion.then(leave, leave)
      return completion
    } catch (error) {
      leave()
      throw error
    }
  }
}
