import { add, subtract, scale, ZERO, type NanoUsd } from '../../core/money.ts'
import type { Model, Meter } from '../../core/ports.ts'
import type { Message, Prompt } from '../../core/prompt.ts'
import type { Tier, TierForecast, TierJob } from './tier.ts'
import { type History, isWarm, sendingCost, warmTokens } from './memory.ts'

/** The expected further requests of a conversation. */
export interface Outlook {
  readonly model: Model
  readonly turns: number
  readonly growth: number
  readonly staysWarm: boolean
}

interface SendOption extends TierForecast {
  readonly cachedTokens: number
}

interface SendCosts {
  readonly thisRequest: NanoUsd
  readonly total: NanoUsd
}

interface ExpectedCosts {
  readonly costs: SendCosts
  /** Cost of this request and of the further requests that are almost certain. */
  readonly nearTermCost: NanoUsd
  readonly callCost: NanoUsd
}

export interface TierCandidate {
  readonly tier: Tier
  readonly expected?: ExpectedCosts & { readonly unchangedCosts: SendCosts }
}

export function chooseTiers(
  forecasts: ReadonlyMap<Tier, TierForecast | undefined>,
  job: TierJob,
  history: History,
  meter: Meter,
): readonly TierCandidate[] {
  const { tokens } = job
  const outlook = outlookOf(job, history, meter)
  const nearTermOutlook = { ...outlook, turns: certainTurns(turnsSoFar(job.prompt)) }
  const expectedCostsOf = (option: SendOption): ExpectedCosts => {
    const nearTermCost = costsOf(option, nearTermOutlook).total
    return { costs: costsOf(option, outlook), nearTermCost, callCost: option.callCost }
  }
  const unchanged = expectedCostsOf(createUnchangedOption(tokens, warmTokens(history.whole, job, history)))
  const cachedTokens = warmTokens(history, job, history)
  const risk = { debt: history.debt, tokens, cachedTokens, unchangedCost: unchanged.costs.thisRequest }
  const withoutForecast: TierCandidate[] = []
  const candidates: Required<TierCandidate>[] = []
  for (const [tier, forecast] of forecasts) {
    if (forecast === undefined) {
      withoutForecast.push({ tier })
      continue
    }
    const option = toSendOption(tier, forecast, job, history)
    if (!isSafe({ ...risk, option }, outlook)) continue
    candidates.push({ tier, expected: { ...expectedCostsOf(option), unchangedCosts: unchanged.costs } })
  }
  return [...withoutForecast, ...selectCandidates(candidates, unchanged, history)]
}

export interface DeclinedCosts {
  readonly spent: NanoUsd
  /** Lowest expected call cost of the declined tiers. Undefined if none of them has a forecast. */
  readonly callCost: NanoUsd | undefined
}

export function mayRunAfter({ spent, callCost }: DeclinedCosts, { expected }: TierCandidate): boolean {
  if (expected === undefined || callCost === undefined) return true
  return expected.callCost <= callCost && add(expected.costs.total, spent) < expected.unchangedCosts.total
}

function selectCandidates(
  candidates: readonly Required<TierCandidate>[],
  unchanged: ExpectedCosts,
  history: History,
): readonly TierCandidate[] {
  const wasRewritten = history.at > 0 && history.rewritten.at === history.at
  const previous = wasRewritten ? candidates.find(({ tier }) => tier.tier === history.rewritten.tier) : undefined
  const current = previous?.expected ?? unchanged
  /** The switch pays for itself soon, or costs at most what the conversation has saved so far. */
  const isCovered = ({ costs, nearTermCost }: ExpectedCosts): boolean =>
    nearTermCost <= current.nearTermCost ||
    add(history.debt, subtract(costs.thisRequest, current.costs.thisRequest)) <= 0
  const allowed = candidates.filter(
    (candidate) =>
      candidate === previous ||
      (maySwitch({ current: current.costs, candidate: candidate.expected.costs }) && isCovered(candidate.expected)),
  )
  const mayStopRewriting = previous !== undefined && maySwitch({ current: current.costs, candidate: unchanged.costs })
  return allowed
    .filter(({ expected: { costs } }) => !mayStopRewriting || costs.total < unchanged.costs.total)
    .toSorted((a, b) => a.expected.costs.total - b.expected.costs.total)
}

function toSendOption(tier: Tier, forecast: TierForecast, job: TierJob, history: History): SendOption {
  const { rewritten } = history
  const continues = forecast.continues === true && rewritten.tier === tier.tier
  return { ...forecast, cachedTokens: continues ? warmTokens(rewritten, job, history) : 0 }
}

const RECENT_TURNS = 10

