import type { Runtime } from '../core/ports.ts'

/**
 * Counts the subscribers of a request. The request runs while it has at least one subscriber. A second request with the
 * same Idempotency-Key, or a follower of the stream, keeps the request running after the first client disconnects.
 */
export interface Subscribers {
  /** Adds a subscriber. Returns a function that removes it. Further calls to that function have no effect. */
  join(): () => void
  /**
   * True after the last subscriber has left. The request is then cancelled, so any later subscriber receives no result.
   */
  readonly isOver: boolean
}

/** @param end Called once, when the last subscriber leaves. */
export function createSubscribers(end: () => void): Subscribers {
  return new SubscriberCount(end)
}

class SubscriberCount implements Subscribers {
  isOver = false
  #count = 0
  readonly #end: () => void

  constructor(end: () => void) {
    this.#end = end
  }

  join(): () => void {
    let isPresent = true
    this.#count += 1
    return () => {
      if (!isPresent) return
      isPresent = false
      this.#leave()
    }
  }

  #leave(): void {
    this.#count -= 1
    if (this.#count > 0 || this.isOver) return
    this.isOver = true
    this.#end()
  }
}

/** Tracks work that continues after its caller disconnects. */
export interface Detached {
  /** Adds work. `end` requests an early end; `ended` settles when the work has ended. */
  add(work: { readonly end: () => void; readonly ended: Promise<unknown> }): void
  /** Ends all work. Resolves when all work has ended, or after `timeoutMs`. @default 5,000 */
  close(timeoutMs?: number): Promise<void>
  readonly size: number
}

const CLOSE_TIMEOUT_MS = 5_000

export function createDetached({ after }: Pick<Runtime, 'after'>): Detached {
  const running = new Map<() => void, Promise<void>>()
  return {
    add: ({ end, ended }) => {
      const forget = (): void => void running.delete(end)
      running.set(end, ended.then(forget, forget))
    },
    close: async (timeoutMs = CLOSE_TIMEOUT_MS) => {
      let cancel: () => void = () => {}
      const timeout = new Promise<void>((resolve) => {
        cancel = after(timeoutMs, resolve)
      })
      for (const end of running.keys()) end()
      await Promise.race([Promise.all(running.values()), timeout])
      cancel()
    },
    get size() {
      return running.size
    },
  }
}
