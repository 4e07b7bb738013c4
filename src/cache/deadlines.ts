import { type Cancellation, isThenable, type MaybePromise, withTimeout } from '../core/async.ts'
import type { AnswerStore, VectorIndex } from '../core/cache-ports.ts'
import type { Runtime } from '../core/ports.ts'

export interface Timeout {
  readonly ms: number
  readonly after: Runtime['after']
  readonly cancellation?: Cancellation | undefined
}

/**
 * Returns the result of `work`. If it is a promise, a timeout or a disconnected caller rejects the returned promise and
 * aborts the signal passed to `work`.
 */
export function runAbortable<T>(timeout: Timeout, work: (signal: AbortSignal) => MaybePromise<T>): MaybePromise<T> {
  throwIfCanceled(timeout)
  const controller = new AbortController()
  const result = work(controller.signal)
  return isThenable(result) ? applyTimeout(timeout, result).finally(() => controller.abort()) : result
}

/** Like `runAbortable`, for work that cannot be aborted. */
export function runWithTimeout<T>(timeout: Timeout, work: () => MaybePromise<T>): MaybePromise<T> {
  throwIfCanceled(timeout)
  const result = work()
  return isThenable(result) ? applyTimeout(timeout, result) : result
}

export function throwIfCanceled({ cancellation }: Pick<Timeout, 'cancellation'>): void {
  if (cancellation?.isCanceled === true) throw cancellation.reason
}

function applyTimeout<T>(timeout: Timeout, work: Promise<T>): Promise<T> {
  const createError = (): Error => new Error(`A cache component took longer than ${timeout.ms} ms.`)
  return withTimeout(work, { ...timeout, createError })
}

/** Applies a function to a value, synchronously if the value is not a promise. */
export function whenReady<T, U>(value: MaybePromise<T>, apply: (value: T) => MaybePromise<U>): MaybePromise<U> {
  return isThenable(value) ? value.then(apply) : apply(value)
}

const MAX_FAILURES = 3
const PAUSE_MS = 10_000

export interface FailurePause {
  readonly isPaused: boolean
  countFailure(): void
  reset(): void
}

/**
 * Pauses a cache component for ten seconds after three consecutive failures. Otherwise, each request would wait for the
 * component to time out.
 */
export function createFailurePause(now: () => number): FailurePause {
  let failures = 0
  let pausedUntil = 0
  return {
    get isPaused() {
      return now() < pausedUntil
    },
    countFailure: () => {
      failures += 1
      if (failures >= MAX_FAILURES) pausedUntil = now() + PAUSE_MS
    },
    reset: () => {
      failures = 0
    },
  }
}

export interface CallGuardOptions {
  readonly runtime: Pick<Runtime, 'now' | 'after'>
  readonly timeoutMs: number
}

type GuardedCall = <T>(work: () => MaybePromise<T>) => MaybePromise<T>

function createGuardedCall({ runtime: { now, after }, timeoutMs }: CallGuardOptions): GuardedCall {
  const pause = createFailurePause(now)
  const recordFailure = (error: unknown): never => {
    pause.countFailure()
    throw error
  }
  const recordSuccess = <T>(value: T): T => {
    pause.reset()
    return value
  }
  return (work) => {
    if (pause.isPaused) throw new Error('The cache store or index is paused after repeated failures.')
    try {
      const result = runWithTimeout({ ms: timeoutMs, after }, work)
      return isThenable(result) ? result.then(recordSuccess, recordFailure) : recordSuccess(result)
    } catch (error) {
      return recordFailure(error)
    }
  }
}

/** Returns a store whose calls have a deadline. Exception: `clear` may be slow, but delays no request. */
export function guardAnswerStore(store: AnswerStore, options: CallGuardOptions): AnswerStore {
  const call = createGuardedCall(options)
  const { claims, peek = store.get } = store
  const values = claims?.values
  return {
    get: (id) => call(() => store.get(id)),
    peek: (id) => call(() => peek.call(store, id)),
    put: (answer) => call(() => store.put(answer)),
    amend: (id, changes) => call(() => store.amend(id, changes)),
    remove: (id) => call(() => store.remove(id)),
    hasComparable: (scope) => call(() => store.hasComparable(scope)),
    clear: (keyId) => store.clear(keyId),
    size: () => store.size(),
    ...(claims !== undefined && {
      claims: {
        acquire: async (id, ttlMs) => call(() => claims.acquire(id, ttlMs)),
        isHeld: async (id) => call(() => claims.isHeld(id)),
        release: async (id) => call(() => claims.release(id)),
        ...(values !== undefined && {
          values: {
            get: (key) => call(() => values.get(key)),
            set: async (key, value, options) => call(() => values.set(key, value, options)),
            swap: async (key, expected, value, options) => call(() => values.swap(key, expected, value, options)),
          },
        }),
      },
    }),
  }
}

export function guardVectorIndex(index: VectorIndex, options: CallGuardOptions): VectorIndex {
  const call = createGuardedCall(options)
  return {
    add: (entry) => call(() => index.add(entry)),
    nearest: (scope, vector, options) => call(() => index.nearest(scope, vector, options)),
    remove: (id) => call(() => index.remove(id)),
    clear: () => index.clear(),
  }
}
