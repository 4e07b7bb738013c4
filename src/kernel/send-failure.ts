/** Responds to a request that failed before its response began. Loaded with the first failure. */
import { failureStatus, type GatewayError } from '../core/errors.ts'
import type { HeaderRecord } from '../core/http.ts'
import { failureHeaders } from '../formats/failures.ts'
import type { RateStatus } from '../governance/limits.ts'
import { type Exchange, waitForStore } from './exchange.ts'
import type { Services } from './services.ts'
import { baseHeaders, sendJson } from './response-headers.ts'

export async function sendFailure(exchange: Exchange, failure: GatewayError, services: Services): Promise<void> {
  const body = JSON.stringify(exchange.format.writeFailure(failure, exchange.id))
  const head = { 'cache-control': 'no-store', ...failureHeaders(failure) }
  await answerDuplicates(exchange, failure, head, body)
  if (exchange.endStream !== undefined) return exchange.endStream(failure)
  const rate = failure.details.rate ?? (await rateOf(exchange, services))
  sendJson(exchange.sink, failureStatus(failure), { ...baseHeaders(exchange.id, rate), ...head }, body)
}

/** Stores the error only if the upstream rejected the request itself, because a retry would then fail again. */
async function answerDuplicates(
  { idempotencyClaim }: Exchange,
  failure: GatewayError,
  head: HeaderRecord,
  body: string,
): Promise<void> {
  if (idempotencyClaim === undefined) return
  if (failure.kind === 'cancelled') return idempotencyClaim.release()
  const status = failureStatus(failure)
  const answer = { status, head: { ...head, 'content-type': 'application/json' }, body }
  const isPermanent = failure.kind === 'upstream-rejected' && status !== 409
  await (isPermanent ? idempotencyClaim.remember(answer) : idempotencyClaim.release(answer))
}

export async function rateOf(exchange: Exchange, services: Services): Promise<RateStatus> {
  const { reservation, key } = exchange
  if (reservation !== undefined) return reservation.rate
  const { ledger } = services
  try {
    return await waitForStore(exchange, ledger.status(key), services)
  } catch {
    return ledger.status(undefined)
  }
}
