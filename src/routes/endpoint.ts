import type { GatewayError } from '../core/errors.ts'
import { hasFlag, type HeaderRecord, type HttpRequest, type ResponseSink } from '../core/http.ts'
import type { JsonObject } from '../core/json.ts'
import { isPromise, type MaybePromise } from '../core/async.ts'
import { failureHeaders, failureStatus } from '../formats/failures.ts'
import type { ClientFormat, WriteFailure } from '../formats/format.ts'
import type { RateStatus } from '../governance/limits.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import type { PathVariables } from '../http/router.ts'
import { Exchange } from '../pipeline/exchange.ts'
import { baseHeaders, sendJson } from '../pipeline/settle.ts'
import { modelStages } from '../pipeline/run.ts'
import type { Services, RequestTracker } from '../pipeline/services.ts'

export interface Call {
  readonly id: string
  readonly startedAt: number
  readonly request: HttpRequest
  readonly sink: ResponseSink
  readonly query: URLSearchParams
  readonly variables: PathVariables
}

/** Parses the query string on each read of `query`, because most endpoints do not use it. */
export class IncomingCall implements Call {
  readonly id: string
  readonly startedAt: number
  readonly request: HttpRequest
  readonly sink: ResponseSink
  readonly variables: PathVariables

  constructor(start: Pick<Call, 'id' | 'startedAt' | 'request' | 'sink'>, variables: PathVariables) {
    this.id = start.id
    this.startedAt = start.startedAt
    this.request = start.request
    this.sink = start.sink
    this.variables = variables
  }

  get query(): URLSearchParams {
    return new URLSearchParams(this.request.query)
  }
}

/** Responds to a call, or throws a GatewayError before the response begins. */
export type Handler = (call: Call) => MaybePromise<void>

export function modelHandler(format: ClientFormat, services: Services): Handler {
  const stages = modelStages()
  return (call) => {
    const exchange = createExchange(call, format)
    const completion = stages.run(exchange, services)
    if (exchange.isDetached && completion !== undefined) {
      services.detached.add({
        end: () => exchange.cancellation.cancel(new Error('The gateway is closing.')),
        ended: completion,
      })
    }
    return completion
  }
}

export function createExchange({ id, startedAt, request, sink }: Call, format: ClientFormat): Exchange {
  const isDetached = hasFlag(request, 'x-svc-detach')
  return new Exchange({ id, startedAt, request, sink, format }, { isConnected: true, isDetached })
}

export function trackRequests(requestTracker: RequestTracker, handle: Handler): Handler {
  return (call) => {
    requestTracker.enter(call.id)
    const leave = (): void => requestTracker.leave(call.id)
    try {
      const completion = handle(call)
      if (!isPromise(completion)) return leave()
      void completion.then(leave, leave)
      return completion
    } catch (error) {
      leave()
      throw error
    }
  }
}

export function pathId({ variables }: Call): string {
  return variables['id'] ?? ''
}

export async function sendWithRateStatus(
  call: Call,
  key: VirtualKey,
  { ledger }: Pick<Services, 'ledger'>,
  body: JsonObject,
): Promise<void> {
  const headers = { ...noStoreHeaders(call), ...baseHeaders(call.id, await ledger.status(key)) }
  sendJson(call.sink, 200, headers, JSON.stringify(body))
}

/** Proxies do not know that `x-api-key` identifies the caller, and could send a cached response to another caller. */
export function noStoreHeaders({ id }: Pick<Call, 'id'>): HeaderRecord {
  return { 'x-request-id': id, 'request-id': id, 'cache-control': 'no-store' }
}

export function sendFailure(
  { id, sink }: Pick<Call, 'id' | 'sink'>,
  failure: GatewayError,
  { writeFailure, rate }: { readonly writeFailure: WriteFailure; readonly rate: RateStatus },
): void {
  const headers = { ...noStoreHeaders({ id }), ...baseHeaders(id, rate), ...failureHeaders(failure) }
  sendJson(sink, failureStatus(failure), headers, JSON.stringify(writeFailure(failure, id)))
}
