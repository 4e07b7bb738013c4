import type { ClientFormat } from '../formats/format.ts'
import { modelStages } from '../pipeline/run.ts'
import type { Services } from '../pipeline/services.ts'
import type { Handler } from './endpoint.ts'
import { exchangeOf } from './exchange-of.ts'

/** POST /v1/chat/completions, /v1/messages and /v1/responses: one pipeline, three formats. */
export function completions(format: ClientFormat, services: Services): Handler {
  const stages = modelStages()
  return (call) => {
    const exchange = exchangeOf(call, format)
    const done = stages.run(exchange, services)
    if (exchange.isDetached && done !== undefined) {
      services.detached.add({
        end: () => exchange.cancellation.cancel(new Error('The gateway is closing.')),
        ended: done,
      })
    }
    return done
  }
}
