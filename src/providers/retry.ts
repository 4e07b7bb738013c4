import type { Cancellation } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import type { Runtime } from '../core/ports.ts'
import { msLeft, reportFailure, type UpstreamAttempt } from './attempt.ts'

export interface FailedTry {
  readonly attempt: number
  /** True if no other candidate follows. */
  readonly isLast: boolean
  readonly error: unknown
}

const FIRST_WAIT_MS = 500
const MAX_BACKOFF_MS = 8000
/** Longest delay in `Retry-After` that the gateway waits for. Longer delays are reported to the caller. */
const MAX_ADVISED_WAIT_MS = 20_000

/**
 * Returns the delay before the next attempt in milliseconds, or undefined if the candidate must not be called again.
 * The delay is random, and its maximum doubles with each attempt (full jitter). `Retry-After` applies only if no other
 * candidate can answer.
 */
export function waitBeforeRetry({ attempt, isLast, error }: FailedTry, random: Runtime['random']): number | undefined {
  if (!isRetryable(error)) return undefined
  const advised = (error.details.retryAfterSeconds ?? 0) * 1000
  if (advised > 0 && (!isLast || advised > MAX_ADVISED_WAIT_MS)) return undefined
  const backoff = random() * Math.min(MAX_BACKOFF_MS, FIRST_WAIT_MS * 2 ** (attempt - 1))
  return Math.max(advised, backoff)
}

/** Timeouts are not retried with the same candidate, because the next candidate may be faster. */
function isRetryable(error: unknown): error is GatewayError {
  if (!GatewayError.is(error) || error.details.advice?.shouldRetry === 'false') return false
  return error.kind === 'upstream' || error.kind === 'overloaded' || error.kind === 'upstream-rate-limited'
}

/** Waits before the next attempt. If there must be none, reports the failure to the circuit and throws it. */
export async function waitForRetry(attempt: UpstreamAttempt, error: unknown): Promise<void> {
  const wait = delayAfter(attempt, error)
  if (wait === undefined) {
    reportFailure(attempt, error)
    throw error
  }
  await pause(attempt.options.runtime, wait, attempt.call.cancellation).catch((reason: unknown) => {
    attempt.pass.undecided()
    throw reason
  })
}

function delayAfter(attempt: UpstreamAttempt, error: unknown): number | undefined {
  const { options, call, circuit, number, isLastCandidate } = attempt
  if (number >= options.tries || call.cancellation.isCancelled) return undefined
  // A probe is a single call. A circuit that opens also stops the retries of active requests.
  if (options.breaker.isOpen(circuit, call.keyId)) return undefined
  const wait = waitBeforeRetry({ attempt: number, isLast: isLastCandidate, error }, options.runtime.random)
  return wait !== undefined && wait < msLeft(options, call) ? wait : undefined
}

/** Rejects with the cancellation reason if cancelled earlier. */
function pause(runtime: Pick<Runtime, 'after'>, ms: number, cancellation: Cancellation): Promise<void> {
  return new Promise((resolve, reject) => {
    let cancel: () => void = () => {}
    const unsubscribe = cancellation.onCancel(() => {
      cancel()
      reject(cancellation.reason)
    })
    if (cancellation.isCancelled) return
    cancel = runtime.after(ms, () => {
      unsubscribe()
      resolve()
    })
  })
}
