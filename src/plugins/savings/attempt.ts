import { add, type NanoUsd, ZERO } from '../../core/money.ts'
import type { Meter } from '../../core/ports.ts'
import { type SemanticRanker, trackSpending } from './models.ts'
import type { Snapshot } from './snapshot.ts'
import type { Rewrite, Tier, TierJob, TierVerdict } from './tier.ts'

export interface Attempt {
  readonly spent: NanoUsd
  readonly verdict: TierVerdict
  readonly rewritten?: Rewritten
}

/** `tokens` is the exact size of the received prompt. */
export interface Rewritten {
  readonly rewrite: Rewrite
  readonly tokens: number
  readonly continues: boolean
  /** Tokens that the next turn repeats. */
  readonly stableTokens: number
  readonly snapshot?: Snapshot
}

interface AttemptTools {
  readonly meter: Meter
  readonly ranker: SemanticRanker | undefined
}

/** Never rejects, because savings are optional. */
export async function attemptTier(tier: Tier, job: TierJob, { meter, ranker }: AttemptTools): Promise<Attempt> {
  let embeddingCost: NanoUsd = ZERO
  const { small, spent: spentSoFar } = trackSpending(job.small)
  // A tier cannot report the cost of aborted calls, or of any call if it throws.
  const totalOf = (reported: NanoUsd): NanoUsd => add(reported > spentSoFar() ? reported : spentSoFar(), embeddingCost)
  const withoutRewrite = (outcome: 'declined' | 'failed', reason: string, spent: NanoUsd): Attempt => ({
    spent: totalOf(spent),
    verdict: { tier: tier.tier, outcome, reason },
  })
  const metered = addSemantics({ ...job, small }, ranker, (cost) => {
    embeddingCost = add(embeddingCost, cost)
  })
  try {
    const result = await tier.rewrite(metered)
    if ('declined' in result) return withoutRewrite('declined', result.declined, result.spent)
    const tokens = await meter.countPrompt(job.prompt, job.signal)
    const { rewrite, spent, continues = false, stableTokens = rewrite.tokens, snapshot } = result
    if (rewrite.tokens >= tokens) return withoutRewrite('declined', 'not smaller than the received prompt', spent)
    const verdict: TierVerdict = { tier: tier.tier, outcome: 'chosen', reason: rewrite.strategy }
    return {
      spent: totalOf(spent),
      verdict,
      rewritten: { rewrite, tokens, continues, stableTokens, ...(snapshot !== undefined && { snapshot }) },
    }
  } catch (error) {
    return withoutRewrite('failed', reasonOf(error), ZERO)
  }
}

export function addSemantics(
  job: TierJob,
  ranker: SemanticRanker | undefined,
  onSpent: (cost: NanoUsd) => void,
): TierJob {
  if (ranker === undefined) return job
  const semantics: TierJob['semantics'] = {
    similarities: (conversation) => ranker.compare(conversation, { owner: job.owner, signal: job.signal, onSpent }),
    price: (conversation) => ranker.price(conversation, job.owner),
  }
  return { ...job, semantics }
}

export function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : 'unknown error'
}

/** Savings are optional, so a failure must not reject the request. */
export async function withFallback<Value>(fallback: Value, work: Promise<Value>): Promise<Value> {
  try {
    return await work
  } catch {
    return fallback
  }
}
