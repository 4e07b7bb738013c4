import { add, ZERO, type NanoUsd } from '../../core/money.ts'
import { sha256 } from '#hash'
import { conversationOf, type Segment } from './conversation.ts'
import { cutToQuery, snapshotOf, summaryNotice } from './cut.ts'
import { kindOf, sizeWithin } from './floor.ts'
import { mapWithPauses } from './keywords.ts'
import { type ConversationMemory } from './memory.ts'
import { authorOf, EXTRACTIVE } from './models.ts'
import type { SelectionTools } from './selection.ts'
import {
  chunkSegments,
  joinTexts,
  MAX_CHUNKS,
  PROMPT_VERSION,
  summarize,
  type Summary,
  type SummaryOptions,
} from './summary.ts'
import { type KeptEvidence, type Tier, type TierForecast, type TierJob, type TierResult } from './tier.ts'
import { isRequestedByHeader, isWanted } from './wanted.ts'

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
  { thresholds, keep, summarizerOf }: SummaryOptions,
): Tier {
  const { estimate } = tools.meter.tokenizer

  /** Only the content beside the summaries counts as kept. */
  const keeps = (job: TierJob): KeptEvidence => {
    const sending = { method: 'by-question', kind: kindOf(job.prompt), received: job.tokens } as const
    return sizeWithin(sending, keep, minTargetFor(job), 1 - RECURSIVE_SUMMARY_SHARE)
  }

  const minTargetFor = ({ tokens }: TierJob): number =>
    Math.min(MAX_TARGET_TOKENS, Math.round(tokens * MAX_TARGET_SHARE))

  const targetFor = (job: TierJob): number => (isRequestedByHeader(job, 3) ? minTargetFor(job) : keeps(job).tokens)

  const rewrite = async (job: TierJob): Promise<TierResult> => {
    const { turns } = conversationOf(job.prompt)
    const changeable = turns.old.filter(({ isFixed }) => isFixed !== true)
    const { chunks, remainder } = await chunkSegments(changeable, CHUNK_TOKENS, tools)
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
    const rewrite = { prompt: cut.prompt, tokens: cut.tokens, tier: 3, strategy } as const
    return { rewrite, spent, snapshot: snapshotOf(job, cut) }
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
    const summarizeNext = async (): Promise<void> => {
      const index = next++
      const summary = await summarizeChunk(job, texts[index] ?? '')
      summaries[index] = summary.text
      spent = add(spent, summary.spent)
      await tools.pause()
    }
    const summarizeRemaining = async (): Promise<void> => {
      while (next < texts.length) await summarizeNext()
    }
    // A failing model is called once, not once per parallel call.
    const small = summarizerOf(job)
    while (next < texts.length && small !== undefined && small.isProven?.() === false && small.isPaused?.() !== true) {
      await summarizeNext()
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

  return { tier: 3, wants: (job) => isWanted(job, 3, thresholds), keeps, forecast, rewrite }
}
