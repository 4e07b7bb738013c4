import { add, ZERO, type NanoUsd } from '../../core/money.ts'
import { estimateMessages, growthOf } from './choose-tiers.ts'
import { type Conversation, conversationOf, type Segment } from './conversation.ts'
import { summaryNotice, summaryOf } from './cut.ts'
import { kindOf, sizeWithin } from './floor.ts'
import { bestGrowth, type ConversationMemory, isWarm, recallSnapshot, sendingCost, type Snapshot } from './memory.ts'
import { authorOf } from './models.ts'
import {
  beginCut,
  blockShareFor,
  continueCut,
  repeatedTokens,
  type RunningCut,
  type RunningCutOptions,
} from './running-cut.ts'
import type { SelectionTools } from './selection.ts'
import { serializeSegment, stubTokens, summarize, type SummaryOptions } from './summary.ts'
import { type KeptEvidence, type Tier, type TierForecast, type TierJob, type TierResult } from './tier.ts'
import { isWanted, thresholdsFor } from './wanted.ts'

/** Smallest size of a cut prompt, as a fraction of the threshold. */
const FAMILY_TARGET_SHARE = 0.6
const FAMILY_SUMMARY_SHARE = 0.1
const MAX_SUMMARY_TOKENS = 2000
const FAMILY_HEADING_TOKENS = 60
const NEWEST_MESSAGES = 5
const MAX_LIMIT_FACTOR = 3
const MAX_TARGET_FACTOR = 1.5
const FAMILY_KIND = 'family'

/** Between two cuts, the prompt prefix stays the same, so the upstream can read it from its cache. */
export function createFamilyLock(
  tools: SelectionTools,
  memory: ConversationMemory,
  { thresholds, keep, summarizerOf }: SummaryOptions,
): Tier {
  const rewrite = async (job: TierJob): Promise<TierResult> => {
    const snapshot = await recallSnapshot(memory, job, FAMILY_KIND)
    const running = { kind: FAMILY_KIND, ...sizesFor(job, snapshot) }
    const continued = snapshot && (await continueCut(job, memory, { ...running, snapshot }, tools))
    if (continued !== undefined) return { ...toResult(job, continued, ZERO), continues: true }
    const { createNotice, spent } = createSummaries(job, snapshot)
    const cut = { ...cutOptionsFor(job), createNotice }
    const begun = await beginCut(job, memory, { ...running, cut }, tools)
    return begun === undefined
      ? { declined: 'no message can be left out', spent: spent() }
      : toResult(job, begun, spent())
  }

  const toResult = (job: TierJob, { prompt, tokens, stableTokens }: RunningCut, spent: NanoUsd) => {
    const strategy = `Family-Lock (${authorOf(summarizerOf(job))} -> ${job.modelName})`
    return { rewrite: { prompt, tokens, tier: 4, strategy }, spent, stableTokens } as const
  }

  const summaryCost = (job: TierJob, readTokens: number): NanoUsd =>
    summarizerOf(job)?.price(Math.round(readTokens), summaryTokens(job)) ?? ZERO

  const keeps = (job: TierJob): KeptEvidence => {
    const sending = { method: 'running', kind: kindOf(job.prompt), received: job.tokens } as const
    return sizeWithin(sending, keep, Math.round(thresholdsFor(job, thresholds).family * FAMILY_TARGET_SHARE))
  }

  const targetFor = (job: TierJob): number => keeps(job).tokens
  const summaryTokens = (job: TierJob): number =>
    Math.min(MAX_SUMMARY_TOKENS, Math.round(targetFor(job) * FAMILY_SUMMARY_SHARE))
  /** Without a floor, the cheapest prompt is asked for, and a block costs more than all the rest. */
  const blockFor = (job: TierJob): number => (keep > 0 ? Math.round(targetFor(job) * blockShareFor(job)) : 0)

  const sizesFor = (job: TierJob, snapshot: Snapshot | undefined): Omit<RunningCutOptions, 'kind'> => {
    const block = blockFor(job)
    return { cap: limitFor(job, snapshot), minBlock: block, maxBlock: block }
  }

  /** The size above which the prompt is cut again. Often higher for a cached prompt, because a cut changes it. */
  const limitFor = (job: TierJob, snapshot: Snapshot | undefined): number => {
    const threshold = thresholdsFor(job, thresholds).family
    const minTokens = expectedSize(job) + blockFor(job)
    if (snapshot !== undefined && !isWarm(snapshot, job.now)) return Math.max(threshold, minTokens)
    const cutCost = add(sendingCost(job.model, minTokens, 0), summaryCost(job, summarizedTokens(job, threshold)))
    const optimum = minTokens + bestGrowth(job.model, cutCost, growthOf(job, tools.meter))
    const max = Math.max(MAX_LIMIT_FACTOR * threshold, MAX_TARGET_FACTOR * targetFor(job))
    return Math.min(max, Math.max(threshold, optimum))
  }

  const cutOptionsFor = (job: TierJob) => {
    const target = targetFor(job)
    const minNewest = { messages: NEWEST_MESSAGES, tokens: target / 4 }
    const liveCap = Math.max(target, thresholdsFor(job, thresholds).family)
    const noticeTokens = summaryTokens(job) + FAMILY_HEADING_TOKENS
    return { cap: target - blockFor(job), liveCap, minNewest, noticeTokens }
  }

  const expectedSize = (job: TierJob): number => {
    const { system, turns } = conversationOf(job.prompt)
    const { cap, liveCap, minNewest, noticeTokens } = cutOptionsFor(job)
    const live = turns.live.flatMap((segment) => segment.messages)
    const fixed = turns.old.filter(({ isFixed }) => isFixed).flatMap(({ messages }) => messages)
    const fixedTokens = estimateMessages([...system, ...fixed, ...live], tools.meter)
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

  const createSummaries = (job: TierJob, snapshot: Snapshot | undefined) => {
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
    return { createNotice, spent: () => spent }
  }

  /** The summarizer reads stubs instead of the tool results. */
  const summarizedTokens = (job: TierJob, tokens: number): number => {
    const { old } = conversationOf(job.prompt).turns
    const stubSize = old.reduce((sum, segment) => sum + stubTokens(segment, tools.meter), 0)
    return tokens * Math.min(1, stubSize / Math.max(1, job.tokens))
  }

  const forecast = async (job: TierJob): Promise<TierForecast> => {
    const target = targetFor(job)
    const snapshot = await recallSnapshot(memory, job, FAMILY_KIND)
    const { cap: limit, minBlock: blockTokens } = sizesFor(job, snapshot)
    const nextCut = { limit, target, callCost: summaryCost(job, summarizedTokens(job, limit)) }
    const size = expectedSize(job) + blockTokens
    if (snapshot === undefined) {
      const callCost = summaryCost(job, summarizedTokens(job, job.tokens - target))
      return { tokens: size, blockTokens, callCost, nextCut }
    }
    const tokens = (await repeatedTokens(job, snapshot, tools)) + blockTokens
    return tokens > limit
      ? { tokens: size, blockTokens, callCost: nextCut.callCost, nextCut }
      : { tokens, blockTokens, callCost: ZERO, nextCut, continues: true }
  }

  return { tier: 4, wants: (job) => isWanted(job, 4, thresholds), keeps, forecast, rewrite }
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
