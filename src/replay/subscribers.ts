import type { Runtime } from '../core/ports.ts'

/**
 * Counts the subscribers of a request, which runs while it has a subscriber. A second request with the same
 * Idempotency-Key, or a follower of the stream, keeps the request running after the first client has disconnected.
 */
export interface Subscribers {
  /** Adds a subscriber. Returns a function that removes it. Further calls have no effect. */
  join(): () => void
  /** True after the last subscriber has left. The request is being cancelled, so later subscribers get no result. */
  readonly isOver: boolean
}

/** Creates a count of subscribers. `end` is called once, when the last subscriber leaves. */
export function createSubscribers(end: () => void): Subscribers {
  return new SubscriberCount(end)
}

class SubscriberCount implements Subscribers {
  isOver = false
  #present = 0
  readonly #end: () => void

  constructor(end: () => void) {
    this.#end = end
  }

  join(): () => void {
    let isHere = true
    this.#present += 1
    return () => {
      if (!isHere) return
      isHere = false
      this.#leave()
    }
  }

  #leave(): void {
    this.#present -= 1
    if (this.#present > 0 || this.isOver) return
    this.isOver = true
    this.#end()
  }
}

/** Tracks work that continues after its caller has disconnected. */
export interface Detached {
  /** Adds work. `end` requests an early end; `ended` settles when the work has ended. */
  add(work: { readonly end: () => void; readonly ended: Promise<unknown> }): void
  /** Ends all work and waits for its end, at most `waitMs` milliseconds. @default 5,000 */
  close(waitMs?: number): Promise<void>
  readonly size: number
}

const WAIT_MS = 5_000

export function createDetached({ after }: Pick<Runtime, 'after'>): Detached {
  const under = new Map<() => void, Promise<void>>()
  return {
    add: ({ end, ended }) => {
      const forget = (): void => void under.delete(end)
      under.set(end, ended.then(forget, forget))
    },
    close: async (waitMs = WAIT_MS) => {
      let cancel: () => void = () => {}
      const late = new Promise<void>((resolve) => {
        cancel = after(waitMs, resolve)
      })
      for (const end of under.keys()) end()
      await Promise.race([Promise.all(under.values()), late])
      cancel()
    },
    get size() {
      return under.size
    },
  }
}
