import { numberFrom, type OptionCheck } from '../core/check-options.ts'
import {
  add,
  costOf,
  costOfTokens,
  formatUsd,
  subtract,
  scale,
  ZERO,
  type NanoUsd,
  type Price,
  promptTokens,
  type CacheWrites,
  type Usage,
} from '../core/money.ts'

/** Token counts refer to the prompt, except `completionTokens`. */
export interface Bill {
  readonly originalTokens: number
  readonly optimizedTokens: number
  readonly completionTokens: number
  /** Cost of the response without the gateway. */
  readonly theoretical: NanoUsd
  /** Cost of all upstream calls of the request, without `excessUsage`. */
  readonly actual: NanoUsd
  readonly billed: NanoUsd
  readonly margin: number
  readonly cache: 'HIT' | 'MISS'
  readonly strategy: string
  /** True if local counts may replace the upstream's usage. False for a cache hit. */
  readonly isEstimated: boolean
  /** Reported usage above the ceiling. It is not billed. */
  readonly excessUsage?: ExcessUsage
  /** What the vendor charges the customer, who pays it with a key of its own. The actual cost is then zero. */
  readonly vendorCharge?: NanoUsd
  /** What the plan of the customer did to the request near the end of a budget, such as `savings=med`. */
  readonly degraded?: string
}

export interface Billable {
  readonly price: Price
  readonly margin: number
  readonly strategy: string
  /** Undefined if the prompt was not rewritten. */
  readonly localCounts?: LocalCounts | undefined
  readonly usage: Usage
  readonly ceiling: UsageCeiling
  /** Maximum number of tokens billed for the original prompt if fewer were sent. */
  readonly reservedTokens: number
  readonly isEstimated: boolean
  readonly extraCost: NanoUsd
  /** The vendor's prompt cache, as it would work without the gateway. @default each prompt token has the input price */
  readonly vendorCache?: VendorCache | undefined
  /** True if the caller wanted the prompt shortened at any cost. It then pays at least for what was sent. */
  readonly isForced?: boolean | undefined
}

/** Tokens of a rewritten prompt and of the received one, as this gateway counts. */
export interface LocalCounts {
  readonly original: number
  readonly sent: number
  /** The vendor's tokens per local token of the received prompt. @default that of the sent prompt */
  readonly vendorRatio?: number | undefined
}

export interface VendorCache {
  readonly writes: CacheWrites
  /** Share of the received prompt that the cache would have served, although rewritten prompts were sent. */
  readonly servedShare: number
  /**
   * Local count of the tokens that a rewritten prompt and the received one have in common at their beginning. If the
   * vendor's cache served them, it would have served them without the gateway, too. @default 0
   */
  readonly commonPrefixTokens?: number
}

export interface UsageCeiling {
  readonly promptTokens: number
  readonly outputTokens: number
}

export interface ExcessUsage {
  readonly promptTokens: number
  readonly completionTokens: number
}

/**
 * The upstream's count of input tokens is authoritative up to the ceiling. A mix with the local count would report
 * savings or losses for requests that were not rewritten.
 */
export function makeBill(response: Billable): Bill {
  const { usage, excessUsage } = clampUsage(response.usage, response.ceiling)
  const sent = promptTokens(usage)
  const { localCounts, vendorCache, price } = response
  const original =
    localCounts === undefined
      ? sent
      : Math.max(sent, Math.min(response.reservedTokens, originalTokens(localCounts, sent)))
  const usesCache = vendorCache !== undefined && (usage.inputTokens < sent || vendorCache.servedShare > 0)
  const charge = costOf(usage, price)
  const withoutGateway = usesCache
    ? costOf(usageWithoutGateway({ vendorCache, localCounts }, original, usage), price)
    : costOfTokens(price, original, usage.outputTokens)
  const theoretical = response.isForced && charge > withoutGateway ? charge : withoutGateway
  return {
    originalTokens: original,
    optimizedTokens: sent,
    completionTokens: usage.outputTokens,
    theoretical,
    actual: add(charge, response.extraCost),
    billed: scale(theoretical, response.margin),
    margin: response.margin,
    cache: 'MISS',
    strategy: response.strategy,
    isEstimated: response.isEstimated,
    ...(excessUsage !== undefined && { excessUsage }),
  }
}

/**
 * The vendor's discount for a prompt that it would have cached anyway belongs to the caller. Only what markers and
 * rewrites of the gateway add is a saving.
 */
