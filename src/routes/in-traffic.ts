import type { Traffic } from '../pipeline/traffic.ts'
import type { Handler } from './endpoint.ts'

/** Counts as waiting until its answer, or the first piece of it, is there: batches let it go first. */
export function inTraffic(traffic: Traffic, handle: Handler): Handler {
  return async (call) => {
    traffic.enter(call.id)
    try {
      return await handle(call)
    } finally {
      traffic.leave(call.id)
    }
  }
}
