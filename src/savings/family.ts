import { add, ZERO, type NanoUsd } from '../core/money.ts'
import { cutToQuery } from './cut.ts'
import { expectedSize, growthOf } from './choose-tiers.ts'
import { type Conversation, conversationOf, type Segment } from './conversation.ts'
import { type ConversationMemory, recallAt, rememberAt } from './memory.ts'
import { bestStep, sendingCost } from './net.ts'
import { rebuild } from './excerpt.ts'
import { snapshotOf, parseSnapshot, restore, type Snapshot } from './snapshot.ts'
import type { SelectionTools } from './selection.ts'
import { stubTokens, summarize, summaryNotice, summaryOf, serializeSegment, type Summarizer } from './summary.ts'
import {
  DEFAULT_THRESHOLDS,
  isWanted,
  type Rewrite,
  type Thresholds,
  thresholdsFor,
  type Tier,
  type TierForecast,
  type TierJob,
  type TierResult,
} from './tier.ts'
import { isWarm } from './upstream-cache.ts'
import { controllerOf } from './small-model.ts'

export interface FamilyOptions {
  readonly thresholds?: Thresholds
  /** @default 'model' */
  readonly summarizer?: Summarizer
}

/** Target as a share of the threshold: a prompt is cut from 20k to 12k tokens, then it grows again. */
const TARGET_SHARE = 0.6
const SUMMARY_SHARE = 0.1
const NOTICE_FRAME = 60
const NEWEST_MESSAGES = 5
/** Maximum size of a carried prompt, as a multiple of the threshold. */
const MAX_CARRIED = 3
const KIND = 'family'

/**
 * Tier 4: a running summary of what is old, under a fixed heading in a user message, with the user's words and the
 * newest messages as they were. It is extended in steps and, between them, the same on every turn.
 */
