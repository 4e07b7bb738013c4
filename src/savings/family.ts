import { add, ZERO, type NanoUsd } from '../core/money.ts'
import { cutToQuery } from './cut.ts'
import { expectedSize, growthOf } from './choose-tiers.ts'
import { snapshotOf, parseSnapshot, recallAt, rememberAt, restore, type Snapshot } from './snapshot.ts'
import { type Conversation, conversationOf, type Segment } from './conversation.ts'
import type { Memory } from './memory.ts'
import { bestStep, sendingCost } from './net.ts'
import { rebuild } from './excerpt.ts'
import type { SelectionTools } from './selection.ts'
import { stubTokens, summarize, summaryNotice, summaryOf, tellUnit, type Summarizer } from './summary.ts'
import {
  controllerOf,
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

export interface FamilyOptions {
  readonly thresholds?: Thresholds
  /** @default 'model' */
  readonly summarizer?: Summarizer
}

/** Down to this share of the threshold at which the tier starts: 12k of 20k tokens, then it grows again. */
const TARGET_SHARE = 0.6
const SUMMARY_SHARE = 0.1
const NOTICE_FRAME = 60
const NEWEST_MESSAGES = 5
/** The prompt is carried up to this many times the threshold at the most. */
const MAX_CARRIED = 3
const KIND = 'family'

/**
 * Tier 4: a running summary of what is old, under a fixed heading in a user message, with the user's words and the
 * newest messages as they were. It is extended in steps and, between them, the same on every turn.
 */
export function createFamilyLock(tools: SelectionTools, memory: Memory, options: FamilyOptions = {}): Tier {
  const thresholds = options.thresholds ?? DEFAULT_THRESHOLDS
  const summarizer = options.summarizer ?? 'model'

  const rewrite = async (job: TierJob): Promise<TierResult> => {
    const talk = conversationOf(job.prompt)
    const freeze = parseSnapshot(await recallAt(memory, job.owner, talk, KIND))
    const asBefore = freeze === undefined ? undefined : await thawed(job, talk, freeze)
    if (asBefore === undefined || asBefore.tokens > limitFor(job, freeze)) return step(job, talk, freeze)
    await rememberAt(memory, job.owner, talk, { kind: KIND, value: JSON.stringify({ ...freeze, at: job.now }) })
    return { rewrite: { ...asBefore, tier: 4, strategy: strategyOf(job) }, spent: ZERO, continues: true }
  }

  /** Cost of a summary that reads so many tokens. */
  const callsFor = (job: TierJob, read: number): NanoUsd =>
    summarizer === 'extractive' ? ZERO : (job.small?.price(Math.round(read), summaryTokens(job)) ?? ZERO)

  const targetFor = (job: TierJob): number => Math.round(thresholdsFor(job, thresholds).family * TARGET_SHARE)
  const summaryTokens = (job: TierJob): number => Math.round(targetFor(job) * SUMMARY_SHARE)

  /**
   * Tokens above which the prompt is cut again. While the upstream has cached it, carrying more is cheaper than cutting;
   * what a cut could not remove does not count.
   */
  const limitFor = (job: TierJob, freeze: Snapshot | undefined): number => {
    const trigger = thresholdsFor(job, thresholds).family
    const least = expectedSize(conversationOf(job.prompt), limitsFor(job), tools.meter)
    if (freeze !== undefined && !isWarm(freeze, job.now)) return Math.max(trigger, least)
    const step = add(sendingCost(job.model, least, 0), callsFor(job, readOf(job, trigger)))
    const best = least + bestStep(job.model, step, growthOf(job, tools.meter))
    return Math.min(MAX_CARRIED * trigger, Math.max(trigger, best))
  }

  const thawed = async (
    job: TierJob,
    talk: Conversation,
    freeze: Snapshot,
  ): Promise<Pick<Rewrite, 'prompt' | 'tokens'>> => {
    const selection = await restore(talk, freeze, (unit) => tools.read(unit, job.owner))
    const prompt = rebuild(job.prompt, talk.turns, selection, freeze)
    return { prompt, tokens: await tools.meter.countOf(prompt, job.signal) }
  }

  const limitsFor = (job: TierJob) => {
    const target = targetFor(job)
    const newest = { messages: NEWEST_MESSAGES, tokens: target / 4 }
    const liveCap = thresholdsFor(job, thresholds).family
    return { cap: target, liveCap, newest, noticeRoom: summaryTokens(job) + NOTICE_FRAME }
  }

  /** Cuts down to the target and brings the summary up to date. */
  const step = async (job: TierJob, talk: Conversation, freeze: Snapshot | undefined): Promise<TierResult> => {
    const maxTokens = summaryTokens(job)
    let text: string | undefined
    let spent: NanoUsd = ZERO
    const covered = new Set<Segment>()
    /** A second attempt may cut more than the first one: the summary is extended by that. */
    const notice = async (cut: readonly Segment[], size: number): Promise<string> => {
      const units = notYetSummarized(talk, cut, freeze).filter((unit) => !covered.has(unit))
      for (const unit of units) covered.add(unit)
      const earlier = text ?? (freeze === undefined ? undefined : summaryOf(freeze.notice))
      if (units.length > 0 || earlier === undefined) {
        const added = units.map((unit) => tellUnit(unit, 'stub')).join('\n')
        const { small, signal } = job
        const asked = { text: added, maxTokens, small, summarizer, tools, signal }
        const summary = await summarize(earlier === undefined ? asked : { ...asked, earlier })
        spent = add(spent, summary.spent)
        text = summary.text
      }
      return summaryNotice(text ?? earlier ?? '', size)
    }
    const cut = await cutToQuery(job, talk, { ...limitsFor(job), notice }, tools)
    if (cut === undefined) return { declined: 'there are no older messages', spent }
    const value = JSON.stringify(snapshotOf(talk, cut.selected, cut.notice, job.now))
    await rememberAt(memory, job.owner, talk, { kind: KIND, value })
    return { rewrite: { prompt: cut.prompt, tokens: cut.tokens, tier: 4, strategy: strategyOf(job) }, spent }
  }

  const strategyOf = (job: TierJob): string => {
    const by = summarizer === 'extractive' ? 'extractive' : controllerOf(job.small)
    return `Family-Lock (${by} -> ${job.modelName})`
  }

  /** Of so many tokens of the conversation, those that a summary reads: results of tools are stubs in it. */
  const readOf = (job: TierJob, tokens: number): number => {
    const { old } = conversationOf(job.prompt).turns
    const stubs = old.reduce((sum, unit) => sum + stubTokens(unit, tools.meter), 0)
    return tokens * Math.min(1, stubs / Math.max(1, job.tokens))
  }

  /** The first summary reads everything that is left out; later ones read what was added since. */
  const forecast = async (job: TierJob): Promise<TierForecast> => {
    const target = targetFor(job)
    const talk = conversationOf(job.prompt)
    const freeze = parseSnapshot(await recallAt(memory, job.owner, talk, KIND))
    const limit = limitFor(job, freeze)
    const steady = { limit, target, calls: callsFor(job, readOf(job, limit)) }
    const size = expectedSize(talk, limitsFor(job), tools.meter)
    if (freeze === undefined) return { tokens: size, calls: callsFor(job, readOf(job, job.tokens - target)), steady }
    const { tokens } = await thawed(job, talk, freeze)
    return tokens > limit
      ? { tokens: size, calls: steady.calls, steady }
      : { tokens, calls: ZERO, steady, continues: true }
  }

  return { tier: 4, wants: (job) => isWanted(job, 4, thresholds), forecast, rewrite }
}

/** Units that are cut now and that the last summary does not cover: they came later, or were whole beside it. */
function notYetSummarized(
  talk: Conversation,
  cut: readonly Segment[],
  freeze: Snapshot | undefined,
): readonly Segment[] {
  if (freeze === undefined) return cut
  const whole = new Set(freeze.picks.flatMap(([at, first]) => (first === -1 ? [at] : [])))
  const places = new Map(talk.units.map((unit, at) => [unit, at]))
  return cut.filter((unit) => {
    const at = places.get(unit) ?? 0
    return at >= freeze.from || whole.has(at)
  })
}
