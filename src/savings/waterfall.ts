import { add, type NanoUsd, ZERO } from '../core/money.ts'
import type { Embedder } from '../core/cache.ts'
import type { Meter, Runtime } from '../core/ports.ts'
import type { Store } from '../core/store.ts'
import { createPause } from '../core/async.ts'
import { createFamilyLock } from './family.ts'
import { chooseTiers, mayRunAfter, type TierCandidate, type DeclinedCosts } from './choose-tiers.ts'
import { type ConversationMemory, conversationOf, createMemory } from './conversation.ts'
import {
  createFailurePauses,
  createSemanticRanker,
  type FailurePauses,
  type SemanticRanker,
  pauseAfterFailures,
  trackSpending,
} from './models.ts'
import { createSegmentAnalyzer } from './segment-analysis.ts'
import { createRecursive } from './recursive.ts'
import type { SelectionTools } from './selection.ts'
import { createSlider, type SliderMode } from './slider.ts'
import type { Summarizer } from './summary.ts'
import {
  DEFAULT_THRESHOLDS,
  isRequestedByHeader,
  type WaterfallResult,
  type Rewrite,
  type Thresholds,
  thresholdsFor,
  type Tier,
  type TierJob,
  type TierNumber,
  type TierVerdict,
} from './tier.ts'
import {
  correctTrust,
  hasCacheBreakpoints,
  NEW_CONVERSATION,
  recallHistory,
  rememberSent,
  warmTokens,
  type History,
} from './upstream-cache.ts'
import { createVanishing, type MinTarget } from './vanishing.ts'

// A separate lazy import would split the shared code into more chunks.
export { createMemory } from './conversation.ts'
export { markForCache } from './prompt-cache.ts'

export interface WaterfallOptions {
  readonly meter: Meter
  readonly store: Pick<Store, 'get' | 'set'>
  readonly now: Runtime['now']
  readonly after: Runtime['after']
  /** Yields to the event loop. Called every few milliseconds while a long conversation is analyzed. */
  readonly yieldToEventLoop: () => Promise<void>
  readonly thresholds?: Partial<Thresholds>
  readonly slider?: SliderMode
  readonly summarizer?: Summarizer
  /** Also ranks segments for tiers 5 and 2. @default none */
  readonly embedder?: Embedder
  readonly vanishing?: { readonly targetShare?: number; readonly minTarget?: MinTarget }
  /** The tiers, in order of preference. @default tiers 5, 2, 3, 4 */
  readonly tiers?: readonly Tier[] | ((builtIn: readonly Tier[]) => readonly Tier[])
}

interface WaterfallContext {
  readonly meter: Meter
  readonly tiers: readonly Tier[]
  readonly ranker: SemanticRanker | undefined
}

/**
 * Returns a function that rewrites a prompt with the first tier that succeeds: a tier requested by a header, then the
 * tiers that are expected to save money, cheapest first. Never rejects.
 */
export function createWaterfall(options: WaterfallOptions): (job: TierJob) => Promise<WaterfallResult> {
  const { meter, now, store } = options
  const thresholds: Thresholds = { ...DEFAULT_THRESHOLDS, ...options.thresholds }
  const memory = createMemory({ store, now })
  const pauses = createFailurePauses(now)
  const context = createContext(options, thresholds, memory)

  return async (received) => {
    if (received.steering.level === 'off') return { tokens: received.tokens, spent: ZERO, verdicts: [] }
    const sized = await countNearThreshold(received, { meter, thresholds })
    const job = addSemantics(pauseFailingModel(sized, pauses), context.ranker, () => {})
    const isTracked = shouldTrack(job, thresholds)
    const history = isTracked ? await withFallback(NEW_CONVERSATION, recallHistory(memory, job)) : NEW_CONVERSATION
    const { sentAs, ...result } = await runTiers(job, history, context)
    const isRewritten = result.rewrite !== undefined && job.shadow === undefined
    const sentRequest = isRewritten
      ? { ...sentAs, spent: result.spent }
      : { tokens: job.tokens, cachedTokens: warmTokens(history.whole, job, history), spent: ZERO }
    const next = isTracked ? await withFallback(undefined, rememberSent(memory, job, history, sentRequest)) : undefined
    if (next === undefined) return result
    const reportCacheRead = (read: number): Promise<void> =>
      withFallback(undefined, correctTrust(memory, job, next, { cachedTokens: sentRequest.cachedTokens, read }))
    return { ...result, reportCacheRead }
  }
}

