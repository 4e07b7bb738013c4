import { add, ZERO, type NanoUsd } from '../core/money.ts'
import type { Meter } from '../core/ports.ts'
import type { Rewrite, SmallModel, Tier, TierJob, TierVerdict } from './tier.ts'

/** What came of running one tier. */
export interface Attempt {
  readonly rewrite?: Rewrite
  /** Exact tokens of the prompt as it came, with a rewrite. */
  readonly tokens: number
  readonly spent: NanoUsd
  readonly verdict: TierVerdict
  /** True when the prompt begins with what the tier sent on the turn before. */
  readonly continues: boolean
}

/** Runs a tier. Never rejects: a failure is a verdict. */
export async function attempt(tier: Tier, job: TierJob, meter: Meter): Promise<Attempt> {
  const { tokens } = job
  const verdictOf = (outcome: TierVerdict['outcome'], reason: string): TierVerdict => ({
    tier: tier.tier,
    outcome,
    reason,
  })
  const pass = (verdict: TierVerdict, spent: NanoUsd = ZERO): Attempt => ({ tokens, spent, verdict, continues: false })
  const purse = createPurse(job.small)
  try {
    const result = await tier.rewrite({ ...job, small: purse.small })
    if ('declined' in result) return pass(verdictOf('declined', result.declined), result.spent)
    const original = await meter.countOf(job.prompt, job.signal)
    if (result.rewrite.tokens >= original) return pass(verdictOf('declined', 'not smaller than before'), result.spent)
    const { rewrite, spent, continues = false } = result
    return { rewrite, tokens: original, spent, continues, verdict: verdictOf('chosen', rewrite.strategy) }
  } catch (error) {
    return pass(verdictOf('failed', error instanceof Error ? error.message : 'unknown error'), purse.spent())
  }
}

/** The small model, and what its calls cost: a tier that fails does not report what it has spent. */
function createPurse(small: SmallModel | undefined): { readonly small: typeof small; readonly spent: () => NanoUsd } {
  let spent: NanoUsd = ZERO
  if (small === undefined) return { small, spent: () => spent }
  const ask: SmallModel['ask'] = async (question) => {
    const reply = await small.ask(question)
    spent = add(spent, reply.spent)
    return reply
  }
  return { small: { ...small, ask }, spent: () => spent }
}
