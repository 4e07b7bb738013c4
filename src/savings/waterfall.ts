import { add, type NanoUsd, ZERO } from '../core/money.ts'
import type { Embedder } from '../core/cache-ports.ts'
import type { Meter, Runtime } from '../core/ports.ts'
import type { Store } from '../core/store.ts'
import { createPause } from '../core/async.ts'
import { createFamilyLock } from './family.ts'
import { chooseTiers, mayFollow, type TierCandidate, type Declined } from './choose-tiers.ts'
import { conversationOf } from './conversation.ts'
import { createMemory } from './memory.ts'
import { hasCacheMarks } from './net.ts'
import { createMeaningRanker, type MeaningRanker } from './meaning.ts'
import { createSegmentAnalyzer } from './segment-analysis.ts'
import { createRecursive } from './recursive.ts'
import type { SelectionTools } from './selection.ts'
import { createSlider, type SliderMode } from './slider.ts'
import type { Summarizer } from './summary.ts'
import {
  DEFAULT_THRESHOLDS,
  isOrdered,
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
  NEW_CONVERSATION,
  recallHistory,
  rememberSent,
  warmTokens,
  type History,
} from './upstream-cache.ts'
import { createVanishing, type LeastTarget } from './vanishing.ts'
import { createFailurePauses, createSmallModelPauses, type SmallModelPauses, createPurse } from './small-model.ts'

// Loaded together by the first request that savings concern, because each module that is loaded alone splits shared code.
export { createMemory } from './memory.ts'
export { markForCache } from './prompt-cache.ts'

export interface WaterfallOptions {
  readonly meter: Meter
  readonly store: Pick<Store, 'get' | 'set'>
  readonly now: Runtime['now']
  readonly after: Runtime['after']
  /** Yields to the event loop. Long conversations are read in slices. */
  readonly yieldToEventLoop: () => Promise<void>
  readonly thresholds?: Partial<Thresholds>
  /** Mode of the slider. @default 'auto' */
  readonly slider?: SliderMode
  /** Author of the summaries of tiers 3 and 4. @default 'model' */
  readonly summarizer?: Summarizer
  /** Ranks by meaning beside words, in tiers 5 and 2. @default none */
  readonly embedder?: Embedder
  /** Sizes of tier 2's prompt. */
  readonly vanishing?: { readonly targetShare?: number; readonly leastTarget?: LeastTarget }
  /** Replaces the order 5, 2, 3, 4. */
  readonly tiers?: readonly Tier[] | ((own: readonly Tier[]) => readonly Tier[])
}

/** The first ordered tier that succeeds makes the prompt, else the cheapest of those that pay. Never rejects. */
export function createWaterfall(options: WaterfallOptions): (job: TierJob) => Promise<WaterfallResult> {
  const { meter, yieldToEventLoop, after, now, store } = options
  const thresholds: Thresholds = { ...DEFAULT_THRESHOLDS, ...options.thresholds }
  const summarizer = options.summarizer ?? 'model'
  const pause = createPause(yieldToEventLoop)
  const tools: SelectionTools = { meter, read: createSegmentAnalyzer(meter.tokenizer.estimate, pause), pause }
  const memory = createMemory({ store, now })
  const pauses = createSmallModelPauses(now)
  const { embedder } = options
  const { estimate } = meter.tokenizer
  const ranker =
    embedder === undefined
      ? undefined
      : createMeaningRanker({ embedder, after, estimate, pauses: createFailurePauses(now), pause })
  const own: readonly Tier[] = [
    createSlider(tools, memory, options.slider === undefined ? {} : { mode: options.slider }),
    createVanishing(tools, memory, { ...options.vanishing, thresholds, after }),
    createRecursive(tools, memory, { thresholds, summarizer }),
    createFamilyLock(tools, memory, { thresholds, summarizer }),
  ]
  const tiers = typeof options.tiers === 'function' ? options.tiers(own) : (options.tiers ?? own)

  return async (given) => {
    if (given.steering.level === 'off') return { tokens: given.tokens, spent: ZERO, verdicts: [] }
    const job = withMeaning(watched(await measured(given, { meter, thresholds }), pauses), ranker, () => {})
    const followed = isWorthNoting(job, thresholds)
    const history = followed ? await orElse(NEW_CONVERSATION, recallHistory(memory, job)) : NEW_CONVERSATION
    const outcome = await runTiers(job.shadow === 'not-tried' ? [] : tiers, job, history, { meter, ranker })
    const isSent = outcome.rewrite !== undefined && job.shadow === undefined
    const sent = isSent
      ? { ...outcome.sentAs, spent: outcome.spent }
      : { tokens: job.tokens, warm: warmTokens(history.whole, job, history), spent: ZERO }
    const { sentAs: _, ...optimized } = outcome
    const next = followed ? await orElse(undefined, rememberSent(memory, job, history, sent)) : undefined
    if (next === undefined) return optimized
    const reportCacheRead = (read: number): Promise<void> =>
      orElse(undefined, correctTrust(memory, job, next, { warm: sent.warm, read }))
    return { ...optimized, reportCacheRead }
  }
}

