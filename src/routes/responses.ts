import { Cancellation } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import type { JsonObject } from '../core/json.ts'
import type { StoredResponseCall } from '../core/ports.ts'
import { reserveOneRequest } from '../governance/reservation.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import { findCallerKey } from '../pipeline/admission.ts'
import { baseHeaders, sendJson } from '../pipeline/response.ts'
import type { Services } from '../pipeline/services.ts'
import { noStoreHeaders, pathId, sendWithRateStatus, type Call, type Handler } from './endpoint.ts'

export interface ResponseHandlers {
  readonly read: Handler
  readonly remove: Handler
  readonly cancel: Handler
  readonly inputItems: Handler
}

/**
 * Returns the handlers for stored responses. If a provider stores the response, the handlers forward the request to it.
 * Otherwise, they use the stored turns. Only the key that created a response can access it.
 */
export function responseHandlers(services: Services): ResponseHandlers {
  return {
    read: storedResponseHandler(services, { method: 'GET', suffix: '' }, (key, call) =>
      readAnswer(services, key, call),
    ),
    remove: storedResponseHandler(services, { method: 'DELETE', suffix: '' }, async (key, call) => {
      if (!(await services.turns.delete(key, pathId(call)))) throw notFound(call)
      return { id: pathId(call), object: 'response', deleted: true }
    }),
    cancel: storedResponseHandler(services, { method: 'POST', suffix: '/cancel' }, async (key, call) => {
      await readAnswer(services, key, call)
      throw new GatewayError(
        'invalid-request',
        'Only a response that was created with background: true can be canceled.',
        { param: 'response_id' },
      )
    }),
    inputItems: storedResponseHandler(services, { method: 'GET', suffix: '/input_items' }, async (key, call) => {
      const input = await services.turns.findInput(key, pathId(call))
      if (input === undefined) throw notFound(call)
      return { object: 'list', data: input.toReversed(), has_more: false }
    }),
  }
}

interface ProviderAction {
  readonly method: StoredResponseCall['method']
  readonly suffix: string
}

type TurnAction = (key: VirtualKey, call: Call) => Promise<JsonObject>

function storedResponseHandler(services: Services, action: ProviderAction, runOnTurns: TurnAction): Handler {
  return async (call) => {
    const key = await findCallerKey(call.request, services)
    if (call.query.get('stream') === 'true') throw notStreamed()
    const provider = await services.turns.findProvider(key, pathId(call))
    if (provider === undefined) return sendWithRateStatus(call, key, services, await runOnTurns(key, call))
    if (action.method === 'DELETE' && (await services.turns.isUnsettled(key, pathId(call)))) throw notSettled()
    const rate = await reserveOneRequest(services.ledger, key)
    const text = await callProvider(services, provider, call, action)
    if (action.method === 'DELETE') await services.turns.delete(key, pathId(call))
    sendJson(call.sink, 200, { ...noStoreHeaders(call), ...baseHeaders(call.id, rate) }, text)
  }
}

const FORWARDED_PARAMETERS = ['include', 'include[]', 'limit', 'after', 'before', 'order']

async function callProvider(
  services: Services,
  providerName: string,
  call: Call,
  { method, suffix }: ProviderAction,
): Promise<string> {
  const provider = services.provider(providerName)
  if (provider?.storedResponse === undefined) throw notFound(call)
  const { runtime, timeouts } = services
  const cancellation = new Cancellation()
  call.request.onDisconnect(() => cancellation.cancel(new Error('The caller disconnected.')))
  const query = new URLSearchParams([...call.query].filter(([name]) => FORWARDED_PARAMETERS.includes(name))).toString()
  const path = `/${encodeURIComponent(pathId(call))}${suffix}${query === '' ? '' : `?${query}`}`
  return provider.storedResponse({
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

async function readAnswer(services: Services, key: VirtualKey, call: Call): Promise<JsonObject> {
  const answer = await services.turns.find(key, pathId(call))
  if (answer === undefined) throw notFound(call)
  return answer
}

function notStreamed(): GatewayError {
  return new GatewayError('invalid-request', 'A stored response cannot be streamed. Send the request without stream.', {
    param: 'stream',
  })
}

/** A deleted response could not be billed, because only the vendor knows its usage. */
function notSettled(): GatewayError {
  return new GatewayError(
    'conflict',
    'The background response has not been billed yet. Retry after the delay in Retry-After, or cancel the response first.',
    { param: 'response_id', retryAfterSeconds: SETTLE_SECONDS },
  )
}

/** The longest delay between two polls of a background response. */
const SETTLE_SECONDS = 5

/** The message is the same for an unknown id and for another key's response. */
function notFound(call: Call): GatewayError {
  return new GatewayError(
    'not-found',
    `Response with id ${JSON.stringify(pathId(call).slice(0, 100))} not found. Only the key that created a response can read it, and only if it was created without store: false.`,
    { param: 'response_id' },
  )
}
