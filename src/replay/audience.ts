/**
 * Those who still wait for one piece of work. It goes on as long as anybody does: a second caller with the same
 * Idempotency-Key, or one who follows the stream, keeps it going when the first has left.
 */
export interface Audience {
  /** One more who waits. Call what is returned when they do no longer; only the first call counts. */
  join(): () => void
  /** True once the last one has left: the work is being ended, and whoever joins now gets nothing of it. */
  readonly isOver: boolean
}

/** `end` is called once, when the last one leaves. */
export function createAudience(end: () => void): Audience {
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
