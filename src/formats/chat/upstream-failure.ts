import { GatewayError, type UpstreamRefusal } from '../../core/errors.ts'
import { asObject, asString, type Json, type JsonObject } from '../../core/json.ts'
import { upstreamFailureKind } from '../failures.ts'
import { upstreamDetails, upstreamText } from '../upstream-text.ts'

/**
 * Reads an upstream's error. Its message is kept when it blames the caller's request. Other failures, such as rejected
 * credentials of the gateway, are reported without details.
 */
export function readFailure(status: number, body: JsonObject | undefined): GatewayError {
  const kind = upstreamFailureKind(status)
  if (kind !== 'upstream-rejected') return new GatewayError(kind, OWN_WORDS[kind] ?? `${TROUBLE} (status ${status}).`)
  const error = errorOf(body)
  const param = textOf(error['param'])
  return new GatewayError(kind, messageOf(error, status), {
    ...(param === undefined ? {} : { param }),
    upstream: refusalOf(error, status),
  })
}

const TROUBLE = 'The model provider failed to answer'

const OWN_WORDS: Readonly<Partial<Record<string, string>>> = {
  'upstream-rate-limited': 'The model provider refused the request because of its rate limit. Retry later.',
  overloaded: 'The model provider is overloaded. Retry later.',
  'upstream-timeout': 'The model provider took too long to answer. Retry later.',
}

/** The object that describes the error: servers disagree about its place. */
function errorOf(body: JsonObject | undefined): JsonObject {
  if (body === undefined) return {}
  const { error, detail } = body
  if (typeof error === 'string') return { message: error }
  const inner = asObject(error)
  if (inner !== undefined) return inner
  return typeof body['message'] === 'string' || detail === undefined ? body : { message: wordsOf(detail) }
}

function wordsOf(detail: Json): string {
  return typeof detail === 'string' ? detail : (JSON.stringify(upstreamDetails(detail)) ?? '')
}

function messageOf(error: JsonObject, status: number): string {
  const message = asString(error['message']) ?? ''
  return message === '' ? `The model provider refused the request (status ${status}).` : upstreamText(message)
}

function refusalOf(error: JsonObject, status: number): UpstreamRefusal {
  const type = textOf(error['type'])
  const code = textOf(error['code'])
  const details = upstreamDetails(error['details'])
  return {
    status,
    ...(type === undefined ? {} : { type }),
    ...(code === undefined ? {} : { code }),
    ...(details === undefined ? {} : { details }),
  }
}

/** Codes are strings in this format. A number only repeats the status. */
function textOf(value: Json | undefined): string | undefined {
  return typeof value === 'string' && value !== '' ? upstreamText(value) : undefined
}
