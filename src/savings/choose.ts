import { add, type NanoUsd } from '../core/money.ts'
import type { Meter } from '../core/ports.ts'
import { courseCosts, isSafe, maySwitch, passthrough, type Course, type CourseCosts } from './net.ts'
import { outlookOf } from './outlook.ts'
import type { Tier, TierForecast, TierJob } from './tier.ts'
import { warmTokens, type History } from './upstream-cache.ts'

/** A tier that may run without an order, and what it would cost; absent for a tier without a forecast. */
export interface Candidate {
  readonly tier: Tier
  readonly expected?: {
    readonly costs: CourseCosts
    /** Small-model calls for this request. */
    readonly calls: NanoUsd
    /** What sending everything would cost instead. */
    readonly whole: CourseCosts
  }
}

type ForecastCandidate = Required<Candidate>

/** The tiers worth trying without an order, cheapest first. Tiers without a forecast come first, in their order. */
export async function chooseTiers(
  tiers: readonly Tier[],
  job: TierJob,
  history: History,
  meter: Meter,
): Promise<readonly Candidate[]> {
  if (tiers.length === 0) return []
  const outlook = outlookOf(job, history, meter)
  const { tokens } = job
  const warm = warmTokens(history, job)
  const whole = courseCosts(passthrough(tokens, warmTokens(history.whole, job)), outlook)
  const always: Candidate[] = []
  const candidates: ForecastCandidate[] = []
  for (const tier of tiers) {
    const forecast = await tier.forecast?.(job)
    if (forecast === undefined) {
      always.push({ tier })
      continue
    }
    const course = courseOf(tier, forecast, job, history)
    if (!isSafe({ debt: history.debt, course, tokens, warm }, outlook)) continue
    candidates.push({ tier, expected: { costs: courseCosts(course, outlook), calls: forecast.calls, whole } })
  }
  return [...always, ...cheapestOf(candidates, whole, history)]
}

/** What tiers that made no prompt have cost, and what they were expected to ask of the small model. */
export interface Declined {
  readonly spent: NanoUsd
  /** The least of the expected costs of their calls; absent while no tier with a forecast has declined. */
  readonly calls?: NanoUsd
}

/**
 * Returns true when a tier that was not ordered may run after others declined: it asks no more of the small model than
 * they would have, and together with what they spent it still costs less than sending everything.
 */
export function mayFollow({ expected }: Candidate, { spent, calls }: Declined): boolean {
  if (expected === undefined || calls === undefined) return true
  return expected.calls <= calls && add(expected.costs.total, spent) < expected.whole.total
}

/** The candidates that may replace what was done last, and cost less than sending everything where that may too. */
function cheapestOf(
  candidates: readonly ForecastCandidate[],
  whole: CourseCosts,
  history: History,
): readonly Candidate[] {
  const wasRewritten = history.at > 0 && history.rewritten.at === history.at
  const standing = wasRewritten ? candidates.find(({ tier }) => tier.tier === history.rewritten.tier) : undefined
  const standard = standing?.expected.costs ?? whole
  const open = candidates.filter((one) => one === standing || maySwitch({ standard, candidate: one.expected.costs }))
  const returns = standing !== undefined && maySwitch({ standard, candidate: whole })
  return open
    .filter(({ expected: { costs } }) => !returns || costs.total < whole.total)
    .toSorted((a, b) => a.expected.costs.total - b.expected.costs.total)
}

function courseOf(tier: Tier, forecast: TierForecast, job: TierJob, { rewritten }: History): Course {
  const continues = forecast.continues === true && rewritten.tier === tier.tier
  return { ...forecast, warm: continues ? warmTokens(rewritten, job) : 0 }
}