interface Outcome extends WaterfallResult {
  readonly sentAs: { readonly tier?: TierNumber; readonly tokens: number; readonly warm: number }
}

/** Runs the ordered tiers, then the others that pay, until one makes the prompt. */
interface Means {
  readonly meter: Meter
  readonly ranker: MeaningRanker | undefined
}

async function runTiers(
  tiers: readonly Tier[],
  job: TierJob,
  history: History,
  { meter, ranker }: Means,
): Promise<Outcome> {
  const verdicts = new Map<Tier, TierVerdict>()
  const queue = await queueOf(tiers, job, history, { meter, verdicts })
  let declined: Declined = { spent: ZERO }
  let ordered: NanoUsd = ZERO
  const inOrder = (): TierVerdict[] => tiers.flatMap((tier) => verdicts.get(tier) ?? [])
  for (const candidate of queue) {
    const { tier } = candidate
    if (!mayFollow(candidate, declined)) {
      verdicts.set(tier, { tier: tier.tier, outcome: 'does-not-pay', reason: 'costs more than the tier that declined' })
      continue
    }
    const attempted = await attempt(tier, forTiers(job), { meter, ranker })
    const spent = add(declined.spent, attempted.spent)
    if (isOrdered(job, tier.tier)) ordered = add(ordered, attempted.spent)
    verdicts.set(tier, attempted.verdict)
    const { rewrite, tokens } = attempted
    if (rewrite === undefined) {
      declined = { ...(await leastCalls(declined, candidate, forTiers(job))), spent }
      continue
    }
    const continues = attempted.continues && history.rewritten.tier === tier.tier
    const warm = continues ? warmTokens(history.rewritten, job, history) : 0
    const sentAs = { tier: rewrite.tier, tokens: rewrite.tokens, warm }
    return { rewrite, tokens, spent, ordered, verdicts: inOrder(), sentAs }
  }
  const { spent } = declined
  return { tokens: job.tokens, spent, ordered, verdicts: inOrder(), sentAs: { tokens: job.tokens, warm: 0 } }
}

/** What the tiers that declined would have asked of the small model at the least, this one included. */
async function leastCalls(
  { calls }: Declined,
  candidate: TierCandidate,
  job: TierJob,
): Promise<Pick<Declined, 'calls'>> {
  const expected = candidate.expected ?? (await orElse(undefined, Promise.resolve(candidate.tier.forecast?.(job))))
  if (expected === undefined) return calls === undefined ? {} : { calls }
  return { calls: calls === undefined || expected.calls < calls ? expected.calls : calls }
}

interface Notes {
  readonly meter: Meter
  readonly verdicts: Map<Tier, TierVerdict>
}

/** The tiers to try: those that are ordered, then the others that pay, cheapest first. */
async function queueOf(
  tiers: readonly Tier[],
  job: TierJob,
  history: History,
  { meter, verdicts }: Notes,
): Promise<readonly TierCandidate[]> {
  const note = (tier: Tier, outcome: TierVerdict['outcome'], reason: string): void => {
    verdicts.set(tier, { tier: tier.tier, outcome, reason })
  }
  const ordered: TierCandidate[] = []
  const open: Tier[] = []
  for (const tier of tiers) {
    if (!tier.wants(job)) note(tier, 'not-wanted', 'neither a header nor the size calls for it')
    else if (isOrdered(job, tier.tier)) ordered.push({ tier })
    else if (hasCacheMarks(job.prompt)) note(tier, 'declined', 'the caller marked a prefix with cache_control')
    else open.push(tier)
  }
  const paying = await orElse([], chooseTiers(open, forTiers(job), history, meter))
  for (const tier of open) {
    if (!paying.some((one) => one.tier === tier)) note(tier, 'does-not-pay', 'sending everything costs less')
  }
  return [...ordered, ...paying]
}

