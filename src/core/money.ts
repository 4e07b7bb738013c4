/** Billionths of a US dollar, as an integer, because sums of integers are exact. */
export type NanoUsd = number & { readonly unit: 'nano-usd' }

export const ZERO: NanoUsd = 0 as NanoUsd

/** Dollars per million tokens. */
export interface Price {
  readonly input: number
  readonly output: number
  /** Price of input tokens that the upstream reads from its prompt cache. @default input */
  readonly cacheRead?: number
  /** Price of input tokens that the upstream caches for 5 minutes or an unknown time. @default input */
  readonly cacheWrite?: number
  /** Price of input tokens that the upstream caches for 1 hour. @default cacheWrite */
  readonly cacheWrite1h?: number
  /** Prices for all tokens of a call with a long prompt. @default the same prices */
  readonly long?: LongPrice
  /**
   * Prices of service tiers: a factor for all prices of the model, or prices. The names are values of `service_tier`
   * (`priority`, which is also the price of `fast`, `ultrafast`, `flex`, `batch`) and of `speed` (`fast`), and
   * `inference_geo:` followed by a region (`inference_geo:us`). @default unknown: see `surcharges`
   */
  readonly tiers?: Readonly<Record<string, number | TierPrice>>
}

/** Prices of a service tier. */
export type TierPrice = Omit<Price, 'tiers'>

/** Prices for calls whose prompt has more than `above` tokens, including cached tokens. */
export interface LongPrice extends Omit<TierPrice, 'long'> {
  readonly aboveTokens: number
}

/** Token usage of one upstream call. The prompt counts do not overlap. `promptTokens` returns their sum. */
export interface Usage {
  readonly inputTokens: number
  readonly cacheReadTokens: number
  /** Prompt tokens that the upstream caches for 5 minutes or an unknown time. */
  readonly cacheWriteTokens: number
  /** Prompt tokens that the upstream caches for 1 hour. */
  readonly cacheWrite1hTokens: number
  readonly outputTokens: number
  /** Included in `outputTokens`. */
  readonly reasoningTokens: number
  /** The tokens of each model, if the vendor called several. Included in the counts. @default all of the requested model */
  readonly models?: readonly ModelTokens[]
  /** The tiers that the vendor reports. @default it reports none */
  readonly tiers?: ServiceTiers
}

/**
 * Names of service tiers as in `Price.tiers`, by the field that contains them: `service_tier`, `speed` or `inference_geo`.
 * The name of a tier with the list price is empty.
 */
export type ServiceTiers = Readonly<Record<string, string>>

/** Tokens of a model that the vendor called for a request, such as a fallback after a refusal. */
export interface ModelTokens {
  readonly model: string
  readonly usage: Usage
}

/** The usage of a call without tokens. */
export const NO_USAGE: Usage = {
  inputTokens: 0,
  cacheReadTokens: 0,
  cacheWriteTokens: 0,
  cacheWrite1hTokens: 0,
  outputTokens: 0,
  reasoningTokens: 0,
}

/**
 * Rounds a number of billionths of a dollar to a whole one.
 *
 * @example
 * const cost: NanoUsd = toNanoUsd(1_500_000) // $0.0015
 */
export function toNanoUsd(value: number): NanoUsd {
  return Math.min(Number.MAX_SAFE_INTEGER, Math.max(Number.MIN_SAFE_INTEGER, Math.round(value))) as NanoUsd
}

export function fromDollars(dollars: number): NanoUsd {
  return toNanoUsd(dollars * 1e9)
}

export function add(a: NanoUsd, b: NanoUsd): NanoUsd {
  return toNanoUsd(a + b)
}

export function subtract(a: NanoUsd, b: NanoUsd): NanoUsd {
  return toNanoUsd(a - b)
}

export function scale(amount: NanoUsd, factor: number): NanoUsd {
  return toNanoUsd(amount * factor)
}

