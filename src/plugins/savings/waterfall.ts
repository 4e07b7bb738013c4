import type { Embedder } from '../../core/cache.ts'
import { createPause } from '../../core/async.ts'
import { add, type NanoUsd, ZERO } from '../../core/money.ts'
import type { Meter, Runtime, SmallModel } from '../../core/ports.ts'
import type { Store } from '../../core/store.ts'
import { runWithPauses } from '../../core/steps.ts'
import { addSemantics, type Attempt, attemptTier, reasonOf, type Rewritten, withFallback } from './attempt.ts'
import { chooseTiers, type DeclinedCosts, estimateMessages, mayRunAfter, type TierCandidate } from './choose-tiers.ts'
import { conversationOf, readConversation } from './conversation.ts'
import { createSegmentAnalyzer } from './excerpt.ts'
import { createFamilyLock } from './family-lock.ts'
import { CURVE_SIZES, isBelowFloor, lossOf } from './floor.ts'
import {
  addedDebtOf,
  expectedReadOf,
  historyElsewhere,
  historyOf,
  recallRecord,
  rememberSent,
  type SentRecord,
  type SentRewrite,
} from './history.ts'
import {
  type Cacheable,
  type ConversationMemory,
  createMemory,
  type History,
  isWarm,
  NEW_CONVERSATION,
  warmTokens,
} from './memory.ts'
import { FailurePauses, pauseAfterFailures, pauseKeyOf, SemanticRanker } from './models.ts'
import { cacheableOf, isMarkedByCaller, markedPrefixOf } from './prompt-cache.ts'
import { rememberCut, runRequested, SEND_EVERYTHING } from './requested.ts'
import { createMessageRecognizer } from './recognize-messages.ts'
import type { SelectionTools } from './selection.ts'
import { createSlider, createVanishing, type MinTarget, type SliderMode } from './selection-tiers.ts'
import { createRecursive } from './recursive.ts'
import {
  DEFAULT_THRESHOLDS,
  isSteered,
  type Rewrite,
  type Thresholds,
  type Tier,
  type TierForecast,
  type TierJob,
  type TierRequest,
  type TierVerdict,
  type UncountedResult,
  type Waterfall,
  type WaterfallResult,
} from './tier.ts'
import { usesTools } from './uses-tools.ts'
import { isRequestedByHeader, thresholdsFor } from './wanted.ts'

// A separate lazy import would split the shared code into more chunks.
export { createMemory, purgeMemory } from './memory.ts'
export { createShadow } from './shadow.ts'
export { markForCache } from './prompt-cache.ts'

export interface WaterfallOptions {
  readonly meter: Meter
  readonly store: Pick<Store, 'get' | 'set'>
  readonly now: Runtime['now']
  readonly after: Runtime['after']
  readonly yieldToEventLoop: () => Promise<void>
  readonly thresholdTokens?: Partial<Thresholds>
  readonly slider?: false | SliderMode
  readonly vanishing?: false | { readonly targetShare?: number; readonly minTargetTokens?: MinTarget }
  readonly recursive?: boolean
  readonly family?: boolean
  readonly summarizer?: 'model' | 'extractive'
  readonly embedder?: Embedder
  readonly tiers?: readonly Tier[] | ((builtIn: readonly Tier[]) => readonly Tier[])
  readonly agents?: boolean
  readonly keep?: number
  /** True if each prompt is counted, so that the verdicts state what each tier would keep. @default false */
  readonly explains?: boolean
}

/** Share of the evidence that automatic tiers keep. */
export const DEFAULT_KEEP = 0.97

interface WaterfallContext {
  readonly meter: Meter
  readonly memory: ConversationMemory
  readonly tools: SelectionTools
  readonly agents: boolean
  readonly keep: number
  readonly tiers: readonly Tier[]
  readonly ranker: SemanticRanker | undefined
}

/** Reading the conversation takes more than 10 ms for a longer prompt. */
const MAX_UNPAUSED_MESSAGES = 2000

interface WaterfallFunctions extends Pick<Waterfall, 'passUnchanged'> {
  (job: TierJob): Promise<WaterfallResult>
}

