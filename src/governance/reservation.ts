import type { MaybePromise } from '../core/async.ts'
import type { Model } from '../core/ports.ts'
import { type CacheWrites, costOfTokens, highestCostOf, scale, ZERO, type NanoUsd, type Price } from '../core/money.ts'
import type { Message } from '../core/prompt.ts'
import type { Claim, SettledEntry, Settlement, Tally } from '../core/store.ts'
import type { Caller } from './caller.ts'
import type { Limit, LimitedRequest, RateStatus } from './limits.ts'
import { UNLIMITED } from './virtual-key.ts'

export interface Quote extends LimitedRequest {
  /** For token limits. */
  readonly promptTokens: number
  readonly outputTokens: number
  /** Includes the prompt and the margin. Never decreases as `outputTokens` increases. */
  cost(outputTokens: number): NanoUsd
  /** Only the request limits of the key apply, because the call costs neither tokens nor money. @default false */
  readonly isRequestOnly?: boolean
  /** Prompt cost of the most expensive candidate that can be recounted. @default 0 */
  readonly uncountedCost?: NanoUsd
  /** Returns the number of prompt tokens that `cost` covers for a model. @default no bound */
  promptBound?(model: Model): number
  readonly recount?: {
    readonly tokens?: Recount
    readonly budget?: Recount
  }
}

export type WaitForStore = <Value>(call: MaybePromise<Value>) => MaybePromise<Value>

export interface Recount {
  /** Resolves with the recounted quote, which no longer offers this recount. */
  readonly run: () => Promise<Quote>
  readonly callsUpstream: boolean
}

export interface RequestUsage {
  readonly promptTokens: number
  readonly completionTokens: number
  readonly savedTokens: number
  readonly theoretical: NanoUsd
  readonly actual: NanoUsd
  readonly billed: NanoUsd
  readonly model: string
  /** Charged to budgets instead of the billed amount. */
  readonly counted?: NanoUsd | undefined
  /** The provider that answered. @default none, for example for a response of the cache */
  readonly provider?: string | undefined
  /** For usage reports, where the caller's context has none: what the request itself says about its user and session. */
  readonly attributedUser?: string | undefined
  readonly attributedSession?: string | undefined
}

/** An entry that a settlement appends, and a tally to which it adds in the same step. */
export interface SettlementRecord extends SettledEntry {
  readonly tally?: Tally
}

export interface Reservation {
  /** When the amounts were reserved, in milliseconds since 1970. Reports count the request on this day. */
  readonly reservedAt: number
  /** In nano-dollars. */
  readonly grantedCost: number
  /** False if the store failed and the request is served anyway. The settlement then creates the reservation. */
  readonly isReserved: boolean
  readonly rate: RateStatus
  readonly quote: Quote
  /** Lower than that of the quote if the budgets cover less. */
  readonly outputTokens: number
  /** Only the first call has an effect. The store appends the entries in the same atomic step. */
  settle(used: RequestUsage, entries?: readonly SettlementRecord[]): MaybePromise<void>
  /** The settlement that `settle` sends. Can be sent again after a restart, because the store applies it only once. */
  settlement(used: RequestUsage, entries?: readonly SettlementRecord[]): Settlement
}

export interface QuoteCandidate {
  readonly model: Model
  /** The dearest price that may apply. @default the model's */
  readonly price?: Price | undefined
  /** Number of prompt tokens to reserve. */
  readonly promptTokens: number
  /** @default 'none' */
  readonly cacheWrites?: CacheWrites | undefined
  /** Resolves with a more precise number, or with undefined if the vendor's count fails. */
  readonly count?: () => Promise<number | undefined>
  readonly callsUpstream?: boolean
}

export interface QuoteOptions {
  readonly candidates: () => readonly QuoteCandidate[]
  readonly promptTokens: () => number
  /** Counts the prompt for token limits. Must not call an upstream. */
  readonly countPrompt?: () => Promise<number>
  readonly outputTokens: number
  /** Output tokens that the vendor bills in addition to `outputTokens`. */
  readonly extraOutputTokens: number
  /** Number of outputs, each with these tokens. */
  readonly outputs: number
  readonly margin: number
  /** Names of all models that may answer. */
  readonly models: () => readonly string[]
  readonly messages: readonly Message[]
}

