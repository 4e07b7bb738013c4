import type { Json } from './json.ts'

/** Kinds of request failures. */
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
  /** The client disconnected, or the gateway canceled the request. Nothing is sent to a disconnected client. */
  | 'cancelled'
  | 'too-large'
  | 'quota-exceeded'
  | 'unsupported-media'
  | 'rate-limited'
  | 'internal'
  | 'upstream'
  | 'upstream-rejected'
  | 'upstream-rate-limited'
  | 'upstream-timeout'
  | 'overloaded'

/** The upstream's error. Contains no addresses, headers or secrets. */
export interface UpstreamErrorDetails {
  /** 400, 404, 409, 413 or 422 for `upstream-rejected`. */
  readonly status: number
  readonly type?: string
  readonly code?: string
  readonly details?: Json
}

/** Retry headers of an upstream, as received. */
export interface RetryAdvice {
  readonly retryAfter?: string
  readonly retryAfterMs?: string
  readonly shouldRetry?: string
}

/** Details of a failure, such as the invalid field or the delay before a retry. */
export interface FailureDetails {
  readonly param?: string
  /** Overrides the default code of the kind. */
  readonly code?: string
  /** Delay before a retry, in whole seconds. */
  readonly retryAfterSeconds?: number
  /** Values of the `X-RateLimit-*` headers. `resetAt` is in milliseconds since 1970. */
  readonly rate?: { readonly limit: number; readonly remaining: number; readonly resetAt: number }
  /** The methods that the path supports. Set for `method-not-allowed`. */
  readonly allow?: readonly string[]
  readonly upstream?: UpstreamErrorDetails
  readonly advice?: RetryAdvice
  readonly details?: Json
  /** True if the caller or the gateway caused the failure. Circuit breakers do not count such failures. */
  readonly isLocalFault?: boolean
  /** True if the request timed out before it was sent. The upstream does not bill such a request. */
  readonly isUnsent?: boolean
  readonly cause?: unknown
}

/**
 * The error of a failed call. `kind` determines the default status, type and code in each format. The message is sent to
 * the caller and contains no secrets.
 */
export class GatewayError extends Error {
  readonly kind: FailureKind
  readonly details: FailureDetails

  constructor(kind: FailureKind, message: string, details: FailureDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause })
    this.kind = kind
    this.details = details
  }

  override get name(): 'GatewayError' {
    return 'GatewayError'
  }

  /** Returns true for errors of this class, including those of another copy of this package. */
  static is(value: unknown): value is GatewayError {
    return value instanceof Error && value.name === 'GatewayError' && 'kind' in value && 'details' in value
  }
}

/** Returns the error for a store failure: 503 with Retry-After. The cause is not sent to the caller. */
export function storeError(problem: string, cause?: unknown): GatewayError {
  return new GatewayError(
    'overloaded',
    `The gateway's store ${problem}. The request was not processed or billed. Retry later.`,
    { retryAfterSeconds: 1, cause },
  )
}
