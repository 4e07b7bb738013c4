import type { Cancellation } from '../core/async.ts'
import { GatewayError, type RetryAdvice } from '../core/errors.ts'
import type { Runtime } from '../core/ports.ts'
import { remainingMs, reportFailure, type UpstreamAttempt } from './attempt.ts'
import type { ResponseHeader } from './http-call.ts'

const BASE_BACKOFF_MS = 500
const MAX_BACKOFF_MS = 8000
/** Maximum `Retry-After` delay that the gateway waits, in milliseconds. Longer delays are reported to the caller. */
const MAX_ADVISED_WAIT_MS = 20_000

/**
 * Returns the delay in milliseconds before the next attempt, or undefined if the candidate must not be called again.
 * The delay is random, and its maximum doubles with each attempt (full jitter). If the upstream advised a delay, it is
 * the minimum, and the candidate is called again only if it is the last one.
 */
export function retryDelayMs(
  { number, isLastCandidate }: Pick<UpstreamAttempt, 'number' | 'isLastCandidate'>,
  error: unknown,
  random: Runtime['random'],
): number | undefined {
  if (!isRetryable(error)) return undefined
  const advisedMs = (error.details.retryAfterSeconds ?? 0) * 1000
  if (advisedMs > 0 && (!isLastCandidate || advisedMs > MAX_ADVISED_WAIT_MS)) return undefined
  const backoffMs = random() * Math.min(MAX_BACKOFF_MS, BASE_BACKOFF_MS * 2 ** (number - 1))
  return Math.max(advisedMs, backoffMs)
}

/** Timeouts are not retried with the same candidate, because the next candidate may be faster. */
function isRetryable(error: unknown): error is GatewayError {
  if (!GatewayError.is(error) || error.details.advice?.shouldRetry === 'false') return false
  return error.kind === 'upstream' || error.kind === 'overloaded' || error.kind === 'upstream-rate-limited'
}

/** Waits before the next attempt. If no attempt may follow, reports the failure to the circuit breaker and throws it. */
export async function waitForRetry(attempt: UpstreamAttempt, error: unknown): Promise<void> {
  const waitMs = allowedDelayMs(attempt, error)
  if (waitMs === undefined) {
    reportFailure(attempt, error)
    throw error
  }
  await pause(attempt.options.runtime, waitMs, attempt.call.cancellation).catch((reason: unknown) => {
    attempt.permit.discard()
    throw reason
  })
}

function allowedDelayMs(attempt: UpstreamAttempt, error: unknown): number | undefined {
  const { options, call, circuit, number } = attempt
  if (number >= options.tries || call.cancellation.isCanceled) return undefined
  // A probe is a single call. A circuit that opens also stops the retries of active requests.
  if (options.breaker.isOpen(circuit, call.keyId)) return undefined
  const waitMs = retryDelayMs(attempt, error, options.runtime.random)
  return waitMs !== undefined && waitMs < remainingMs(options, call) ? waitMs : undefined
}

/** Resolves after `ms` milliseconds. Rejects with the cancellation reason if the request is canceled first. */
function pause(runtime: Pick<Runtime, 'after'>, ms: number, cancellation: Cancellation): Promise<void> {
  return new Promise((resolve, reject) => {
    let cancel: () => void = () => {}
    const unsubscribe = cancellation.onCancel(() => {
      cancel()
      reject(cancellation.reason)
    })
    if (cancellation.isCanceled) return
    cancel = runtime.after(ms, () => {
      unsubscribe()
      resolve()
    })
  })
}

/** Adds the retry advice in a response's headers to the failure parsed from its body, whose own advice takes precedence. */
export function addRetryAdvice(failure: GatewayError, header: ResponseHeader, now: number): GatewayError {
  const retry = readRetryAdvice(header, now)
  const { advice } = failure.details
  return new GatewayError(failure.kind, failure.message, {
    ...failure.details,
    ...retry,
    ...(advice !== undefined && { advice: { ...retry.advice, ...advice } }),
  })
}

/** `retry-after-ms` takes precedence over `retry-after`, which contains seconds or a date. */
export function readRetryAdvice(
  header: ResponseHeader,
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
