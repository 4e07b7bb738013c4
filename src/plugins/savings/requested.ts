import { asCount, asObject } from '../../core/json.ts'
import { add, type NanoUsd, subtract, ZERO } from '../../core/money.ts'
import { type Attempt, type Rewritten, withFallback } from './attempt.ts'
import { conversationOf } from './conversation.ts'
import { repeatCut } from './cut.ts'
import {
  type Cacheable,
  cacheScopeOf,
  type ConversationMemory,
  type History,
  parseSent,
  recallLatest,
  type RequestedCut,
  rememberLatest,
  sendingCost,
  toSentPrompt,
  warmTokens,
} from './memory.ts'
import { cacheableOf } from './prompt-cache.ts'
import { cutToSave, planReturn, type ReturnPlan } from './return-plan.ts'
import type { SelectionTools } from './selection.ts'
import { parseSnapshot, type Snapshot } from './snapshot.ts'
import { type Tier, type TierJob } from './tier.ts'
import { vanishingStrategy } from './selection-tiers.ts'

/** The strategy of a request whose level or header would have made the conversation more expensive. */
export const SEND_EVERYTHING = 'Passthrough (sending everything is cheaper)'

interface RequestedRun {
  readonly job: TierJob
  readonly history: History
  /** Of the received prompt. */
  readonly cacheable: Cacheable | undefined
  readonly memory: ConversationMemory
  readonly tools: SelectionTools
  readonly attempt: () => Promise<Attempt>
}

export interface RequestedResult {
  /** Includes attempts that were not sent. */
  readonly spent: NanoUsd
  /** Absent if the tier was not tried. */
  readonly attempt?: Attempt
  /** Absent if everything is sent, or if the tier declined or failed. */
  readonly sent?: Rewritten & { readonly cachedTokens: number; readonly cacheable: Cacheable | undefined }
  readonly sendsEverything: boolean
  /** @default that of the attempt */
  readonly reason?: string
}

/**
 * Runs a tier that a header requests, so that the conversation never costs more than if every turn had been sent
 * unchanged: sends a new rewrite only if what the conversation has saved covers it. Otherwise saves up for sending
 * everything again or continues the last rewrite, and sends everything if that is cheaper.
 */
export async function runRequested(tier: Tier, run: RequestedRun): Promise<RequestedResult> {
  const { job } = run
  if (job.steering.force === true) return toResult(await run.attempt(), run, ZERO)
  let costs = costsOf(run, job.tokens)
  const last = await recallCut(run.memory, job)
  const forecast = await withFallback(undefined, (async () => tier.forecast?.(job))())
  const { tokens: size = 0, blockTokens = 0, continues = false, callCost = ZERO } = forecast ?? {}
  const warm = continues ? Math.min(warmOf(last, run), size - blockTokens) : 0
  // A prompt that is too small is left to the tier, which declines.
  const isTooSmall = forecast === undefined || size >= job.tokens
  const costOf = (tokens: number): NanoUsd => (isTooSmall ? ZERO : costs.of(tokens, warm, undefined, callCost))
  const expected = costOf(size)
  const least = costOf(size - blockTokens * MAX_UNUSED_BLOCK)
  const plan = (): ReturnPlan =>
    planReturn(
      { ...costs, expected },
      { ...job, tokens: costs.tokens },
      { debt: run.history.debt, cacheable: run.cacheable },
    )
  // The estimate may be far too low.
  if (!costs.isCovered(least) || plan() !== 'follow') {
    costs = costsOf(run, await run.tools.meter.countPrompt(job.prompt, job.signal))
  }
  const planned = plan()
  if (planned === 'return') return { spent: ZERO, sendsEverything: true }
  const saving = planned === 'save' ? await saveUp(run, last, costs) : undefined
  if (saving !== undefined) return { spent: ZERO, sent: saving, sendsEverything: false, reason: SAVING_UP }
  let attempt: Attempt | undefined
  if (costs.isCovered(least)) {
    attempt = await run.attempt()
    const result = toResult(attempt, run, attempt.spent, last)
    costs = costsOf(run, result.sent?.tokens ?? job.tokens)
    if (result.sent === undefined || costs.isCovered(costOfResult(result, costs))) return result
  }
  const spent = attempt?.spent ?? ZERO
  // While the vendor has everything in its cache, a repetition would save little for what it lacks.
  const continued = last === undefined || costs.whole <= costs.usual ? undefined : await continueCut(last, run)
  if (continued !== undefined) {
    const { rewrite, cachedTokens, cacheable } = continued
    const cost = costs.of(rewrite.tokens, cachedTokens, cacheable, ZERO)
    if (cost <= costs.whole) return { spent, sent: continued, sendsEverything: false, ...(attempt && { attempt }) }
  }
  // Neither is covered, but sending everything now would cost even more, because the vendor no longer caches it.
  if (least <= costs.whole) attempt ??= await run.attempt()
  if (attempt !== undefined) {
    const result = toResult(attempt, run, attempt.spent, last)
    if (result.sent === undefined || costOfResult(result, costs) <= costs.whole) return result
  }
  return { spent: attempt?.spent ?? ZERO, sendsEverything: true, ...(attempt && { attempt }) }
}

/** A question may need less than the block, or its parts may not fit. */
const MAX_UNUSED_BLOCK = 0.5
const SAVING_UP = 'a small selection, until the conversation has saved the cost of sending everything again'

