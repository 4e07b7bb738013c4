/** A value, or a promise of it. Code that never waits is faster without promises. */
export type MaybePromise<T> = T | Promise<T>

export function isPromise<T>(value: MaybePromise<T>): value is Promise<T> {
  return value instanceof Promise
}

/** Also accepts promises of other implementations, which custom components may return. */
export function isThenable<T>(value: MaybePromise<T> | PromiseLike<T>): value is Promise<T> {
  return typeof value === 'object' && value !== null && 'then' in value && typeof value.then === 'function'
}

export function chain<T, Result>(
  value: MaybePromise<T>,
  proceed: (value: T) => MaybePromise<Result>,
): MaybePromise<Result> {
  return isPromise(value) ? value.then(proceed) : proceed(value)
}

/** After a failure, the next call loads the value again. */
export function lazy<T>(load: () => Promise<T>): () => Promise<T> {
  let loading: Promise<T> | undefined
  const attempt = (): Promise<T> => {
    const started = Promise.resolve().then(load)
    started.catch(() => (loading = undefined))
    return started
  }
  return () => (loading ??= attempt())
}

export interface TimeLimit {
  readonly ms: number
  readonly after: (ms: number, callback: () => void) => () => void
  readonly createError: () => Error
  readonly cancellation?: Cancellation | undefined
}

/** Does not stop the work. `discard` receives a value that arrives after the timeout or the cancellation. */
export function withTimeout<T>(
  work: Promise<T>,
  { ms, after, createError, cancellation }: TimeLimit,
  discard?: (value: T) => void,
): Promise<T> {
  return new Promise((resolve, reject) => {
    let isSettled = false
    let unsubscribe: (() => void) | undefined
    const end = (): void => {
      isSettled = true
      cancelTimer()
      unsubscribe?.()
    }
    const stop = (reason: unknown): void => {
      end()
      reject(reason)
    }
    const cancelTimer = after(Math.max(0, ms), () => stop(createError()))
    unsubscribe = cancellation?.onCancel(() => stop(cancellation.reason))
    const succeed = (value: T): void => {
      if (isSettled) return discard?.(value)
      end()
      resolve(value)
    }
    const fail = (error: unknown): void => {
      if (!isSettled) stop(error)
    }
    // `Promise.resolve` wraps promises of other libraries. Errors thrown by `discard` are ignored.
    Promise.resolve(work)
      .then(succeed, fail)
      .catch(() => {})
  })
}

const MAX_WORK_MS = 8
const SLICE_LENGTH = 32_768

/** Returns a promise if the caller must yield to the event loop before it continues. */
export type Pause = () => Promise<void> | undefined

/** Concurrent loops must share one `Pause`, because each `Pause` allows `MAX_WORK_MS` of work per turn. */
export function createPause(yieldToEventLoop: () => Promise<void>): Pause {
  let resumedAt = performance.now()
  let yielding: Promise<void> | undefined
  const yieldOnce = async (): Promise<void> => {
    try {
      await yieldToEventLoop()
    } finally {
      resumedAt = performance.now()
      yielding = undefined
    }
  }
  return () => {
    if (yielding === undefined && performance.now() - resumedAt < MAX_WORK_MS) return undefined
    return (yielding ??= yieldOnce())
  }
}

export async function measureInSlices(text: string, measure: (text: string) => number, pause: Pause): Promise<number> {
  if (text.length <= SLICE_LENGTH) return measure(text)
  let sum = 0
  for (let start = 0; start < text.length; start += SLICE_LENGTH) {
    sum += measure(text.slice(start, start + SLICE_LENGTH))
    await pause()
  }
  return sum
}

/**
 * Cancels a request. An AbortSignal is created only when `signal` is first read.
 *
 * @example
 * const unsubscribe = call.cancellation?.onCancel(() => socket.close())
 */
export class Cancellation {
  #isCanceled = false
  #reason: unknown
  /** A Set is created only for further listeners. */
  #listener: (() => void) | undefined
  #listeners: Set<() => void> | undefined
  #controller: AbortController | undefined

  /** Returns the same cancellation for the same signal. Node.js prints a warning if a signal has many listeners. */
  static of(signal: AbortSignal): Cancellation {
    const known = cancellationBySignal.get(signal)
    if (known !== undefined) return known
    const cancellation = new Cancellation()
    cancellationBySignal.set(signal, cancellation)
    if (signal.aborted) cancellation.cancel(signal.reason)
    else signal.addEventListener('abort', () => cancellation.cancel(signal.reason), { once: true })
    return cancellation
  }

  get isCanceled(): boolean {
    return this.#isCanceled
  }

  get reason(): unknown {
    return this.#reason
  }

  cancel(reason: unknown): void {
    if (this.#isCanceled) return
    this.#isCanceled = true
    this.#reason = reason
    this.#controller?.abort(reason)
    const [first, others] = [this.#listener, this.#listeners]
    this.#listener = undefined
    this.#listeners = undefined
    first?.()
    if (others !== undefined) for (const listener of others) listener()
  }

  /** Calls the listener once, synchronously if already canceled. Returns a function that removes the listener. */
  onCancel(listener: () => void): () => void {
    if (this.#isCanceled) {
      listener()
      return () => {}
    }
    if (this.#listener === undefined && this.#listeners === undefined) {
      this.#listener = listener
      return () => {
        if (this.#listener === listener) this.#listener = undefined
      }
    }
    const listeners = (this.#listeners ??= new Set())
    listeners.add(listener)
    return () => listeners.delete(listener)
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      if (this.#isCanceled) this.#controller.abort(this.#reason)
    }
    return this.#controller.signal
  }
}

const cancellationBySignal = new WeakMap<AbortSignal, Cancellation>()

export function closeIterator(iterator: AsyncIterator<unknown>): void {
  try {
    void Promise.resolve(iterator.return?.()).catch(() => {})
  } catch {
    // Errors of a custom iterator are ignored.
  }
}
