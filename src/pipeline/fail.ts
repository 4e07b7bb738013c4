import { GatewayError } from '../core/errors.ts'
import { failureHeaders, failureStatus } from '../formats/failures.ts'
import type { RateStatus } from '../governance/reservation.ts'
import { rateStatusOf } from './authenticate.ts'
import type { Exchange } from './exchange.ts'
import { baseHeaders, sendJson } from './head.ts'
import { release } from './settle.ts'
import type { Services } from './services.ts'
import { waitForStore } from './store-wait.ts'

/** The one place where a failure becomes a response, in the caller's format. Never rejects. */
export async function fail(exchange: Exchange, error: unknown, services: Services): Promise<void> {
  const failure = exchange.cancellation.isCancelled ? callerLeft(error) : asFailure(error)
  const status = failureStatus(failure)
  const body = JSON.stringify(exchange.format.writeFailure(failure, exchange.id))
  await release(exchange, { status, failure }, services)
  await concludeFirst(exchange, failure, body)
  const rate = failure.details.rate ?? (await rateOf(exchange, services))
  const headers = { ...baseHeaders(exchange.id, rate), ...failureHeaders(failure) }
  sendJson(exchange.sink, status, headers, body)
}

/**
 * Those who wait with the same Idempotency-Key get the same refusal, except that of a caller who left. Later requests get
 * it only when asking again would not change it: the upstream blamed the request itself.
 */
async function concludeFirst({ first }: Exchange, failure: GatewayError, body: string): Promise<void> {
  if (first === undefined) return
  if (failure.kind === 'cancelled') return first.forget()
  const status = failureStatus(failure)
  const answer = { status, head: { ...failureHeaders(failure), 'content-type': 'application/json' }, body }
  const isLasting = failure.kind === 'upstream-rejected' && status !== 409
  await (isLasting ? first.remember(answer) : first.forget(answer))
}

/** The failure of a request whose caller has left. The error that stopped it is the cause. */
export function callerLeft(cause?: unknown): GatewayError {
  return new GatewayError('cancelled', 'The caller left before the end of the answer.', { cause })
}

/** Anything that is not a GatewayError is a fault of ours: its text may hold secrets and is not sent to callers. */
export function asFailure(error: unknown): GatewayError {
  if (GatewayError.is(error)) return error
  return new GatewayError(
    'internal',
    'The gateway failed to answer because of an internal error. Retry, and report the request id if it fails again.',
    { cause: error },
  )
}

async function rateOf(exchange: Exchange, services: Services): Promise<RateStatus> {
  const { reservation, key } = exchange
  if (reservation !== undefined) return reservation.rate
  try {
    return await waitForStore(exchange, rateStatusOf(key, services), services)
  } catch {
    return rateStatusOf(undefined, services)
  }
}
