import { add, ZERO, type NanoUsd } from '../core/money.ts'
import type { Meter } from '../core/ports.ts'
import { type CutOptions, cutToQuery } from './cut.ts'
import { growthOf } from './choose-tiers.ts'
import {
  type Conversation,
  type ConversationMemory,
  conversationOf,
  recallAt,
  rememberAt,
  type Segment,
} from './conversation.ts'
import { parseSnapshot, rebuild, restoreSelection, type Snapshot, snapshotOf } from './excerpt.ts'
import type { SelectionTools } from './selection.ts'
import { stubTokens, summarize, summaryNotice, summaryOf, serializeSegment, type SummaryOptions } from './summary.ts'
import {
  isWanted,
  type Rewrite,
  thresholdsFor,
  type Tier,
  type TierForecast,
  type TierJob,
  type TierResult,
} from './tier.ts'
import { bestGrowth, isWarm, sendingCost } from './upstream-cache.ts'
import { controllerOf, type SmallModel } from './models.ts'

/** Size after a cut, as a fraction of the threshold: by default, 12,000 of 20,000 tokens. */
const TARGET_SHARE = 0.6
const SUMMARY_SHARE = 0.1
const HEADING_TOKENS = 60
const NEWEST_MESSAGES = 5
const MAX_LIMIT_FACTOR = 3
const KIND = 'family'

/**
 * Tier 4: replaces old messages with a summary, and extends the summary when the prompt exceeds its limit. Between two
 * cuts, the prompt prefix stays the same, so the upstream can read it from its cache.
 */
export function createFamilyLock(
  tools: SelectionTools,
  memory: ConversationMemory,
  { thresholds, summarizer }: SummaryOptions,
): Tier {
  const smallOf = (job: TierJob): SmallModel | undefined => (summarizer === 'extractive' ? undefined : job.small)

  const rewrite = async (job: TierJob): Promise<TierResult> => {
    const conversation = conversationOf(job.prompt)
    const snapshot = parseSnapshot(await recallAt(memory, job, KIND))
    const repeated = snapshot === undefined ? undefined : await repeatCut(job, conversation, snapshot)
    if (repeated === undefined || repeated.tokens > limitFor(job, snapshot))
      return cutAgain(job, conversation, snapshot)
    const value = JSON.stringify({ ...snapshot, at: job.now })
    await rememberAt(memory, job, KIND, value)
    return { rewrite: { ...repeated, tier: 4, strategy: strategyOf(job) }, spent: ZERO, continues: true }
  }

  const summaryCost = (job: TierJob, readTokens: number): NanoUsd =>
    smallOf(job)?.price(Math.round(readTokens), summaryTokens(job)) ?? ZERO

  const targetFor = (job: TierJob): number => Math.round(thresholdsFor(job, thresholds).family * TARGET_SHARE)
  const summaryTokens = (job: TierJob): number => Math.round(targetFor(job) * SUMMARY_SHARE)

  /**
   * Returns the size above which the prompt is cut again. While the upstream has the prompt cached, growth costs less
   * than a cut.
   */
  const limitFor = (job: TierJob, snapshot: Snapshot | undefined): number => {
    const threshold = thresholdsFor(job, thresholds).family
    const minTokens = expectedSize(conversationOf(job.prompt), limitsFor(job), tools.meter)
    if (snapshot !== undefined && !isWarm(snapshot, job.now)) return Math.max(threshold, minTokens)
    const cutCost = add(sendingCost(job.model, minTokens, 0), summaryCost(job, summarizedTokens(job, threshold)))
    const best = minTokens + bestGrowth(job.model, cutCost, growthOf(job, tools.meter))
    return Math.min(MAX_LIMIT_FACTOR * threshold, Math.max(threshold, best))
  }

  const repeatCut = async (
    job: TierJob,
    conversation: Conversation,
    snapshot: Snapshot,
  ): Promise<Pick<Rewrite, 'prompt' | 'tokens'>> => {
    const selection = await restoreSelection(conversation, snapshot, (segment) => tools.analyze(segment, job.owner))
    const prompt = rebuild(job.prompt, conversation.turns, selection, snapshot)
    return { prompt, tokens: await tools.meter.countOf(prompt, job.signal) }
  }

  const limitsFor = (job: TierJob) => {
    const target = targetFor(job)
    const newest = { messages: NEWEST_MESSAGES, tokens: target / 4 }
    const liveCap = thresholdsFor(job, thresholds).family
    return { cap: target, liveCap, newest, noticeTokens: summaryTokens(job) + HEADING_TOKENS }
  }

  const cutAgain = async (
    job: TierJob,
    conversation: Conversation,
    snapshot: Snapshot | undefined,
  ): Promise<TierResult> => {
    const maxTokens = summaryTokens(job)
    let text: string | undefined
    let spent: NanoUsd = ZERO
    const summarized = new Set<Segment>()
    /**
     * Builds the notice for one attempt to cut. Adds to the summary only the segments that no earlier attempt has
     * summarized.
     */
    const notice = async (cut: readonly Segment[], size: number): Promise<string> => {
      const segments = unsummarized(conversation, cut, snapshot).filter((segment) => !summarized.has(segment))
      for (const segment of segments) summarized.add(segment)
      const earlier = text ?? (snapshot === undefined ? undefined : summaryOf(snapshot.notice))
      if (segments.length > 0 || earlier === undefined) {
        const added = segments.map((segment) => serializeSegment(segment, 'stub')).join('\n')
        const request = { text: added, maxTokens, small: smallOf(job), tools, signal: job.signal }
        const summary = await summarize(earlier === undefined ? request : { ...request, earlier })
        spent = add(spent, summary.spent)
        text = summary.text
      }
      return summaryNotice(text ?? earlier ?? '', size)
    }
    const cut = await cutToQuery(job, conversation, { ...limitsFor(job), notice }, tools)
    if (cut === undefined) return { declined: 'no message can be left out', spent }
    const value = JSON.stringify(snapshotOf(conversation, cut.selected, cut.notice, job.now))
    await rememberAt(memory, job, KIND, value)
    return { rewrite: { prompt: cut.prompt, tokens: cut.tokens, tier: 4, strategy: strategyOf(job) }, spent }
  }

  const strategyOf = (job: TierJob): string => `Family-Lock (${controllerOf(smallOf(job))} -> ${job.modelName})`

  /**
   * Returns how many tokens a summarizer reads for `tokens` tokens of conversation. Stubs replace tool results, so it
   * reads fewer.
   */
  const summarizedTokens = (job: TierJob, tokens: number): number => {
    const { old } = conversationOf(job.prompt).turns
    const stubs = old.reduce((sum, segment) => sum + stubTokens(segment, tools.meter), 0)
    return tokens * Math.min(1, stubs / Math.max(1, job.tokens))
  }

  const forecast = async (job: TierJob): Promise<TierForecast> => {
    const target = targetFor(job)
    const conversation = conversationOf(job.prompt)
    const snapshot = parseSnapshot(await recallAt(memory, job, KIND))
    const limit = limitFor(job, snapshot)
    const steady = { limit, target, calls: summaryCost(job, summarizedTokens(job, limit)) }
    const size = expectedSize(conversation, limitsFor(job), tools.meter)
    if (snapshot === undefined) {
      return { tokens: size, calls: summaryCost(job, summarizedTokens(job, job.tokens - target)), steady }
    }
    const { tokens } = await repeatCut(job, conversation, snapshot)
    return tokens > limit
      ? { tokens: size, calls: steady.calls, steady }
      : { tokens, calls: ZERO, steady, continues: true }
  }

  return { tier: 4, wants: (job) => isWanted(job, 4, thresholds), forecast, rewrite }
}

