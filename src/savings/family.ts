import { add, ZERO, type NanoUsd } from '../core/money.ts'
import { estimateMessages, growthOf } from './choose-tiers.ts'
import { type Conversation, conversationOf, type Segment } from './conversation.ts'
import { cutToQuery, repeatCut, snapshotOf } from './cut.ts'
import {
  bestGrowth,
  type ConversationMemory,
  isWarm,
  recallSnapshot,
  rememberLatest,
  sendingCost,
  type Snapshot,
} from './memory.ts'
import { authorOf } from './models.ts'
import type { SelectionTools } from './selection.ts'
import { serializeSegment, stubTokens, summarize, summaryNotice, summaryOf, type SummaryOptions } from './summary.ts'
import { isWanted, thresholdsFor, type Tier, type TierForecast, type TierJob, type TierResult } from './tier.ts'

/** Size after a cut, as a fraction of the threshold. */
const TARGET_SHARE = 0.6
const SUMMARY_SHARE = 0.1
const HEADING_TOKENS = 60
const NEWEST_MESSAGES = 5
const MAX_LIMIT_FACTOR = 3
const KIND = 'family'

/** Between two cuts, the prompt prefix stays the same, so the upstream can read it from its cache. */
export function createFamilyLock(
  tools: SelectionTools,
  memory: ConversationMemory,
  { thresholds, summarizerOf }: SummaryOptions,
): Tier {
  const rewrite = async (job: TierJob): Promise<TierResult> => {
    const snapshot = await recallSnapshot(memory, job, KIND)
    const repeated = snapshot === undefined ? undefined : await repeatCut(job, snapshot, tools)
    if (repeated === undefined || repeated.tokens > limitFor(job, snapshot)) return createCut(job, snapshot)
    await rememberLatest(memory, job, KIND, { ...repeated.snapshot, at: job.now })
    const { prompt, tokens } = repeated
    return { rewrite: { prompt, tokens, tier: 4, strategy: strategyOf(job) }, spent: ZERO, continues: true }
  }

  const summaryCost = (job: TierJob, readTokens: number): NanoUsd =>
    summarizerOf(job)?.price(Math.round(readTokens), summaryTokens(job)) ?? ZERO

  const targetFor = (job: TierJob): number => Math.round(thresholdsFor(job, thresholds).family * TARGET_SHARE)
  const summaryTokens = (job: TierJob): number => Math.round(targetFor(job) * SUMMARY_SHARE)

  /** The size above which the prompt is cut again. Growth of a cached prompt costs less than a cut. */
  const limitFor = (job: TierJob, snapshot: Snapshot | undefined): number => {
    const threshold = thresholdsFor(job, thresholds).family
    const minTokens = expectedSize(job)
    if (snapshot !== undefined && !isWarm(snapshot, job.now)) return Math.max(threshold, minTokens)
    const cutCost = add(sendingCost(job.model, minTokens, 0), summaryCost(job, summarizedTokens(job, threshold)))
    const optimum = minTokens + bestGrowth(job.model, cutCost, growthOf(job, tools.meter))
    return Math.min(MAX_LIMIT_FACTOR * threshold, Math.max(threshold, optimum))
  }

  const cutOptionsFor = (job: TierJob) => {
    const target = targetFor(job)
    const minNewest = { messages: NEWEST_MESSAGES, tokens: target / 4 }
    const liveCap = thresholdsFor(job, thresholds).family
    return { cap: target, liveCap, minNewest, noticeTokens: summaryTokens(job) + HEADING_TOKENS }
  }

  const expectedSize = (job: TierJob): number => {
    const { system, turns } = conversationOf(job.prompt)
    const { cap, liveCap, minNewest, noticeTokens } = cutOptionsFor(job)
    const live = turns.live.flatMap((segment) => segment.messages)
    const fixedTokens = estimateMessages([...system, ...live], tools.meter)
    let capacity = liveCap - fixedTokens
    if (capacity < noticeTokens) return cap
    let messageCount = live.length
    let newestTokens = 0
    for (const { messages } of turns.old.toReversed()) {
      const size = estimateMessages(messages, tools.meter)
      const hasMinimum = messageCount >= minNewest.messages && newestTokens >= minNewest.tokens
      if (hasMinimum || size > capacity) break
      capacity -= size
      newestTokens += size
      messageCount += messages.length
    }
    return Math.max(cap, fixedTokens + newestTokens + noticeTokens)
  }

  const createCut = async (job: TierJob, snapshot: Snapshot | undefined): Promise<TierResult> => {
    const conversation = conversationOf(job.prompt)
    const { signal } = job
    let text = snapshot === undefined ? undefined : summaryOf(snapshot.notice)
    let spent: NanoUsd = ZERO
    const summarized = new Set<Segment>()
    /** Called once per attempt to cut. */
    const createNotice = async (cut: readonly Segment[], size: number): Promise<string> => {
      const segments = unsummarized(conversation, cut, snapshot).filter((segment) => !summarized.has(segment))
      for (const segment of segments) summarized.add(segment)
      if (segments.length > 0 || text === undefined) {
        const added = segments.map((segment) => serializeSegment(segment, 'stub')).join('\n')
        const target = { maxTokens: summaryTokens(job), small: summarizerOf(job), tools, signal }
        const summary = await summarize({ text: added, earlier: text, ...target })
        spent = add(spent, summary.spent)
        text = summary.text
      }
      return summaryNotice(text, size)
    }
    const cut = await cutToQuery(job, { ...cutOptionsFor(job), createNotice }, tools)
    if (cut === undefined) return { declined: 'no message can be left out', spent }
    await rememberLatest(memory, job, KIND, snapshotOf(job, cut))
    return { rewrite: { prompt: cut.prompt, tokens: cut.tokens, tier: 4, strategy: strategyOf(job) }, spent }
  }

  const strategyOf = (job: TierJob): string => `Family-Lock (${authorOf(summarizerOf(job))} -> ${job.modelName})`

  /** The summarizer reads stubs instead of the tool results. */
  const summarizedTokens = (job: TierJob, tokens: number): number => {
    const { old } = conversationOf(job.prompt).turns
    const stubSize = old.reduce((sum, segment) => sum + stubTokens(segment, tools.meter), 0)
    return tokens * Math.min(1, stubSize / Math.max(1, job.tokens))
  }

  const forecast = async (job: TierJob): Promise<TierForecast> => {
    const target = targetFor(job)
    const snapshot = await recallSnapshot(memory, job, KIND)
    const limit = limitFor(job, snapshot)
    const nextCut = { limit, target, callCost: summaryCost(job, summarizedTokens(job, limit)) }
    const size = expectedSize(job)
    if (snapshot === undefined) {
      return { tokens: size, callCost: summaryCost(job, summarizedTokens(job, job.tokens - target)), nextCut }
    }
    const { tokens } = await repeatCut(job, snapshot, tools)
    return tokens > limit
      ? { tokens: size, callCost: nextCut.callCost, nextCut }
      : { tokens, callCost: ZERO, nextCut, continues: true }
  }

  return { tier: 4, wants: (job) => isWanted(job, 4, thresholds), forecast, rewrite }
}

/** The last summary covers neither newer segments nor those that were sent unchanged alongside it. */
function unsummarized(
  conversation: Conversation,
  cut: readonly Segment[],
  snapshot: Snapshot | undefined,
): readonly Segment[] {
  if (snapshot === undefined) return cut
  const unchanged = new Set(snapshot.picks.flatMap(([index, first]) => (first === -1 ? [index] : [])))
  const indexes = new Map(conversation.segments.map((segment, index) => [segment, index]))
  return cut.filter((segment) => {
    const index = indexes.get(segment) ?? 0
    return index >= snapshot.from || unchanged.has(index)
  })
}
