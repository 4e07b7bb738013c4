import { GatewayError, type RetryAdvice } from '../core/errors.ts'
import { withoutSecrets } from './upstream-failure.ts'

interface Refused {
  readonly response: { readonly status: number; readonly header: (name: string) => string | undefined }
  /** Current time in milliseconds since 1970. */
  readonly now: number
  readonly secrets: readonly string[]
}

/**
 * Adds the status and the retry headers of a response to the failure parsed from its body, and removes the provider's
 * secrets.
 */
export function readRejection(failure: GatewayError, { response, now, secrets }: Refused): GatewayError {
  const { status } = response
  const advised = readAdvice(response, now)
  const refusal = new GatewayError(failure.kind, failure.message, {
    ...failure.details,
    ...advised,
    ...(refusesGateway(status) && { advice: { ...advised.advice, shouldRetry: 'false' } }),
    ...(status < 500 && { isCallerSide: true }),
  })
  return withoutSecrets(refusal, secrets)
}

/** A retry cannot succeed if the upstream rejects the gateway's credentials or permissions. */
function refusesGateway(status: number): boolean {
  return status === 401 || status === 402 || status === 403
}

/** `retry-after-ms` takes precedence over `retry-after`, which contains seconds or a date. */
export function readAdvice(
  response: { readonly header: (name: string) => string | undefined },
  now: number,
): { readonly advice?: RetryAdvice; readonly retryAfterSeconds?: number } {
  const retryAfter = response.header('retry-after')
  const retryAfterMs = response.header('retry-after-ms')
  const shouldRetry = response.header('x-should-retry')
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

function secondsFrom(value: string | undefined, perSecond: number): number | undefined {
  if (value === undefined || !/^\d+(\.\d+)?$/.test(value.trim())) return undefined
  return Math.ceil(Number(value) / perSecond)
}

function secondsUntil(value: string | undefined, now: number): number | undefined {
  // Only the HTTP date format is accepted, because Date.parse would also accept strings such as "-5".
  const at = /^[a-z]{3}, /i.test(value ?? '') ? Date.parse(value ?? '') : NaN
  return Number.isNaN(at) ? undefined : Math.max(0, Math.ceil((at - now) / 1000))
}
