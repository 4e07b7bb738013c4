import { describe, expect, it } from 'vitest'
import {
  billHeaders,
  clampUsage,
  toHeaderText,
  makeBill,
  reductionPercent,
  savings,
  savingsPercent,
} from '../../src/billing/bill.ts'
import { makeHitBill } from '../../src/billing/hit-bill.ts'
import {
  type CacheWrites,
  formatUsd,
  highestCostOf,
  NO_USAGE,
  promptTokens,
  toNanoUsd,
  ZERO,
} from '../../src/core/money.ts'
import { fc } from '../support/properties.ts'

const price = { input: 3, output: 15, cacheRead: 0.3, cacheWrite: 3.75 }
const plain = {
  price,
  margin: 1.5,
  strategy: 'Passthrough (no optimization needed)',
  isEstimated: false,
  extraCost: ZERO,
  ceiling: { promptTokens: Infinity, outputTokens: Infinity },
  reservedTokens: Infinity,
}

describe('a bill', () => {
  it('uses the count of the upstream for a prompt that was not rewritten', () => {
    const bill = makeBill({
      ...plain,
      localCounts: { original: 900, sent: 900 },
      usage: { ...NO_USAGE, inputTokens: 1000, outputTokens: 100 },
    })

    expect([bill.originalTokens, bill.optimizedTokens]).toEqual([1000, 1000])
    expect(formatUsd(bill.theoretical)).toBe('$0.004500')
    expect(formatUsd(bill.billed)).toBe('$0.006750')
    expect(savings(bill)).toBe(0)
  })

  it('scales the local count of the original by the upstream’s count of the sent prompt', () => {
    const bill = makeBill({
      ...plain,
      localCounts: { original: 100_000, sent: 10_000 },
      usage: { ...NO_USAGE, inputTokens: 11_000 },
    })

    expect(bill.originalTokens).toBe(110_000)
    expect(reductionPercent(bill)).toBe(90)
    expect(savingsPercent(bill)).toBe(90)
  })

  it('adds small-model calls to the actual cost and not to the billed amount', () => {
    const usage = { ...NO_USAGE, inputTokens: 1000 }
    const without = makeBill({ ...plain, localCounts: { original: 1, sent: 1 }, usage })
    const bill = makeBill({ ...plain, localCounts: { original: 1, sent: 1 }, usage, extraCost: toNanoUsd(500) })

    expect(bill.actual - without.actual).toBe(500)
    expect(bill.billed).toBe(without.billed)
  })

  it('applies the price of cached tokens to the actual cost only', () => {
    const usage = { ...NO_USAGE, inputTokens: 100, cacheReadTokens: 900 }
    const bill = makeBill({ ...plain, localCounts: { original: 1, sent: 1 }, usage })

    expect(bill.originalTokens).toBe(1000)
    expect(formatUsd(bill.theoretical)).toBe('$0.003000')
    expect(formatUsd(bill.actual)).toBe('$0.000570')
  })

  it('bills writes that were not reserved as cheaper ones, so that it stays within the reservation', () => {
    const usage = { ...NO_USAGE, inputTokens: 100, cacheWriteTokens: 200, cacheWrite1hTokens: 700 }
    const prices = { ...price, cacheWrite1h: 6 }
    const theoretical = (writes: CacheWrites): string =>
      formatUsd(makeBill({ ...plain, price: prices, usage, vendorCache: { writes, servedShare: 0 } }).theoretical)

    expect([theoretical('none'), theoretical('5m'), theoretical('1h')]).toEqual(['$0.003000', '$0.003675', '$0.005250'])
  })

  it('costs at most the worst case of its tokens, whatever the vendor reads and writes', () => {
    const tokens = fc.integer({ min: 0, max: 1_000_000 })
    const rate = fc.integer({ min: 0, max: 50_000 }).map((milli) => milli / 1000)
    const prices = fc.record({ input: rate, output: rate, cacheRead: rate, cacheWrite: rate, cacheWrite1h: rate })
    fc.assert(
      fc.property(
        prices,
        fc.record({
          inputTokens: tokens,
          cacheReadTokens: tokens,
          cacheWriteTokens: tokens,
          cacheWrite1hTokens: tokens,
        }),
        fc.constantFrom<CacheWrites>('none', '5m', '1h'),
        fc.double({ min: 0, max: 1, noNaN: true }),
        fc.option(fc.record({ original: tokens, sent: tokens }), { nil: undefined }),
        tokens,
        (vendorPrice, counts, writes, servedShare, localCounts, commonPrefixTokens) => {
          const usage = { ...NO_USAGE, ...counts }
          const vendorCache = { writes, servedShare, commonPrefixTokens }
          const bill = makeBill({ ...plain, price: vendorPrice, localCounts, usage, vendorCache })
          const worst = highestCostOf(vendorPrice, bill.originalTokens, 0, writes)
          expect(bill.theoretical).toBeLessThanOrEqual(worst)
        },
      ),
    )
  })

  it('of a cache hit bills nothing and saves everything', () => {
    const bill = makeHitBill({ price, margin: 1.5, originalTokens: 1000, completionTokens: 100, spent: ZERO })
    const headers = billHeaders(bill)

    expect(headers['x-svc-billed-amount']).toBe('$0.000000')
    expect(headers['x-svc-strategy']).toBe('Semantic-Cache')
    expect(headers['x-svc-cache']).toBe('HIT')
    expect(headers['x-svc-reduction-pct']).toBe('100%')
    expect(headers['x-svc-savings-usd']).toBe(headers['x-svc-theoretical-cost'])
  })

  it('fulfills billed = theoretical × margin and savings = theoretical − actual for any usage', () => {
    const count = fc.integer({ min: 0, max: 2_000_000 })
    const margin = fc.double({ min: 0, max: 10, noNaN: true })
    fc.assert(
      fc.property(count, count, count, count, margin, (input, cached, output, original, factor) => {
        const usage = { ...NO_USAGE, inputTokens: input, cacheReadTokens: cached, outputTokens: output }
        const bill = makeBill({
          ...plain,
          margin: factor,
          localCounts: { original, sent: Math.ceil(original / 2) },
          usage,
        })
        expect(bill.billed).toBe(Math.round(bill.theoretical * factor))
        expect(savings(bill)).toBe(bill.theoretical - bill.actual)
        expect(bill.originalTokens).toBeGreaterThanOrEqual(bill.optimizedTokens)
        for (const value of Object.values(billHeaders(bill))) expect(value).not.toMatch(/NaN|Infinity|undefined/)
      }),
    )
  })

  it('replaces characters that a header cannot contain', () => {
    expect(toHeaderText('Family-Lock (a -> b漢\r\nx: y)')).toBe('Family-Lock (a -> b???x: y)')
  })
})