/** State of a conversation is optional, so a failure to read or write it is ignored. */
async function orElse<value>(otherwise: value, work: Promise<value>): Promise<value> {
  try {
    return await work
  } catch {
    return otherwise
  }
}

/** The job with an exact size where the estimate is too near to a threshold to decide. */
async function measured(
  job: TierJob,
  { meter, thresholds }: { readonly meter: Meter; readonly thresholds: Thresholds },
): Promise<TierJob> {
  if (job.steering.level !== undefined || job.shadow === 'not-tried') return job
  const { signal, prompt } = job
  const near = Object.values(thresholdsFor(job, thresholds))
  return { ...job, tokens: await orElse(job.tokens, meter.sizeNear(prompt, near, signal)) }
}

/** Small conversations are never rewritten without an order, so their history is not kept. */
function isWorthNoting(job: TierJob, thresholds: Thresholds): boolean {
  return job.tokens > Math.min(...Object.values(thresholdsFor(job, thresholds))) / 2
}

/** The job with a small model that is paused when it fails again and again in this conversation. */
function watched(job: TierJob, pauses: SmallModelPauses): TierJob {
  const { small, owner, signal, prompt } = job
  if (small === undefined) return job
  const { chain, segments } = conversationOf(prompt)
  const conversation = `${owner} ${chain.at(Math.min(1, segments.length))}`
  return { ...job, small: pauses.watch(small, { conversation, signal }) }
}

/** The job with the configured embedder. `onSpent` is called with the cost of each of its calls. */
function withMeaning(job: TierJob, ranker: MeaningRanker | undefined, onSpent: (cost: NanoUsd) => void): TierJob {
  if (ranker === undefined) return job
  const meaning: TierJob['meaning'] = {
    similarities: (conversation) => ranker.compare(conversation, job, onSpent),
    price: (conversation) => ranker.price(conversation, job.owner),
  }
  return { ...job, meaning }
}

/** What a trial remembers is found by trials only: it was never sent. */
function forTiers(job: TierJob): TierJob {
  return job.shadow === undefined ? job : { ...job, owner: `${job.owner} shadow` }
}

/** The result of one tier. */
interface Attempt {
  readonly rewrite?: Rewrite
  /** Exact tokens of the received prompt. Present with a rewrite. */
  readonly tokens: number
  readonly spent: NanoUsd
  readonly verdict: TierVerdict
  /** True when the prompt begins with what the tier sent on the turn before. */
  readonly continues: boolean
}

/** Runs a tier. Never rejects: a failure becomes a verdict. */
async function attempt(tier: Tier, job: TierJob, { meter, ranker }: Means): Promise<Attempt> {
  const { tokens } = job
  const verdictOf = (outcome: TierVerdict['outcome'], reason: string): TierVerdict => ({
    tier: tier.tier,
    outcome,
    reason,
  })
  let embedded: NanoUsd = ZERO
  const pass = (verdict: TierVerdict, spent: NanoUsd): Attempt => ({
    tokens,
    spent: add(spent, embedded),
    verdict,
    continues: false,
  })
  const purse = createPurse(job.small)
  const paying = withMeaning({ ...job, small: purse.small }, ranker, (cost) => {
    embedded = add(embedded, cost)
  })
  try {
    const result = await tier.rewrite(paying)
    if ('declined' in result) return pass(verdictOf('declined', result.declined), result.spent)
    const original = await meter.countOf(job.prompt, job.signal)
    if (result.rewrite.tokens >= original) return pass(verdictOf('declined', 'not smaller than before'), result.spent)
    const { rewrite, continues = false } = result
    const spent = add(result.spent, embedded)
    return { rewrite, tokens: original, spent, continues, verdict: verdictOf('chosen', rewrite.strategy) }
  } catch (error) {
    return pass(verdictOf('failed', error instanceof Error ? error.message : 'unknown error'), purse.spent())
  }
}