/** Converts dollars per million tokens to pico-dollars per token: 3 becomes 3,000,000. */
function picoPerToken(price: number): number {
  return Math.round(price * 1e6)
}

export function costOf(usage: Usage, price: Price): NanoUsd {
  if (price.long !== undefined && promptTokens(usage) > price.long.aboveTokens) return costOf(usage, price.long)
  const cacheWrite = price.cacheWrite ?? price.input
  const pico =
    usage.inputTokens * picoPerToken(price.input) +
    usage.cacheReadTokens * picoPerToken(price.cacheRead ?? price.input) +
    usage.cacheWriteTokens * picoPerToken(cacheWrite) +
    usage.cacheWrite1hTokens * picoPerToken(price.cacheWrite1h ?? cacheWrite) +
    usage.outputTokens * picoPerToken(price.output)
  return toNanoUsd(pico / 1000)
}

/** Returns undefined for an unknown price. */
export function tierPriceOf({ tiers = {} }: Price, name: string): number | TierPrice | undefined {
  return Object.hasOwn(tiers, name) ? tiers[name] : undefined
}

/** Tiers without a known price have the list price. */
export function priceAtTiers(price: Price, tiers: ServiceTiers = {}): Price {
  let rates: TierPrice = price
  let factor = 1
  for (const name of Object.values(tiers)) {
    const tier = tierPriceOf(price, name)
    if (typeof tier === 'number') factor *= tier
    else if (tier !== undefined) rates = tier
  }
  return scalePrice(rates, factor)
}

export function scalePrice(price: TierPrice, factor: number): TierPrice {
  const scaleRate = (name: string, value: unknown): unknown =>
    typeof value === 'number' && name !== 'aboveTokens' ? value * factor : value
  return factor === 1 ? price : (JSON.parse(JSON.stringify(price, scaleRate)) as TierPrice)
}

/** The longest prompt-cache entry that a vendor may write for a request, and charge. */
export type CacheWrites = 'none' | '5m' | '1h'

/** Returns the worst-case cost of a call: each prompt token has the highest price that may apply to it. */
export function highestCostOf(price: Price, promptTokens: number, outputTokens: number, writes: CacheWrites): NanoUsd {
  const { input, output, cacheRead = input, cacheWrite = input, cacheWrite1h = cacheWrite, long } = price
  if (long !== undefined && promptTokens > long.aboveTokens)
    return highestCostOf(long, promptTokens, outputTokens, writes)
  const highest = Math.max(
    input,
    cacheRead,
    writes === 'none' ? input : cacheWrite,
    writes === '1h' ? cacheWrite1h : input,
  )
  return costOfTokens({ input: highest, output }, promptTokens, outputTokens)
}

/** Returns the cost of a call without cached prompt tokens. */
export function costOfTokens(price: Price, inputTokens: number, outputTokens: number): NanoUsd {
  if (price.long !== undefined && inputTokens > price.long.aboveTokens)
    return costOfTokens(price.long, inputTokens, outputTokens)
  return toNanoUsd((inputTokens * picoPerToken(price.input) + outputTokens * picoPerToken(price.output)) / 1000)
}

export function formatUsd(amount: NanoUsd): string {
  const micro = Math.round(amount / 1000)
  const dollars = Math.trunc(Math.abs(micro) / 1e6)
  const fraction = Math.abs(micro) - dollars * 1e6
  return `$${micro < 0 ? '-' : ''}${dollars}.${String(1e6 + fraction).slice(1)}`
}

export function toDollars(amount: NanoUsd): number {
  // Adding 0 turns -0 into 0.
  return Math.round(amount / 1000) / 1e6 + 0
}

export function toCents(amount: NanoUsd): number {
  return Math.round(amount / 1e7)
}

export function promptTokens(usage: Usage): number {
  return usage.inputTokens + usage.cacheReadTokens + usage.cacheWriteTokens + usage.cacheWrite1hTokens
}
