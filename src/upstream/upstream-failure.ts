import { asObject, isJsonObject, type Json, type JsonObject } from '../core/json.ts'
import { GatewayError } from '../core/errors.ts'

/** An answer nested deeper than this is none: writing it on would exhaust the stack. */
const DEEPEST = 128

/** A failure of the provider itself. The message names the provider and never its address. */
export function brokenUpstream(provider: string, what: string, cause?: unknown): GatewayError {
  return new GatewayError('upstream', `The provider "${provider}" ${what}.`, cause === undefined ? {} : { cause })
}

const CONNECT_TIMEOUT = 'UND_ERR_CONNECT_TIMEOUT'

/** What a rejected transport means: refused, reset, no such host, too many headers, no connection in time. */
export function unreachable(provider: string, connectMs: number, cause: unknown): GatewayError {
  if (GatewayError.is(cause)) return cause
  if (codeOf(cause) !== CONNECT_TIMEOUT) return brokenUpstream(provider, 'could not be reached', cause)
  const message = `The provider "${provider}" took no connection within ${connectMs / 1000} seconds.`
  return new GatewayError('upstream-timeout', message, { isUnsent: true, cause })
}

/** The JSON object of a text; undefined for every other text, and for one nested too deep. */
export function parseObject(text: string): JsonObject | undefined {
  if (isTooDeep(text)) return undefined
  try {
    return asObject(JSON.parse(text))
  } catch {
    return undefined
  }
}

function hider(secrets: readonly string[]): (text: string) => string {
  return (text) => secrets.reduce((rest, secret) => rest.replaceAll(secret, '[removed]'), text)
}

/** Replaces the provider's own secrets in a failure: some upstreams repeat the key that they refuse. */
export function withoutSecrets(failure: GatewayError, secrets: readonly string[]): GatewayError {
  const hide = hider(secrets)
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

/** True for JSON text that opens more than 128 objects and arrays within each other. Linear, and cheap on short texts. */
export function isTooDeep(text: string): boolean {
  if (text.length <= 2 * DEEPEST) return false
  let depth = 0
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at)
    if (unit === 0x22) at = endOfString(text, at)
    else if (unit === 0x7b || unit === 0x5b) depth += 1
    else if (unit === 0x7d || unit === 0x5d) depth -= 1
    if (depth > DEEPEST) return true
  }
  return false
}

/** The place of the quote that ends the string which begins at `start`. Searching is faster than looking at each unit. */
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
