import type { MaybePromise } from '../core/async.ts'
import type { Model } from '../core/model.ts'
import { costOfTokens, scale, ZERO, type NanoUsd } from '../core/money.ts'
import type { SettledEntry, Settlement } from '../core/store.ts'
import type { VirtualKey } from './virtual-key.ts'

/**
 * The values of `X-RateLimit-*`. The amounts are `Number.MAX_SAFE_INTEGER` without a limit, and 0 without a key. The
 * reset is then the end of the current hour.
 */
export interface RateStatus {
  readonly limit: number
  readonly remaining: number
  /** Milliseconds since 1970. */
  readonly resetAt: number
}

/** The worst case of a request. */
export interface Quote {
  /** Upper bound on the prompt's tokens, for token limits. */
  readonly promptTokens: number
  /** Output limit in tokens: the limit in the request, or else the maximum of the model. */
  readonly outputTokens: number
  /**
   * Returns the amount billed for an answer of this length, including the prompt and the margin. Never decreases with
   * the length.
   */
  cost(outputTokens: number): NanoUsd
  /** True if only the key's request limits apply, because the call costs neither tokens nor money. @default false */
  readonly isRequestOnly?: boolean
  /** Largest possible reduction of the cost by an exact count of the prompt. @default 0 */
  readonly uncountedCost?: NanoUsd
  /** Returns the number of prompt tokens that `cost` covers for a model. @default no bound */
  promptBound?(model: Model): number
  /** Recounts that yield a more precise quote. Used if a limit rejects this quote. */
  readonly recount?: {
    readonly tokens?: Recount
    readonly budget?: Recount
  }
}

/** Waits for a store call for at most the remaining store timeout of the request. */
export type WaitForStore = <Value>(call: MaybePromise<Value>) => MaybePromise<Value>

/** Counts the prompt exactly. */
export interface Recount {
  /** Returns a quote with the exact count, and without this recount. */
  readonly run: () => Promise<Quote>
  /** True if the count calls an upstream. Such a call counts against the request limits. */
  readonly callsUpstream: boolean
}

export interface RequestUsage {
  readonly promptTokens: number
  readonly completionTokens: number
  readonly savedTokens: number
  readonly theoretical: NanoUsd
  readonly actual: NanoUsd
  readonly billed: NanoUsd
  /** The model name in the request. */
  readonly model: string
}

/** Requests, tokens and money that were reserved for a request. */
export interface Reservation {
  /** False if the store failed and the request is served anyway. The settlement then creates the reservation. */
  readonly isReserved: boolean
  readonly rate: RateStatus
  readonly quote: Quote
  /** The output limit that the budgets cover: at most that of the quote. */
  readonly outputTokens: number
  /**
   * Replaces the reserved amounts with the used amounts, and appends the audit entries in the same atomic step. Only the
   * first call has an effect.
   *
   * @param entries @default none
   */
  settle(used: RequestUsage, entries?: readonly SettledEntry[]): MaybePromise<void>
  /**
   * Returns the settlement that `settle` sends to the store. The caller can save it and send it after a restart, because
   * the store applies a settlement only once.
   */
  settlement(used: RequestUsage, entries?: readonly SettledEntry[]): Settlement
}

export interface QuoteCandidate {
  readonly model: Model
  /** Upper bound on the prompt's tokens. */
  readonly promptTokens: number
  /** Counts the prompt exactly for this model. Resolves with undefined if the count fails. @default no exact count */
  readonly count?: () => Promise<number | undefined>
  readonly callsUpstream?: boolean
}

export interface QuoteOptions {
  /** Returns the models that may answer. Called at most once. */
  readonly candidates: () => readonly QuoteCandidate[]
  readonly promptTokens: () => number
  /** Counts the prompt exactly, without an upstream call. Called if the upper bound exceeds a token limit. */
  readonly countPrompt?: () => Promise<number>
  readonly outputTokens: number
  readonly choices: number
  readonly margin: number
}

/** Quotes the cost of the most expensive candidate, because any candidate may answer. */
export function createQuote(options: QuoteOptions): Quote {
  return new WorstCaseQuote(options)
}

