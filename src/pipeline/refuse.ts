import { GatewayError } from '../core/errors.ts'
import { failureHeaders, failureStatus } from '../formats/failures.ts'
import type { RateStatus } from '../governance/reservation.ts'
import { rateToTell } from './admit.ts'
import { baseHead, jsonResponse } from './head.ts'
import { release } from './settle.ts'
import type { Claimed, Parts, Reached } from './stages.ts'

/** The one place where a failure becomes a response, in the caller's format. */
export async function refuse(reached: Reached, error: unknown, parts: Parts): Promise<Response> {
  const failure = reached.signal.aborted ? callerLeft(error) : asFailure(error)
  const rate = failure.details.rate ?? (await rateOf(reached, parts))
  const status = failureStatus(failure)
  const head = { ...baseHead(reached.id, rate), ...failureHeaders(failure) }
  const body = JSON.stringify(reached.format.writeFailure(failure, reached.id))
  await release(reached, { status, failure }, parts)
  if ('first' in reached) await conclude(reached.first, failure, body)
  return jsonResponse(status, head, body)
}

/**
 * Those who wait with the same Idempotency-Key get the same refusal, save that of a caller who left. Later ones get it
 * only where asking again would not change it: when the upstream blamed the request itself.
 */
async function conclude(first: Claimed['first'], failure: GatewayError, body: string): Promise<void> {
  if (failure.kind === 'cancelled') return first?.forget()
  const status = failureStatus(failure)
  const answer = { status, head: { ...failureHeaders(failure), 'content-type': 'application/json' }, body }
  const isLasting = failure.kind === 'upstream-rejected' && status !== 409
  await (isLasting ? first?.remember(answer) : first?.forget(answer))
}

/** The failure of a request whose caller has left, whatever stopped it: nobody reads the response. */
export function callerLeft(cause?: unknown): GatewayError {
  return new GatewayError('cancelled', 'The caller left before the end of the answer.', { cause })
}

/** Anything that is not a GatewayError is a fault of ours: its text may hold secrets and is not told to callers. */
export function asFailure(error: unknown): GatewayError {
  if (GatewayError.is(error)) return error
  return new GatewayError(
    'internal',
    'The gateway failed at this request. It is a fault of the gateway, not of yours.',
    {
      cause: error,
    },
  )
}

async function rateOf(reached: Reached, parts: Parts): Promise<RateStatus> {
  if ('reservation' in reached) return reached.reservation.rate
  return rateToTell('key' in reached ? reached.key : undefined, parts)
}
