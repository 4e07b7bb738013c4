import { GatewayError } from '../core/errors.ts'
import type { JsonObject } from '../core/json.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import { findCaller } from '../pipeline/admit.ts'
import { baseHead, jsonResponse } from '../pipeline/head.ts'
import type { Parts } from '../pipeline/stages.ts'
import type { Call, Handler } from './endpoint.ts'

/** GET /v1/responses/{id}: an answer that is kept for the calling key, as it was told. It is not streamed again. */
export function getResponse(parts: Parts): Handler {
  return async (call) => {
    const key = await findCaller(call.request.headers, parts)
    if (call.url.searchParams.get('stream') === 'true') {
      throw new GatewayError('invalid-request', 'A kept response is not streamed again: ask for it without stream.', {
        param: 'stream',
      })
    }
    const kept = await parts.turns.find(key, idOf(call))
    if (kept === undefined) throw notFound(call)
    return answer(call, key, parts, kept)
  }
}

/** DELETE /v1/responses/{id}: what was said in it is forgotten; later turns keep their own copy of the conversation. */
export function deleteResponse(parts: Parts): Handler {
  return async (call) => {
    const key = await findCaller(call.request.headers, parts)
    if (!(await parts.turns.forget(key, idOf(call)))) throw notFound(call)
    return answer(call, key, parts, { id: idOf(call), object: 'response', deleted: true })
  }
}

async function answer(call: Call, key: VirtualKey, parts: Parts, body: JsonObject): Promise<Response> {
  return jsonResponse(200, baseHead(call.id, await parts.ledger.status(key)), JSON.stringify(body))
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
