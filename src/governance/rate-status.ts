import { periodOf } from '../core/period.ts'
import { UNLIMITED } from './field-schema.ts'
import type { Limit } from './limits-in-force.ts'
import type { RateStatus } from './reservation.ts'

/** The limit that refused, where it counts requests or tokens; else the request limit with the least left. */
export function rateStatus(
  limits: readonly Limit[],
  levels: readonly number[],
  { now, refused }: { readonly now: number; readonly refused: Limit | undefined },
): RateStatus {
  const all = limits.map((limit, index) => ({ limit, remaining: Math.max(0, limit.max - (levels[index] ?? 0)) }))
  const [tightest] = all.filter(({ limit }) => limit.kind === 'requests').toSorted((a, b) => a.remaining - b.remaining)
  const shown = all.find(({ limit }) => limit === refused && limit.kind !== 'budget') ?? tightest
  if (shown === undefined) return { limit: UNLIMITED, remaining: UNLIMITED, resetAt: periodOf(now, '1h').end }
  return { limit: shown.limit.max, remaining: shown.remaining, resetAt: shown.limit.period.end }
}