function usageWithoutGateway(
  { vendorCache, localCounts }: { readonly vendorCache: VendorCache; readonly localCounts: Billable['localCounts'] },
  original: number,
  usage: Usage,
): Usage {
  const { servedShare, commonPrefixTokens = 0, writes } = vendorCache
  const isUnchanged = localCounts === undefined
  const readTokens = Math.round(original * servedShare)
  if (isUnchanged && readTokens <= usage.cacheReadTokens) return limitWrites(usage, writes)
  const commonTokens = isUnchanged ? 0 : Math.round(commonPrefixTokens * tokenRatio(localCounts, promptTokens(usage)))
  const cacheReadTokens = Math.max(readTokens, Math.min(original, commonTokens, usage.cacheReadTokens))
  // The rest is written to the cache to the same extent as the vendor reported for the tokens that it received.
  const rest = (original - cacheReadTokens) / Math.max(1, promptTokens(usage) - usage.cacheReadTokens)
  const unread = original - cacheReadTokens
  const cacheWriteTokens = Math.min(unread, Math.round(usage.cacheWriteTokens * rest))
  const cacheWrite1hTokens = Math.min(unread - cacheWriteTokens, Math.round(usage.cacheWrite1hTokens * rest))
  const inputTokens = unread - cacheWriteTokens - cacheWrite1hTokens
  return limitWrites({ ...usage, inputTokens, cacheReadTokens, cacheWriteTokens, cacheWrite1hTokens }, writes)
}

/** Replaces writes that were not reserved by cheaper ones, so that a vendor's report cannot exceed the reservation. */
export function limitWrites(usage: Usage, writes: CacheWrites): Usage {
  const { inputTokens, cacheWriteTokens, cacheWrite1hTokens } = usage
  if (writes === '1h' || cacheWriteTokens + cacheWrite1hTokens === 0) return usage
  const written = cacheWriteTokens + cacheWrite1hTokens
  return writes === '5m'
    ? { ...usage, cacheWriteTokens: written, cacheWrite1hTokens: 0 }
    : { ...usage, inputTokens: inputTokens + written, cacheWriteTokens: 0, cacheWrite1hTokens: 0 }
}

function originalTokens(localCounts: LocalCounts, upstreamCount: number): number {
  return Math.max(upstreamCount, Math.round(localCounts.original * tokenRatio(localCounts, upstreamCount)))
}

/** The upstream's tokens per local token. */
function tokenRatio({ sent, vendorRatio }: LocalCounts, upstreamCount: number): number {
  return vendorRatio ?? (sent === 0 ? 0 : upstreamCount / sent)
}

/** The operator pays nothing for a request that the vendor bills to the customer. */
export function paidByCustomer(bill: Bill): Bill {
  return { ...bill, actual: ZERO, vendorCharge: bill.actual }
}

export function savings(bill: Bill): NanoUsd {
  return subtract(bill.theoretical, bill.actual)
}

export function savingsPercent(bill: Bill): number {
  if (bill.theoretical === 0) return 0
  return Math.round(10_000 * (1 - bill.actual / bill.theoretical)) / 100
}

export function reductionPercent(bill: Bill): number {
  if (bill.originalTokens === 0) return 0
  return Math.round(100 * (1 - bill.optimizedTokens / bill.originalTokens))
}

/** In the order in which `reducePrompt` reduces them. */
const PROMPT_TOKEN_FIELDS = ['inputTokens', 'cacheWrite1hTokens', 'cacheWriteTokens', 'cacheReadTokens'] as const

export function clampUsage(
  usage: Usage,
  ceiling: UsageCeiling,
): { readonly usage: Usage; readonly excessUsage?: ExcessUsage } {
  const excessUsage = {
    promptTokens: Math.max(0, promptTokens(usage) - ceiling.promptTokens),
    completionTokens: Math.max(0, usage.outputTokens - ceiling.outputTokens),
  }
  if (excessUsage.promptTokens === 0 && excessUsage.completionTokens === 0) return { usage }
  const outputTokens = usage.outputTokens - excessUsage.completionTokens
  const reasoningTokens = Math.min(usage.reasoningTokens, outputTokens)
  const prompt = reducePrompt(usage, excessUsage.promptTokens)
  return { usage: { ...usage, ...prompt, outputTokens, reasoningTokens }, excessUsage }
}

function reducePrompt(usage: Usage, excessTokens: number): Partial<Usage> {
  let remaining = excessTokens
  const reduced = PROMPT_TOKEN_FIELDS.map((field) => {
    const removed = Math.min(remaining, usage[field])
    remaining -= removed
    return [field, usage[field] - removed] as const
  })
  return Object.fromEntries(reduced)
}

export function billHeaders(bill: Bill): Record<string, string> {
  const headers: Record<string, string> = {
    'x-svc-original-tokens': String(bill.originalTokens),
    'x-svc-optimized-tokens': String(bill.optimizedTokens),
    'x-svc-tokens-saved': String(bill.originalTokens - bill.optimizedTokens),
    'x-svc-reduction-pct': `${reductionPercent(bill)}%`,
    'x-svc-savings-usd': formatUsd(savings(bill)),
    'x-svc-strategy': toHeaderText(bill.strategy),
    'x-svc-theoretical-cost': formatUsd(bill.theoretical),
    'x-svc-actual-cost': formatUsd(bill.actual),
    'x-svc-billed-amount': formatUsd(bill.billed),
    'x-svc-profit-margin': `${bill.margin}x`,
    'x-svc-cache': bill.cache,
  }
  if (bill.vendorCharge !== undefined) headers['x-svc-vendor-charge'] = formatUsd(bill.vendorCharge)
  if (bill.degraded !== undefined) headers['x-svc-degraded'] = toHeaderText(bill.degraded)
  if (bill.isEstimated) headers['x-svc-estimated'] = 'true'
  return headers
}

