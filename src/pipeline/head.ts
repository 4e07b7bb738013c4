import { billHeaders, headerSafe } from '../billing/headers.ts'
import type { Bill } from '../billing/bill.ts'
import type { HeaderRecord, ResponseSink } from '../core/http.ts'
import type { RateStatus } from '../governance/reservation.ts'

/** What every response carries, errors included. Always a new record: nothing of an upstream's response is reused. */
export function baseHeaders(requestId: string, rate: RateStatus): HeaderRecord {
  return {
    'x-request-id': requestId,
    'request-id': requestId,
    'x-ratelimit-limit': String(rate.limit),
    'x-ratelimit-remaining': String(rate.remaining),
    'x-ratelimit-reset': String(Math.ceil(rate.resetAt / 1000)),
  }
}

/** The headers of an answer that others may get again: its bill, and what its upstream's format could not carry. */
export function answerHeaders(bill: Bill, ignored: readonly string[]): HeaderRecord {
  const headers = billHeaders(bill)
  if (ignored.length > 0) headers['x-svc-ignored'] = headerSafe(ignored.join(', '))
  return headers
}

/** Sends a JSON body. */
export function sendJson(sink: ResponseSink, status: number, headers: HeaderRecord, body: string | Uint8Array): void {
  headers['content-type'] = 'application/json'
  sink.whole(status, headers, body)
}

/** What every event stream states: nothing on its way may keep or change it. */
export const STREAM_HEADERS: Readonly<HeaderRecord> = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache, no-transform',
  'x-accel-buffering': 'no',
}
