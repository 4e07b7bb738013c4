/** Measures the rate of recent events. */
export interface RecentRate {
  count(at: number): void
  /**
   * Returns the average per second over the last minute, or since the start if that is shorter. Three fraction digits.
   */
  perSecond(now: number): number
}

const SECONDS = 60

/** One count for each of the last sixty seconds, in a ring. */
export function createRecentRate(startedAt: number): RecentRate {
  const counts = new Float64Array(SECONDS)
  /** The second of each count. */
  const seconds = new Float64Array(SECONDS).fill(-1)

  function count(at: number): void {
    const second = Math.floor(at / 1000)
    const slot = ((second % SECONDS) + SECONDS) % SECONDS
    if (seconds[slot] !== second) {
      seconds[slot] = second
      counts[slot] = 0
    }
    counts[slot] = (counts[slot] ?? 0) + 1
  }

  function perSecond(now: number): number {
    const present = Math.floor(now / 1000)
    const recent = counts.filter((_, slot) => {
      const second = seconds[slot] ?? -1
      return second > present - SECONDS && second <= present
    })
    const elapsed = Math.min(SECONDS, Math.max(1, (now - startedAt) / 1000))
    return Math.round((recent.reduce((sum, value) => sum + value, 0) / elapsed) * 1000) / 1000
  }

  return { count, perSecond }
}