/**
 * Returns the cut segments that the last summary does not cover: newer segments, and those sent unchanged alongside it.
 */
function unsummarized(
  conversation: Conversation,
  cut: readonly Segment[],
  snapshot: Snapshot | undefined,
): readonly Segment[] {
  if (snapshot === undefined) return cut
  const unchanged = new Set(snapshot.picks.flatMap(([at, first]) => (first === -1 ? [at] : [])))
  const indexes = new Map(conversation.segments.map((segment, at) => [segment, at]))
  return cut.filter((segment) => {
    const at = indexes.get(segment) ?? 0
    return at >= snapshot.from || unchanged.has(at)
  })
}

type Limits = Required<Pick<CutOptions, 'cap' | 'liveCap' | 'newest' | 'noticeTokens'>>

function expectedSize(
  { prompt, turns }: Conversation,
  limits: Limits,
  meter: Pick<Meter, 'estimateOfMessage'>,
): number {
  const sizeOf = ({ messages }: Pick<Segment, 'messages'>): number =>
    messages.reduce((sum, message) => sum + meter.estimateOfMessage(message), 0)
  const system = sizeOf({ messages: prompt.messages.filter(({ role }) => role === 'system') })
  const live = turns.live.reduce((sum, segment) => sum + sizeOf(segment), 0)
  let capacity = limits.liveCap - system - live
  if (capacity < limits.noticeTokens) return limits.cap
  let messages = turns.live.reduce((sum, segment) => sum + segment.messages.length, 0)
  let newest = 0
  for (const segment of turns.old.toReversed()) {
    const size = sizeOf(segment)
    const hasMinimum = messages >= limits.newest.messages && newest >= limits.newest.tokens
    if (hasMinimum || size > capacity) break
    capacity -= size
    newest += size
    messages += segment.messages.length
  }
  return Math.max(limits.cap, system + live + newest + limits.noticeTokens)
}
