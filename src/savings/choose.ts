import type { Meter } from '../core/ports.ts'
import { courseCosts, isSafe, maySwitch, passthrough, type Course, type CourseCosts } from './net.ts'
import { outlookOf } from './outlook.ts'
import type { Tier, TierForecast, TierJob } from './tier.ts'
import { warmTokens, type History } from './upstream-cache.ts'

/** A tier that may run without an order, and what it would cost. */
interface Candidate {
  readonly tier: Tier
  readonly costs: CourseCosts
}

/** The tiers worth trying without an order, cheapest first. Tiers without a forecast come first, in their order. */
export async function chooseTiers(
  tiers: readonly Tier[],
  job: TierJob,
  history: History,
  meter: Meter,
): Promise<readonly Tier[]> {
  if (tiers.length === 0) return []
  const outlook = outlookOf(job, history, meter)
  const { tokens } = job
  const warm = warmTokens(history, job)
  const always: Tier[] = []
  const candidates: Candidate[] = []
  for (const tier of tiers) {
    const forecast = await tier.forecast?.(job)
    if (forecast === undefined) {
      always.push(tier)
      continue
    }
    const course = courseOf(tier, forecast, job, history)
    if (!isSafe({ debt: history.debt, course, tokens, warm }, outlook)) continue
    candidates.push({ tier, costs: courseCosts(course, outlook) })
  }
  const whole = courseCosts(passthrough(tokens, warmTokens(history.whole, job)), outlook)
  return [...always, ...cheapestOf(candidates, whole, history)]
}

/** The candidates that may replace what was done last, and cost less than sending everything where that may too. */
function cheapestOf(candidates: readonly Candidate[], whole: CourseCosts, history: History): readonly Tier[] {
  const wasRewritten = history.at > 0 && history.rewritten.at === history.at
  const standing = wasRewritten ? candidates.find(({ tier }) => tier.tier === history.rewritten.tier) : undefined
  const standard = standing?.costs ?? whole
  const open = candidates.filter((one) => one === standing || maySwitch({ standard, candidate: one.costs }))
  const returns = standing !== undefined && maySwitch({ standard, candidate: whole })
  return open
    .filter(({ costs }) => !returns || costs.total < whole.total)
    .toSorted((a, b) => a.costs.total - b.costs.total)
    .map(({ tier }) => tier)
}

function courseOf(tier: Tier, forecast: TierForecast, job: TierJob, { rewritten }: History): Course {
  const continues = forecast.continues === true && rewritten.tier === tier.tier
  return { ...forecast, warm: continues ? warmTokens(rewritten, job) : 0 }
}
