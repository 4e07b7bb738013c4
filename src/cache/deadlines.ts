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
  throwIfCancelled(timeout)
  const controller = new AbortController()
  const result = work(controller.signal)
  return isThenable(result) ? applyTimeout(timeout, result).finally(() => controller.abort()) : result
}

/** Like `runAbortable`, for work that cannot be aborted. */
export function runWithTimeout<T>(timeout: Timeout, work: () => MaybePromise<T>): MaybePromise<T> {
  throwIfCancelled(timeout)
  const result = work()
  return isThenable(result) ? applyTimeout(timeout, result) : result
}

export function throwIfCancelled({ cancellation }: Pick<Timeout, 'cancellation'>): void {
  if (cancellation?.isCancelled === true) throw cancellation.reason
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

export interface CallLimits {
  readonly runtime: Pick<Runtime, 'now' | 'after'>
  readonly timeoutMs: number
}

type Caller = <T>(work: () => MaybePromise<T>) => MaybePromise<T>

function createCaller({ runtime: { now, after }, timeoutMs }: CallLimits): Caller {
  const pause = createFailurePause(now)
  const failed = (error: unknown): never => {
    pause.countFailure()
    throw error
  }
  const succeeded = <T>(value: T): T => {
    pause.reset()
    return value
  }
  return (work) => {
    if (pause.isPaused) throw new Error('The cache store or index is paused after repeated failures.')
    try {
      const result = runWithTimeout({ ms: timeoutMs, after }, work)
      return isThenable(result) ? result.then(succeeded, failed) : succeeded(result)
    } catch (error) {
      return failed(error)
    }
  }
}

/** Returns a store whose calls have a deadline, except `clear`, which may be slow but delays no request. */
export function limitAnswerCalls(store: AnswerStore, limits: CallLimits): AnswerStore {
  const call = createCaller(limits)
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
            set: async (key, value, written) => call(() => values.set(key, value, written)),
            swap: async (key, expected, value, written) => call(() => values.swap(key, expected, value, written)),
          },
        }),
      },
    }),
  }
}

export function limitIndexCalls(index: VectorIndex, limits: CallLimits): VectorIndex {
  const call = createCaller(limits)
  return {
    add: (entry) => call(() => index.add(entry)),
    nearest: (scope, vector, options) => call(() => index.nearest(scope, vector, options)),
    remove: (id) => call(() => index.remove(id)),
    clear: () => index.clear(),
  }
}
