import type { GatewayError } from '../../core/errors.ts'
import type { Frame } from '../../core/answer.ts'
import type { JsonObject } from '../../core/json.ts'
import { describeFailure } from '../failures.ts'

/** Writes the body of an error. The official client selects its error class by `details`. */
export function writeFailure(failure: GatewayError, requestId: string): JsonObject {
  const { type, message, param, code, retryAfterSeconds, details } = describeFailure(failure)
  return {
    type: 'error',
    error: {
      type,
      message,
      ...(param === undefined ? {} : { param }),
      ...(code === undefined ? {} : { code }),
      ...(retryAfterSeconds === undefined ? {} : { retry_after: retryAfterSeconds }),
      ...(details === undefined ? {} : { details }),
    },
    request_id: requestId,
  }
}

/** Returns the event that ends a broken stream. */
export function writeFailureFrame(failure: GatewayError, requestId: string): Frame {
  return { event: 'error', data: JSON.stringify(writeFailure(failure, requestId)) }
}
