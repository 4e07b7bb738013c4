import { isPromise } from '../core/maybe-promise.ts'
import type { Traffic } from '../pipeline/traffic.ts'
import type { Handler } from './endpoint.ts'

/** Counts as waiting until its answer, or the first piece of it, is there: batches let it go first. */
export function inTraffic(traffic: Traffic, handle: Handler): Handler {
  return (call) => {
    traffic.enter(call.id)
    const leave = (): void => traffic.leave(call.id)
    try {
      const done = handle(call)
      return isPromise(done) ? leaveAfter(done, leave) : leave()
    } catch (error) {
      leave()
      throw error
    }
  }
}

async function leaveAfter(done: Promise<void>, leave: () => void): Promise<void> {
  try {
    await done
  } finally {
    leave()
  }
}