export function createWaterfall(options: WaterfallOptions): WaterfallFunctions {
  const { meter, now, store } = options
  const pauseIfLong = async ({ prompt }: Pick<TierJob, 'prompt'>): Promise<void> => {
    if (prompt.messages.length > MAX_UNPAUSED_MESSAGES) await options.yieldToEventLoop()
  }
  const thresholds: Thresholds = { ...DEFAULT_THRESHOLDS, ...options.thresholdTokens }
  const memory = createMemory({ store, now })
  const pauses = new FailurePauses(now)
  const context = createContext(options, thresholds, memory)
  const minTracked = (job: Pick<TierJob, 'model'>): number =>
    Math.min(...Object.values(thresholdsFor(job, thresholds))) / 2

  const recognizer = createMessageRecognizer(meter)
  const passUnchanged = async (request: TierRequest, maxTokens: number): Promise<UncountedResult | undefined> => {
    const passed = await decideUncounted(request, maxTokens)
    if (passed === undefined) recognizer.recognize(request.prompt)
    return passed
  }

  const decideUncounted = async (request: TierRequest, maxTokens: number): Promise<UncountedResult | undefined> => {
    if (options.tiers !== undefined || options.explains === true || isSteered(request)) return undefined
    const sizes = Object.values(thresholdsFor(request, thresholds)).map((threshold) => threshold + 1)
    const verdicts = verdictsBySize(request, { ...context, sizes: [...CURVE_SIZES, ...sizes], maxTokens })
    if (verdicts === undefined) return undefined
    if (maxTokens < MIN_BYTES_PER_TOKEN * minTracked(request)) return { verdicts }
    await pauseIfLong(request)
    const earlier = await recallRecord(memory, request)
    // The bill depends on both sizes.
    if (earlier !== undefined && isWarm(earlier.rewritten, request.now)) return undefined
    const expectedRead = earlier === undefined ? 0 : expectedReadOf(earlier, request)
    const sent = { job: request, earlier, marked: markedPrefixOf(request.prompt), addedDebt: ZERO, expectedRead }
    // Not counted before it is needed: for the headers of a stream, or for one that breaks off.
    const expectedCacheRead = (): number =>
      earlier === undefined ? 0 : warmTokens(historyOf(earlier, request.prompt, meter).whole, request, earlier)
    return { verdicts, expectedCacheRead, reportSent: (report) => rememberSent(memory, sent, report) }
  }

  const run = async (received: TierJob): Promise<WaterfallResult> => {
    if (received.steering.level === 'off') return { tokens: received.tokens, spent: ZERO, verdicts: [] }
    const sized = await countNearThreshold(received, meter, thresholds)
    const job = addSemantics(pauseFailingModel(sized, pauses), context.ranker, () => {})
    // Up to half of the lowest threshold, no built-in tier will soon run without a header, so no history is needed.
    // With a header, the bill needs it: it states which part of the received prompt the vendor would have cached.
    const isTracked = isSteered(job) || job.tokens > minTracked(job)
    await pauseIfLong(job)
    if (!isTracked) return (await runTiers(job, NEW_CONVERSATION, { ...context, cacheable: undefined })).result
    const { prompt } = job
    const cacheable = cacheableOf(prompt, meter)
    const earlier = await recallRecord(memory, job)
    await pauseIfLong(job)
    if (prompt.messages.length > MAX_UNPAUSED_MESSAGES)
      await runWithPauses(readConversation(prompt), context.tools.pause)
    const known = earlier && historyOf(earlier, prompt, meter)
    const history = known ?? historyWithoutRecord(job, meter)
    const { sentAs, result } = await runTiers(job, history, { ...context, cacheable })
    const rewrite = job.shadow === undefined ? sentAs : undefined
    recognizer.remember(prompt)
    const counted = { ...job, tokens: result.tokens }
    const sent = rewrite ?? {
      tokens: result.tokens,
      cachedTokens: warmTokens(history.whole, job, history),
      cacheable,
    }
    const spent = rewrite === undefined ? ZERO : result.spent
    const addedDebt = addedDebtOf(counted, history, sent, { whole: cacheable, spent })
    // What another process may have sent is neither billed nor compared with what the vendor reports.
    const expectedRead = earlier === undefined ? 0 : expectedReadAfter(earlier, job, rewrite, sent.cachedTokens)
    const recorded = { job, earlier, marked: markedPrefixOf(prompt), rewrite, addedDebt, expectedRead }
    // `trust` describes the prompts that were sent, not those that the vendor would have received without the tiers.
    const servedTokens = warmTokens(known ?? NEW_CONVERSATION, job, { trust: 1 })
    const isServed = rewrite !== undefined || (earlier !== undefined && wasKeptWarmByTiers(earlier, job))
    return {
      ...result,
      ...(isServed && { servedShare: Math.min(1, servedTokens / Math.max(1, result.tokens)) }),
      ...(result.rewrite !== undefined && {
        commonPrefixTokens: commonPrefixTokens(job, result.rewrite, meter),
        ...(history.vendorRatio !== undefined && { vendorRatio: history.vendorRatio }),
      }),
      expectedCacheRead: () => (earlier === undefined ? 0 : sent.cachedTokens),
      // A prompt that the vendor has not processed is not in its cache, and its caller has not paid for it.
      reportSent: (report) => rememberSent(memory, recorded, report),
    }
  }

  return Object.assign(run, { passUnchanged })
}

