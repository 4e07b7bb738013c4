import { GatewayError } from '../core/errors.ts'
import type { JsonObject } from '../core/json.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import { findCaller } from '../pipeline/authenticate.ts'
import { baseHeaders, sendJson } from '../pipeline/head.ts'
import type { Services } from '../pipeline/services.ts'
import type { Call, Handler } from './endpoint.ts'

/** GET /v1/responses/{id}: an answer that is kept for the calling key, as it was told. It is not streamed again. */
export function getResponse(services: Services): Handler {
  return async (call) => {
    const key = await findCaller(call.request, services)
    if (call.query.get('stream') === 'true') {
      throw new GatewayError('invalid-request', 'A kept response is not streamed again: ask for it without stream.', {
        param: 'stream',
      })
    }
    const kept = await services.turns.find(key, idOf(call))
    if (kept === undefined) throw notFound(call)
    return answer(call, key, services, kept)
  }
}

/** DELETE /v1/responses/{id}: what was said in it is forgotten; later turns keep their own copy of the conversation. */
export function deleteResponse(services: Services): Handler {
  return async (call) => {
    const key = await findCaller(call.request, services)
    if (!(await services.turns.forget(key, idOf(call)))) throw notFound(call)
    return answer(call, key, services, { id: idOf(call), object: 'response', deleted: true })
  }
}

async function answer(call: Call, key: VirtualKey, services: Services, body: JsonObject): Promise<void> {
  sendJson(call.sink, 200, baseHeaders(call.id, await services.ledger.status(key)), JSON.stringify(body))
}

function idOf(call: Call): string {
  return call.variables['id'] ?? ''
}

function notFound(call: Call): GatewayError {
  return new GatewayError(
    'not-found',
    `Response with id ${JSON.stringify(idOf(call).slice(0, 100))} not found: responses are kept for a day, for the key that asked, and not with store: false.`,
    { param: 'response_id' },
  )
}
