import { type FailureKind, GatewayError, type UpstreamRefusal } from '../core/errors.ts'
import { asObject, asString, type Json, type JsonObject } from '../core/json.ts'
import { upstreamDetails, upstreamText } from './upstream-text.ts'

/** Statuses that are errors of the caller's request. */
const BLAMES_CALLER: ReadonlySet<number> = new Set([400, 404, 409, 413, 422])

/** Returns the kind of failure for an upstream's status. */
function kindOfStatus(status: number): FailureKind {
  if (BLAMES_CALLER.has(status)) return 'upstream-rejected'
  if (status === 429) return 'upstream-rate-limited'
  if (status === 503 || status === 529) return 'overloaded'
  if (status === 408 || status === 504) return 'upstream-timeout'
  return 'upstream'
}

/** Messages for failures whose cause concerns only the upstream or the operator. */
const MESSAGES: Partial<Record<FailureKind, string>> = {
  'upstream-rate-limited': 'The model provider refused the request because of its rate limit. Retry later.',
  'upstream-timeout': 'The model provider took too long to answer. Retry later, or request a shorter answer.',
  overloaded: 'The model provider is overloaded. Retry later.',
}

function messageOfStatus(kind: FailureKind, status: number): string {
  if (status === 401 || status === 403) {
    return 'The model provider refused the credentials of the gateway. Notify the operator of the gateway.'
  }
  return MESSAGES[kind] ?? `The model provider failed with status ${status}. Retry later.`
}

/**
 * Reads an upstream's error, in any format. The message of an error of the caller's request is retained. Other
 * failures, such as rejected credentials of the gateway, are reported without details.
 */
export function readFailure(status: number, body: JsonObject | undefined): GatewayError {
  const kind = kindOfStatus(status)
  if (kind !== 'upstream-rejected') return new GatewayError(kind, messageOfStatus(kind, status))
  const error = errorOf(body)
  const param = textOf(error['param'])
  return new GatewayError(
    kind,
    textOf(error['message']) ?? `The model provider refused the request (status ${status}).`,
    { ...(param === undefined ? {} : { param }), upstream: refusalOf(error, status) },
  )
}

/** Returns the object that describes the error. Its field differs between servers. */
function errorOf(body: JsonObject | undefined): JsonObject {
  if (body === undefined) return {}
  const { error, detail } = body
  if (typeof error === 'string') return { message: error }
  const inner = asObject(error)
  if (inner !== undefined) return inner
  if (typeof body['message'] === 'string' || detail === undefined) return body
  return { message: typeof detail === 'string' ? detail : (JSON.stringify(upstreamDetails(detail)) ?? '') }
}

function refusalOf(error: JsonObject, status: number): UpstreamRefusal {
  const type = textOf(error['type'])
  const code = textOf(error['code'])
  const details = upstreamDetails(error['details'])
  return {
    status,
    ...(type === undefined || type === 'error' ? {} : { type }),
    ...(code === undefined ? {} : { code }),
    ...(details === undefined ? {} : { details }),
  }
}

/** Returns a string. Numeric codes only repeat the status. */
function textOf(value: Json | undefined): string | undefined {
  return typeof value === 'string' && value !== '' ? upstreamText(value) : undefined
}

const BROKE_OFF = 'The model provider ended its answer with an error. Retry later.'

/**
 * Returns the failure of an event whose code is a status. Some servers begin a stream before they validate the request.
 */
export function streamFailure(event: JsonObject): GatewayError {
  const code = asObject(event['error'])?.['code']
  if (typeof code === 'number' && code >= 400 && code < 600) return readFailure(code, event)
  return new GatewayError('upstream', BROKE_OFF)
}

const NAMED_KINDS: ReadonlyMap<string | undefined, FailureKind> = new Map([
  ['overloaded_error', 'overloaded'],
  ['rate_limit_error', 'upstream-rate-limited'],
  ['timeout_error', 'upstream-timeout'],
  ['rate_limit_exceeded', 'upstream-rate-limited'],
])

function namedFailure(name: string | undefined): GatewayError {
  const kind = NAMED_KINDS.get(name) ?? 'upstream'
  return new GatewayError(kind, MESSAGES[kind] ?? BROKE_OFF)
}

/** Returns the failure in an `error` event of the message format, or in an answer of status 200. */
export function messageFailure(event: JsonObject): GatewayError {
  return namedFailure(asString(asObject(event['error'])?.['type']))
}

/** Returns the failure in a response or in an event of the responses format. */
export function responseFailure(holder: JsonObject): GatewayError {
  return namedFailure(asString((asObject(holder['error']) ?? holder)['code']))
}
