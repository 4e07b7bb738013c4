/**
 * The end of a request before its answer: its client left, or its deadline passed. Costs nothing until it happens or is
 * asked for; an AbortSignal exists only once code of the user's needs one.
 */
export class Cancellation {
  #isCancelled = false
  #reason: unknown
  /** The first listener: most requests have only one at a time. */
  #listener: (() => void) | undefined
  #listeners: Set<() => void> | undefined
  #controller: AbortController | undefined

  /** Follows a signal. The same signal has one cancellation: platforms warn of many listeners on one signal. */
  static of(signal: AbortSignal): Cancellation {
    const known = followers.get(signal)
    if (known !== undefined) return known
    const cancellation = new Cancellation()
    followers.set(signal, cancellation)
    if (signal.aborted) cancellation.cancel(signal.reason)
    else signal.addEventListener('abort', () => cancellation.cancel(signal.reason), { once: true })
    return cancellation
  }

  get isCancelled(): boolean {
    return this.#isCancelled
  }

  get reason(): unknown {
    return this.#reason
  }

  /** Only the first call counts. */
  cancel(reason: unknown): void {
    if (this.#isCancelled) return
    this.#isCancelled = true
    this.#reason = reason
    this.#controller?.abort(reason)
    const [first, others] = [this.#listener, this.#listeners]
    this.#listener = undefined
    this.#listeners = undefined
    first?.()
    if (others !== undefined) for (const listener of others) listener()
  }

  /** Calls the listener once when the request is cancelled, at once when it is already. Returns a function that removes it. */
  onCancel(listener: () => void): () => void {
    if (this.#isCancelled) {
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

  /** The same for platform code. */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      if (this.#isCancelled) this.#controller.abort(this.#reason)
    }
    return this.#controller.signal
  }
}

const followers = new WeakMap<AbortSignal, Cancellation>()
