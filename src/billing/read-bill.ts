/** The bill of one request. Amounts are dollars with six fraction digits; token counts are those of the prompt. */
export interface ResponseBill {
  /** Tokens of the prompt as it arrived. */
  readonly originalTokens: number
  /** Tokens of the prompt as it was sent upstream; 0 for a cache hit. */
  readonly optimizedTokens: number
  readonly tokensSaved: number
  /** Share of the prompt that was not sent, in whole percent. */
  readonly reductionPercent: number
  /** Cost at list price without optimization. */
  readonly theoreticalCostUsd: number
  /** Paid to upstreams for every call of the request. */
  readonly actualCostUsd: number
  /** `theoreticalCostUsd` times the margin; 0 for a cache hit. */
  readonly billedUsd: number
  /** `theoreticalCostUsd` minus `actualCostUsd`. */
  readonly savingsUsd: number
  readonly margin: number
  readonly cache: 'HIT' | 'MISS'
  /** How the prompt was optimized, such as `Passthrough (no optimization needed)`. */
  readonly strategy: string
  /** True for a stream, whose headers leave before its usage is known, and for an upstream that reports no usage. */
  readonly isEstimated: boolean
}

/**
 * Reads the bill in the `X-Svc-*` headers of a response. Returns undefined for a response without a bill: an error, or a
 * path that calls no model.
 */
export function readBill({
  headers,
}: {
  readonly headers: { get(name: string): string | null }
}): ResponseBill | undefined {
  const text = (name: string): string => headers.get(`x-svc-${name}`) ?? ''
  const amount = (name: string): number => Number(text(name).replace(/[$%x]/g, ''))
  if (text('billed-amount') === '') return undefined
  return {
    originalTokens: amount('original-tokens'),
    optimizedTokens: amount('optimized-tokens'),
    tokensSaved: amount('tokens-saved'),
    reductionPercent: amount('reduction-pct'),
    theoreticalCostUsd: amount('theoretical-cost'),
    actualCostUsd: amount('actual-cost'),
    billedUsd: amount('billed-amount'),
    savingsUsd: amount('savings-usd'),
    margin: amount('profit-margin'),
    cache: text('cache') === 'HIT' ? 'HIT' : 'MISS',
    strategy: text('strategy'),
    isEstimated: text('estimated') === 'true',
  }
}
