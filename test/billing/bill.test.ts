import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  billHeaders,
  headerSafe,
  makeBill,
  makeHitBill,
  reductionPercent,
  savings,
  savingsPercent,
} from '../../src/billing/bill.ts'
import { NO_USAGE } from '../../src/core/answer.ts'
import { formatUsd, nano, ZERO } from '../../src/core/money.ts'

const price = { input: 3, output: 15, cacheRead: 0.3, cacheWrite: 3.75 }
const plain = {
  price,
  margin: 1.5,
  strategy: 'Passthrough (no optimization needed)',
  estimated: false,
  spent: ZERO,
  ceiling: { prompt: Infinity, output: Infinity },
  reserved: Infinity,
}

describe('a bill', () => {
  it('takes the upstream’s count where nothing was rewritten, whatever our own counter says', () => {
    const bill = makeBill({
      ...plain,
      counted: { original: 900, sent: 900 },
      usage: { ...NO_USAGE, inputTokens: 1000, outputTokens: 100 },
    })

    expect([bill.originalTokens, bill.optimizedTokens]).toEqual([1000, 1000])
    expect(formatUsd(bill.theoretical)).toBe('$0.004500')
    expect(formatUsd(bill.billed)).toBe('$0.006750')
    expect(savings(bill)).toBe(0)
  })

  it('scales our count of the original by the upstream’s count of what was sent', () => {
    const bill = makeBill({
      ...plain,
      counted: { original: 100_000, sent: 10_000 },
      usage: { ...NO_USAGE, inputTokens: 11_000 },
    })

    expect(bill.originalTokens).toBe(110_000)
    expect(reductionPercent(bill)).toBe(90)
    expect(savingsPercent(bill)).toBe(90)
  })

  it('counts small-model calls into the actual cost and not into the billed amount', () => {
    const usage = { ...NO_USAGE, inputTokens: 1000 }
    const without = makeBill({ ...plain, counted: { original: 1, sent: 1 }, usage })
    const bill = makeBill({ ...plain, counted: { original: 1, sent: 1 }, usage, spent: nano(500) })

    expect(bill.actual - without.actual).toBe(500)
    expect(bill.billed).toBe(without.billed)
  })

  it('reads an upstream’s cached tokens at their own price in the actual cost only', () => {
    const usage = { ...NO_USAGE, inputTokens: 100, cacheReadTokens: 900 }
    const bill = makeBill({ ...plain, counted: { original: 1, sent: 1 }, usage })

    expect(bill.originalTokens).toBe(1000)
    expect(formatUsd(bill.theoretical)).toBe('$0.003000')
    expect(formatUsd(bill.actual)).toBe('$0.000570')
  })

  it('of a cache hit bills nothing and saves everything', () => {
    const bill = makeHitBill({ price, margin: 1.5, originalTokens: 1000, completionTokens: 100 })
    const headers = billHeaders(bill)

    expect(headers['x-svc-billed-amount']).toBe('$0.000000')
    expect(headers['x-svc-strategy']).toBe('Semantic-Cache')
    expect(headers['x-svc-cache']).toBe('HIT')
    expect(headers['x-svc-reduction-pct']).toBe('100%')
    expect(headers['x-svc-savings-usd']).toBe(headers['x-svc-theoretical-cost'])
  })

  it('keeps its equations for any usage: billed = theoretical × margin, savings = theoretical − actual', () => {
    const count = fc.integer({ min: 0, max: 2_000_000 })
    const margin = fc.double({ min: 0, max: 10, noNaN: true })
    fc.assert(
      fc.property(count, count, count, count, margin, (input, cached, output, original, factor) => {
        const usage = { ...NO_USAGE, inputTokens: input, cacheReadTokens: cached, outputTokens: output }
        const bill = makeBill({ ...plain, margin: factor, counted: { original, sent: Math.ceil(original / 2) }, usage })
        expect(bill.billed).toBe(Math.round(bill.theoretical * factor))
        expect(savings(bill)).toBe(bill.theoretical - bill.actual)
        expect(bill.originalTokens).toBeGreaterThanOrEqual(bill.optimizedTokens)
        for (const value of Object.values(billHeaders(bill))) expect(value).not.toMatch(/NaN|Infinity|undefined/)
      }),
    )
  })

  it('never puts into a header what a header cannot hold', () => {
    expect(headerSafe('Family-Lock (a -> b漢\r\nx: y)')).toBe('Family-Lock (a -> b???x: y)')
  })
})
