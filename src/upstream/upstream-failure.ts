import { isJsonObject, type Json, type JsonObject } from '../core/json.ts'
import { GatewayError } from '../core/errors.ts'

/** `problem` completes "The provider …". The message does not contain the provider's address. */
export function upstreamError(provider: string, problem: string, cause?: unknown): GatewayError {
  return new GatewayError('upstream', `The provider "${provider}" ${problem}.`, cause === undefined ? {} : { cause })
}

/**
 * Returns the error of a call that received no response: connection refused or reset, unknown host, too many headers, or
 * connect timeout.
 */
export function connectError(provider: string, connectMs: number, cause: unknown): GatewayError {
  if (GatewayError.is(cause)) return cause
  const code = typeof cause === 'object' && cause !== null && 'code' in cause ? cause.code : undefined
  if (code !== 'UND_ERR_CONNECT_TIMEOUT') return upstreamError(provider, 'could not be reached', cause)
  const message = `The provider "${provider}" did not accept a connection within ${connectMs / 1000} seconds.`
  return new GatewayError('upstream-timeout', message, { isUnsent: true, cause })
}

/** Removes the provider's secrets from a failure, because some upstreams repeat a rejected key in their errors. */
export function redactSecrets(failure: GatewayError, secrets: readonly string[]): GatewayError {
  const redact = (text: string): string =>
    secrets.reduce((redacted, secret) => redacted.replaceAll(secret, '[removed]'), text)
  const { param, upstream } = failure.details
  return new GatewayError(failure.kind, redact(failure.message), {
    ...failure.details,
    ...(param !== undefined && { param: redact(param) }),
    ...(upstream !== undefined && {
      upstream: { ...(redactJson({ ...upstream }, redact) as JsonObject), status: upstream.status },
    }),
  })
}

function redactJson(value: Json, redact: (text: string) => string): Json {
  if (typeof value === 'string') return redact(value)
  if (Array.isArray(value)) return value.map((item: Json) => redactJson(item, redact))
  if (!isJsonObject(value)) return value
  const fields = Object.entries(value).map(([name, field]) => [redact(name), redactJson(field ?? null, redact)])
  return Object.fromEntries(fields) as JsonObject
}

export function timeoutError(provider: string, ms: number): GatewayError {
  return new GatewayError('upstream-timeout', `The provider "${provider}" did not answer within ${ms / 1000} seconds.`)
}
