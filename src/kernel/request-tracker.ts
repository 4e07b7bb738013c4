import { isPromise } from '../core/async.ts'
import type { Handler } from './call.ts'

/** The requests in progress. */
export class RequestTracker {
  /** Called when a request ends. */
  readonly onLeave: Set<() => void> = new Set()
  readonly #running = new Set<string>()

  get count(): number {
    return this.#running.size
  }

  enter(id: string): void {
    this.#running.add(id)
  }

  leave(id: string): void {
    if (this.#running.delete(id)) for (const listener of this.onLeave) listener()
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
