import type { GatewayError } from '../core/errors.ts'
import type { HeaderRecord, HttpRequest, ResponseSink } from '../core/http.ts'
import type { MaybePromise } from '../core/async.ts'
import { failureHeaders, failureStatus } from '../formats/failures.ts'
import type { WriteFailure } from '../formats/format.ts'
import type { RateStatus } from '../governance/reservation.ts'
import type { PathVariables } from '../http/router.ts'
import { baseHeaders, sendJson } from '../pipeline/head.ts'

/** One HTTP request at an endpoint of the gateway. */
export interface Call {
  /** Also the value of x-request-id. */
  readonly id: string
  readonly startedAt: number
  readonly request: HttpRequest
  readonly sink: ResponseSink
  readonly query: URLSearchParams
  readonly variables: PathVariables
}

/** A call whose query is parsed on first use. */
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

/** Answers a call. `refuse` sends a GatewayError that the handler throws before its answer. */
export type Handler = (call: Call) => MaybePromise<void>

/** Headers of all responses except those of model requests. They forbid caching. */
export function adminHeaders({ id }: Pick<Call, 'id'>): HeaderRecord {
  return { 'x-request-id': id, 'request-id': id, 'cache-control': 'no-store' }
}

/** Sends a failure in a format, for all requests that are not model requests. */
export function refuse(
  { id, sink }: Pick<Call, 'id' | 'sink'>,
  failure: GatewayError,
  { writeFailure, rate }: { readonly writeFailure: WriteFailure; readonly rate: RateStatus },
): void {
  const headers = { ...adminHeaders({ id }), ...baseHeaders(id, rate), ...failureHeaders(failure) }
  sendJson(sink, failureStatus(failure), headers, JSON.stringify(writeFailure(failure, id)))
}
