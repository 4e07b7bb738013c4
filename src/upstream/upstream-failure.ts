import { asObject, isJsonObject, type Json, type JsonObject } from '../core/json.ts'
import { GatewayError } from '../core/errors.ts'

/** Maximum nesting of an answer. Serializing deeper values would exhaust the stack. */
const MAX_DEPTH = 128

/** Returns a failure of the provider. The message names the provider and never its address. */
export function brokenUpstream(provider: string, what: string, cause?: unknown): GatewayError {
  return new GatewayError('upstream', `The provider "${provider}" ${what}.`, cause === undefined ? {} : { cause })
}

const CONNECT_TIMEOUT = 'UND_ERR_CONNECT_TIMEOUT'

/** Returns the failure for a rejected transport: refused, reset, unknown host, too many headers, connect timeout. */
export function unreachable(provider: string, connectMs: number, cause: unknown): GatewayError {
  if (GatewayError.is(cause)) return cause
  if (codeOf(cause) !== CONNECT_TIMEOUT) return brokenUpstream(provider, 'could not be reached', cause)
  const message = `The provider "${provider}" did not accept a connection within ${connectMs / 1000} seconds.`
  return new GatewayError('upstream-timeout', message, { isUnsent: true, cause })
}

/** Parses a JSON object. Returns undefined for other text and for text that is nested too deeply. */
export function parseObject(text: string): JsonObject | undefined {
  if (isTooDeep(text)) return undefined
  try {
    return asObject(JSON.parse(text))
  } catch {
    return undefined
  }
}

function secretRemover(secrets: readonly string[]): (text: string) => string {
  return (text) => secrets.reduce((rest, secret) => rest.replaceAll(secret, '[removed]'), text)
}

/** Removes the provider's secrets from a failure, because some upstreams repeat a refused key. */
export function withoutSecrets(failure: GatewayError, secrets: readonly string[]): GatewayError {
  const hide = secretRemover(secrets)
  const { param, upstream } = failure.details
  return new GatewayError(failure.kind, hide(failure.message), {
    ...failure.details,
    ...(param !== undefined && { param: hide(param) }),
    ...(upstream !== undefined && {
      upstream: { ...(hideIn({ ...upstream }, hide) as JsonObject), status: upstream.status },
    }),
  })
}

function hideIn(value: Json, hide: (text: string) => string): Json {
  if (typeof value === 'string') return hide(value)
  if (Array.isArray(value)) return value.map((item: Json) => hideIn(item, hide))
  if (!isJsonObject(value)) return value
  const fields = Object.entries(value).map(([name, field]) => [hide(name), hideIn(field ?? null, hide)])
  return Object.fromEntries(fields) as JsonObject
}

/** Returns true for JSON text with more than 128 nested objects and arrays. Takes linear time. */
export function isTooDeep(text: string): boolean {
  if (text.length <= 2 * MAX_DEPTH) return false
  let depth = 0
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at)
    if (unit === 0x22) at = endOfString(text, at)
    else if (unit === 0x7b || unit === 0x5b) depth += 1
    else if (unit === 0x7d || unit === 0x5d) depth -= 1
    if (depth > MAX_DEPTH) return true
  }
  return false
}

/**
 * Returns the index of the quote that ends the string at `start`. Uses `indexOf`, which is faster than reading each
 * unit.
 */
function endOfString(text: string, start: number): number {
  for (let quote = text.indexOf('"', start + 1); quote !== -1; quote = text.indexOf('"', quote + 1)) {
    let backslashes = 0
    while (text.charCodeAt(quote - 1 - backslashes) === 0x5c) backslashes += 1
    if (backslashes % 2 === 0) return quote
  }
  return text.length
}

function codeOf(cause: unknown): unknown {
  return typeof cause === 'object' && cause !== null && 'code' in cause ? cause.code : undefined
}

export function tooSlow(name: string, ms: number): GatewayError {
  return new GatewayError('upstream-timeout', `The provider "${name}" did not answer within ${ms / 1000} seconds.`)
}