function createContext(
  options: WaterfallOptions,
  thresholds: Thresholds,
  memory: ConversationMemory,
): WaterfallContext {
  const { meter, yieldToEventLoop, after, now, embedder, slider = 'auto', summarizer = 'model' } = options
  const { estimate } = meter.tokenizer
  const pause = createPause(yieldToEventLoop)
  const tools: SelectionTools = { meter, analyze: createSegmentAnalyzer(estimate, pause), pause }
  const builtIn: readonly Tier[] = [
    createSlider(tools, memory, slider),
    createVanishing(tools, memory, { ...options.vanishing, thresholds, after }),
    createRecursive(tools, memory, { thresholds, summarizer }),
    createFamilyLock(tools, memory, { thresholds, summarizer }),
  ]
  const tiers = typeof options.tiers === 'function' ? options.tiers(builtIn) : (options.tiers ?? builtIn)
  if (embedder === undefined) return { meter, tiers, ranker: undefined }
  const pauses = createFailurePauses(now)
  return { meter, tiers, ranker: createSemanticRanker({ embedder, after, estimate, pauses, pause }) }
}

interface TierRun extends WaterfallResult {
  readonly sentAs: { readonly tier?: TierNumber; readonly tokens: number; readonly cachedTokens: number }
}

async function runTiers(job: TierJob, history: History, context: WaterfallContext): Promise<TierRun> {
  const tiers = job.shadow === 'not-tried' ? [] : context.tiers
  const verdicts = new Map<Tier, TierVerdict>()
  const candidates = await selectTiersToTry({ ...context, tiers }, job, history, verdicts)
  let declined: DeclinedCosts = { spent: ZERO }
  let requestedCost: NanoUsd = ZERO
  const verdictsInOrder = (): TierVerdict[] => tiers.flatMap((tier) => verdicts.get(tier) ?? [])
  for (const candidate of candidates) {
    const { tier } = candidate
    if (!mayRunAfter(declined, candidate)) {
      const reason = 'costs more than the tier that declined'
      verdicts.set(tier, { tier: tier.tier, outcome: 'does-not-pay', reason })
      continue
    }
    const attempt = await attemptTier(tier, separateTrialState(job), context)
    const spent = add(declined.spent, attempt.spent)
    if (isRequestedByHeader(job, tier.tier)) requestedCost = add(requestedCost, attempt.spent)
    verdicts.set(tier, attempt.verdict)
    const { rewrite, tokens } = attempt
    if (rewrite === undefined) {
      declined = { ...(await lowestCallCost(declined, candidate, separateTrialState(job))), spent }
      continue
    }
    const continues = attempt.continues && history.rewritten.tier === tier.tier
    const cachedTokens = continues ? warmTokens(history.rewritten, job, history) : 0
    const sentAs = { tier: rewrite.tier, tokens: rewrite.tokens, cachedTokens }
    return { rewrite, tokens, spent, requestedCost, verdicts: verdictsInOrder(), sentAs }
  }
  const { spent } = declined
  const sentAs = { tokens: job.tokens, cachedTokens: 0 }
  return { tokens: job.tokens, spent, requestedCost, verdicts: verdictsInOrder(), sentAs }
}

async function lowestCallCost(
  { callCost }: DeclinedCosts,
  candidate: TierCandidate,
  job: TierJob,
): Promise<Pick<DeclinedCosts, 'callCost'>> {
  const forecast = async () => candidate.expected ?? candidate.tier.forecast?.(job)
  const expected = await withFallback(undefined, forecast())
  if (expected === undefined) return callCost === undefined ? {} : { callCost }
  return { callCost: callCost === undefined || expected.callCost < callCost ? expected.callCost : callCost }
}

/**
 * Returns the tiers requested by a header, followed by those that are expected to save money. Records a verdict for
 * each other tier.
 */
async function selectTiersToTry(
  { tiers, meter }: WaterfallContext,
  job: TierJob,
  history: History,
  verdicts: Map<Tier, TierVerdict>,
): Promise<readonly TierCandidate[]> {
  const skip = (tier: Tier, outcome: TierVerdict['outcome'], reason: string): void => {
    verdicts.set(tier, { tier: tier.tier, outcome, reason })
  }
  const requested: TierCandidate[] = []
  const optional: Tier[] = []
  for (const tier of tiers) {
    if (!tier.wants(job)) skip(tier, 'not-wanted', 'not selected by a header or by the size of the prompt')
    else if (isRequestedByHeader(job, tier.tier)) requested.push({ tier })
    else if (hasCacheBreakpoints(job.prompt)) skip(tier, 'declined', 'the caller marked a prefix with cache_control')
    else optional.push(tier)
  }
  const chosen = await withFallback([], chooseTiers(optional, separateTrialState(job), history, meter))
  for (const tier of optional) {
    if (!chosen.some((candidate) => candidate.tier === tier))
      skip(tier, 'does-not-pay', 'sending everything costs less')
  }
  return [...requested, ...chosen]
}

