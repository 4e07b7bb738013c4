import type { Json } from './json.ts'

/** Kinds of request failures. */
export type FailureKind =
  | 'invalid-request'
  | 'invalid-admin-request'
  | 'invalid-model'
  | 'unauthenticated'
  | 'budget-exceeded'
  | 'model-not-allowed'
  /** The key or the customer may not do this. */
  | 'not-permitted'
  | 'tools-disabled'
  | 'max-tokens-exceeded'
  | 'not-found'
  | 'method-not-allowed'
  | 'request-timeout'
  | 'conflict'
  /** The client disconnected, or the gateway canceled the request. */
  | 'cancelled'
  | 'too-large'
  | 'quota-exceeded'
  | 'unsupported-media'
  | 'upgrade-required'
  | 'rate-limited'
  | 'internal'
  | 'upstream'
  | 'upstream-rejected'
  | 'upstream-rate-limited'
  | 'upstream-timeout'
  | 'overloaded'

/** The upstream's error, without secrets. */
export interface UpstreamErrorDetails {
  readonly status: number
  readonly type?: string
  readonly code?: string
  readonly details?: Json
}

/** Retry headers for the caller: those of the upstream, as received, or `shouldRetry` set by the gateway. */
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
  readonly retryAfterSeconds?: number
  /** Values of the `X-RateLimit-*` headers. `resetAt` is in milliseconds since 1970. */
  readonly rate?: { readonly limit: number; readonly remaining: number; readonly resetAt: number }
  /** The methods that the path supports. Set for `method-not-allowed`. */
  readonly allow?: readonly string[]
  readonly upstream?: UpstreamErrorDetails
  readonly advice?: RetryAdvice
  readonly details?: Json
  /** If true, the circuit breaker does not count the failure against the upstream. @default false */
  readonly isLocalFault?: boolean
  /** If true, no provider is called again, because the response would be the same and cost as much. @default false */
  readonly isFinal?: boolean
  /** True if the request timed out before it was sent. The upstream does not bill such a request. */
  readonly isUnsent?: boolean
  readonly cause?: unknown
}

/**
 * The error of a failed call. The message is sent to the caller and contains no secrets.
 *
 * @example
 * try {
 *   await gateway.keys.create({ name: 'app', budgetLimitCents: -1 })
 * } catch (error) {
 *   if (GatewayError.is(error)) console.log(error.kind, error.message)
 * }
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

const FAILURE_STATUSES: Readonly<Record<FailureKind, number>> = {
  'invalid-request': 400,
  'invalid-admin-request': 400,
  'invalid-model': 404,
  unauthenticated: 401,
  'budget-exceeded': 402,
  'model-not-allowed': 403,
  'not-permitted': 403,
  'tools-disabled': 403,
  'max-tokens-exceeded': 403,
  'not-found': 404,
  'method-not-allowed': 405,
  'request-timeout': 408,
  conflict: 409,
  cancelled: 499,
  'too-large': 413,
  'quota-exceeded': 400,
  'unsupported-media': 415,
  'upgrade-required': 426,
  'rate-limited': 429,
  internal: 500,
  upstream: 502,
  'upstream-rejected': 400,
  'upstream-rate-limited': 429,
  'upstream-timeout': 504,
  overloaded: 503,
}

/** The HTTP status of the response to the caller. */
export function failureStatus({ kind, details }: GatewayError): number {
  const upstreamStatus = kind === 'upstream-rejected' ? details.upstream?.status : undefined
  return upstreamStatus ?? FAILURE_STATUSES[kind]
}

/** For a response that exceeds a limit, which a caller can request on purpose. */
export function withoutRetries({ kind, message, details }: GatewayError): GatewayError {
  return new GatewayError(kind, message, { ...details, advice: { shouldRetry: 'false' }, isFinal: true })
}

/** The cause is not sent to the caller. */
export function storeError(problem: string, cause?: unknown): GatewayError {
  return new GatewayError('overloaded', `The gateway's store ${problem}. Retry later.`, { retryAfterSeconds: 1, cause })
}
