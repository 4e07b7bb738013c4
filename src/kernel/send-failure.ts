/** Responds to a request that failed before its response began. Loaded with the first failure. */
import { failureStatus, type GatewayError } from '../core/errors.ts'
import { failureHeaders } from '../formats/failures.ts'
import type { RateStatus } from '../governance/limits.ts'
import { type Exchange } from './exchange.ts'
import type { Services } from './services.ts'
import { baseHeaders, sendJson } from './response-headers.ts'
import { waitForStore } from './wait-for-store.ts'

export async function sendFailure(exchange: Exchange, failure: GatewayError, services: Services): Promise<void> {
  const body = JSON.stringify(exchange.format.writeFailure(failure, exchange.id))
  const head = { 'cache-control': 'no-store', ...failureHeaders(failure) }
  for (const onFailure of services.hooks.onFailure) await onFailure(exchange, { failure, headers: head, body })
  if (exchange.endStream !== undefined) return exchange.endStream(failure)
  const rate = failure.details.rate ?? (await rateOf(exchange, services))
  sendJson(exchange.sink, failureStatus(failure), { ...baseHeaders(exchange.id, rate), ...head }, body)
}

export async function rateOf(exchange: Exchange, services: Services): Promise<RateStatus> {
  const { grant, caller } = exchange
  if (grant !== undefined) return grant.rate
  const { ledger } = services
  try {
    return await waitForStore(exchange, ledger.status(caller), services)
  } catch {
    return ledger.status(undefined)
  }
}
