import { checkPayer } from '../../upstream/attempts.ts'
import type { Turns } from './turns.ts'
import { Cancellation } from '../../core/async.ts'
import { GatewayError } from '../../core/errors.ts'
import type { StoredResponseCall } from '../../core/ports.ts'
import { elementTexts } from '../../core/splice-json.ts'
import { reserveOneRequest } from '../../governance/reservation.ts'
import type { Endpoint } from '../../http/router.ts'
import { findCaller } from '../../kernel/authenticate.ts'

import { type Call, type Handler, pathId } from '../../kernel/call.ts'
import type { Services } from '../../kernel/services.ts'

import { baseHeaders, sendJson } from '../../kernel/response-headers.ts'
import { hideStoredMargin } from '../../streams/stored-margin.ts'
import { noStoreHeaders } from '../../kernel/endpoint-responses.ts'

/** Answers a request for a response that the gateway itself stores. */
/** Returns the JSON text of the response. */
type TurnAction = (scope: string, id: string) => Promise<string>

export function responseEndpoints(turns: Turns, services: Services): readonly Endpoint<Handler>[] {
  const endpoint = (method: StoredResponseCall['method'], suffix: string, action: TurnAction): Endpoint<Handler> => ({
    method,
    path: `/v1/responses/:id${suffix}`,
    handle: (call) => handleResponseCall(call, { method, suffix, action }, turns, services),
  })
  const readResponse: TurnAction = async (scope, id) => {
    const response = await turns.find(scope, id)
    if (response === undefined) throw responseNotFoundError(id)
    return services.showsMargin ? response : hideStoredMargin(response)
  }
  return [
    endpoint('GET', '', readResponse),
    endpoint('DELETE', '', async (scope, id) => {
      if (!(await turns.delete(scope, id))) throw responseNotFoundError(id)
      return JSON.stringify({ id, object: 'response', deleted: true })
    }),
    endpoint('POST', '/cancel', async (scope, id) => {
      await readResponse(scope, id)
      const message = 'Only a response that was created with background: true can be canceled.'
      throw new GatewayError('invalid-request', message, { param: 'response_id' })
    }),
    endpoint('GET', '/input_items', async (scope, id) => {
      const input = await turns.findInput(scope, id)
      if (input === undefined) throw responseNotFoundError(id)
      const items = elementTexts(input) ?? []
      return `{"object":"list","data":[${items.toReversed().join(',')}],"has_more":false}`
    }),
  ]
}

type ResponseEndpoint = Pick<StoredResponseCall, 'method'> & {
  readonly suffix: string
  readonly action: TurnAction
}

async function handleResponseCall(
  call: Call,
  endpoint: ResponseEndpoint,
  turns: Turns,
  services: Services,
): Promise<void> {
  const { method, suffix, action } = endpoint
  const { ledger, runtime, timeouts } = services
  const id = pathId(call)
  const caller = await findCaller(call, services)
  const { scope } = caller
  if (call.query.get('stream') === 'true') {
    const message = 'A stored response cannot be streamed. Send the request without stream.'
    throw new GatewayError('invalid-request', message, { param: 'stream' })
  }
  const providerName = await turns.findProvider(scope, id)
  if (providerName === undefined) {
    const stored = await action(scope, id)
    return sendJson(
      call.sink,
      200,
      { ...noStoreHeaders(call), ...baseHeaders(call.id, await ledger.status(caller)) },
      stored,
    )
  }
  if (method === 'DELETE' && (await turns.isUnsettled(scope, id))) throw responseNotSettledError()
  const rate = await reserveOneRequest(ledger, caller)
  const provider = services.provider(providerName)
  if (provider?.storedResponse === undefined) throw responseNotFoundError(id)
  const cancellation = new Cancellation()
  call.request.onDisconnect(() => cancellation.cancel(new Error('The caller disconnected.')))
  const upstreamCaller = caller.upstream
  checkPayer(provider, upstreamCaller)
  const text = await provider.storedResponse({
    caller: upstreamCaller,
    method,
    path: `/${encodeURIComponent(id)}${suffix}${forwardedQuery(call)}`,
    get signal() {
      return cancellation.signal
    },
    cancellation,
    runtime,
    timeouts,
  })
  if (method === 'DELETE') await turns.delete(scope, id)
  sendJson(call.sink, 200, { ...noStoreHeaders(call), ...baseHeaders(call.id, rate) }, text)
}

const FORWARDED_PARAMETERS = ['include', 'include[]', 'limit', 'after', 'before', 'order']

function forwardedQuery({ query }: Call): string {
  const forwarded = [...query].filter(([name]) => FORWARDED_PARAMETERS.includes(name))
  return forwarded.length === 0 ? '' : `?${new URLSearchParams(forwarded).toString()}`
}

/** A deleted response could not be billed, because only the vendor knows its usage. */
function responseNotSettledError(): GatewayError {
  return new GatewayError(
    'conflict',
    'The background response has not been billed yet. Retry after the delay in Retry-After, or cancel the response first.',
    { param: 'response_id', retryAfterSeconds: MAX_POLL_SECONDS },
  )
}

/** The longest delay between two polls of a background response. */
const MAX_POLL_SECONDS = 5

/** The message is the same for an unknown id and for another key's response. */
function responseNotFoundError(id: string): GatewayError {
  return new GatewayError(
    'not-found',
    `Response with id ${JSON.stringify(id.slice(0, 100))} not found. Only the key that created a response can read it, and only if it was created without store: false.`,
    { param: 'response_id' },
  )
}
