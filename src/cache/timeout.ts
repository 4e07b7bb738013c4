import type { Cancellation } from '../core/cancellation.ts'
import type { Runtime } from '../core/ports.ts'

export interface Timeout {
  readonly ms: number
  readonly after: Runtime['after']
  /** Cancelled when the caller disconnects. */
  readonly cancellation?: Cancellation | undefined
}

/**
 * Returns the result of `work`. A result that is ready at once is returned at once, without a timer. A promise is
 * rejected when it is late or when the caller disconnects; the signal of `work` then aborts.
 */
export function withTimeout<T>(timeout: Timeout, work: (signal: AbortSignal) => T | Promise<T>): T | Promise<T> {
  refuseCancelled(timeout)
  const ending = new AbortController()
  const result = work(ending.signal)
  return isPending(result) ? race(timeout, result, ending) : result
}

/** Like `withTimeout`, for work that cannot be aborted. */
export function withDeadline<T>(timeout: Timeout, work: () => T | Promise<T>): T | Promise<T> {
  refuseCancelled(timeout)
  const result = work()
  return isPending(result) ? race(timeout, result, undefined) : result
}

export function refuseCancelled({ cancellation }: Pick<Timeout, 'cancellation'>): void {
  if (cancellation?.isCancelled === true) throw cancellation.reason
}

async function race<T>(timeout: Timeout, work: Promise<T>, ending: AbortController | undefined): Promise<T> {
  const { cancellation, ms, after } = timeout
  let reject: (reason: unknown) => void = () => {}
  const ended = new Promise<never>((_, fail) => {
    reject = fail
  })
  const cancel = after(ms, () => reject(new Error(`no answer within ${ms} ms`)))
  const unsubscribe = cancellation?.onCancel(() => reject(cancellation.reason))
  try {
    return await Promise.race([work, ended])
  } finally {
    cancel()
    unsubscribe?.()
    ending?.abort()
  }
}

/** Returns true for a promise, also for one of another realm or library. */
export function isPending<T>(value: T | Promise<T>): value is Promise<T> {
  return typeof value === 'object' && value !== null && 'then' in value && typeof value.then === 'function'
}

/** Applies a function to a value, at once where the value is not a promise. */
export function whenReady<T, U>(value: T | Promise<T>, apply: (value: T) => U | Promise<U>): U | Promise<U> {
  return isPending(value) ? value.then(apply) : apply(value)
}
