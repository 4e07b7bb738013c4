import type { GatewayError } from '../core/errors.ts'
import { hasFlag, type HeaderRecord, type HttpRequest, type ResponseSink } from '../core/http.ts'
import type { JsonObject } from '../core/json.ts'
import { isPromise, type MaybePromise } from '../core/async.ts'
import { failureHeaders, failureStatus } from '../formats/failures.ts'
import type { ClientFormat, WriteFailure } from '../formats/format.ts'
import type { RateStatus } from '../governance/reservation.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import type { PathVariables } from '../http/router.ts'
import { Exchange } from '../pipeline/exchange.ts'
import { baseHeaders, sendJson } from '../pipeline/response.ts'
import { modelStages } from '../pipeline/run.ts'
import type { Services, Traffic } from '../pipeline/services.ts'

/** An HTTP request to an endpoint of the gateway. */
export interface Call {
  readonly id: string
  readonly startedAt: number
  readonly request: HttpRequest
  readonly sink: ResponseSink
  readonly query: URLSearchParams
  readonly variables: PathVariables
}

/** Parses the query only when it is read. */
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

/** Returns the handler of POST /v1/chat/completions, /v1/messages or /v1/responses. */
export function modelHandler(format: ClientFormat, services: Services): Handler {
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

export function exchangeOf({ id, startedAt, request, sink }: Call, format: ClientFormat): Exchange {
  const isDetached = hasFlag(request, 'x-svc-detach')
  return new Exchange({ id, startedAt, request, sink, format }, { isConnected: true, isDetached })
}

/** Counts each call as traffic until it is answered. Batches are paused while traffic is high. */
export function countAsTraffic(traffic: Traffic, handle: Handler): Handler {
  return (call) => {
    traffic.enter(call.id)
    const leave = (): void => traffic.leave(call.id)
    try {
      const done = handle(call)
      if (!isPromise(done)) return leave()
      void done.then(leave, leave)
      return done
    } catch (error) {
      leave()
      throw error
    }
  }
}

export function idOf({ variables }: Call): string {
  return variables['id'] ?? ''
}

/** Sends a JSON body with the rate limit headers of the key. */
export async function sendWithRateStatus(
  call: Call,
  key: VirtualKey,
  { ledger }: Pick<Services, 'ledger'>,
  body: JsonObject,
): Promise<void> {
  sendJson(call.sink, 200, baseHeaders(call.id, await ledger.status(key)), JSON.stringify(body))
}

/** Headers for responses other than model answers. They prevent caching. */
export function noStoreHeaders({ id }: Pick<Call, 'id'>): HeaderRecord {
  return { 'x-request-id': id, 'request-id': id, 'cache-control': 'no-store' }
}

/** Sends the error of a call that is not a model request. */
export function sendFailure(
  { id, sink }: Pick<Call, 'id' | 'sink'>,
  failure: GatewayError,
  { writeFailure, rate }: { readonly writeFailure: WriteFailure; readonly rate: RateStatus },
): void {
  const headers = { ...noStoreHeaders({ id }), ...baseHeaders(id, rate), ...failureHeaders(failure) }
  sendJson(sink, failureStatus(failure), headers, JSON.stringify(writeFailure(failure, id)))
}
