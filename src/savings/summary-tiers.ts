import { add, ZERO, type NanoUsd } from '../core/money.ts'
import { sha256 } from '#hash'
import { estimateMessages, growthOf } from './choose-tiers.ts'
import { type Conversation, conversationOf, type Segment } from './conversation.ts'
import { cutToQuery, repeatCut, snapshotOf, summaryNotice, summaryOf } from './cut.ts'
import { mapWithPauses } from './keywords.ts'
import {
  bestGrowth,
  type ConversationMemory,
  isWarm,
  recallSnapshot,
  rememberLatest,
  sendingCost,
  type Snapshot,
} from './memory.ts'
import { authorOf, EXTRACTIVE } from './models.ts'
import type { SelectionTools } from './selection.ts'
import {
  chunkSegments,
  joinTexts,
  MAX_CHUNKS,
  PROMPT_VERSION,
  serializeSegment,
  stubTokens,
  summarize,
  type Summary,
  type SummaryOptions,
} from './summary.ts'
import { isWanted, thresholdsFor, type Tier, type TierForecast, type TierJob, type TierResult } from './tier.ts'

const MAX_TARGET_TOKENS = 20_480
const MAX_TARGET_SHARE = 0.45
/** A chunk and its summary have at most 10,000 estimated tokens. */
const CHUNK_TOKENS = 9200
const CHUNK_SUMMARY_TOKENS = 800
const RECURSIVE_SUMMARY_SHARE = 0.25
const MAX_DEPTH = 5
const MIN_SAVED_SHARE = 0.2
const MAX_PARALLEL_CALLS = 4
const LIVE_CAP = 32_768
const RECURSIVE_HEADING_TOKENS = 80

interface Summaries {
  readonly texts: readonly string[]
  readonly spent: NanoUsd
}

/** Tier 3: summarizes the old messages in chunks, and summarizes the joined summaries again if they are too long. */
export function createRecursive(
  tools: SelectionTools,
  memory: ConversationMemory,
  { thresholds, summarizerOf }: SummaryOptions,
): Tier {
  const targetFor = (job: TierJob): number => Math.min(MAX_TARGET_TOKENS, Math.round(job.tokens * MAX_TARGET_SHARE))
  const { estimate } = tools.meter.tokenizer

  const rewrite = async (job: TierJob): Promise<TierResult> => {
    const { turns } = conversationOf(job.prompt)
    const { chunks, remainder } = await chunkSegments(turns.old, CHUNK_TOKENS, tools)
    if (chunks.length === 0) return { declined: 'the older messages do not fill one chunk', spent: ZERO }
    if (chunks.length > MAX_CHUNKS) return { declined: `there are more than ${MAX_CHUNKS} chunks`, spent: ZERO }
    const target = targetFor(job)
    const { texts, spent } = await condense(job, chunks, Math.round(target * RECURSIVE_SUMMARY_SHARE))
    const summary = texts.join('\n\n')
    const createNotice = async (_: readonly Segment[], size: number): Promise<string> => summaryNotice(summary, size)
    const noticeTokens = (await tools.meter.tokenizer.count(summary, job.signal)) + RECURSIVE_HEADING_TOKENS
    const cap = Math.max(target, noticeTokens + target / 2)
    const unsummarized = [...remainder, ...turns.live].flatMap((segment) => segment.messages)
    const minNewest = { messages: unsummarized.length, tokens: 0 }
    const cut = await cutToQuery(job, { cap, liveCap: LIVE_CAP, noticeTokens, createNotice, minNewest }, tools)
    if (cut === undefined) return { declined: 'no message can be left out', spent }
    const strategy = `Recursive-RLM (controller: ${authorOf(summarizerOf(job))})`
    return { rewrite: { prompt: cut.prompt, tokens: cut.tokens, tier: 3, strategy }, spent }
  }

  const condense = async (job: TierJob, chunks: readonly string[], maxTokens: number): Promise<Summaries> => {
    let texts = chunks
    let spent: NanoUsd = ZERO
    for (let depth = 1; depth <= MAX_DEPTH; depth++) {
      const summaries = await summarizeAll(job, texts)
      spent = add(spent, summaries.spent)
      const tokensBefore = await sizeOf(texts)
      texts = summaries.texts
      const tokens = await sizeOf(texts)
      if (tokens <= maxTokens || texts.length === 1 || tokens > tokensBefore * (1 - MIN_SAVED_SHARE)) break
      texts = await joinTexts(texts, { maxTokens: CHUNK_TOKENS, separator: '\n\n', marginTokens: 0 }, tools)
    }
    return { texts, spent }
  }

  const sizeOf = async (texts: readonly string[]): Promise<number> => {
    const sizes = await mapWithPauses(texts, tools.pause, estimate)
    return sizes.reduce((sum, size) => sum + size, 0)
  }

  const summarizeAll = async (job: TierJob, texts: readonly string[]): Promise<Summaries> => {
    const summaries: string[] = Array.from({ length: texts.length }, () => '')
    let spent: NanoUsd = ZERO
    let next = 0
    const summarizeRemaining = async (): Promise<void> => {
      for (let index = next++; index < texts.length; index = next++) {
        const summary = await summarizeChunk(job, texts[index] ?? '')
        summaries[index] = summary.text
        spent = add(spent, summary.spent)
        await tools.pause()
      }
    }
    await Promise.all(Array.from({ length: MAX_PARALLEL_CALLS }, summarizeRemaining))
    return { texts: summaries, spent }
  }

  /** Prefers a stored summary by the small model, even while the model is paused. */
  const summarizeChunk = async (job: TierJob, text: string): Promise<Pick<Summary, 'text' | 'spent'>> => {
    const { owner, signal } = job
    const small = summarizerOf(job)
    const hash = sha256(text)
    const keyOf = (author: string): string => `chunk:${PROMPT_VERSION}:${author}:${hash}`
    for (const author of new Set([small?.name ?? EXTRACTIVE, authorOf(small)])) {
      const stored = await memory.recall(owner, keyOf(author))
      if (stored !== undefined) return { text: stored, spent: ZERO }
    }
    const summary = await summarize({ text, maxTokens: CHUNK_SUMMARY_TOKENS, small, tools, signal })
    await memory.remember(owner, keyOf(summary.author), summary.text)
    return summary
  }

  const forecast = (job: TierJob): TierForecast => {
    const priceOf = (promptTokens: number, outputTokens: number): NanoUsd =>
      summarizerOf(job)?.price(promptTokens, outputTokens) ?? ZERO
    const callCost = priceOf(job.tokens, Math.ceil(job.tokens / CHUNK_TOKENS) * CHUNK_SUMMARY_TOKENS)
    return { tokens: targetFor(job), callCost, callCostPerTurn: priceOf(CHUNK_TOKENS, CHUNK_SUMMARY_TOKENS) }
  }

  return { tier: 3, wants: (job) => isWanted(job, 3, thresholds), forecast, rewrite }
}

