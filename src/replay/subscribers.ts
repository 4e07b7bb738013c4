/**
 * Counts everyone who waits for one piece of work. The work goes on as long as one of them does: a second request with
 * the same Idempotency-Key, or a follower of the stream, keeps it going after the first client has left.
 */
export interface Subscribers {
  /** Adds a subscriber. Returns the function by which it leaves; only its first call counts. */
  join(): () => void
  /** True after the last subscriber has left: the work is being ended, and later subscribers get nothing of it. */
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