function outlookOf(job: TierJob, history: History, meter: Meter): Outlook {
  return {
    model: job.model,
    turns: turnsAhead(turnsSoFar(job.prompt)),
    growth: growthOf(job, meter),
    staysWarm: history.at === 0 || isWarm(history, job.now),
  }
}

export function growthOf({ prompt: { messages }, tokens }: Pick<TierJob, 'prompt' | 'tokens'>, meter: Meter): number {
  const responses = messages.flatMap(({ role }, index) => (role === 'assistant' ? [index] : []))
  const recentResponses = responses.slice(-RECENT_TURNS)
  if (recentResponses.length === 0) return 0
  return Math.min(estimateMessages(messages.slice(recentResponses[0]), meter), tokens) / recentResponses.length
}

export function estimateMessages(messages: readonly Message[], meter: Pick<Meter, 'estimateMessage'>): number {
  return messages.reduce((sum, message) => sum + meter.estimateMessage(message), 0)
}

export function turnsSoFar({ messages }: Prompt): number {
  return messages.filter((message) => message.role === 'assistant').length
}

const MAX_TURNS = 10
/** With a probability of about 98%, at least this fraction of the turns so far will follow. */
const CERTAIN_SHARE = 0.02
/** Minimum ratio of expected gain to possible loss. Above 1, because the conversation may end with this request. */
export const MIN_GAIN_RATIO = 2

/** The factor makes `maySwitch` accept a switch that the almost certain requests pay for. */
export function turnsAhead(turns: number): number {
  return Math.max(Math.min(turns, MAX_TURNS), certainTurns(turns) * (1 + MIN_GAIN_RATIO))
}

function certainTurns(turns: number): number {
  return Math.floor(turns * CERTAIN_SHARE)
}

export function costsOf(option: SendOption, { model, turns, growth, staysWarm }: Outlook): SendCosts {
  const thisRequest = add(sendingCost(model, option.tokens, option.cachedTokens), option.callCost)
  const { nextCut, callCostPerTurn = ZERO, blockTokens = 0 } = option
  let total = thisRequest
  let size = option.tokens
  for (let turn = 0; turn < turns; turn++) {
    let cachedTokens = 0
    let callCost = callCostPerTurn
    if (nextCut !== undefined) {
      cachedTokens = staysWarm ? size - blockTokens : 0
      size += growth
      if (size > nextCut.limit) {
        size = nextCut.target
        cachedTokens = 0
        callCost = nextCut.callCost
      }
    }
    total = add(total, add(sendingCost(model, size, cachedTokens), callCost))
  }
  return { thisRequest, total }
}

const NEVER_CUT = { limit: Number.POSITIVE_INFINITY, target: 0, callCost: ZERO }

export function createUnchangedOption(tokens: number, cachedTokens: number): SendOption {
  return { tokens, cachedTokens, callCost: ZERO, nextCut: NEVER_CUT }
}

export function maySwitch({ current, candidate }: Readonly<Record<'current' | 'candidate', SendCosts>>): boolean {
  if (candidate.total >= current.total) return false
  const loss = subtract(candidate.thisRequest, current.thisRequest)
  return loss <= 0 || subtract(current.total, candidate.total) >= scale(loss, MIN_GAIN_RATIO)
}

interface Risk {
  readonly debt: NanoUsd
  readonly option: SendOption
  readonly tokens: number
  /** Tokens that the upstream would have cached if every request had been sent unchanged. */
  readonly cachedTokens: number
  readonly unchangedCost: NanoUsd
}

/**
 * Returns true if the option costs no more than the unchanged prompt, or if the conversation, whenever it ends, costs
 * at most one rewrite more than if every turn had been sent unchanged. Assumes no growth.
 */
export function isSafe({ debt, option, tokens, cachedTokens, unchangedCost }: Risk, { model }: Outlook): boolean {
  // The next turn may send a prompt above the limit without cutting it again.
  const uncut = option.nextCut === undefined ? option : { ...option, nextCut: NEVER_CUT }
  const { thisRequest, total } = costsOf(uncut, { model, growth: 0, turns: 1, staysWarm: true })
  const nextUnchangedCost = sendingCost(model, tokens, tokens)
  const isNextTurnCostlier = subtract(total, thisRequest) > nextUnchangedCost
  const returnCost = isNextTurnCostlier ? subtract(sendingCost(model, tokens, 0), nextUnchangedCost) : ZERO
  if (add(thisRequest, returnCost) <= unchangedCost) return true
  // A chat whose block costs more than reading everything would soon return.
  if (isNextTurnCostlier && (option.blockTokens ?? 0) > 0) return false
  const added = subtract(thisRequest, sendingCost(model, tokens, cachedTokens))
  return add(add(debt, added), returnCost) <= thisRequest
}
