import { isPromise } from '../core/async.ts'
import type { Traffic } from '../pipeline/traffic.ts'
import type { Handler } from './endpoint.ts'

/** Counts as waiting until its answer, or the first piece of it, is there: batches let it go first. */
export function inTraffic(traffic: Traffic, handle: Handler): Handler {
  return (call) => {
    traffic.enter(call.id)
    const leave = (): void => traffic.leave(call.id)
    try {
      const done = handle(call)
      if (!isPromise(done)) return leave()
      void done.then(leave, leave)
      return done
    } catch (error) {
      leave()
      throw error
    }
  }
}
