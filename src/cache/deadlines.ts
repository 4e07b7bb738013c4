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
export function runWithTimeout<T>(timeout: Timeout, work: (signal: AbortSignal) => MaybePromise<T>): MaybePromise<T> {
  throwIfCancelled(timeout)
  const controller = new AbortController()
  const result = work(controller.signal)
  return isThenable(result) ? race(timeout, result, controller) : result
}

/** Like `runWithTimeout`, for work that cannot be aborted. */
export function withDeadline<T>(timeout: Timeout, work: () => MaybePromise<T>): MaybePromise<T> {
  throwIfCancelled(timeout)
  const result = work()
  return isThenable(result) ? race(timeout, result, undefined) : result
}

export function throwIfCancelled({ cancellation }: Pick<Timeout, 'cancellation'>): void {
  if (cancellation?.isCancelled === true) throw cancellation.reason
}

function race<T>(timeout: Timeout, work: Promise<T>, controller: AbortController | undefined): Promise<T> {
  const late = (): Error => new Error(`A cache component took longer than ${timeout.ms} ms.`)
  const raced = withTimeout(work, { ...timeout, late })
  return controller === undefined ? raced : raced.finally(() => controller.abort())
}

/** Applies a function to a value, synchronously if the value is not a promise. */
export function whenReady<T, U>(value: MaybePromise<T>, apply: (value: T) => MaybePromise<U>): MaybePromise<U> {
  return isThenable(value) ? value.then(apply) : apply(value)
}

const MAX_FAILURES = 3
const PAUSE_MS = 10_000

export interface FailurePause {
  readonly isPaused: boolean
  failed(): void
  succeeded(): void
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
    failed: () => {
      failures += 1
      if (failures >= MAX_FAILURES) pausedUntil = now() + PAUSE_MS
    },
    succeeded: () => {
      failures = 0
    },
  }
}

export interface CallBounds {
  readonly runtime: Pick<Runtime, 'now' | 'after'>
  readonly timeoutMs: number
}

type Bounded = <T>(work: () => MaybePromise<T>) => MaybePromise<T>

function createBounded({ runtime: { now, after }, timeoutMs }: CallBounds): Bounded {
  const pause = createFailurePause(now)
  const failed = (error: unknown): never => {
    pause.failed()
    throw error
  }
  const succeeded = <T>(value: T): T => {
    pause.succeeded()
    return value
  }
  return (work) => {
    if (pause.isPaused) throw new Error('The cache store or index is paused after repeated failures.')
    try {
      const result = withDeadline({ ms: timeoutMs, after }, work)
      return isThenable(result) ? result.then(succeeded, failed) : succeeded(result)
    } catch (error) {
      return failed(error)
    }
  }
}

/** Returns a store whose calls have a deadline, except `clear`, which may be slow but delays no request. */
export function boundAnswers(store: AnswerStore, bounds: CallBounds): AnswerStore {
  const bounded = createBounded(bounds)
  const { claims, peek = store.get } = store
  const values = claims?.values
  return {
    get: (id) => bounded(() => store.get(id)),
    peek: (id) => bounded(() => peek.call(store, id)),
    put: (answer) => bounded(() => store.put(answer)),
    amend: (id, changes) => bounded(() => store.amend(id, changes)),
    remove: (id) => bounded(() => store.remove(id)),
    hasComparable: (scope) => bounded(() => store.hasComparable(scope)),
    clear: (keyId) => store.clear(keyId),
    size: () => store.size(),
    ...(claims !== undefined && {
      claims: {
        acquire: async (id, ttlMs) => bounded(() => claims.acquire(id, ttlMs)),
        isHeld: async (id) => bounded(() => claims.isHeld(id)),
        release: async (id) => bounded(() => claims.release(id)),
        ...(values !== undefined && {
          values: {
            get: (key) => bounded(() => values.get(key)),
            set: async (key, value, written) => bounded(() => values.set(key, value, written)),
            swap: async (key, expected, value, written) => bounded(() => values.swap(key, expected, value, written)),
          },
        }),
      },
    }),
  }
}

export function boundIndex(index: VectorIndex, bounds: CallBounds): VectorIndex {
  const bounded = createBounded(bounds)
  return {
    add: (entry) => bounded(() => index.add(entry)),
    nearest: (scope, vector, options) => bounded(() => index.nearest(scope, vector, options)),
    remove: (id) => bounded(() => index.remove(id)),
    clear: () => index.clear(),
  }
}
