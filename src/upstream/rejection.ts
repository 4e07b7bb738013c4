import { GatewayError, type RetryAdvice } from '../core/errors.ts'
import { redactSecrets } from './attempts.ts'

type GetHeader = (name: string) => string | undefined

/**
 * Adds the retry advice in a response's headers to the failure parsed from its body, classifies the failure by the
 * response's status, and removes the provider's secrets.
 */
export function addResponseDetails(
  failure: GatewayError,
  { status, header }: { readonly status: number; readonly header: GetHeader },
  now: number,
  secrets: readonly string[],
): GatewayError {
  const retry = readRetryAdvice(header, now)
  // A retry cannot succeed if the upstream rejects the gateway's credentials, payment or permissions.
  const rejectsGateway = status === 401 || status === 402 || status === 403
  const rejection = new GatewayError(failure.kind, failure.message, {
    ...failure.details,
    ...retry,
    ...(rejectsGateway && { advice: { ...retry.advice, shouldRetry: 'false' } }),
    ...(status < 500 && { isLocalFault: true }),
  })
  return redactSecrets(rejection, secrets)
}

/** `retry-after-ms` takes precedence over `retry-after`, which contains seconds or a date. */
export function readRetryAdvice(
  header: GetHeader,
  now: number,
): { readonly advice?: RetryAdvice; readonly retryAfterSeconds?: number } {
  const retryAfter = header('retry-after')
  const retryAfterMs = header('retry-after-ms')
  const shouldRetry = header('x-should-retry')
  const advice: RetryAdvice = {
    ...(retryAfter !== undefined && { retryAfter }),
    ...(retryAfterMs !== undefined && { retryAfterMs }),
    ...(shouldRetry !== undefined && { shouldRetry }),
  }
  const seconds = secondsFrom(retryAfterMs, 1000) ?? secondsFrom(retryAfter, 1) ?? secondsUntil(retryAfter, now)
  return {
    ...(Object.keys(advice).length > 0 && { advice }),
    ...(seconds !== undefined && { retryAfterSeconds: seconds }),
  }
}

function secondsFrom(value: string | undefined, unitsPerSecond: number): number | undefined {
  if (value === undefined || !/^\d+(\.\d+)?$/.test(value.trim())) return undefined
  return Math.ceil(Number(value) / unitsPerSecond)
}

function secondsUntil(value: string | undefined, now: number): number | undefined {
  // Only the HTTP date format is accepted, because Date.parse would also accept strings such as "-5".
  const retryAt = /^[a-z]{3}, /i.test(value ?? '') ? Date.parse(value ?? '') : NaN
  return Number.isNaN(retryAt) ? undefined : Math.max(0, Math.ceil((retryAt - now) / 1000))
}
