import { NO_USAGE } from '../core/answer.ts'
import type { Model } from '../core/model.ts'
import { costOf, nano, times, ZERO, type NanoUsd } from '../core/money.ts'
import type { Quote, Recount } from './reservation.ts'

/** One model that may answer, and the most tokens that its prompt can have. */
export interface Candidate {
  readonly model: Model
  readonly promptTokens: number
  /** Counts the prompt exactly for this model; undefined when the count failed. Absent: no exact counter exists. */
  readonly count?: () => Promise<number | undefined>
  /** True when `count` calls an upstream. */
  readonly asksUpstream?: boolean
}

export interface QuoteParts {
  /** Read only when a budget is in force. */
  readonly candidates: () => readonly Candidate[]
  /** The prompt's bound for token limits. */
  readonly promptTokens: () => number
  /** The gateway's own exact count of the prompt, for token limits that the bound does not fit. */
  readonly countPrompt?: () => Promise<number>
  readonly outputTokens: number
  /** How many answers are asked for at once. */
  readonly choices: number
  readonly margin: number
}

/** The worst case of a request: the dearest candidate decides, because any of them may answer. */
export function createQuote(parts: QuoteParts): Quote {
  const candidates = once(parts.candidates)
  const promptTokens = once(parts.promptTokens)
  return {
    get promptTokens() {
      return promptTokens()
    },
    outputTokens: parts.outputTokens,
    cost: (outputTokens) => greatest(candidates().map((one) => costFor(one, outputTokens, parts))),
    get uncounted() {
      const counted = candidates().filter(({ count }) => count !== undefined)
      return greatest(counted.map((one) => costFor(one, 0, parts)))
    },
    promptBound: (model) => boundFor(model, candidates()),
    get recount() {
      const known = { ...parts, candidates, promptTokens }
      return { ...tokenRecount(known), ...budgetRecount(known) }
    },
  }
}

function tokenRecount(parts: QuoteParts): { readonly tokens?: Recount } {
  const { countPrompt, promptTokens, ...others } = parts
  if (countPrompt === undefined) return {}
  const run = async (): Promise<Quote> => {
    const counted = Math.min(promptTokens(), await countPrompt())
    return createQuote({ ...others, promptTokens: () => counted })
  }
  return { tokens: { run, asksUpstream: false } }
}

function budgetRecount(parts: QuoteParts): { readonly budget?: Recount } {
  const candidates = parts.candidates()
  const countable = candidates.filter(({ count }) => count !== undefined)
  if (countable.length === 0) return {}
  const run = async (): Promise<Quote> => {
    const counted = await Promise.all(candidates.map(recounted))
    return createQuote({ ...parts, candidates: () => counted })
  }
  return { budget: { run, asksUpstream: countable.some(({ asksUpstream }) => asksUpstream === true) } }
}

async function recounted({ model, promptTokens, count }: Candidate): Promise<Candidate> {
  const counted = (await count?.()) ?? promptTokens
  return { model, promptTokens: Math.min(promptTokens, counted) }
}

function costFor({ model, promptTokens }: Candidate, outputTokens: number, { choices, margin }: QuoteParts): NanoUsd {
  const usage = { ...NO_USAGE, inputTokens: promptTokens, outputTokens: outputTokens * choices }
  return times(costOf(usage, model.price), margin)
}

function boundFor(model: Model, candidates: readonly Candidate[]): number {
  const own = candidates.find((one) => one.model === model)
  return own?.promptTokens ?? Math.max(...candidates.map(({ promptTokens }) => promptTokens))
}

function greatest(costs: readonly NanoUsd[]): NanoUsd {
  return nano(Math.max(ZERO, ...costs))
}

function once<value>(make: () => value): () => value {
  let made: { readonly value: value } | undefined
  return () => (made ??= { value: make() }).value
}
