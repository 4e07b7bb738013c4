/** The errors that the kernel itself makes of a request's failure. */
import { GatewayError } from '../core/errors.ts'
import type { HttpRequest } from '../core/http.ts'

export function canceledError(cause?: unknown): GatewayError {
  return new GatewayError(
    'cancelled',
    'The request was canceled before the end of the response, because the caller disconnected or the gateway closed.',
    { cause },
  )
}

/** Replaces other errors with `internal`, because their messages may contain secrets. */
export function asFailure(error: unknown): GatewayError {
  if (GatewayError.is(error)) return error
  return new GatewayError(
    'internal',
    'The gateway failed to answer because of an internal error. Retry, and report the request id if the retry fails too.',
    { cause: error },
  )
}

/** Identifies the endpoint of a request in the log. */
export function requestLine({ method, path }: Pick<HttpRequest, 'method' | 'path'>): string {
  return `${method} ${path}`
}

/** The event in the log. */
export const INTERNAL_FAILURE = 'a request failed because of an internal error'
