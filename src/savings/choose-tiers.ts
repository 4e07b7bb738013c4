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

/** A tier that may run without an order, and what it would cost; absent for a tier without a forecast. */
export interface TierCandidate {
  readonly tier: Tier
  readonly expected?: {
    readonly costs: CourseCosts
    /** This request and the further ones within which a switch must have paid for itself. */
    readonly soon: NanoUsd
    /** Small-model calls for this request. */
    readonly calls: NanoUsd
    /** What sending everything would cost instead. */
    readonly whole: CourseCosts
  }
}

type ForecastCandidate = Required<TierCandidate>

/** The tiers worth trying without an order, cheapest first. Tiers without a forecast come first, in their order. */
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
  const candidates: ForecastCandidate[] = []
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

/** What tiers that made no prompt have cost, and what they were expected to ask of the small model. */
export interface Declined {
  readonly spent: NanoUsd
  /** The least of the expected costs of their calls; absent while no tier with a forecast has declined. */
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

/** The candidates that may replace what was done last, and cost less than sending everything where that may too. */
function cheapestOf(
  candidates: readonly ForecastTierCandidate[],
  { whole, wholeSoon, history }: Standards,
): readonly TierCandidate[] {
  const wasRewritten = history.at > 0 && history.rewritten.at === history.at
  const last = wasRewritten ? candidates.find(({ tier }) => tier.tier === history.rewritten.tier) : undefined
  const standard = last?.expected.costs ?? whole
  const soon = last?.expected.soon ?? wholeSoon
  /** The loss is recouped soon, or what the conversation has saved so far covers it. */
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

/** What is expected of the rest of the conversation, judged by what it was so far. */
function outlookOf(job: TierJob, history: History, meter: Meter): Outlook {
  return {
    model: job.model,
    turns: turnsAhead(turnsSoFar(job.prompt)),
    growth: growthOf(job, meter),
    staysWarm: history.at === 0 || isWarm(history, job.now),
  }
}

/** Tokens that each of the last turns has added: what an agent reads differs from one part of its work to the next. */
export function growthOf({ prompt: { messages }, tokens }: Pick<TierJob, 'prompt' | 'tokens'>, meter: Meter): number {
  const answers = messages.flatMap(({ role }, at) => (role === 'assistant' ? [at] : []))
  const from = answers.at(-RECENT_TURNS)
  if (from === undefined && answers.length === 0) return 0
  const recent = messages.slice(from ?? answers[0])
  const added = recent.reduce((sum, message) => sum + meter.estimateOfMessage(message), 0)
  return Math.min(added, tokens) / Math.min(answers.length, RECENT_TURNS)
}

/** Answers in a conversation. */
export function turnsSoFar({ messages }: Prompt): number {
  return messages.filter((message) => message.role === 'assistant').length
}

type Limits = Required<Pick<CutOptions, 'cap' | 'liveCap' | 'newest' | 'noticeRoom'>>

/** About how many tokens a cut prompt has: its cap, or more where the live turn and the newest messages are above it. */
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
