import { Cancellation } from '../core/cancellation.ts'
import { GatewayError } from '../core/errors.ts'
import type { JsonObject } from '../core/json.ts'
import type { HeldResponseCall } from '../core/ports.ts'
import { takeRequest } from '../governance/places.ts'
import type { RateStatus } from '../governance/reservation.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import { findCaller } from '../pipeline/authenticate.ts'
import { baseHeaders, sendJson } from '../pipeline/head.ts'
import type { Services } from '../pipeline/services.ts'
import type { Call, Handler } from './endpoint.ts'

/** The handlers of the paths of one response. */
export interface ResponseHandlers {
  readonly read: Handler
  readonly remove: Handler
  readonly cancel: Handler
  readonly inputItems: Handler
}

/**
 * Paths of one response. A response that a provider holds is asked of it, a translated or repeated one of the gateway's
 * own turns. Both are found only by the key that asked for the response.
 */
export function responseHandlers(services: Services): ResponseHandlers {
  return {
    read: handler(services, { method: 'GET', suffix: '' }, (key, call) => readKept(services, key, call)),
    remove: handler(services, { method: 'DELETE', suffix: '' }, async (key, call) => {
      if (!(await services.turns.forget(key, idOf(call)))) throw notFound(call)
      return { id: idOf(call), object: 'response', deleted: true }
    }),
    cancel: handler(services, { method: 'POST', suffix: '/cancel' }, async (key, call) => {
      await readKept(services, key, call)
      throw new GatewayError(
        'invalid-request',
        'Only a response that was created with background: true can be cancelled.',
        {
          param: 'response_id',
        },
      )
    }),
    inputItems: handler(services, { method: 'GET', suffix: '/input_items' }, async (key, call) => {
      const input = await services.turns.findInput(key, idOf(call))
      if (input === undefined) throw notFound(call)
      return { object: 'list', data: input.toReversed(), has_more: false }
    }),
  }
}

interface Action {
  readonly method: HeldResponseCall['method']
  /** Follows the id in the path. */
  readonly suffix: string
}

type FromTurns = (key: VirtualKey, call: Call) => Promise<JsonObject>

function handler(services: Services, action: Action, fromTurns: FromTurns): Handler {
  return async (call) => {
    const key = await findCaller(call.request, services)
    if (call.query.get('stream') === 'true') throw notStreamed()
    const holder = await services.turns.findHolder(key, idOf(call))
    if (holder === undefined) {
      const body = await fromTurns(key, call)
      return send(call, await services.ledger.status(key), JSON.stringify(body))
    }
    const rate = await takeRequest(services.ledger, key)
    const text = await askHolder(services, holder, call, action)
    if (action.method === 'DELETE') await services.turns.forget(key, idOf(call))
    send(call, rate, text)
  }
}

/** Query parameters of the vendor's own paths. */
const PASSED = ['include', 'include[]', 'limit', 'after', 'before', 'order']

async function askHolder(services: Services, holder: string, call: Call, { method, suffix }: Action): Promise<string> {
  const provider = services.provider(holder)
  if (provider?.heldResponse === undefined) throw notFound(call)
  const { runtime, timeouts } = services
  const cancellation = new Cancellation()
  call.request.onDisconnect(() => cancellation.cancel(new Error('The caller left.')))
  const query = new URLSearchParams([...call.query].filter(([name]) => PASSED.includes(name))).toString()
  const path = `/${encodeURIComponent(idOf(call))}${suffix}${query === '' ? '' : `?${query}`}`
  return provider.heldResponse({
    method,
    path,
    get signal() {
      return cancellation.signal
    },
    cancellation,
    runtime,
    timeouts,
  })
}

async function readKept(services: Services, key: VirtualKey, call: Call): Promise<JsonObject> {
  const kept = await services.turns.find(key, idOf(call))
  if (kept === undefined) throw notFound(call)
  return kept
}

function send(call: Call, rate: RateStatus, body: string): void {
  sendJson(call.sink, 200, baseHeaders(call.id, rate), body)
}

function idOf(call: Call): string {
  return call.variables['id'] ?? ''
}

function notStreamed(): GatewayError {
  return new GatewayError('invalid-request', 'A response is not streamed again. Ask for it without stream.', {
    param: 'stream',
  })
}

/** The same words for an id that never was and for one of another key. */
function notFound(call: Call): GatewayError {
  return new GatewayError(
    'not-found',
    `Response with id ${JSON.stringify(idOf(call).slice(0, 100))} not found: responses are found by the key that asked for them, and not with store: false.`,
    { param: 'response_id' },
  )
}