const amount = fc.nat(2_000_000)
const usages = fc.record({
  inputTokens: amount,
  cacheReadTokens: amount,
  cacheWriteTokens: amount,
  cacheWrite1hTokens: amount,
  outputTokens: amount,
  reasoningTokens: fc.nat(1000),
})

describe('clamped usage', () => {
  it('stays within the ceiling, and the clamped and the cut-off tokens add up to the reported ones', () => {
    fc.assert(
      fc.property(usages, amount, amount, (reported, prompt, output) => {
        const { usage, excessUsage } = clampUsage(reported, { promptTokens: prompt, outputTokens: output })
        expect(promptTokens(usage)).toBe(Math.min(prompt, promptTokens(reported)))
        expect(usage.outputTokens).toBe(Math.min(output, reported.outputTokens))
        expect(usage.reasoningTokens).toBeLessThanOrEqual(Math.max(usage.outputTokens, reported.reasoningTokens))
        for (const part of ['inputTokens', 'cacheReadTokens', 'cacheWriteTokens', 'cacheWrite1hTokens'] as const) {
          expect(usage[part]).toBeGreaterThanOrEqual(0)
          expect(usage[part]).toBeLessThanOrEqual(reported[part])
        }
        expect(promptTokens(usage) + (excessUsage?.promptTokens ?? 0)).toBe(promptTokens(reported))
        expect(usage.outputTokens + (excessUsage?.completionTokens ?? 0)).toBe(reported.outputTokens)
      }),
    )
  })

  it('equals the reported usage within the ceiling', () => {
    const reported = { ...NO_USAGE, inputTokens: 10, outputTokens: 5 }
    expect(clampUsage(reported, { promptTokens: 10, outputTokens: 5 })).toEqual({ usage: reported })
  })
})

describe('the original of a rewritten prompt', () => {
  const rewritten = {
    price: { input: 1, output: 2 },
    margin: 1,
    strategy: 'RLM-Context-Search',
    isEstimated: false,
    extraCost: ZERO,
    localCounts: { original: 100_000, sent: 10_000 },
    ceiling: { promptTokens: 400_000, outputTokens: 1000 },
  }

  it('is billed with at most the reserved tokens', () => {
    const bill = makeBill({ ...rewritten, reservedTokens: 120_000, usage: { ...NO_USAGE, inputTokens: 30_000 } })
    expect(bill.originalTokens).toBe(120_000)
    expect(bill.billed).toBe(120_000 * 1000)
  })

  it('is at least the sent prompt', () => {
    const bill = makeBill({ ...rewritten, reservedTokens: 20_000, usage: { ...NO_USAGE, inputTokens: 30_000 } })
    expect(bill.originalTokens).toBe(30_000)
  })
})
