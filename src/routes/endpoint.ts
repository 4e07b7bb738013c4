import type { GatewayError } from '../core/errors.ts'
import { failureHeaders, failureStatus } from '../formats/failures.ts'
import type { Format } from '../formats/format.ts'
import type { RateStatus } from '../governance/reservation.ts'
import type { PathVariables } from '../http/router.ts'
import { baseHead, jsonResponse, type Head } from '../pipeline/head.ts'

/** One HTTP request at an endpoint of the gateway. */
export interface Call {
  /** Also the value of x-request-id. */
  readonly id: string
  readonly startedAt: number
  readonly request: Request
  readonly url: URL
  readonly variables: PathVariables
}

/** Answers a call; a GatewayError that it throws is written by `refusal`. */
export type Handler = (call: Call) => Promise<Response>

/** What answers outside of the model line carry: they are of this moment and for nobody else. */
export function adminHead({ id }: Pick<Call, 'id'>): Head {
  return { 'x-request-id': id, 'request-id': id, 'cache-control': 'no-store' }
}

/** A failure as a response of a format, for everything that is not on the line of a model request. */
export function refusal(failure: GatewayError, id: string, format: Format, rate: RateStatus): Response {
  const head = { ...adminHead({ id }), ...baseHead(id, rate), ...failureHeaders(failure) }
  return jsonResponse(failureStatus(failure), head, JSON.stringify(format.writeFailure(failure, id)))
}
