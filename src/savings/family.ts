import { ZERO, type NanoUsd } from '../core/money.ts'
import { cutToQuery } from './cut.ts'
import { freezeOf, parseFreeze, recallAt, rememberAt, talkOf, thaw, type Freeze, type Talk } from './freeze.ts'
import type { Memory } from './memory.ts'
import { rebuild } from './rebuild.ts'
import type { SelectionTools } from './selection.ts'
import { summarise, summaryNotice, summaryOf, tellUnit, type Summariser, type Summary } from './summary.ts'
import { DEFAULT_THRESHOLDS, isWanted, thresholdsFor, type Thresholds } from './thresholds.ts'
import type { Rewrite, Tier, TierForecast, TierJob, TierResult } from './tier.ts'
import type { Unit } from './turns.ts'

export interface FamilyOptions {
  readonly thresholds?: Thresholds
  /** @default 'model' */
  readonly summariser?: Summariser
}

/** Down to this share of the threshold at which the tier starts: 12k of 20k tokens, then it grows again. */
const TARGET_SHARE = 0.6
const SUMMARY_SHARE = 0.1
const NOTICE_FRAME = 60
const NEWEST_MESSAGES = 5
const KIND = 'family'

/**
 * Tier 4: a running summary of what is old, under a fixed heading in a user message, with the user's words and the
 * newest messages as they were. It is extended in steps and, between them, the same on every turn.
 */
export function createFamilyLock(tools: SelectionTools, memory: Memory, options: FamilyOptions = {}): Tier {
  const thresholds = options.thresholds ?? DEFAULT_THRESHOLDS
  const summariser = options.summariser ?? 'model'

  const rewrite = async (job: TierJob): Promise<TierResult> => {
    const trigger = thresholdsFor(job, thresholds).family
    const talk = talkOf(job.prompt)
    const freeze = parseFreeze(await recallAt(memory, job.owner, talk, KIND))
    const asBefore = freeze === undefined ? undefined : await thawed(job, talk, freeze)
    if (asBefore === undefined || asBefore.tokens > trigger) return step(job, talk, freeze)
    await rememberAt(memory, job.owner, talk, { kind: KIND, value: JSON.stringify(freeze) })
    return { rewrite: { ...asBefore, tier: 4, strategy: strategyOf(job) }, spent: ZERO }
  }

  const thawed = async (job: TierJob, talk: Talk, freeze: Freeze): Promise<Pick<Rewrite, 'prompt' | 'tokens'>> => {
    const selection = await thaw(talk, freeze, (unit) => tools.read(unit, job.owner))
    const prompt = rebuild(job.prompt, talk.turns, selection, freeze)
    return { prompt, tokens: await tools.meter.countOf(prompt, job.signal) }
  }

  /** Cuts down to the target and brings the summary up to date. */
  const step = async (job: TierJob, talk: Talk, freeze: Freeze | undefined): Promise<TierResult> => {
    const trigger = thresholdsFor(job, thresholds).family
    const target = Math.round(trigger * TARGET_SHARE)
    const maxTokens = Math.round(target * SUMMARY_SHARE)
    let summary: Summary | undefined
    const notice = async (missing: readonly Unit[]): Promise<string> => {
      summary ??= await summarise({
        text: notYetSummarised(talk, missing, freeze)
          .map((unit) => tellUnit(unit, 'stub'))
          .join('\n'),
        ...(freeze !== undefined && { earlier: summaryOf(freeze.notice) }),
        maxTokens,
        small: job.small,
        summariser,
        estimate: tools.meter.tokenizer.estimate,
        signal: job.signal,
      })
      return summaryNotice(summary.text)
    }
    const newest = { messages: NEWEST_MESSAGES, tokens: target / 4 }
    const limits = { cap: target, liveCap: trigger, noticeRoom: maxTokens + NOTICE_FRAME }
    const cut = await cutToQuery(job, talk, { ...limits, newest, notice }, tools)
    const spent: NanoUsd = summary?.spent ?? ZERO
    if (cut === undefined) return { declined: 'there are no older messages', spent }
    if (summary?.failed === true) return { declined: 'the summariser did not answer', spent }
    const value = JSON.stringify(freezeOf(talk, cut.selected, cut.notice))
    await rememberAt(memory, job.owner, talk, { kind: KIND, value })
    return { rewrite: { prompt: cut.prompt, tokens: cut.tokens, tier: 4, strategy: strategyOf(job) }, spent }
  }

  const strategyOf = (job: TierJob): string => {
    const by = summariser === 'extractive' ? 'extractive' : (job.small?.name ?? 'extractive')
    return `Family-Lock (${by} -> ${job.modelName})`
  }

  const forecast = (job: TierJob): TierForecast => {
    const tokens = thresholdsFor(job, thresholds).family * TARGET_SHARE
    const calls = summariser === 'extractive' ? ZERO : (job.small?.price(tokens, tokens * SUMMARY_SHARE) ?? ZERO)
    return { tokens, calls }
  }

  return { tier: 4, wants: (job) => isWanted(job, 4, thresholds), forecast, rewrite }
}

/** What is missing now and was not when the last summary was written. */
function notYetSummarised(talk: Talk, missing: readonly Unit[], freeze: Freeze | undefined): readonly Unit[] {
  if (freeze === undefined) return missing
  const kept = new Set(freeze.picks.map(([at]) => at))
  const places = new Map(talk.units.map((unit, at) => [unit, at]))
  return missing.filter((unit) => {
    const at = places.get(unit) ?? 0
    return at >= freeze.from || kept.has(at)
  })
}
