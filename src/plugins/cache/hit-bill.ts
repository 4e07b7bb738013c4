import type { Bill } from '../../billing/bill.ts'
import type { NanoUsd, Usage } from '../../core/money.ts'
import type { Planned } from '../../kernel/exchange.ts'
import type { Size } from '../../kernel/measure.ts'
import { cachesReceivedPrompt, priceOf } from '../../kernel/charge.ts'
import { makeHitBill } from '../../billing/hit-bill.ts'

interface HitResponse {
  readonly promptTokens: number
  readonly usage: Usage | undefined
  readonly spent: NanoUsd
}

/** A hit is billed nothing. Its theoretical cost is that of the stored response, as the vendor would have charged it. */
export function hitBill(
  {
    resolved,
    margin,
    size,
  }: Pick<Planned, 'resolved' | 'margin'> & { readonly size: Pick<Size, 'billedCacheWrites' | 'fields'> },
  { promptTokens, usage, spent }: HitResponse,
): Bill {
  const [route] = resolved.routes
  const writes = size.billedCacheWrites(route)
  // The gateway's own markers may have earned the discount of the stored response.
  const isCachedByVendor = writes !== undefined && cachesReceivedPrompt(route, writes)
  return makeHitBill({
    price: priceOf(size, route, usage?.tiers),
    margin,
    originalTokens: promptTokens,
    completionTokens: usage?.outputTokens ?? 0,
    spent,
    cached: usage !== undefined && isCachedByVendor ? { usage, writes } : undefined,
  })
}