/** Quotes the cost of the most expensive candidate, because any candidate may answer. */
export class WorstCaseQuote implements Quote {
  readonly outputTokens: number
  readonly #options: QuoteOptions
  #candidates: readonly QuoteCandidate[] | undefined
  #promptTokens: number | undefined

  constructor(options: QuoteOptions) {
    this.#options = options
    this.outputTokens = options.outputTokens
  }

  get models(): readonly string[] {
    return this.#options.models()
  }

  get messages(): readonly Message[] {
    return this.#options.messages
  }

  get promptTokens(): number {
    return (this.#promptTokens ??= this.#options.promptTokens())
  }

  get #allCandidates(): readonly QuoteCandidate[] {
    return (this.#candidates ??= this.#options.candidates())
  }

  cost(outputTokens: number): NanoUsd {
    const { extraOutputTokens, outputs } = this.#options
    return this.#highestCost(this.#allCandidates, (outputTokens + extraOutputTokens) * outputs)
  }

  get uncountedCost(): NanoUsd {
    const countableCandidates = this.#allCandidates.filter(({ count }) => count !== undefined)
    return this.#highestCost(countableCandidates, 0)
  }

  #highestCost(candidates: readonly QuoteCandidate[], outputTokens: number): NanoUsd {
    const { margin } = this.#options
    let highest = ZERO
    for (const { model, price = model.price, promptTokens, cacheWrites = 'none' } of candidates) {
      const cost =
        cacheWrites === 'none'
          ? costOfTokens(price, promptTokens, outputTokens)
          : highestCostOf(price, promptTokens, outputTokens, cacheWrites)
      if (cost > highest) highest = cost
    }
    return scale(highest, margin)
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
    return new WorstCaseQuote({ ...otherOptions, promptTokens: () => counted })
  }
  return { tokens: { run, callsUpstream: false } }
}

function budgetRecount(options: QuoteOptions): { readonly budget?: Recount } {
  const candidates = options.candidates()
  const countableCandidates = candidates.filter(({ count }) => count !== undefined)
  if (countableCandidates.length === 0) return {}
  const run = async (): Promise<Quote> => {
    const counted = await Promise.all(candidates.map(recountCandidate))
    return new WorstCaseQuote({ ...options, candidates: () => counted })
  }
  return { budget: { run, callsUpstream: countableCandidates.some(({ callsUpstream }) => callsUpstream === true) } }
}

async function recountCandidate({ count, ...candidate }: QuoteCandidate): Promise<QuoteCandidate> {
  const { promptTokens } = candidate
  const counted = (await count?.()) ?? promptTokens
  return { ...candidate, promptTokens: Math.min(promptTokens, counted) }
}

const ONE_REQUEST: Quote = { isRequestOnly: true, promptTokens: 0, outputTokens: 0, cost: () => ZERO }

/** Limits for some models, and the loop guard of a session, count the request as well. */
export function oneRequest({ models, messages }: LimitedRequest): Quote {
  return { ...ONE_REQUEST, models, messages }
}

