import { promptTokens, type Usage } from '../core/answer.ts'
import { clampUsage, type Ceiling, type CutOff } from './clamp.ts'
import { add, costOf, costOfTokens, subtract, times, ZERO, type NanoUsd, type Price } from '../core/money.ts'

/** What one request cost, and what it would have cost. Tokens are those of the prompt. */
export interface Bill {
  readonly originalTokens: number
  readonly optimizedTokens: number
  readonly completionTokens: number
  /** Cost without optimization, at list price. */
  readonly theoretical: NanoUsd
  /** What the upstreams charge for every call that the request made. */
  readonly actual: NanoUsd
  /** theoretical × margin; nothing for a cache hit. */
  readonly billed: NanoUsd
  readonly margin: number
  readonly cache: 'HIT' | 'MISS'
  /** The value of X-Svc-Strategy. */
  readonly strategy: string
  /** True when an amount rests on our own count: the upstream reported none, or the answer is still to come. */
  readonly estimated: boolean
  /** What the upstream reported beyond what the call can have used; it is not billed. */
  readonly cutOff?: CutOff
}

/** What an answered request is billed by. */
export interface Billable {
  readonly price: Price
  readonly margin: number
  readonly strategy: string
  /** Our own counts of the prompt as it came and as it was sent. @default the prompt was not rewritten */
  readonly counted?: { readonly original: number; readonly sent: number }
  /** As the upstream reported it, or our own estimate. */
  readonly usage: Usage
  /** The most tokens of the prompt and the answer that are believed. */
  readonly ceiling: Ceiling
  /** The most tokens that the original prompt is billed with, where less was sent. */
  readonly reserved: number
  readonly estimated: boolean
  /** What small models and abandoned calls of this request cost. */
  readonly spent: NanoUsd
}

/**
 * theoretical = original prompt tokens × input price + completion tokens × output price; actual = all upstream calls
 * at their reported usage; billed = theoretical × margin (decisions 5).
 *
 * The upstream's count of input tokens is the truth, as far as the prompt can have so many; our own counter only states how many were saved. Mixing the two
 * would report savings, or losses, where nothing was rewritten.
 */
export function makeBill(item: Billable): Bill {
  const { usage, cutOff } = clampUsage(item.usage, item.ceiling)
  const sent = promptTokens(usage)
  const original = Math.max(sent, Math.min(item.reserved, originalTokens(item.counted, sent)))
  const theoretical = costOfTokens(item.price, original, usage.outputTokens)
  return {
    originalTokens: original,
    optimizedTokens: sent,
    completionTokens: usage.outputTokens,
    theoretical,
    actual: add(costOf(usage, item.price), item.spent),
    billed: times(theoretical, item.margin),
    margin: item.margin,
    cache: 'MISS',
    strategy: item.strategy,
    estimated: item.estimated,
    ...(cutOff !== undefined && { cutOff }),
  }
}

/** Returns what a stored answer would have cost. The hit bills nothing and costs what its verifier cost. */
export function makeHitBill(item: {
  readonly price: Price
  readonly margin: number
  readonly originalTokens: number
  readonly completionTokens: number
  /** @default 0 */
  readonly spent?: NanoUsd
}): Bill {
  return {
    originalTokens: item.originalTokens,
    optimizedTokens: 0,
    completionTokens: item.completionTokens,
    theoretical: costOfTokens(item.price, item.originalTokens, item.completionTokens),
    actual: item.spent ?? ZERO,
    billed: ZERO,
    margin: item.margin,
    cache: 'HIT',
    strategy: 'Semantic-Cache',
    estimated: false,
  }
}

export function savings(bill: Bill): NanoUsd {
  return subtract(bill.theoretical, bill.actual)
}

/** 100 × (1 − actual ÷ theoretical), 0 when there was nothing to save from. */
export function savingsPercent(bill: Bill): number {
  if (bill.theoretical === 0) return 0
  return Math.round(10_000 * (1 - bill.actual / bill.theoretical)) / 100
}

/** The share of the prompt that was not sent, in whole percent. */
export function reductionPercent(bill: Bill): number {
  if (bill.originalTokens === 0) return 0
  return Math.round(100 * (1 - bill.optimizedTokens / bill.originalTokens))
}

/** Our count of the original, corrected by what the upstream's counter says of the part that was sent. */
function originalTokens(counted: Billable['counted'], sentByUpstream: number): number {
  if (counted === undefined || counted.sent === 0) return sentByUpstream
  return Math.max(sentByUpstream, Math.round((counted.original * sentByUpstream) / counted.sent))
}
