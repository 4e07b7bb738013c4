import { add, type NanoUsd, scale, subtract } from '../../core/money.ts'
import { turnsAhead, turnsSoFar } from './choose-tiers.ts'
import { type Cut, cutToQuery } from './cut.ts'
import { type Cacheable, type History, sendingCost } from './memory.ts'
import type { SelectionTools } from './selection.ts'
import type { TierJob } from './tier.ts'
import { usesTools } from './uses-tools.ts'

/**
 * What a turn does for a tier that a header requests.
 *
 * - `follow`: runs the tier as far as the conversation's savings cover it.
 * - `return`: sends everything, which costs less on later turns.
 * - `save`: sends a small selection, until the conversation has saved the cost of a return.
 */
export type ReturnPlan = 'follow' | 'return' | 'save'

interface TurnCosts {
  /** Of the tier. */
  readonly expected: NanoUsd
  /** Of sending everything now. */
  readonly whole: NanoUsd
  /** Of sending everything now, if every turn had been sent unchanged. */
  readonly usual: NanoUsd
}

/** A tier that saves less of what sending everything costs over the expected turns is not worth what it leaves out. */
const MIN_TOTAL_SAVING = 0.2
/** Cost of a turn that saves up for a return, as a share of its cost if every turn had been sent unchanged. */
const SAVING_SHARE = 0.2
/** A smaller selection would keep less than the last shortened prompt, which saves as well. */
const MIN_SAVING_TOKENS = 1000
/** Saving up may take this share of the expected turns, because its small prompts keep less than the tier. */
const MAX_SAVING_SHARE = 0.5

/**
 * A tier whose prompt costs more on each turn than reading everything from the vendor's cache uses up what the
 * conversation has saved. Returns `follow` if that will still be a fifth of the cost after the expected turns, or if it
 * still covers a return on the next turn.
 */
export function planReturn(
  { expected, whole, usual }: TurnCosts,
  job: Pick<TierJob, 'model' | 'tokens' | 'prompt'>,
  { debt, cacheable }: Pick<History, 'debt'> & { readonly cacheable: Cacheable | undefined },
): ReturnPlan {
  const excess = subtract(expected, usual)
  if (excess <= 0 || whole <= usual) return 'follow'
  const { model, tokens, prompt } = job
  const turns = turnsAhead(turnsSoFar(prompt))
  const laterReturnCost = subtract(
    sendingCost(model, tokens, 0, cacheable),
    sendingCost(model, tokens, tokens, cacheable),
  )
  const lasts = add(add(debt, scale(excess, turns)), scale(usual, turns * MIN_TOTAL_SAVING)) <= 0
  if (lasts || add(add(debt, excess), laterReturnCost) <= 0) return 'follow'
  const missing = add(debt, subtract(whole, usual))
  if (missing <= 0) return 'return'
  return missing <= scale(usual, (1 - SAVING_SHARE) * turns * MAX_SAVING_SHARE) ? 'save' : 'follow'
}

interface SmallCut extends Cut {
  readonly cap: number
}

/** Returns undefined if there is not enough room, and for a conversation with tools, whose steps need more. */
export async function cutToSave(job: TierJob, usual: NanoUsd, tools: SelectionTools): Promise<SmallCut | undefined> {
  if (usesTools(job.prompt)) return undefined
  const million = 1_000_000
  const cap = Math.floor((SAVING_SHARE * usual * million) / Math.max(1, sendingCost(job.model, million, 0)))
  if (cap < MIN_SAVING_TOKENS) return undefined
  // An embedder would have to be paid.
  const cut = await cutToQuery(job, { cap, exchangeTokens: cap / 4 }, tools)
  return cut === undefined || cut.tokens > cap ? undefined : { ...cut, cap }
}
