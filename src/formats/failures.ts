import type { SseEvent } from '../core/completion.ts'
import { type FailureKind, failureStatus, type GatewayError } from '../core/errors.ts'
import type { Json, JsonObject } from '../core/json.ts'

const FAILURE_DEFAULTS: Readonly<Record<FailureKind, { readonly type: string; readonly code?: string }>> = {
  'invalid-request': { type: 'invalid_request_error' },
  'invalid-admin-request': { type: 'validation_error' },
  'invalid-model': { type: 'invalid_request_error', code: 'invalid_model' },
  unauthenticated: { type: 'authentication_error', code: 'invalid_api_key' },
  'budget-exceeded': { type: 'budget_exceeded_error', code: 'budget_exceeded' },
  'model-not-allowed': { type: 'permission_error', code: 'model_not_allowed' },
  'not-permitted': { type: 'permission_error', code: 'not_permitted' },
  'tools-disabled': { type: 'permission_error', code: 'tools_disabled' },
  'max-tokens-exceeded': { type: 'permission_error', code: 'max_tokens_exceeded' },
  'not-found': { type: 'invalid_request_error' },
  'method-not-allowed': { type: 'invalid_request_error' },
  'request-timeout': { type: 'invalid_request_error', code: 'request_timeout' },
  conflict: { type: 'invalid_request_error' },
  cancelled: { type: 'invalid_request_error', code: 'request_cancelled' },
  'too-large': { type: 'invalid_request_error', code: 'request_too_large' },
  'quota-exceeded': { type: 'invalid_request_error', code: 'storage_quota_exceeded' },
  'unsupported-media': { type: 'invalid_request_error' },
  'upgrade-required': { type: 'invalid_request_error', code: 'websocket_not_supported' },
  'rate-limited': { type: 'rate_limit_error', code: 'rate_limit_exceeded' },
  internal: { type: 'api_error' },
  upstream: { type: 'upstream_error' },
  'upstream-rejected': { type: 'invalid_request_error' },
  'upstream-rate-limited': { type: 'rate_limit_error', code: 'upstream_rate_limited' },
  'upstream-timeout': { type: 'upstream_error', code: 'upstream_timeout' },
  overloaded: { type: 'overloaded_error' },
}

interface FailureDescription {
  readonly status: number
  readonly type: string
  readonly message: string
  readonly param: string | undefined
  readonly code: string | undefined
  readonly retryAfterSeconds: number | undefined
  readonly details: Json | undefined
}

export function describeFailure(failure: GatewayError): FailureDescription {
  const { kind, message, details } = failure
  const { upstream } = details
  return {
    status: failureStatus(failure),
    type: upstream?.type ?? FAILURE_DEFAULTS[kind].type,
    message,
    param: details.param ?? (kind === 'invalid-model' ? 'model' : undefined),
    code: details.code ?? upstream?.code ?? FAILURE_DEFAULTS[kind].code,
    retryAfterSeconds: details.retryAfterSeconds === undefined ? undefined : Math.ceil(details.retryAfterSeconds),
    details: details.details ?? upstream?.details,
  }
}

const MAX_RETRY_SECONDS = 60

const MILLISECONDS = /^\d{1,15}(\.\d{1,9})?$/
const RETRY_AFTER = /^(\d{1,15}(\.\d{1,9})?|[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT)$/
const BOOLEAN = /^(true|false)$/

const KINDS_WITH_UPSTREAM_ADVICE: ReadonlySet<FailureKind> = new Set([
  'upstream-rejected',
  'upstream-rate-limited',
  'overloaded',
])

export function failureHeaders(failure: GatewayError): Record<string, string> {
  const headers: Record<string, string> = {}
  const { details } = failure
  const advice = KINDS_WITH_UPSTREAM_ADVICE.has(failure.kind) ? details.advice : undefined
  const seconds = details.retryAfterSeconds === undefined ? undefined : String(Math.ceil(details.retryAfterSeconds))
  setIfMatching(headers, 'retry-after', advice?.retryAfter ?? seconds, RETRY_AFTER)
  setIfMatching(headers, 'retry-after-ms', advice?.retryAfterMs, MILLISECONDS)
  // Official clients retry every 409, even a permanent conflict, unless this header advises against a retry.
  setIfMatching(headers, 'x-should-retry', details.advice?.shouldRetry, BOOLEAN)
  const waitSeconds = Number(headers['retry-after'] ?? 0)
  const discouragesRetry = failure.kind === 'budget-exceeded' || waitSeconds > MAX_RETRY_SECONDS
  if (discouragesRetry && headers['x-should-retry'] === undefined) headers['x-should-retry'] = 'false'
  if (failure.kind === 'method-not-allowed') headers['allow'] = (details.allow ?? []).join(', ')
  // HTTP requires both headers. They name the protocol to use instead.
  if (failure.kind === 'upgrade-required') Object.assign(headers, { upgrade: 'HTTP/1.1', connection: 'Upgrade' })
  return headers
}

function setIfMatching(
  headers: Record<string, string>,
  name: string,
  value: string | undefined,
  pattern: RegExp,
): void {
  if (value !== undefined && pattern.test(value)) headers[name] = value
}

export function writeChatFailure(failure: GatewayError): JsonObject {
  const { message, type, param, code, retryAfterSeconds, details } = describeFailure(failure)
  return {
    error: {
      message,
      type,
      param: param ?? null,
      code: code ?? null,
      retry_after: retryAfterSeconds,
      details,
    },
  }
}

export function writeChatFailureEvent(failure: GatewayError): SseEvent {
  return { data: JSON.stringify(writeChatFailure(failure)) }
}

/** The official client selects some error classes by `details.error_code`. */
export function writeMessageFailure(failure: GatewayError, requestId: string): JsonObject {
  const { type, message, param, code, retryAfterSeconds, details } = describeFailure(failure)
  return {
    type: 'error',
    error: { type, message, param, code, retry_after: retryAfterSeconds, details },
    request_id: requestId,
  }
}

export function writeMessageFailureEvent(failure: GatewayError, requestId: string): SseEvent {
  return { event: 'error', data: JSON.stringify(writeMessageFailure(failure, requestId)) }
}

/** Clients read the fields at the top level, as the vendor documents, or in `error`, as its servers send them. */
export function writeResponseFailureEvent(failure: GatewayError, sequenceNumber: number): SseEvent {
  const { message, type, param, code } = describeFailure(failure)
  const fields = { code: code ?? type, message, param: param ?? null }
  const data = { type: 'error', sequence_number: sequenceNumber, ...fields, error: { type, ...fields } }
  return { event: 'error', data: JSON.stringify(data) }
}
