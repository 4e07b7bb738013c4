import { type FailureDetails, type FailureKind, GatewayError, type UpstreamErrorDetails } from '../core/errors.ts'
import { asArray, asObject, asString, type Json, type JsonObject } from '../core/json.ts'
import { redactDetails, redactText } from './redact-text.ts'

const CALLER_ERROR_STATUSES: ReadonlySet<number> = new Set([400, 404, 409, 413, 422])
const GATEWAY_ERROR_STATUSES: ReadonlySet<number> = new Set([401, 402, 403])

function kindOfStatus(status: number): FailureKind {
  if (CALLER_ERROR_STATUSES.has(status)) return 'upstream-rejected'
  if (status === 429) return 'upstream-rate-limited'
  if (status === 503 || status === 529) return 'overloaded'
  if (status === 408 || status === 504) return 'upstream-timeout'
  return 'upstream'
}

const MESSAGES: Partial<Record<FailureKind, string>> = {
  'upstream-rate-limited': 'The model provider rejected the request because of its rate limit. Retry later.',
  'upstream-timeout': 'The model provider took too long to answer. Retry later, or request a shorter answer.',
  overloaded: 'The model provider is overloaded. Retry later.',
}

function messageOfStatus(kind: FailureKind, status: number): string {
  if (GATEWAY_ERROR_STATUSES.has(status)) {
    return "The model provider did not accept the gateway's credentials, permissions or payment. Notify the operator of the gateway."
  }
  return MESSAGES[kind] ?? `The model provider failed with status ${status}. Retry later.`
}

/** Keeps the upstream's message only for statuses that blame the request. */
export function readFailure(status: number, body: JsonObject | undefined): GatewayError {
  const kind = kindOfStatus(status)
  const error = errorObject(body)
  if (kind !== 'upstream-rejected') {
    const details = { ...faultDetails(status), ...retryDelayOf(error) }
    return new GatewayError(kind, messageOfStatus(kind, status), details)
  }
  const param = redactedString(error['param'])
  const message = redactedString(error['message']) ?? `The model provider rejected the request (status ${status}).`
  return new GatewayError(kind, message, {
    ...(param !== undefined && { param }),
    upstream: rejectionDetails(error, status),
  })
}

/** A retry cannot succeed if the upstream rejects the gateway's credentials, payment or permissions. */
function faultDetails(status: number): FailureDetails {
  const advice = GATEWAY_ERROR_STATUSES.has(status) && { advice: { shouldRetry: 'false' as const } }
  return { ...(status < 500 && { isLocalFault: true }), ...advice }
}

const RETRY_INFO = 'type.googleapis.com/google.rpc.RetryInfo'
const RETRY_DELAY = /^(\d{1,9}(?:\.\d{1,9})?)s$/

/** Google sends the delay in the body instead of a header. */
function retryDelayOf({ details }: JsonObject): Pick<FailureDetails, 'retryAfterSeconds' | 'advice'> {
  const info = asArray(details)
    .map(asObject)
    .find((detail) => detail?.['@type'] === RETRY_INFO)
  const delay = RETRY_DELAY.exec(asString(info?.['retryDelay']) ?? '')?.[1]
  if (delay === undefined) return {}
  const retryAfterSeconds = Number(delay)
  const milliseconds = Math.ceil(retryAfterSeconds * 1000)
  return {
    retryAfterSeconds,
    advice: { retryAfter: String(Math.ceil(retryAfterSeconds)), retryAfterMs: String(milliseconds) },
  }
}

function errorObject(body: JsonObject = {}): JsonObject {
  const { error, detail } = body
  if (typeof error === 'string') return { message: error }
  const inner = asObject(error)
  if (inner !== undefined) return inner
  if (typeof body['message'] === 'string' || detail === undefined) return body
  return { message: typeof detail === 'string' ? detail : (JSON.stringify(redactDetails(detail)) ?? '') }
}

function rejectionDetails(error: JsonObject, status: number): UpstreamErrorDetails {
  const type = redactedString(error['type'])
  const code = redactedString(error['code'])
  // Groq's field for a tool call that cannot be parsed.
  const generation = redactedString(error['failed_generation'])
  const details = generation === undefined ? redactDetails(error['details']) : { failed_generation: generation }
  return {
    status,
    ...(type === undefined || type === 'error' ? {} : { type }),
    ...(code === undefined ? {} : { code }),
    ...(details === undefined ? {} : { details }),
  }
}

function redactedString(value: Json | undefined): string | undefined {
  return typeof value === 'string' && value !== '' ? redactText(value) : undefined
}

const NAMED_STATUSES: ReadonlyMap<string, number> = new Map([
  ['invalid_request_error', 400],
  ['context_length_exceeded', 400],
  ['invalid_prompt', 400],
  ['invalid_api_key', 401],
  ['request_too_large', 413],
  ['rate_limit_error', 429],
  ['rate_limit_exceeded', 429],
  ['insufficient_quota', 429],
  ['timeout_error', 504],
  ['overloaded_error', 529],
])

/** Codes of errors that the content of the request causes, such as `invalid_image_url` and `bio_policy`. */
const CONTENT_CODE = /(?:^|_)(?:image|policy)(?:_|$)/

function namedStatus(name = ''): number | undefined {
  return NAMED_STATUSES.get(name) ?? (CONTENT_CODE.test(name) ? 400 : undefined)
}

/** Some servers send the status as `code`. The code takes precedence over the type, which is less specific. */
export function responseFailure(body: JsonObject): GatewayError {
  const { code, type } = asObject(body['error']) ?? {}
  const isStatus = typeof code === 'number' && code >= 400 && code < 600
  const status = isStatus ? code : (namedStatus(asString(code)) ?? namedStatus(asString(type)))
  if (status !== undefined) return readFailure(status, body)
  return new GatewayError('upstream', 'The model provider ended its response with an error. Retry later.')
}