/** In the vendor's tokens, if the vendor has reported any. */
function expectedReadAfter(
  earlier: SentRecord,
  job: TierJob,
  rewrite: SentRewrite | undefined,
  cachedTokens: number,
): number {
  return rewrite === undefined && earlier.whole.tokens !== undefined ? expectedReadOf(earlier, job) : cachedTokens
}

/**
 * True if the vendor no longer has a prompt in its cache only because tiers have rewritten it without a header. After a
 * header, the caller pays what the vendor charges.
 */
function wasKeptWarmByTiers({ rewritten, whole }: SentRecord, { prompt, now }: TierJob): boolean {
  return isWarm(rewritten, now) && !rewritten.isRequested && rewritten.at >= whole.at && !isMarkedByCaller(prompt)
}

/** Text has at least about three bytes per token. */
const MIN_BYTES_PER_TOKEN = 3
/** A prompt with fewer tokens than this share of its bytes is sent unchanged, although it could be shortened. */
const MIN_TOKENS_PER_BYTE = 1 / 16

interface SizeCheck extends Pick<WaterfallContext, 'tiers' | 'agents' | 'keep'> {
  /** Sizes in tokens from which on a tier may keep more or less. */
  readonly sizes: readonly number[]
  readonly maxTokens: number
}

/** Returns undefined if a tier may run for a prompt of at most `maxTokens` tokens. */
function verdictsBySize(
  request: TierRequest,
  { tiers, agents, keep, sizes, maxTokens }: SizeCheck,
): readonly TierVerdict[] | undefined {
  const { prompt } = request
  const declined = isMarkedByCaller(prompt) ? MARKED : !agents && usesTools(prompt) ? WITHOUT_AGENTS : undefined
  const minTokens = Math.floor(maxTokens * MIN_TOKENS_PER_BYTE)
  const checked = [minTokens, ...sizes.filter((size) => size > minTokens && size < maxTokens), maxTokens]
  const verdicts: TierVerdict[] = []
  for (const tier of tiers) {
    const wanted = checked.map((tokens) => ({ ...request, tokens })).filter((job) => tier.wants(job))
    if (declined === undefined && wanted.some((job) => !isBelowFloor(tier, job, keep))) return undefined
    verdicts.push(verdictOf(tier, wanted.length > 0, declined, keep))
  }
  return verdicts
}

function verdictOf({ tier }: Tier, isWanted: boolean, declined: string | undefined, keep: number): TierVerdict {
  if (!isWanted) return { tier, ...NOT_WANTED }
  if (declined !== undefined) return { tier, outcome: 'declined', reason: declined }
  return { tier, outcome: 'below-floor', reason: lossOf(undefined, keep) }
}

function commonPrefixTokens({ prompt }: TierJob, rewrite: Rewrite, meter: Meter): number {
  const differs = prompt.messages.findIndex((message, index) => message !== rewrite.prompt.messages[index])
  const messages = differs === -1 ? prompt.messages : prompt.messages.slice(0, differs)
  return Math.min(rewrite.tokens, meter.estimatePrompt({ ...prompt, messages }))
}

/** For a header, only what this gateway has sent counts as cached. Without one, another process may have sent it. */
function historyWithoutRecord(job: TierJob, meter: Meter): History {
  if (isSteered(job)) return NEW_CONVERSATION
  const { messages } = job.prompt
  const responseIndex = messages.findLastIndex(({ role }) => role === 'assistant')
  return historyElsewhere(job, estimateMessages(messages.slice(responseIndex), meter))
}

