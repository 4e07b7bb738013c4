import type { Cancellation } from '../core/cancellation.ts'
import { GatewayError } from '../core/errors.ts'
import type { Runtime } from '../core/ports.ts'

/** A try that failed. */
export interface FailedTry {
  /** 1 for the first. */
  readonly attempt: number
  /** True when no other candidate follows. */
  readonly isLast: boolean
  readonly error: unknown
}

const FIRST_WAIT_MS = 500
const MAX_BACKOFF_MS = 8000
/** Maximum delay before a retry. Longer delays are reported to the caller instead. */
const MAX_ADVISED_WAIT_MS = 20_000

/**
 * Returns the delay before the next try in milliseconds, or undefined if the candidate must not be tried again.
 * The wait is random and its maximum doubles with each try (full jitter). `Retry-After` of the upstream is
 * obeyed only if no other candidate can answer.
 */
export function waitBeforeRetry({ attempt, isLast, error }: FailedTry, random: Runtime['random']): number | undefined {
  if (!isWorthRetrying(error)) return undefined
  const advised = (error.details.retryAfterSeconds ?? 0) * 1000
  if (advised > 0 && (!isLast || advised > MAX_ADVISED_WAIT_MS)) return undefined
  const backoff = random() * Math.min(MAX_BACKOFF_MS, FIRST_WAIT_MS * 2 ** (attempt - 1))
  return Math.max(advised, backoff)
}

/** Timeouts are not retried on the same candidate: the next candidate may be faster. */
function isWorthRetrying(error: unknown): error is GatewayError {
  if (!GatewayError.is(error) || error.details.advice?.shouldRetry === 'false') return false
  return error.kind === 'upstream' || error.kind === 'overloaded' || error.kind === 'upstream-rate-limited'
}

/** Resolves after `ms`. Rejects with the reason as soon as the request is cancelled. */
export function pause(runtime: Pick<Runtime, 'after'>, ms: number, cancellation: Cancellation): Promise<void> {
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
