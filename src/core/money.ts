import { promptTokens, type Usage } from './answer.ts'

/** A whole number of billionths of a dollar, so that sums stay exact. */
export type NanoUsd = number & { readonly unit: 'nano-usd' }

/** Nothing. */
export const ZERO: NanoUsd = 0 as NanoUsd

/**
 * Prices in dollars per million tokens, as vendors publish them.
 * A missing cache price falls back to the input price, never to zero.
 */
export interface Price {
  readonly input: number
  readonly output: number
  /** Input tokens read from the upstream's own prompt cache. @default input */
  readonly cacheRead?: number
  /** Input tokens written to the upstream's prompt cache (5 minutes). @default input */
  readonly cacheWrite?: number
  /** Input tokens written to the upstream's prompt cache for 1 hour. @default cacheWrite */
  readonly cacheWrite1h?: number
  /** Other prices for the whole call, answer included, where its prompt is long. @default the same prices */
  readonly long?: LongPrice
}

/** Prices of calls whose prompt, cached or not, has more than `above` tokens. */
export interface LongPrice extends Omit<Price, 'long'> {
  readonly above: number
}

const MAX_NANO = Number.MAX_SAFE_INTEGER

/** A whole number of nano-dollars, rounded half up; what would leave the safe integers stays at their end. */
export function nano(value: number): NanoUsd {
  return Math.min(MAX_NANO, Math.max(-MAX_NANO, Math.round(value))) as NanoUsd
}

/** Dollars as nano-dollars. */
export function usd(dollars: number): NanoUsd {
  return nano(dollars * 1e9)
}

/** Cents as nano-dollars. */
export function cents(amount: number): NanoUsd {
  return nano(amount * 1e7)
}

export function add(a: NanoUsd, b: NanoUsd): NanoUsd {
  return nano(a + b)
}

export function subtract(a: NanoUsd, b: NanoUsd): NanoUsd {
  return nano(a - b)
}

/** An amount times a factor (a margin), rounded half up. */
export function times(amount: NanoUsd, factor: number): NanoUsd {
  return nano(amount * factor)
}

/** Dollars per million tokens as whole pico-dollars per token: 3 $ per million are 3,000,000. */
function picoPerToken(price: number): number {
  return Math.round(price * 1e6)
}

/**
 * What a usage costs: the disjoint parts times their prices, rounded half up once at the end.
 * Reasoning tokens are within the output tokens.
 */
export function costOf(usage: Usage, price: Price): NanoUsd {
  if (price.long !== undefined && promptTokens(usage) > price.long.above) return costOf(usage, price.long)
  const cacheWrite = price.cacheWrite ?? price.input
  const pico =
    usage.inputTokens * picoPerToken(price.input) +
    usage.cacheReadTokens * picoPerToken(price.cacheRead ?? price.input) +
    usage.cacheWriteTokens * picoPerToken(cacheWrite) +
    usage.cacheWrite1hTokens * picoPerToken(price.cacheWrite1h ?? cacheWrite) +
    usage.outputTokens * picoPerToken(price.output)
  return nano(pico / 1000)
}

/** What a prompt without cached tokens and its answer cost. */
export function costOfTokens(price: Price, prompt: number, answer: number): NanoUsd {
  if (price.long !== undefined && prompt > price.long.above) return costOfTokens(price.long, prompt, answer)
  return nano((prompt * picoPerToken(price.input) + answer * picoPerToken(price.output)) / 1000)
}

/** `$` and six fraction digits, half up: the only place where money becomes text. */
export function formatUsd(amount: NanoUsd): string {
  return `$${decimal(amount)}`
}

/** Dollars as a number with six fraction digits, for JSON bodies. */
export function toDollars(amount: NanoUsd): number {
  return Number(decimal(amount))
}

/** Whole cents, half up, for display only. */
export function toCents(amount: NanoUsd): number {
  return Math.round(amount / 1e7)
}

function decimal(amount: NanoUsd): string {
  const micro = Math.round(amount / 1000)
  const digits = String(Math.abs(micro)).padStart(7, '0')
  const sign = micro < 0 ? '-' : ''
  return `${sign}${digits.slice(0, -6)}.${digits.slice(-6)}`
}
