import { expect, it } from 'vitest'
import { makeBill } from '../../src/billing/bill.ts'
import { makeHitBill } from '../../src/billing/hit-bill.ts'
import { NO_USAGE, ZERO } from '../../src/core/money.ts'

/** 1,000 nano-dollars per token, and 100 for a token that the vendor's cache serves. */
const price = { input: 1, output: 2, cacheRead: 0.1, cacheWrite: 1.25 }

it.each([
  ['at the price of the vendor’s cache, which would have served it without the gateway', false, 200_000],
  ['at least at the price of what was sent, if the caller forced the rewrite', true, 1_000_000],
])('a shortened prompt is billed %s', (_, isForced, theoretical) => {
  const bill = makeBill({
    price,
    margin: 1,
    strategy: 'Savings-Slider',
    localCounts: { original: 2000, sent: 1000 },
    usage: { ...NO_USAGE, inputTokens: 1000 },
    ceiling: { promptTokens: 10_000, outputTokens: 100 },
    reservedTokens: 10_000,
    isEstimated: false,
    extraCost: ZERO,
    vendorCache: { writes: 'none', servedShare: 1 },
    isForced,
  })

  expect([bill.theoretical, bill.billed, bill.actual]).toEqual([theoretical, theoretical, 1_000_000])
})

it.each([
  ['the usage of the stored response, if it is of the same prompt', 1000, 1000 * 100],
  ['the list price, if the stored response has the usage of another prompt', 500, 1000 * 1000],
])('a cache hit saves %s', (_, cacheReadTokens, theoretical) => {
  const cached = { usage: { ...NO_USAGE, cacheReadTokens }, writes: 'none' } as const
  const bill = makeHitBill({ price, margin: 1, originalTokens: 1000, completionTokens: 0, spent: ZERO, cached })

  expect([bill.theoretical, bill.billed]).toEqual([theoretical, 0])
})
