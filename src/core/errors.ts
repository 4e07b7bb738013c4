import type { Json } from './json.ts'

/** Every way a request can fail, as one closed list. */
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
  /** The caller left before the answer; the response is not read. */
  | 'cancelled'
  | 'too-large'
  /** The key has stored as much as it may. */
  | 'quota-exceeded'
  | 'unsupported-media'
  | 'rate-limited'
  | 'internal'
  | 'upstream'
  | 'upstream-rejected'
  | 'upstream-rate-limited'
  | 'upstream-timeout'
  | 'overloaded'

/** What an upstream said when it blamed the caller's request; never its addresses, headers or secrets. */
export interface UpstreamRefusal {
  /** 400, 404, 409, 413 or 422: kept for `upstream-rejected`. */
  readonly status: number
  readonly type?: string
  readonly code?: string
  readonly details?: Json
}

/** The waiting advice of an upstream, passed on as it came. */
export interface RetryAdvice {
  readonly retryAfter?: string
  readonly retryAfterMs?: string
  readonly shouldRetry?: string
}

/** Details of a GatewayError: what was wrong, when to retry, and what an upstream reported. */
export interface FailureDetails {
  /** The field, header or path that was wrong. */
  readonly param?: string
  /** Replaces the code of the kind's row in the failure table. */
  readonly code?: string
  /** When to try again, in whole seconds. */
  readonly retryAfterSeconds?: number
  /** What `X-RateLimit-*` say of a request that a limit refused; `resetAt` in milliseconds since 1970. */
  readonly rate?: { readonly limit: number; readonly remaining: number; readonly resetAt: number }
  /** The methods that a path knows, for `method-not-allowed`. */
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
 * The message is written for the caller: what was wrong, what was expected, what to do; never a secret.
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

  /** True also for an error of another copy of this package. */
  static is(value: unknown): value is GatewayError {
    return value instanceof Error && value.name === 'GatewayError' && 'kind' in value && 'details' in value
  }
}

/** The error of a request whose store fails: 503 with Retry-After. The cause is never shown. */
export function storeFault(what: string, cause?: unknown): GatewayError {
  return new GatewayError('overloaded', `The gateway's store ${what}. Nothing was served or charged. Retry later.`, {
    retryAfterSeconds: 1,
    cause,
  })
}
