import {
  costOf,
  costOfTokens,
  ZERO,
  type NanoUsd,
  type Price,
  promptTokens,
  type CacheWrites,
  type Usage,
} from '../core/money.ts'
import { type Bill, limitWrites } from './bill.ts'

export function makeHitBill(response: {
  readonly price: Price
  readonly margin: number
  readonly originalTokens: number
  readonly completionTokens: number
  /** Cost of the verifier. */
  readonly spent: NanoUsd
  /** What the vendor reported for the stored response. @default each prompt token has the input price */
  readonly cached?: { readonly usage: Usage; readonly writes: CacheWrites } | undefined
}): Bill {
  const { cached } = response
  const usesCache = cached !== undefined && promptTokens(cached.usage) === response.originalTokens
  return {
    originalTokens: response.originalTokens,
    optimizedTokens: 0,
    completionTokens: response.completionTokens,
    theoretical: usesCache
      ? costOf(limitWrites(cached.usage, cached.writes), response.price)
      : costOfTokens(response.price, response.originalTokens, response.completionTokens),
    actual: response.spent,
    billed: ZERO,
    margin: response.margin,
    cache: 'HIT',
    strategy: 'Semantic-Cache',
    isEstimated: false,
  }
}
