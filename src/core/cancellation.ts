/**
 * Cancels a request whose client left or whose deadline passed. An AbortSignal is created only if a custom provider or
 * hook reads it.
 */
export class Cancellation {
  #isCancelled = false
  #reason: unknown
  /** The first listener. Most requests have only one at a time, which needs no Set. */
  #listener: (() => void) | undefined
  #listeners: Set<() => void> | undefined
  #controller: AbortController | undefined

  /** Returns the cancellation of a signal. Each signal has one, because platforms warn of many listeners on a signal. */
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

  /** Only the first call has an effect. */
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

  /** Calls the listener once on cancellation, synchronously if already cancelled. Returns a function that removes it. */
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

  /** The cancellation as an AbortSignal. Created when it is first read. */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      if (this.#isCancelled) this.#controller.abort(this.#reason)
    }
    return this.#controller.signal
  }
}

const followers = new WeakMap<AbortSignal, Cancellation>()
