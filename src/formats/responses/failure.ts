import type { Frame } from '../../core/answer.ts'
import { GatewayError } from '../../core/errors.ts'
import { asObject, asString, type JsonObject } from '../../core/json.ts'
import { describeFailure } from '../failures.ts'

/**
 * The event after which a broken stream ends. The fields stand in `error`, where the vendor's servers put them, and
 * beside it, where its documentation does: clients read one or the other.
 */
export function failureFrame(failure: GatewayError, sequenceNumber: number): Frame {
  const { message, type, param, code } = describeFailure(failure)
  const fields = { code: code ?? type, message, param: param ?? null }
  const data = { type: 'error', sequence_number: sequenceNumber, ...fields, error: { type, ...fields } }
  return { event: 'error', data: JSON.stringify(data) }
}

/** What an upstream's error code means; its words are its own trouble and stay there. */
export function failureOfResponse(holder: JsonObject): GatewayError {
  const error = asObject(holder['error']) ?? holder
  if (asString(error['code']) === 'rate_limit_exceeded') {
    return new GatewayError('upstream-rate-limited', 'The model provider allows no more requests at the moment.')
  }
  return new GatewayError('upstream', 'The model provider reported that it failed to answer. Retry later.')
}
