import { add, costOf, type NanoUsd } from '../core/money.ts'
import { NO_USAGE } from '../core/answer.ts'
import type { Model } from '../core/model.ts'
import type { Part, Prompt } from '../core/prompt.ts'

/** What of a prompt the upstream's own cache still knows, by what was sent before. */
export interface Warmth {
  /** Tokens of the beginning that was sent as it came. */
  readonly passedThrough: number
  /** Tokens of the beginning that was sent optimised. */
  readonly optimized: number
}

export const COLD: Warmth = { passedThrough: 0, optimized: 0 }

export interface Comparison {
  readonly model: Model
  /** Tokens of the prompt as it came, and as a tier would send it. */
  readonly tokens: number
  readonly optimizedTokens: number
  readonly warmth: Warmth
  /** All small-model calls of the tier. */
  readonly calls: NanoUsd
}

/** What sending so many tokens costs when the upstream's cache knows the first of them. */
export function sendingCost(model: Model, tokens: number, known: number): NanoUsd {
  const read = Math.min(known, tokens)
  return costOf({ ...NO_USAGE, cacheReadTokens: read, inputTokens: tokens - read }, model.price)
}

/** True when the optimised prompt and the calls that made it cost less than sending everything. */
export function pays({ model, tokens, optimizedTokens, warmth, calls }: Comparison): boolean {
  const passthrough = sendingCost(model, tokens, warmth.passedThrough)
  const optimized = add(sendingCost(model, optimizedTokens, warmth.optimized), calls)
  return optimized < passthrough
}

/** True when the caller marked a beginning for the upstream's cache: only an order may rewrite it. */
export function hasCacheMarks(prompt: Prompt): boolean {
  return (
    prompt.tools.some((tool) => tool.native.value['cache_control'] !== undefined) ||
    prompt.messages.some((message) => message.parts.some(isMarked))
  )
}

function isMarked(part: Part): boolean {
  return part.native?.value['cache_control'] !== undefined
}
