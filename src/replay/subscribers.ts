import type { Runtime } from '../core/ports.ts'

/**
 * Counts the subscribers of a piece of work, which continues while there is one. A second request with the same
 * Idempotency-Key, or a follower of the stream, keeps the work running after the first client has disconnected.
 */
export interface Subscribers {
  /** Adds a subscriber. Returns the function by which it leaves; only its first call counts. */
  join(): () => void
  /** True after the last subscriber has left. The work is being stopped, so later subscribers get no result. */
  readonly isOver: boolean
}

/** `end` is called once, when the last subscriber leaves. */
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

/** Work that continues after its caller has disconnected. */
export interface Detached {
  /** `end` makes it end soon; `ended` resolves or rejects when it has. */
  add(work: { readonly end: () => void; readonly ended: Promise<unknown> }): void
  /** Ends all work and waits until it has ended, at most `waitMs`. @default 5,000 */
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
