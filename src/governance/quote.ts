import type { Model } from '../core/model.ts'
import { costOfTokens, times, ZERO, type NanoUsd } from '../core/money.ts'
import type { Quote, Recount } from './reservation.ts'

/** One model that may answer, and the most tokens that its prompt can have. */
export interface QuoteCandidate {
  readonly model: Model
  readonly promptTokens: number
  /** Counts the prompt exactly for this model; undefined when the count failed. Absent: no exact counter exists. */
  readonly count?: () => Promise<number | undefined>
  /** True when `count` calls an upstream. */
  readonly asksUpstream?: boolean
}

export interface QuoteParts {
  /** Read only when a budget is in force. */
  readonly candidates: () => readonly QuoteCandidate[]
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
  return new WorstCase(parts)
}

/** Values are computed when they are read. */
class WorstCase implements Quote {
  readonly outputTokens: number
  readonly #parts: QuoteParts
  #candidates: readonly QuoteCandidate[] | undefined
  #promptTokens: number | undefined

  constructor(parts: QuoteParts) {
    this.#parts = parts
    this.outputTokens = parts.outputTokens
  }

  get promptTokens(): number {
    return (this.#promptTokens ??= this.#parts.promptTokens())
  }

  get #all(): readonly QuoteCandidate[] {
    return (this.#candidates ??= this.#parts.candidates())
  }

  cost(outputTokens: number): NanoUsd {
    let most = ZERO
    for (const one of this.#all) most = greater(most, costFor(one, outputTokens, this.#parts))
    return most
  }

  get uncounted(): NanoUsd {
    let most = ZERO
    for (const one of this.#all) {
      if (one.count !== undefined) most = greater(most, costFor(one, 0, this.#parts))
    }
    return most
  }

  promptBound(model: Model): number {
    const own = this.#all.find((one) => one.model === model)
    return own?.promptTokens ?? Math.max(...this.#all.map(({ promptTokens }) => promptTokens))
  }

  get recount(): NonNullable<Quote['recount']> {
    const known = { ...this.#parts, candidates: () => this.#all, promptTokens: () => this.promptTokens }
    return { ...tokenRecount(known), ...budgetRecount(known) }
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

async function recounted({ model, promptTokens, count }: QuoteCandidate): Promise<QuoteCandidate> {
  const counted = (await count?.()) ?? promptTokens
  return { model, promptTokens: Math.min(promptTokens, counted) }
}

function costFor(
  { model, promptTokens }: QuoteCandidate,
  outputTokens: number,
  { choices, margin }: QuoteParts,
): NanoUsd {
  return times(costOfTokens(model.price, promptTokens, outputTokens * choices), margin)
}

function greater(one: NanoUsd, other: NanoUsd): NanoUsd {
  return other > one ? other : one
}