/** Target size of a cut prompt, as a fraction of the threshold. */
const FAMILY_TARGET_SHARE = 0.6
const FAMILY_SUMMARY_SHARE = 0.1
const FAMILY_HEADING_TOKENS = 60
const NEWEST_MESSAGES = 5
const MAX_LIMIT_FACTOR = 3
const FAMILY_KIND = 'family'

/** Between two cuts, the prompt prefix stays the same, so the upstream can read it from its cache. */
export function createFamilyLock(
  tools: SelectionTools,
  memory: ConversationMemory,
  { thresholds, summarizerOf }: SummaryOptions,
): Tier {
  const rewrite = async (job: TierJob): Promise<TierResult> => {
    const snapshot = await recallSnapshot(memory, job, FAMILY_KIND)
    const repeated = snapshot === undefined ? undefined : await repeatCut(job, snapshot, tools)
    if (repeated === undefined || repeated.tokens > limitFor(job, snapshot)) return createCut(job, snapshot)
    await rememberLatest(memory, job, FAMILY_KIND, { ...repeated.snapshot, at: job.now })
    const { prompt, tokens } = repeated
    return { rewrite: { prompt, tokens, tier: 4, strategy: strategyOf(job) }, spent: ZERO, continues: true }
  }

  const summaryCost = (job: TierJob, readTokens: number): NanoUsd =>
    summarizerOf(job)?.price(Math.round(readTokens), summaryTokens(job)) ?? ZERO

  const targetFor = (job: TierJob): number => Math.round(thresholdsFor(job, thresholds).family * FAMILY_TARGET_SHARE)
  const summaryTokens = (job: TierJob): number => Math.round(targetFor(job) * FAMILY_SUMMARY_SHARE)

  /** The size above which the prompt is cut again. Often higher for a cached prompt, because a cut changes it. */
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
    return { cap: target, liveCap, minNewest, noticeTokens: summaryTokens(job) + FAMILY_HEADING_TOKENS }
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
    await rememberLatest(memory, job, FAMILY_KIND, snapshotOf(job, cut))
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
    const snapshot = await recallSnapshot(memory, job, FAMILY_KIND)
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