const MARGIN_FIELD = /theoretical|actual|margin|savings|original_cost|your_cost/

/** Removes the fields from which a caller could compute the margin: headers, metrics or costs of an explanation. */
export function withoutMargin<Value>(fields: Readonly<Record<string, Value>>): Record<string, Value> {
  return Object.fromEntries(Object.entries(fields).filter(([name]) => !MARGIN_FIELD.test(name)))
}

export function toHeaderText(text: string): string {
  return text.replace(/[^\x20-\x7e]/g, '?')
}

/** The bill of one request. Amounts are in dollars with six decimal places. Token counts refer to the prompt. */
export interface ResponseBill {
  /** Tokens of the received prompt. */
  readonly originalTokens: number
  /** Tokens of the sent prompt; 0 for a cache hit. */
  readonly optimizedTokens: number
  readonly tokensSaved: number
  /** Share of the prompt that was not sent, as an integer percentage. */
  readonly reductionPercent: number
  /** What the request would have cost without the gateway. Undefined with `headers: { margin: false }`. */
  readonly theoreticalCostUsd: number | undefined
  /**
   * Cost of all upstream calls of the request. Excludes reported usage that exceeds what the calls could have used.
   * Undefined with `headers: { margin: false }`.
   */
  readonly actualCostUsd: number | undefined
  /** The theoretical cost times the margin; 0 for a cache hit. */
  readonly billedUsd: number
  /** What the vendor bills the customer, who pays it with a key of its own. Undefined if the operator pays. */
  readonly vendorChargeUsd: number | undefined
  /** Highest amount that can be billed: more than `billedUsd` in the headers of a stream, which contain the expected bill. */
  readonly maxBilledUsd: number
  /** `theoreticalCostUsd` minus `actualCostUsd`. Undefined with `headers: { margin: false }`. */
  readonly savingsUsd: number | undefined
  /** Undefined with `headers: { margin: false }`. */
  readonly margin: number | undefined
  readonly cache: 'HIT' | 'MISS'
  /** What the plan of the customer did near the end of a budget, such as `savings=med, model=openai/gpt-6-luna`. */
  readonly degraded: string | undefined
  /** The optimization of the prompt, such as `Passthrough (no optimization needed)`. */
  readonly strategy: string
  /**
   * True if the upstream's usage was not completely known when the headers were sent, as for most streams. False for a
   * cache hit.
   */
  readonly isEstimated: boolean
}

/**
 * Reads the bill from the `X-Svc-*` headers of a response. Returns undefined for a response without these headers.
 *
 * @example
 * const bill = readBill(response)
 * if (bill !== undefined) console.log(bill.billedUsd, bill.isEstimated)
 */
export function readBill({
  headers,
}: {
  readonly headers: { get(name: string): string | null }
}): ResponseBill | undefined {
  const text = (name: string): string => headers.get(`x-svc-${name}`) ?? ''
  const amount = (name: string): number => Number(text(name).replace(/[$%x]/g, ''))
  const optional = (name: string): number | undefined => (text(name) === '' ? undefined : amount(name))
  if (text('billed-amount') === '') return undefined
  return {
    originalTokens: amount('original-tokens'),
    optimizedTokens: amount('optimized-tokens'),
    tokensSaved: amount('tokens-saved'),
    reductionPercent: amount('reduction-pct'),
    theoreticalCostUsd: optional('theoretical-cost'),
    actualCostUsd: optional('actual-cost'),
    billedUsd: amount('billed-amount'),
    vendorChargeUsd: optional('vendor-charge'),
    maxBilledUsd: amount(text('max-amount') === '' ? 'billed-amount' : 'max-amount'),
    savingsUsd: optional('savings-usd'),
    margin: optional('profit-margin'),
    cache: text('cache') === 'HIT' ? 'HIT' : 'MISS',
    strategy: text('strategy'),
    degraded: text('degraded') || undefined,
    isEstimated: text('estimated') === 'true',
  }
}

/** A larger factor is a mistake of unit, such as 50 for 50%. */
export const MAX_MARGIN = 10

export const checkMargin: OptionCheck = numberFrom(
  0,
  MAX_MARGIN,
  `a number from 0 to ${MAX_MARGIN}, or a function that returns one`,
  (percent) => (percent < 100 ? percent + 100 : percent) / 100,
)