/** Tier 3 has summaries of all that it leaves out, so it continues the last rewrite. */
async function saveUp(
  run: RequestedRun,
  last: RequestedCut | undefined,
  { tokens, usual }: Costs,
): Promise<RequestedResult['sent']> {
  const { job, tools } = run
  const tier = tierOf(job)
  if (tier === 3) return last && continueCut(last, run)
  const cut = await cutToSave(job, usual, tools)
  if (cut === undefined) return undefined
  const { prompt, tokens: size, cap, result } = cut
  const { level } = job.steering
  const strategy =
    level === undefined
      ? vanishingStrategy(conversationOf(job.prompt).turns.old, result.selection)
      : `Savings-Slider (${level}: ${cap} tokens)`
  return {
    rewrite: { prompt, tokens: size, tier, strategy },
    tokens,
    continues: false,
    stableTokens: 0,
    cachedTokens: 0,
    cacheable: cacheableOf(prompt, tools.meter),
  }
}

interface Costs {
  /** Size of the received prompt. */
  readonly tokens: number
  /** Cost of sending everything now. */
  readonly whole: NanoUsd
  /** The same, if every turn had been sent unchanged. */
  readonly usual: NanoUsd
  of(tokens: number, cachedTokens: number, cacheable: Cacheable | undefined, spent: NanoUsd): NanoUsd
  /** True if the rewrite costs no more than sending everything, and the conversation not more than without rewrites. */
  isCovered(cost: NanoUsd): boolean
}

function costsOf({ job, history, cacheable }: RequestedRun, tokens: number): Costs {
  const { model } = job
  const whole = sendingCost(model, tokens, warmTokens(history.whole, job, history), cacheable)
  const usual = sendingCost(model, tokens, warmTokens(history, job, history), cacheable)
  return {
    tokens,
    whole,
    usual,
    of: (size, cachedTokens, marked, spent) => add(sendingCost(model, size, cachedTokens, marked), spent),
    isCovered: (cost) => cost <= whole && add(history.debt, subtract(cost, usual)) <= 0,
  }
}

function costOfResult({ sent, attempt }: RequestedResult, costs: Costs): NanoUsd {
  if (sent === undefined) return ZERO
  return costs.of(sent.rewrite.tokens, sent.cachedTokens, sent.cacheable, attempt?.spent ?? ZERO)
}

function toResult(attempt: Attempt, run: RequestedRun, spent: NanoUsd, last?: RequestedCut): RequestedResult {
  const { rewritten } = attempt
  if (rewritten === undefined) return { spent, attempt, sendsEverything: false }
  const repeated = last === undefined ? 0 : repeatedTokens(last, rewritten.snapshot)
  const cacheable = cacheableOf(rewritten.rewrite.prompt, run.tools.meter)
  const cachedTokens = last === undefined ? 0 : Math.min(repeated, warmOf(last, run))
  return { spent, attempt, sent: { ...rewritten, cachedTokens, cacheable }, sendsEverything: false }
}

function warmOf(last: RequestedCut | undefined, { job, history }: RequestedRun): number {
  return last === undefined ? 0 : warmTokens(last, job, history)
}

/** Returns 0 for another cut than the last one, because a tier may repeat a cut that was not sent. */
function repeatedTokens(last: RequestedCut, next: Snapshot | undefined): number {
  const isSameCut =
    last.from === next?.from &&
    last.notice === next.notice &&
    last.questionIndexAtCut === next.questionIndexAtCut &&
    JSON.stringify(last.picks) === JSON.stringify(next.picks)
  if (!isSameCut) return 0
  return last.block?.before === next.block?.before && last.block?.text === next.block?.text
    ? last.tokens
    : last.stableTokens
}

async function continueCut(last: RequestedCut, run: RequestedRun): Promise<RequestedResult['sent']> {
  const { job, tools } = run
  const { prompt, tokens: size, selection } = await repeatCut(job, last, tools)
  const tokens = await tools.meter.countPrompt(job.prompt, job.signal)
  if (size >= tokens) return undefined
  const { old } = conversationOf(job.prompt).turns
  const tier = tierOf(job)
  const strategy = tier === 2 ? vanishingStrategy(old, selection) : last.strategy
  return {
    rewrite: { prompt, tokens: size, tier, strategy },
    tokens,
    continues: true,
    stableTokens: last.stableTokens,
    snapshot: last,
    cachedTokens: warmOf(last, run),
    cacheable: cacheableOf(prompt, tools.meter),
  }
}

function tierOf({ steering }: TierJob): 2 | 3 | 5 {
  if (steering.level !== undefined) return 5
  return steering.vanishing ? 2 : 3
}

function kindOf(job: TierJob): string {
  return `requested-${tierOf(job)}-${job.steering.level ?? ''}:${cacheScopeOf(job.model, job.prompt)}`
}

export async function rememberCut(
  memory: ConversationMemory,
  job: TierJob,
  { rewrite, snapshot, stableTokens, cacheable }: NonNullable<RequestedResult['sent']>,
): Promise<void> {
  if (snapshot === undefined) return
  const { tokens, strategy } = rewrite
  const sent = toSentPrompt(tokens, job.now, cacheable)
  await rememberLatest(memory, job, kindOf(job), { ...snapshot, ...sent, stableTokens, strategy })
}

async function recallCut(memory: ConversationMemory, job: TierJob): Promise<RequestedCut | undefined> {
  const value = await recallLatest(memory, job, kindOf(job))
  const snapshot = parseSnapshot(value)
  const sent = parseSent(value)
  const { strategy, stableTokens } = asObject(value) ?? {}
  if (snapshot === undefined || sent === undefined || typeof strategy !== 'string') return undefined
  return { ...snapshot, ...sent, stableTokens: asCount(stableTokens) ?? 0, strategy }
}