export function createFamilyLock(tools: SelectionTools, memory: ConversationMemory, options: FamilyOptions = {}): Tier {
  const thresholds = options.thresholds ?? DEFAULT_THRESHOLDS
  const summarizer = options.summarizer ?? 'model'

  const rewrite = async (job: TierJob): Promise<TierResult> => {
    const conversation = conversationOf(job.prompt)
    const snapshot = parseSnapshot(await recallAt(memory, job.owner, conversation, KIND))
    const asBefore = snapshot === undefined ? undefined : await restored(job, conversation, snapshot)
    if (asBefore === undefined || asBefore.tokens > limitFor(job, snapshot)) return step(job, conversation, snapshot)
    await rememberAt(memory, job.owner, conversation, {
      kind: KIND,
      value: JSON.stringify({ ...snapshot, at: job.now }),
    })
    return { rewrite: { ...asBefore, tier: 4, strategy: strategyOf(job) }, spent: ZERO, continues: true }
  }

  /** Returns the cost of a summary that reads this many tokens. */
  const callsFor = (job: TierJob, read: number): NanoUsd =>
    summarizer === 'extractive' ? ZERO : (job.small?.price(Math.round(read), summaryTokens(job)) ?? ZERO)

  const targetFor = (job: TierJob): number => Math.round(thresholdsFor(job, thresholds).family * TARGET_SHARE)
  const summaryTokens = (job: TierJob): number => Math.round(targetFor(job) * SUMMARY_SHARE)

  /**
   * Tokens above which the prompt is cut again. While the upstream has cached it, carrying more is cheaper than cutting;
   * what a cut could not remove does not count.
   */
  const limitFor = (job: TierJob, snapshot: Snapshot | undefined): number => {
    const trigger = thresholdsFor(job, thresholds).family
    const least = expectedSize(conversationOf(job.prompt), limitsFor(job), tools.meter)
    if (snapshot !== undefined && !isWarm(snapshot, job.now)) return Math.max(trigger, least)
    const step = add(sendingCost(job.model, least, 0), callsFor(job, readOf(job, trigger)))
    const best = least + bestStep(job.model, step, growthOf(job, tools.meter))
    return Math.min(MAX_CARRIED * trigger, Math.max(trigger, best))
  }

  const restored = async (
    job: TierJob,
    conversation: Conversation,
    snapshot: Snapshot,
  ): Promise<Pick<Rewrite, 'prompt' | 'tokens'>> => {
    const selection = await restore(conversation, snapshot, (segment) => tools.read(segment, job.owner))
    const prompt = rebuild(job.prompt, conversation.turns, selection, snapshot)
    return { prompt, tokens: await tools.meter.countOf(prompt, job.signal) }
  }

  const limitsFor = (job: TierJob) => {
    const target = targetFor(job)
    const newest = { messages: NEWEST_MESSAGES, tokens: target / 4 }
    const liveCap = thresholdsFor(job, thresholds).family
    return { cap: target, liveCap, newest, noticeRoom: summaryTokens(job) + NOTICE_FRAME }
  }

  /** Cuts the prompt to the target and updates the summary. */
  const step = async (
    job: TierJob,
    conversation: Conversation,
    snapshot: Snapshot | undefined,
  ): Promise<TierResult> => {
    const maxTokens = summaryTokens(job)
    let text: string | undefined
    let spent: NanoUsd = ZERO
    const covered = new Set<Segment>()
    /** A second attempt may cut more than the first, so the summary is extended by the difference. */
    const notice = async (cut: readonly Segment[], size: number): Promise<string> => {
      const segments = notYetSummarized(conversation, cut, snapshot).filter((segment) => !covered.has(segment))
      for (const segment of segments) covered.add(segment)
      const earlier = text ?? (snapshot === undefined ? undefined : summaryOf(snapshot.notice))
      if (segments.length > 0 || earlier === undefined) {
        const added = segments.map((segment) => serializeSegment(segment, 'stub')).join('\n')
        const { small, signal } = job
        const asked = { text: added, maxTokens, small, summarizer, tools, signal }
        const summary = await summarize(earlier === undefined ? asked : { ...asked, earlier })
        spent = add(spent, summary.spent)
        text = summary.text
      }
      return summaryNotice(text ?? earlier ?? '', size)
    }
    const cut = await cutToQuery(job, conversation, { ...limitsFor(job), notice }, tools)
    if (cut === undefined) return { declined: 'there are no older messages', spent }
    const value = JSON.stringify(snapshotOf(conversation, cut.selected, cut.notice, job.now))
    await rememberAt(memory, job.owner, conversation, { kind: KIND, value })
    return { rewrite: { prompt: cut.prompt, tokens: cut.tokens, tier: 4, strategy: strategyOf(job) }, spent }
  }

  const strategyOf = (job: TierJob): string => {
    const by = summarizer === 'extractive' ? 'extractive' : controllerOf(job.small)
    return `Family-Lock (${by} -> ${job.modelName})`
  }

  /** Returns how many of these tokens a summary reads: tool results are stubs in it. */
  const readOf = (job: TierJob, tokens: number): number => {
    const { old } = conversationOf(job.prompt).turns
    const stubs = old.reduce((sum, segment) => sum + stubTokens(segment, tools.meter), 0)
    return tokens * Math.min(1, stubs / Math.max(1, job.tokens))
  }

  /** The first summary reads everything that is left out. Later summaries read what was added since. */
  const forecast = async (job: TierJob): Promise<TierForecast> => {
    const target = targetFor(job)
    const conversation = conversationOf(job.prompt)
    const snapshot = parseSnapshot(await recallAt(memory, job.owner, conversation, KIND))
    const limit = limitFor(job, snapshot)
    const steady = { limit, target, calls: callsFor(job, readOf(job, limit)) }
    const size = expectedSize(conversation, limitsFor(job), tools.meter)
    if (snapshot === undefined) return { tokens: size, calls: callsFor(job, readOf(job, job.tokens - target)), steady }
    const { tokens } = await restored(job, conversation, snapshot)
    return tokens > limit
      ? { tokens: size, calls: steady.calls, steady }
      : { tokens, calls: ZERO, steady, continues: true }
  }

  return { tier: 4, wants: (job) => isWanted(job, 4, thresholds), forecast, rewrite }
}

/** Units that are cut now and that the last summary does not cover: they came later, or were whole beside it. */
function notYetSummarized(
  conversation: Conversation,
  cut: readonly Segment[],
  snapshot: Snapshot | undefined,
): readonly Segment[] {
  if (snapshot === undefined) return cut
  const whole = new Set(snapshot.picks.flatMap(([at, first]) => (first === -1 ? [at] : [])))
  const places = new Map(conversation.segments.map((segment, at) => [segment, at]))
  return cut.filter((segment) => {
    const at = places.get(segment) ?? 0
    return at >= snapshot.from || whole.has(at)
  })
}