/** Returns `fallback` if the work rejects. Savings are optional, so a failure must not reject the request. */
async function withFallback<Value>(fallback: Value, work: Promise<Value>): Promise<Value> {
  try {
    return await work
  } catch {
    return fallback
  }
}

/** Replaces the estimated token count with an exact count if the estimate is close to a threshold. */
async function countNearThreshold(
  job: TierJob,
  { meter, thresholds }: { readonly meter: Meter; readonly thresholds: Thresholds },
): Promise<TierJob> {
  if (job.steering.level !== undefined || job.shadow === 'not-tried') return job
  const { signal, prompt } = job
  const limits = Object.values(thresholdsFor(job, thresholds))
  return { ...job, tokens: await withFallback(job.tokens, meter.countNearThresholds(prompt, limits, signal)) }
}

/** A conversation that is too small to be rewritten without a header needs no history. */
function shouldTrack(job: TierJob, thresholds: Thresholds): boolean {
  return job.tokens > Math.min(...Object.values(thresholdsFor(job, thresholds))) / 2
}

function pauseFailingModel(job: TierJob, pauses: FailurePauses): TierJob {
  const { small, owner, signal, prompt } = job
  if (small === undefined) return job
  const { prefixHashes, segments } = conversationOf(prompt)
  const conversation = `${owner} ${prefixHashes.at(Math.min(1, segments.length))}`
  return { ...job, small: pauseAfterFailures(small, { pauses, conversation, signal }) }
}

/** Calls `onSpent` with the cost of each embedder call. */
function addSemantics(job: TierJob, ranker: SemanticRanker | undefined, onSpent: (cost: NanoUsd) => void): TierJob {
  if (ranker === undefined) return job
  const semantics: TierJob['semantics'] = {
    similarities: (conversation) => ranker.compare(conversation, { owner: job.owner, signal: job.signal, onSpent }),
    price: (conversation) => ranker.price(conversation, job.owner),
  }
  return { ...job, semantics }
}

/** Separates the state of trial runs, whose prompts are never sent. */
function separateTrialState(job: TierJob): TierJob {
  return job.shadow === undefined ? job : { ...job, owner: `${job.owner} shadow` }
}

interface Attempt {
  readonly rewrite?: Rewrite
  readonly tokens: number
  readonly spent: NanoUsd
  readonly verdict: TierVerdict
  readonly continues: boolean
}

/** Never rejects. A failure is reported as a verdict. */
async function attemptTier(tier: Tier, job: TierJob, { meter, ranker }: WaterfallContext): Promise<Attempt> {
  let embeddingCost: NanoUsd = ZERO
  const { small, spent: spentSoFar } = trackSpending(job.small)
  // A tier does not report the cost of aborted calls.
  const totalOf = (reported: NanoUsd): NanoUsd => add(reported > spentSoFar() ? reported : spentSoFar(), embeddingCost)
  const withoutRewrite = (outcome: 'declined' | 'failed', reason: string, spent: NanoUsd): Attempt => ({
    tokens: job.tokens,
    spent: totalOf(spent),
    verdict: { tier: tier.tier, outcome, reason },
    continues: false,
  })
  const metered = addSemantics({ ...job, small }, ranker, (cost) => {
    embeddingCost = add(embeddingCost, cost)
  })
  try {
    const result = await tier.rewrite(metered)
    if ('declined' in result) return withoutRewrite('declined', result.declined, result.spent)
    const originalTokens = await meter.countPrompt(job.prompt, job.signal)
    const { rewrite, spent, continues = false } = result
    if (rewrite.tokens >= originalTokens) return withoutRewrite('declined', 'not smaller than before', spent)
    const verdict: TierVerdict = { tier: tier.tier, outcome: 'chosen', reason: rewrite.strategy }
    return { rewrite, tokens: originalTokens, spent: totalOf(spent), continues, verdict }
  } catch (error) {
    return withoutRewrite('failed', error instanceof Error ? error.message : 'unknown error', ZERO)
  }
}