export async function reserveOneRequest(
  ledger: { reserve(caller: Caller, quote: Quote): MaybePromise<Reservation> },
  caller: Caller,
): Promise<RateStatus> {
  const reservation = await ledger.reserve(caller, ONE_REQUEST)
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

export interface LimitClaims {
  /** The limits that apply to the request. */
  readonly applied: readonly Limit[]
  /** Those that claim an amount, in the order of `claims`. */
  readonly limits: readonly Limit[]
  readonly claims: readonly Claim[]
  /** In nano-dollars. */
  readonly worstCost: number
  /** Smallest acceptable grant, in nano-dollars. */
  readonly minGrant: number
  readonly tokens: number
}

/** Length of the shortest useful response in tokens, unless the request has a lower limit. */
const MIN_OUTPUT = 16
/** If the uncounted part takes a larger share of a partial grant, the prompt is counted, because more output may then fit. */
const MAX_UNCOUNTED_SHARE = 0.1

/** A free request claims nothing from a budget above 0. A budget of 0 rejects it, unless it is request-only. */
export function claimsFor(allLimits: readonly Limit[], quote: Quote): LimitClaims {
  const limits: Limit[] = []
  const kinds = new Set<Limit['kind']>()
  for (const limit of allLimits) {
    if (quote.isRequestOnly === true && limit.kind !== 'requests') continue
    const applied = limit.forRequest === undefined ? limit : limit.forRequest(quote)
    if (applied === undefined) continue
    limits.push(applied)
    kinds.add(applied.kind)
  }
  const worstCost = kinds.has('budget') ? toAmount(quote.cost(quote.outputTokens)) : 0
  const tokens = kinds.has('tokens') ? Math.max(1, toAmount(quote.promptTokens)) : 1
  const minGrant = worstCost > 0 ? minGrantOf(quote, worstCost) : 0
  const claimedLimits: Limit[] = []
  const claims: Claim[] = []
  for (const limit of limits) {
    if (limit.kind === 'budget' && worstCost === 0 && limit.max !== 0) continue
    claimedLimits.push(limit)
    claims.push(toClaim(limit, tokens, worstCost))
  }
  return { applied: limits, limits: claimedLimits, claims, worstCost, minGrant: Math.max(1, minGrant), tokens }
}

function minGrantOf(quote: Quote, worstCost: number): number {
  const { uncountedCost = 0 } = quote
  return Math.max(minUsefulCost(quote), Math.min(worstCost, toAmount(uncountedCost / MAX_UNCOUNTED_SHARE)))
}

function minUsefulCost(quote: Quote): number {
  return toAmount(quote.cost(Math.min(MIN_OUTPUT, quote.outputTokens)))
}

/** Returns undefined if no recount can help, so that exhausted budgets cause no recounts. */
export function recountFor(limit: Limit, level: number, quote: Quote): Recount | undefined {
  const remaining = limit.max - (limit.carriedAmount ?? 0) - level
  if (remaining <= 0 || limit.kind === 'requests') return undefined
  if (limit.kind === 'tokens') return quote.recount?.tokens
  return minUsefulCost(quote) - (quote.uncountedCost ?? 0) <= remaining ? quote.recount?.budget : undefined
}

function hasKind(kind: Limit['kind'], limits: readonly Limit[]): boolean {
  return limits.some((limit) => limit.kind === kind)
}

/** The amount is at least 1. Otherwise, a limit of 0 would accept free requests. */
function toClaim(limit: Limit, tokens: number, worstCost: number): Claim {
  const { counter, kind, carriedAmount = 0, expiresAt } = limit
  const max = Math.max(0, limit.max - carriedAmount)
  if (kind === 'budget') return { counter, max, expiresAt, amount: Math.max(1, worstCost), elastic: true }
  return { counter, max, expiresAt, amount: kind === 'requests' ? 1 : tokens }
}

/** Assumes that the grant covers the shortest useful response. */
export function coveredOutputTokens({ worstCost, limits }: LimitClaims, quote: Quote, grantedCost: number): number {
  if (grantedCost >= worstCost || !hasKind('budget', limits)) return quote.outputTokens
  let covered = Math.min(MIN_OUTPUT, quote.outputTokens)
  let uncovered = quote.outputTokens
  while (uncovered - covered > 1) {
    const middle = Math.floor((covered + uncovered) / 2)
    if (toAmount(quote.cost(middle)) <= grantedCost) covered = middle
    else uncovered = middle
  }
  return covered
}

/** An unknown amount (NaN) becomes the maximum, so that limits reject it. */
export function toAmount(amount: number): number {
  return Number.isNaN(amount) ? UNLIMITED : Math.min(UNLIMITED, Math.max(0, Math.ceil(amount)))
}
