import type { Cancellation } from '../core/async.ts'
import { GatewayError, type RetryAdvice } from '../core/errors.ts'
import type { Runtime } from '../core/ports.ts'
import type { CircuitBreaker } from './circuit-breaker.ts'
import type { ResponseHeader } from './http-call.ts'

const BASE_BACKOFF_MS = 500
const MAX_BACKOFF_MS = 8000
/** Longer advised delays are left to the caller. */
const MAX_ADVISED_WAIT_MS = 20_000

interface FailedAttempt {
  readonly options: {
    readonly runtime: Pick<Runtime, 'after' | 'random'>
    readonly tries: number
    readonly breaker: Pick<CircuitBreaker, 'isOpen'>
  }
  readonly call: { readonly scope: string; readonly cancellation: Cancellation }
  readonly circuit: string
  readonly number: number
  readonly isLastCandidate: boolean
}

/** Full jitter. If a delay is advised, only the last candidate is retried, because the next one may answer sooner. */
export function retryDelayMs(
  { number, isLastCandidate }: Pick<FailedAttempt, 'number' | 'isLastCandidate'>,
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

/** Resolves with true after the delay, or with false if a retry is not allowed. Rejects if canceled meanwhile. */
export async function waitForRetry(attempt: FailedAttempt, error: unknown, remainingMs: number): Promise<boolean> {
  const { options, call, circuit, number } = attempt
  if (number >= options.tries || call.cancellation.isCanceled) return false
  // A probe is a single call. A circuit that opens also stops the retries of active requests.
  if (options.breaker.isOpen(circuit, call.scope)) return false
  const waitMs = retryDelayMs(attempt, error, options.runtime.random)
  if (waitMs === undefined || waitMs >= remainingMs) return false
  await pause(options.runtime, waitMs, call.cancellation)
  return true
}

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

export function addRetryAdvice(failure: GatewayError, header: ResponseHeader, now: number): GatewayError {
  const retry = readRetryAdvice(header, now)
  const { advice } = failure.details
  return new GatewayError(failure.kind, failure.message, {
    ...failure.details,
    ...retry,
    ...(advice !== undefined && { advice: { ...retry.advice, ...advice } }),
  })
}

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
