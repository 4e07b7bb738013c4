import { failureStatus, GatewayError } from '../core/errors.ts'
import type { HttpRequest } from '../core/http.ts'
import { failureHeaders, writeChatFailure, writeMessageFailure } from '../formats/failures.ts'
import type { WriteFailure } from '../formats/format.ts'
import type { RateStatus } from '../governance/limits.ts'
import { destroyBrokenSink } from './broken-sink.ts'
import { type Call } from './call.ts'
import type { Services } from './services.ts'
import { type Identifiable, type IdentityServices, findCaller } from './authenticate.ts'
import { baseHeaders, sendJson } from './response-headers.ts'
import { asFailure, INTERNAL_FAILURE, requestLine } from './failures.ts'
import { noStoreHeaders } from './endpoint-responses.ts'

/** Responds to a call whose endpoint is unknown, or whose handler threw. Never rejects if the sink throws. */
export async function rejectCall(
  { id, request, sink, context }: Pick<Call, 'id' | 'request' | 'sink' | 'context'>,
  error: unknown,
  services: Services,
): Promise<void> {
  const failure = refusedUpgrade(request, asFailure(error))
  let rate: RateStatus = { limit: 0, remaining: 0, resetAt: 0 }
  let writeFailure: WriteFailure = writeChatFailure
  try {
    if (failure.kind === 'internal') {
      services.log.failure(INTERNAL_FAILURE, failure, { request_id: id, ...readableRoute(request) })
    }
    writeFailure = failureWriterFor(request)
    // The application is not asked again.
    const known = typeof context === 'function' ? undefined : context
    rate = await rateStatusOfCaller({ id, request, context: known }, services)
  } catch {
    // The failure must be sent even if a call above throws, for example because the rate limits cannot be read.
  }
  const headers = { ...noStoreHeaders({ id }), ...baseHeaders(id, rate), ...failureHeaders(failure) }
  const body = JSON.stringify(writeFailure(failure, id))
  try {
    sendJson(sink, failureStatus(failure), headers, body)
  } catch (cause) {
    destroyBrokenSink(sink, () => services.log.failure('a response could not be sent', cause, { request_id: id }))
  }
}

/** Omits the route if reading the address of the request is what failed. */
function readableRoute(request: HttpRequest): { route?: string } {
  try {
    return { route: requestLine(request) }
  } catch {
    return {}
  }
}

/** Clients that prefer WebSockets, such as Codex, use HTTP after this failure, but give up after "method not allowed". */
function refusedUpgrade(request: HttpRequest, failure: GatewayError): GatewayError {
  const isUpgrade = failure.kind === 'method-not-allowed' && /\bwebsocket\b/i.test(request.header('upgrade') ?? '')
  if (!isUpgrade) return failure
  return new GatewayError('upgrade-required', 'WebSockets are not supported. Send a POST request over HTTP.')
}

/** Clients of the messages format usually send a version header, also to paths of other formats. */
function failureWriterFor(request: HttpRequest): WriteFailure {
  const isMessages = request.path.includes('/messages')
  return isMessages || request.header('anthropic-version') !== undefined ? writeMessageFailure : writeChatFailure
}

export async function rateStatusOfCaller(
  identifiable: Identifiable,
  services: IdentityServices & Pick<Services, 'ledger'>,
): Promise<RateStatus> {
  try {
    return await services.ledger.status(await findCaller(identifiable, services))
  } catch {
    return services.ledger.status(undefined)
  }
}
