import { add, subtract, type NanoUsd } from '../core/money.ts'
import type { Meter } from '../core/ports.ts'
import {
  type Course,
  courseCosts,
  type CourseCosts,
  isSafe,
  maySwitch,
  type Outlook,
  passthrough,
  turnsAhead,
  turnsToRecoup,
} from './net.ts'
import type { Tier, TierForecast, TierJob } from './tier.ts'
import { type History, isWarm, warmTokens } from './upstream-cache.ts'
import type { Prompt } from '../core/prompt.ts'
import type { CutOptions } from './cut.ts'
import type { Conversation, Segment } from './conversation.ts'

/** A tier that may run without a header, and its expected cost. */
export interface TierCandidate {
  readonly tier: Tier
  readonly expected?: {
    readonly costs: CourseCosts
    /** Cost of this request and of the further requests within which a switch must pay for itself. */
    readonly soon: NanoUsd
    /** Small-model calls for this request. */
    readonly calls: NanoUsd
    /** Cost of sending everything instead. */
    readonly whole: CourseCosts
  }
}

type ForecastTierCandidate = Required<TierCandidate>

/**
 * Returns the tiers worth trying without a header, cheapest first. Tiers without a forecast come first, in their order.
 */
export async function chooseTiers(
  tiers: readonly Tier[],
  job: TierJob,
  history: History,
  meter: Meter,
): Promise<readonly TierCandidate[]> {
  if (tiers.length === 0) return []
  const outlook = outlookOf(job, history, meter)
  const { tokens } = job
  const warm = warmTokens(history, job, history)
  const soonOutlook = { ...outlook, turns: turnsToRecoup(turnsSoFar(job.prompt)) }
  const asWhole = passthrough(tokens, warmTokens(history.whole, job, history))
  const whole = courseCosts(asWhole, outlook)
  const always: TierCandidate[] = []
  const candidates: ForecastTierCandidate[] = []
  for (const tier of tiers) {
    const forecast = await tier.forecast?.(job)
    if (forecast === undefined) {
      always.push({ tier })
      continue
    }
    const course = courseOf(tier, forecast, job, history)
    if (!isSafe({ debt: history.debt, course, tokens, warm, wholeNow: whole.now }, outlook)) continue
    const soon = courseCosts(course, soonOutlook).total
    candidates.push({ tier, expected: { costs: courseCosts(course, outlook), soon, calls: forecast.calls, whole } })
  }
  const standards = { whole, wholeSoon: courseCosts(asWhole, soonOutlook).total, history }
  return [...always, ...cheapestOf(candidates, standards)]
}

/** Cost of tiers that declined, and of the small-model calls that they expected. */
export interface Declined {
  readonly spent: NanoUsd
  /** The lowest expected cost of their calls. Absent while no tier with a forecast has declined. */
  readonly calls?: NanoUsd
}

/**
 * Returns true when a tier that was not ordered may run after others declined: it asks no more of the small model than
 * they would have, and together with what they spent it still costs less than sending everything.
 */
export function mayFollow({ expected }: TierCandidate, { spent, calls }: Declined): boolean {
  if (expected === undefined || calls === undefined) return true
  return expected.calls <= calls && add(expected.costs.total, spent) < expected.whole.total
}

interface Standards {
  readonly whole: CourseCosts
  readonly wholeSoon: NanoUsd
  readonly history: History
}

/**
 * Returns the candidates that may replace the last choice and cost less than sending everything, when that is an
 * alternative.
 */
function cheapestOf(
  candidates: readonly ForecastTierCandidate[],
  { whole, wholeSoon, history }: Standards,
): readonly TierCandidate[] {
  const wasRewritten = history.at > 0 && history.rewritten.at === history.at
  const last = wasRewritten ? candidates.find(({ tier }) => tier.tier === history.rewritten.tier) : undefined
  const standard = last?.expected.costs ?? whole
  const soon = last?.expected.soon ?? wholeSoon
  /** True when the loss is recouped soon or covered by the savings of the conversation so far. */
  const isCovered = ({ expected }: ForecastTierCandidate): boolean =>
    expected.soon <= soon || add(history.debt, subtract(expected.costs.now, standard.now)) <= 0
  const open = candidates.filter(
    (one) => one === last || (maySwitch({ standard, candidate: one.expected.costs }) && isCovered(one)),
  )
  const returns = last !== undefined && maySwitch({ standard, candidate: whole })
  return open
    .filter(({ expected: { costs } }) => !returns || costs.total < whole.total)
    .toSorted((a, b) => a.expected.costs.total - b.expected.costs.total)
}

function courseOf(tier: Tier, forecast: TierForecast, job: TierJob, history: History): Course {
  const { rewritten } = history
  const continues = forecast.continues === true && rewritten.tier === tier.tier
  return { ...forecast, warm: continues ? warmTokens(rewritten, job, history) : 0 }
}

const RECENT_TURNS = 10

/** Estimates the rest of the conversation from its past. */
function outlookOf(job: TierJob, history: History, meter: Meter): Outlook {
  return {
    model: job.model,
    turns: turnsAhead(turnsSoFar(job.prompt)),
    growth: growthOf(job, meter),
    staysWarm: history.at === 0 || isWarm(history, job.now),
  }
}

/**
 * Average tokens that the last turns added. Only recent turns count, because the reading of an agent varies between
 * tasks.
 */
export function growthOf({ prompt: { messages }, tokens }: Pick<TierJob, 'prompt' | 'tokens'>, meter: Meter): number {
  const answers = messages.flatMap(({ role }, at) => (role === 'assistant' ? [at] : []))
  const from = answers.at(-RECENT_TURNS)
  if (from === undefined && answers.length === 0) return 0
  const recent = messages.slice(from ?? answers[0])
  const added = recent.reduce((sum, message) => sum + meter.estimateOfMessage(message), 0)
  return Math.min(added, tokens) / Math.min(answers.length, RECENT_TURNS)
}

/** Number of answers in a conversation. */
export function turnsSoFar({ messages }: Prompt): number {
  return messages.filter((message) => message.role === 'assistant').length
}

type Limits = Required<Pick<CutOptions, 'cap' | 'liveCap' | 'newest' | 'noticeRoom'>>

/** Estimates the tokens of a cut prompt: its cap, or more when the live turn and the newest messages exceed it. */
export function expectedSize(
  { prompt, turns }: Conversation,
  limits: Limits,
  meter: Pick<Meter, 'estimateOfMessage'>,
): number {
  const sizeOf = ({ messages }: Pick<Segment, 'messages'>): number =>
    messages.reduce((sum, message) => sum + meter.estimateOfMessage(message), 0)
  const system = sizeOf({ messages: prompt.messages.filter(({ role }) => role === 'system') })
  const live = turns.live.reduce((sum, segment) => sum + sizeOf(segment), 0)
  let room = limits.liveCap - system - live
  if (room < limits.noticeRoom) return limits.cap
  let messages = turns.live.reduce((sum, segment) => sum + segment.messages.length, 0)
  let newest = 0
  for (const segment of turns.old.toReversed()) {
    const size = sizeOf(segment)
    const isEnough = messages >= limits.newest.messages && newest >= limits.newest.tokens
    if (isEnough || size > room) break
    room -= size
    newest += size
    messages += segment.messages.length
  }
  return Math.max(limits.cap, system + live + newest + limits.noticeRoom)
}
