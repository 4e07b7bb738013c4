import { GatewayError, type FailureKind, type UpstreamRefusal } from '../../core/errors.ts'
import { asObject, asString, isJsonObject, type JsonObject } from '../../core/json.ts'
import { upstreamFailureKind } from '../failures.ts'
import { upstreamDetails, upstreamText } from '../upstream-text.ts'

/** Messages for failures whose cause concerns only the upstream or the operator. */
const MESSAGES: Partial<Record<FailureKind, string>> = {
  'upstream-rejected': 'The upstream refused the request and gave no reason.',
  'upstream-rate-limited': 'The upstream refused the request because of its rate limit. Retry later.',
  'upstream-timeout': 'The upstream took too long to answer. Retry, or request a shorter answer.',
  overloaded: 'The upstream is overloaded. Try again later.',
}

function messageOf(kind: FailureKind, status: number): string {
  if (status === 401 || status === 403) return "The upstream refused the gateway's own credentials. Tell its operator."
  return MESSAGES[kind] ?? `The upstream failed with status ${status}. Try again later.`
}

/** Reads an upstream's error. Its message is passed on only when it blames the caller's request. */
export function readFailure(status: number, body: JsonObject | undefined): GatewayError {
  const kind = upstreamFailureKind(status)
  if (kind !== 'upstream-rejected') return new GatewayError(kind, messageOf(kind, status))
  const error = asObject(body?.['error']) ?? body
  const message = asString(error?.['message']) ?? asString(body?.['error'])
  const param = asString(error?.['param'])
  return new GatewayError(kind, message === undefined ? messageOf(kind, status) : upstreamText(message), {
    ...(param === undefined ? {} : { param: upstreamText(param) }),
    upstream: refusalOf(status, error),
  })
}

function refusalOf(status: number, error: JsonObject | undefined): UpstreamRefusal {
  const type = asString(error?.['type'])
  const code = asString(error?.['code'])
  const given = error?.['details']
  const details = isJsonObject(given) ? upstreamDetails(given) : undefined
  return {
    status,
    ...(type === undefined || type === 'error' ? {} : { type: upstreamText(type) }),
    ...(code === undefined ? {} : { code: upstreamText(code) }),
    ...(details === undefined ? {} : { details }),
  }
}

/** Kinds of errors inside a stream, or inside an answer of status 200. */
const EVENT_KINDS: ReadonlyMap<string, FailureKind> = new Map([
  ['overloaded_error', 'overloaded'],
  ['rate_limit_error', 'upstream-rate-limited'],
  ['timeout_error', 'upstream-timeout'],
])

const BROKE_OFF = 'The upstream broke off its answer with an error. Try again later.'

/** Returns the failure in an `error` event. */
export function errorEvent(data: JsonObject): GatewayError {
  const kind = EVENT_KINDS.get(asString(asObject(data['error'])?.['type']) ?? '') ?? 'upstream'
  return new GatewayError(kind, MESSAGES[kind] ?? BROKE_OFF)
}
