import { textResponse } from '../http/text-response.ts'
import type { RateStatus } from '../governance/reservation.ts'

/** Header names in lower case. Always built afresh: nothing of an upstream's response is reused. */
export type Head = Record<string, string>

/** What every response carries, errors included. */
export function baseHead(requestId: string, rate: RateStatus): Head {
  return {
    'x-request-id': requestId,
    'request-id': requestId,
    'x-ratelimit-limit': String(rate.limit),
    'x-ratelimit-remaining': String(rate.remaining),
    'x-ratelimit-reset': String(Math.ceil(rate.resetAt / 1000)),
  }
}

/** A JSON response. */
export function jsonResponse(status: number, head: Head, body: string): Response {
  head['content-type'] = 'application/json'
  return textResponse(body, status, head)
}
