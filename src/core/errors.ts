import type { Json } from './json.ts'

/** All ways in which a request can fail. */
export type FailureKind =
  | 'invalid-request'
  | 'invalid-admin-request'
  | 'invalid-model'
  | 'unauthenticated'
  | 'budget-exceeded'
  | 'model-not-allowed'
  | 'tools-disabled'
  | 'max-tokens-exceeded'
  | 'not-found'
  | 'method-not-allowed'
  | 'request-timeout'
  | 'conflict'
  /** The caller disconnected before the answer; the response is not read. */
  | 'cancelled'
  | 'too-large'
  /** The storage quota of the key is full. */
  | 'quota-exceeded'
  | 'unsupported-media'
  | 'rate-limited'
  | 'internal'
  | 'upstream'
  | 'upstream-rejected'
  | 'upstream-rate-limited'
  | 'upstream-timeout'
  | 'overloaded'

/** The error of an upstream that refused the caller's request. Contains no addresses, headers or secrets. */
export interface UpstreamRefusal {
  /** 400, 404, 409, 413 or 422: kept for `upstream-rejected`. */
  readonly status: number
  readonly type?: string
  readonly code?: string
  readonly details?: Json
}

/** Retry headers of an upstream, forwarded as received. */
export interface RetryAdvice {
  readonly retryAfter?: string
  readonly retryAfterMs?: string
  readonly shouldRetry?: string
}

/** Details of a GatewayError: the invalid field, when to retry, and what an upstream reported. */
export interface FailureDetails {
  /** The invalid field, header or path. */
  readonly param?: string
  /** Replaces the code of the kind's row in the failure table. */
  readonly code?: string
  /** Delay before a retry, in whole seconds. */
  readonly retryAfterSeconds?: number
  /** The values of `X-RateLimit-*` for a request that a limit refused; `resetAt` in milliseconds since 1970. */
  readonly rate?: { readonly limit: number; readonly remaining: number; readonly resetAt: number }
  /** The methods that the path supports, for `method-not-allowed`. */
  readonly allow?: readonly string[]
  readonly upstream?: UpstreamRefusal
  readonly advice?: RetryAdvice
  readonly details?: Json
  /** True when the caller or the gateway caused the failure of an upstream call: circuit breakers do not count it. */
  readonly isCallerSide?: boolean
  /** True when the upstream call timed out before it was sent: it cost nothing. */
  readonly isUnsent?: boolean
  readonly cause?: unknown
}

/**
 * The error of every failed call; `kind` decides status, type and code in each format.
 * The message is written for the caller: what happened, what was expected, what to do. It contains no secrets.
 */
export class GatewayError extends Error {
  override readonly name = 'GatewayError'
  readonly kind: FailureKind
  readonly details: FailureDetails

  constructor(kind: FailureKind, message: string, details: FailureDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause })
    this.kind = kind
    this.details = details
  }

  /** Returns true for a GatewayError, including one from another copy of this package. */
  static is(value: unknown): value is GatewayError {
    return value instanceof Error && value.name === 'GatewayError' && 'kind' in value && 'details' in value
  }
}

/** The error of a request whose store fails: 503 with Retry-After. The cause is not sent to the caller. */
export function storeFault(what: string, cause?: unknown): GatewayError {
  return new GatewayError('overloaded', `The gateway's store ${what}. Nothing was served or charged. Retry later.`, {
    retryAfterSeconds: 1,
    cause,
  })
}
