import { periodOf } from '../core/period.ts'
import { UNLIMITED } from './field-schema.ts'
import type { Limit } from './limits-in-force.ts'
import type { RateStatus } from './reservation.ts'

/** Returns the request or token limit that refused, or else the request limit with the fewest requests left. */
export function rateStatus(
  limits: readonly Limit[],
  levels: readonly number[],
  { now, refused }: { readonly now: number; readonly refused: Limit | undefined },
): RateStatus {
  let shown: Limit | undefined
  let remaining = Infinity
  for (const [index, limit] of limits.entries()) {
    const left = Math.max(0, limit.max - (levels[index] ?? 0))
    const isRefused = limit === refused && limit.kind !== 'budget'
    if (!isRefused && (limit.kind !== 'requests' || left >= remaining)) continue
    shown = limit
    remaining = left
    if (isRefused) break
  }
  if (shown === undefined) return { limit: UNLIMITED, remaining: UNLIMITED, resetAt: periodOf(now, '1h').end }
  return { limit: shown.max, remaining, resetAt: shown.period.end }
}
