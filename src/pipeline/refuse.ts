import { GatewayError } from '../core/errors.ts'
import { failureHeaders, failureStatus } from '../formats/failures.ts'
import type { RateStatus } from '../governance/reservation.ts'
import { baseHead, jsonResponse } from './head.ts'
import { release } from './settle.ts'
import type { Parts, Reached } from './stages.ts'

/** The one place where a failure becomes a response, in the caller's format. */
export async function refuse(reached: Reached, error: unknown, parts: Parts): Promise<Response> {
  const failure = reached.signal.aborted ? left(error) : asFailure(error)
  const rate = failure.details.rate ?? (await rateOf(reached, parts))
  const status = failureStatus(failure)
  const head = { ...baseHead(reached.id, rate), ...failureHeaders(failure) }
  await release(reached, { status, failure }, parts)
  return jsonResponse(status, head, JSON.stringify(reached.format.writeFailure(failure, reached.id)))
}

/** Whatever stopped the request after its caller had left, nobody will read it. */
function left(cause: unknown): GatewayError {
  return new GatewayError('cancelled', 'The caller left before the answer.', { cause })
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
  return parts.ledger.status('key' in reached ? reached.key : undefined)
}