function createContext(
  options: WaterfallOptions,
  thresholds: Thresholds,
  memory: ConversationMemory,
): WaterfallContext {
  const {
    meter,
    yieldToEventLoop,
    after,
    now,
    embedder,
    slider = 'auto',
    vanishing,
    recursive = true,
    family = true,
    summarizer = 'model',
    agents = false,
    keep = DEFAULT_KEEP,
  } = options
  const { estimate } = meter.tokenizer
  const pause = createPause(yieldToEventLoop)
  const tools: SelectionTools = { meter, analyze: createSegmentAnalyzer(meter, pause), pause }
  const summarizerOf = ({ small }: TierJob): SmallModel | undefined => (summarizer === 'model' ? small : undefined)
  const builtIn: readonly Tier[] = [
    ...(slider === false ? [] : [createSlider(tools, memory, slider)]),
    ...(vanishing === false ? [] : [createVanishing(tools, memory, { ...vanishing, thresholds, keep, after })]),
    ...(recursive ? [createRecursive(tools, memory, { thresholds, keep, summarizerOf })] : []),
    ...(family ? [createFamilyLock(tools, memory, { thresholds, keep, summarizerOf })] : []),
  ]
  const tiers = typeof options.tiers === 'function' ? options.tiers(builtIn) : (options.tiers ?? builtIn)
  const ranker = embedder && new SemanticRanker({ embedder, after, estimate, now, pause })
  return { meter, memory, tools, agents, keep, tiers, ranker }
}

interface TierRun {
  readonly result: WaterfallResult
  readonly sentAs?: SentRewrite & { readonly cachedTokens: number }
}

interface RunContext extends WaterfallContext {
  /** Of the received prompt. */
  readonly cacheable: Cacheable | undefined
}

async function runTiers(job: TierJob, history: History, context: RunContext): Promise<TierRun> {
  const tiers = job.shadow === 'not-tried' ? [] : context.tiers
  const verdicts = new Map<Tier, TierVerdict>()
  const candidates = await selectTiersToTry({ ...context, tiers }, job, history, verdicts)
  let declined: DeclinedCosts = { spent: ZERO, callCost: undefined }
  let requestedCost: NanoUsd = ZERO
  const verdictsInOrder = (): TierVerdict[] => tiers.flatMap((tier) => verdicts.get(tier) ?? [])
  for (const candidate of candidates) {
    const { tier } = candidate
    if (!mayRunAfter(declined, candidate)) {
      const reason = 'too expensive after the tiers that declined'
      verdicts.set(tier, { tier: tier.tier, outcome: 'does-not-pay', reason })
      continue
    }
    const isRequested = isRequestedByHeader(job, tier.tier)
    const run = await runTier(tier, isRequested, { job, history, context })
    const spent = add(declined.spent, run.spent)
    if (isRequested) requestedCost = add(requestedCost, run.spent)
    verdicts.set(tier, run.verdict)
    const { sent } = run
    if (sent !== undefined) {
      const { rewrite, tokens, stableTokens, cachedTokens, cacheable } = sent
      const sentAs = { tier: rewrite.tier, isRequested, tokens: rewrite.tokens, stableTokens, cachedTokens, cacheable }
      return { result: { rewrite, tokens, spent, requestedCost, verdicts: verdictsInOrder() }, sentAs }
    }
    if (run.sendsEverything) {
      const strategy = SEND_EVERYTHING
      return { result: { tokens: job.tokens, strategy, spent, requestedCost, verdicts: verdictsInOrder() } }
    }
    declined = { spent, callCost: await lowestCallCost(declined, candidate, separateTrialState(job)) }
  }
  return { result: { tokens: job.tokens, spent: declined.spent, requestedCost, verdicts: verdictsInOrder() } }
}

interface TierOutcome {
  readonly spent: NanoUsd
  readonly verdict: TierVerdict
  readonly sent?: Rewritten & { readonly cachedTokens: number; readonly cacheable?: Cacheable | undefined }
  readonly sendsEverything?: boolean
}

interface TierInput {
  readonly job: TierJob
  readonly history: History
  readonly context: RunContext
}

