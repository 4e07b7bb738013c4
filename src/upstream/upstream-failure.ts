import { isJsonObject, type Json, type JsonObject } from '../core/json.ts'
import { GatewayError } from '../core/errors.ts'

/** `what` completes "The provider …". The message does not contain the provider's address. */
export function brokenUpstream(provider: string, what: string, cause?: unknown): GatewayError {
  return new GatewayError('upstream', `The provider "${provider}" ${what}.`, cause === undefined ? {} : { cause })
}

const CONNECT_TIMEOUT = 'UND_ERR_CONNECT_TIMEOUT'

/**
 * Returns the error of a call that got no response: connection refused or reset, unknown host, too many headers, or
 * connect timeout.
 */
export function unreachable(provider: string, connectMs: number, cause: unknown): GatewayError {
  if (GatewayError.is(cause)) return cause
  if (codeOf(cause) !== CONNECT_TIMEOUT) return brokenUpstream(provider, 'could not be reached', cause)
  const message = `The provider "${provider}" did not accept a connection within ${connectMs / 1000} seconds.`
  return new GatewayError('upstream-timeout', message, { isUnsent: true, cause })
}

function secretRemover(secrets: readonly string[]): (text: string) => string {
  return (text) => secrets.reduce((rest, secret) => rest.replaceAll(secret, '[removed]'), text)
}

/** Removes the provider's secrets from a failure, because some upstreams repeat a rejected key in their errors. */
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

function codeOf(cause: unknown): unknown {
  return typeof cause === 'object' && cause !== null && 'code' in cause ? cause.code : undefined
}

export function tooSlow(name: string, ms: number): GatewayError {
  return new GatewayError('upstream-timeout', `The provider "${name}" did not answer within ${ms / 1000} seconds.`)
}
