import type { Frame } from '../../core/answer.ts'
import type { GatewayError } from '../../core/errors.ts'
import type { JsonObject } from '../../core/json.ts'
import { describeFailure } from '../failures.ts'

/** `{error: {message, type, param, code}}`, with the wait in seconds and an upstream's details where there are any. */
export function writeFailure(failure: GatewayError): JsonObject {
  const { message, type, param, code, retryAfterSeconds, details } = describeFailure(failure)
  return {
    error: {
      message,
      type,
      param: param ?? null,
      code: code ?? null,
      ...(retryAfterSeconds === undefined ? {} : { retry_after: Math.ceil(retryAfterSeconds) }),
      ...(details === undefined ? {} : { details }),
    },
  }
}

/** The event after which a broken stream ends, without `[DONE]`. */
export function writeFailureFrame(failure: GatewayError): Frame {
  return { data: JSON.stringify(writeFailure(failure)) }
}