/** Computes the candidates and the prompt tokens on first use. */
class WorstCaseQuote implements Quote {
  readonly outputTokens: number
  readonly #options: QuoteOptions
  #candidates: readonly QuoteCandidate[] | undefined
  #promptTokens: number | undefined

  constructor(options: QuoteOptions) {
    this.#options = options
    this.outputTokens = options.outputTokens
  }

  get promptTokens(): number {
    return (this.#promptTokens ??= this.#options.promptTokens())
  }

  get #allCandidates(): readonly QuoteCandidate[] {
    return (this.#candidates ??= this.#options.candidates())
  }

  cost(outputTokens: number): NanoUsd {
    let highest = ZERO
    for (const candidate of this.#allCandidates)
      highest = maxCost(highest, costFor(candidate, outputTokens, this.#options))
    return highest
  }

  get uncountedCost(): NanoUsd {
    let highest = ZERO
    for (const candidate of this.#allCandidates) {
      if (candidate.count !== undefined) highest = maxCost(highest, costFor(candidate, 0, this.#options))
    }
    return highest
  }

  promptBound(model: Model): number {
    const quoted = this.#allCandidates.find((candidate) => candidate.model === model)
    return quoted?.promptTokens ?? Math.max(...this.#allCandidates.map(({ promptTokens }) => promptTokens))
  }

  get recount(): NonNullable<Quote['recount']> {
    const options = { ...this.#options, candidates: () => this.#allCandidates, promptTokens: () => this.promptTokens }
    return { ...tokenRecount(options), ...budgetRecount(options) }
  }
}

function tokenRecount(options: QuoteOptions): { readonly tokens?: Recount } {
  const { countPrompt, promptTokens, ...otherOptions } = options
  if (countPrompt === undefined) return {}
  const run = async (): Promise<Quote> => {
    const counted = Math.min(promptTokens(), await countPrompt())
    return createQuote({ ...otherOptions, promptTokens: () => counted })
  }
  return { tokens: { run, callsUpstream: false } }
}

function budgetRecount(options: QuoteOptions): { readonly budget?: Recount } {
  const candidates = options.candidates()
  const countableCandidates = candidates.filter(({ count }) => count !== undefined)
  if (countableCandidates.length === 0) return {}
  const run = async (): Promise<Quote> => {
    const counted = await Promise.all(candidates.map(recountCandidate))
    return createQuote({ ...options, candidates: () => counted })
  }
  return { budget: { run, callsUpstream: countableCandidates.some(({ callsUpstream }) => callsUpstream === true) } }
}

async function recountCandidate({ model, promptTokens, count }: QuoteCandidate): Promise<QuoteCandidate> {
  const counted = (await count?.()) ?? promptTokens
  return { model, promptTokens: Math.min(promptTokens, counted) }
}

function costFor(
  { model, promptTokens }: QuoteCandidate,
  outputTokens: number,
  { choices, margin }: QuoteOptions,
): NanoUsd {
  return scale(costOfTokens(model.price, promptTokens, outputTokens * choices), margin)
}

function maxCost(a: NanoUsd, b: NanoUsd): NanoUsd {
  return b > a ? b : a
}

/** The quote for a free request that calls an upstream. */
export const ONE_REQUEST: Quote = { isRequestOnly: true, promptTokens: 0, outputTokens: 0, cost: () => ZERO }

/** Takes one request from each of the key's request limits. Throws `rate-limited` if one of them has been reached. */
export async function reserveOneRequest(
  ledger: { reserve(key: VirtualKey, quote: Quote): MaybePromise<Reservation> },
  key: VirtualKey,
): Promise<RateStatus> {
  const reservation = await ledger.reserve(key, ONE_REQUEST)
  await reservation.settle(NO_USAGE)
  return reservation.rate
}

const NO_USAGE: RequestUsage = {
  promptTokens: 0,
  completionTokens: 0,
  savedTokens: 0,
  theoretical: ZERO,
  actual: ZERO,
  billed: ZERO,
  model: '',
}
