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
  let present = 0
  let isOver = false
  return {
    join: () => {
      let isHere = true
      present += 1
      return () => {
        if (!isHere) return
        isHere = false
        present -= 1
        if (present > 0 || isOver) return
        isOver = true
        end()
      }
    },
    get isOver() {
      return isOver
    },
  }
}
