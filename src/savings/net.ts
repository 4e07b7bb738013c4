import { NO_USAGE } from '../core/answer.ts'
import type { Model } from '../core/model.ts'
import { add, costOf, subtract, times, ZERO, type NanoUsd } from '../core/money.ts'
import type { Part, Prompt } from '../core/prompt.ts'
import type { TierForecast } from './tier.ts'

/** Expectations about the rest of a conversation. */
export interface Outlook {
  readonly model: Model
  /** Number of further requests. */
  readonly turns: number
  /** Tokens that each further request adds. */
  readonly growth: number
  /** Whether requests follow each other within the lifetime of the upstream's cache. */
  readonly staysWarm: boolean
}

/** One way of sending a conversation, on this turn and on further turns. */
export interface Course extends TierForecast {
  /** Tokens at the beginning of this prompt that the upstream's cache holds. */
  readonly warm: number
}

export interface CourseCosts {
  /** This request, small-model calls included. */
  readonly now: NanoUsd
  /** This request and all further turns. */
  readonly total: NanoUsd
}

/** Maximum turns that a decision looks ahead. A conversation lasts about as long again as it has lasted. */
const MAX_TURNS = 10
/** The probability that a conversation ends within this share of its turns so far is about 2 %. */
const SURE_SHARE = 0.02

/**
 * Returns the number of further requests over which ways of sending are compared; more than ten when they are almost
 * certain.
 */
export function turnsAhead(turnsSoFar: number): number {
  return Math.max(Math.min(turnsSoFar, MAX_TURNS), turnsToRecoup(turnsSoFar) * (1 + MIN_ODDS))
}

/** Further requests within which a switch must have paid for itself: if the conversation ends before, the loss stays. */
export function turnsToRecoup(turnsSoFar: number): number {
  return Math.floor(turnsSoFar * SURE_SHARE)
}

/** True when reading from the upstream's cache costs less than sending. */
export function hasCachePrice({ price }: Model): boolean {
  return price.cacheRead !== undefined && price.cacheRead < price.input
}

/** Cost of a prompt of which the first `warm` tokens are in the upstream's cache; the others are written to it. */
export function sendingCost(model: Model, tokens: number, warm: number): NanoUsd {
  if (!hasCachePrice(model)) return costOf({ ...NO_USAGE, inputTokens: Math.round(tokens) }, model.price)
  const read = Math.round(Math.min(warm, tokens))
  return costOf({ ...NO_USAGE, cacheReadTokens: read, cacheWriteTokens: Math.round(tokens) - read }, model.price)
}

/** Returns the cost of a course on this turn and over the further turns. */
export function courseCosts(course: Course, { model, turns, growth, staysWarm }: Outlook): CourseCosts {
  const now = add(sendingCost(model, course.tokens, course.warm), course.calls)
  const { steady, callsPerTurn = ZERO } = course
  let total = now
  let size = course.tokens
  for (let turn = 0; turn < turns; turn++) {
    let warm = 0
    let calls = callsPerTurn
    if (steady !== undefined) {
      warm = staysWarm ? size : 0
      size += growth
      if (size > steady.limit) {
        size = steady.target
        warm = 0
        calls = steady.calls
      }
    }
    total = add(total, add(sendingCost(model, size, warm), calls))
  }
  return { now, total }
}

/**
 * Returns the growth of a steady prompt, in tokens, at which it is cut again at the lowest total cost: a cut costs
 * `step`, and carrying costs the cache-read price for each token and turn.
 */
export function bestStep(model: Model, step: NanoUsd, growth: number): number {
  if (!hasCachePrice(model)) return 0
  const million = 1_000_000
  const carrying = sendingCost(model, million, million) / million
  return Math.round(Math.sqrt((2 * step * growth) / Math.max(1, carrying)))
}

const WITHOUT_LIMIT = { limit: Number.POSITIVE_INFINITY, target: 0, calls: ZERO }

/** The course of sending everything, which only grows. */
export function passthrough(tokens: number, warm: number): Course {
  return { tokens, warm, calls: ZERO, steady: WITHOUT_LIMIT }
}

export interface Choice {
  /** The last course, continued. */
  readonly standard: CourseCosts
  readonly candidate: CourseCosts
}

/** The expected gain must be this many times the possible loss: the conversation may end with this request. */
const MIN_ODDS = 2

/**
 * Returns true when the candidate may replace the standard: this request is already cheaper, or the expected gain is at
 * least twice the possible loss.
 */
export function maySwitch({ standard, candidate }: Choice): boolean {
  if (candidate.total >= standard.total) return false
  const loss = subtract(candidate.now, standard.now)
  return loss <= 0 || subtract(standard.total, candidate.total) >= times(loss, MIN_ODDS)
}

export interface Risk {
  /** What this conversation has cost so far beyond sending everything; negative when it was cheaper. */
  readonly debt: NanoUsd
  readonly course: Course
  /** Tokens of the whole conversation, and of these what the upstream would have cached had it always been sent whole. */
  readonly tokens: number
  readonly warm: number
  /** What sending it whole costs now, with what the upstream has really cached. */
  readonly wholeNow: NanoUsd
}

/**
 * Returns true when the conversation costs at most one rewrite more than sending everything, whenever it ends, even if
 * it must be sent whole on the next turn. Without this rule, a course that is cheap once, because nothing was cached,
 * would lose a little on every later turn. Growth is assumed to be zero.
 */
export function isSafe({ debt, course, tokens, warm, wholeNow }: Risk, { model }: Outlook): boolean {
  // A steady prompt may be carried over its limit, so the next cut is not due on the next turn.
  const carried = course.steady === undefined ? course : { ...course, steady: WITHOUT_LIMIT }
  const { now, total } = courseCosts(carried, { model, growth: 0, turns: 1, staysWarm: true })
  const wholeNext = sendingCost(model, tokens, tokens)
  const isDearerNext = subtract(total, now) > wholeNext
  const wayBack = isDearerNext ? subtract(sendingCost(model, tokens, 0), wholeNext) : ZERO
  // Going back at once costs at least as much, or the course pays an earlier loss back.
  if (add(now, wayBack) <= wholeNow) return true
  const added = subtract(now, sendingCost(model, tokens, warm))
  return add(add(debt, added), wayBack) <= now
}

/** Returns true when the caller marked a prefix for the upstream's cache. Only a header may then rewrite the prompt. */
export function hasCacheMarks(prompt: Prompt): boolean {
  return (
    prompt.tools.some((tool) => tool.native.value['cache_control'] !== undefined) ||
    prompt.messages.some((message) => message.parts.some(isMarked))
  )
}

function isMarked(part: Part): boolean {
  return part.native?.value['cache_control'] !== undefined
}
