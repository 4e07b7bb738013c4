/** When deliveries that have failed are repeated. */

/** Time after which another process delivers what a killed process has begun to deliver. */
export const LEASE_MS = 60_000

const MIN_BACKOFF_MS = 1_000
const MAX_BACKOFF_MS = 3_600_000

/** @param attempts Number of failed attempts, from 1. */
export function backoffMs(attempts: number, random: number): number {
  return Math.min(MAX_BACKOFF_MS, MIN_BACKOFF_MS * 2 ** Math.min(attempts - 1, 20)) * (0.5 + random / 2)
}