async function runTier(tier: Tier, isRequested: boolean, { job, history, context }: TierInput): Promise<TierOutcome> {
  const attempt = (): Promise<Attempt> => attemptTier(tier, separateTrialState(job), context)
  if (!isRequested) {
    const { spent, verdict, rewritten } = await attempt()
    if (rewritten === undefined) return { spent, verdict }
    const isCached = rewritten.continues && history.rewritten.tier === tier.tier
    return {
      spent,
      verdict,
      sent: { ...rewritten, cachedTokens: isCached ? warmTokens(history.rewritten, job, history) : 0 },
    }
  }
  const { memory } = context
  const result = await runRequested(tier, { ...context, job, history, attempt })
  if (result.sent !== undefined) await rememberCut(memory, job, result.sent)
  const verdict: TierVerdict = result.sendsEverything
    ? { tier: tier.tier, outcome: 'does-not-pay', reason: 'sending everything is cheaper' }
    : (result.attempt?.verdict ?? { tier: tier.tier, outcome: 'chosen', reason: result.reason ?? CONTINUED })
  return { ...result, verdict }
}

async function lowestCallCost(
  { callCost }: DeclinedCosts,
  candidate: TierCandidate,
  job: TierJob,
): Promise<NanoUsd | undefined> {
  const forecast = async () => candidate.expected ?? candidate.tier.forecast?.(job)
  const expected = await withFallback(undefined, forecast())
  if (expected === undefined || callCost === undefined) return callCost ?? expected?.callCost
  return expected.callCost < callCost ? expected.callCost : callCost
}

async function selectTiersToTry(
  { tiers, meter, agents, keep }: WaterfallContext,
  job: TierJob,
  history: History,
  verdicts: Map<Tier, TierVerdict>,
): Promise<readonly TierCandidate[]> {
  const skip = (tier: Tier, outcome: TierVerdict['outcome'], reason: string): void => {
    verdicts.set(tier, { tier: tier.tier, outcome, reason })
  }
  const requested: TierCandidate[] = []
  const forecasts = new Map<Tier, TierForecast | undefined>()
  for (const tier of tiers) {
    try {
      if (!tier.wants(job)) skip(tier, NOT_WANTED.outcome, NOT_WANTED.reason)
      else if (isRequestedByHeader(job, tier.tier)) requested.push({ tier })
      else if (isMarkedByCaller(job.prompt)) skip(tier, 'declined', MARKED)
      else if (!agents && usesTools(job.prompt)) skip(tier, 'declined', WITHOUT_AGENTS)
      else if (isBelowFloor(tier, job, keep)) skip(tier, 'below-floor', lossOf(tier.keeps?.(job), keep))
      else forecasts.set(tier, await tier.forecast?.(separateTrialState(job)))
    } catch (error) {
      skip(tier, 'failed', reasonOf(error))
    }
  }
  // The forecast of a custom tier may be malformed.
  const chosen = await withFallback([], (async () => chooseTiers(forecasts, job, history, meter))())
  for (const tier of forecasts.keys()) {
    if (!chosen.some((candidate) => candidate.tier === tier)) skip(tier, 'does-not-pay', 'not expected to save money')
  }
  return [...requested, ...chosen]
}

const CONTINUED = 'continues the last shortened prompt'
const NOT_WANTED = { outcome: 'not-wanted', reason: 'not selected by a header or by the size of the prompt' } as const
const MARKED = 'the caller marked a prefix with cache_control'
const WITHOUT_AGENTS = 'a conversation with tools is rewritten only for a header, or with savings.agents'

async function countNearThreshold(job: TierJob, meter: Meter, thresholds: Thresholds): Promise<TierJob> {
  if (job.steering.level !== undefined || job.shadow === 'not-tried') return job
  const { signal, prompt } = job
  const limits = Object.values(thresholdsFor(job, thresholds))
  return { ...job, tokens: await withFallback(job.tokens, meter.countNearThresholds(prompt, limits, signal)) }
}

function pauseFailingModel(job: TierJob, pauses: FailurePauses): TierJob {
  const { small, owner, signal, prompt } = job
  if (small === undefined) return job
  return { ...job, small: pauseAfterFailures(small, pauses, pauseKeyOf(conversationOf(prompt), owner), signal) }
}

/** Separates the state of trial runs, whose rewritten prompts are never sent. */
function separateTrialState(job: TierJob): TierJob {
  return job.shadow === undefined ? job : { ...job, owner: `${job.owner} shadow` }
}
