import { type Bill, billHeaders, toHeaderText, withoutMargin } from '../billing/bill.ts'
import type { HeaderRecord, ResponseSink } from '../core/http.ts'
import type { RateStatus } from '../governance/limits.ts'
import type { Services } from './services.ts'

export function baseHeaders(requestId: string, rate: RateStatus): HeaderRecord {
  return {
    'x-request-id': requestId,
    'request-id': requestId,
    'x-ratelimit-limit': String(rate.limit),
    'x-ratelimit-remaining': String(rate.remaining),
    'x-ratelimit-reset': String(Math.ceil(rate.resetAt / 1000)),
  }
}

export function responseHeaders(
  bill: Bill,
  ignored: readonly string[],
  { showsMargin }: Pick<Services, 'showsMargin'>,
): HeaderRecord {
  const headers = showsMargin ? billHeaders(bill) : withoutMargin(billHeaders(bill))
  if (ignored.length > 0) headers['x-svc-ignored'] = toHeaderText(ignored.join(', '))
  return headers
}

export function sendJson(sink: ResponseSink, status: number, headers: HeaderRecord, body: string | Uint8Array): void {
  headers['content-type'] = 'application/json'
  sink.send(status, headers, body)
}
