import { describe, expect, it } from 'vitest'
import {
  add,
  costOf,
  formatUsd,
  toNanoUsd,
  subtract,
  scale,
  toCents,
  toDollars,
  fromDollars,
  NO_USAGE,
} from '../../src/core/money.ts'
import { fc } from '../support/properties.ts'

const usage = { ...NO_USAGE, inputTokens: 1_000_000 }

describe('money', () => {
  it.each([
    [{ input: 3, output: 15 }, { ...usage, outputTokens: 1000 }, '$3.015000'],
    [{ input: 0.0375, output: 0.15 }, { ...usage }, '$0.037500'],
    [{ input: 3, output: 15, cacheRead: 0.3 }, { ...NO_USAGE, cacheReadTokens: 1_000_000 }, '$0.300000'],
    [{ input: 3, output: 15 }, { ...NO_USAGE, cacheReadTokens: 1_000_000 }, '$3.000000'],
    [{ input: 3, output: 15, cacheWrite: 3.75 }, { ...NO_USAGE, cacheWrite1hTokens: 1_000_000 }, '$3.750000'],
    [{ input: 3, output: 15, cacheWrite1h: 6 }, { ...NO_USAGE, cacheWrite1hTokens: 1_000_000 }, '$6.000000'],
    [{ input: 3, output: 15 }, { ...NO_USAGE, outputTokens: 100, reasoningTokens: 90 }, '$0.001500'],
  ])('computes with price %o and usage %o a cost of %s', (price, used, expected) => {
    expect(formatUsd(costOf(used, price))).toBe(expected)
  })

  it.each([
    [0, '$0.000000'],
    [499, '$0.000000'],
    [500, '$0.000001'],
    [1_000_000_000, '$1.000000'],
    [-1_500_000, '$-0.001500'],
    [12_345_678_901_234, '$12345.678901'],
  ])('formats %i nano-dollars as %s', (amount, text) => {
    expect(formatUsd(toNanoUsd(amount))).toBe(text)
  })

  it('adds and subtracts exactly', () => {
    const amount = fc.integer({ min: 0, max: 4e15 }).map(toNanoUsd)
    fc.assert(
      fc.property(amount, amount, (a, b) => {
        expect(subtract(add(a, b), b)).toBe(a)
      }),
    )
  })

  it('clamps amounts to the safe integers', () => {
    expect(add(toNanoUsd(Number.MAX_SAFE_INTEGER), toNanoUsd(5))).toBe(Number.MAX_SAFE_INTEGER)
  })

  it('costs more for more tokens, and never a fraction of a nano-dollar', () => {
    const count = fc.integer({ min: 0, max: 2_000_000 })
    const price = fc.double({ min: 0, max: 200, noNaN: true })
    fc.assert(
      fc.property(count, count, price, (a, b, input) => {
        const cost = (tokens: number): number => costOf({ ...NO_USAGE, inputTokens: tokens }, { input, output: 0 })
        expect(Number.isSafeInteger(cost(a))).toBe(true)
        expect(cost(Math.max(a, b))).toBeGreaterThanOrEqual(cost(Math.min(a, b)))
      }),
    )
  })

  it('uses the long prices for a prompt above the limit, including cached tokens', () => {
    const price = {
      input: 1,
      output: 5,
      cacheRead: 0.1,
      long: { aboveTokens: 100, input: 2, output: 10, cacheRead: 0.2 },
    }
    const short = { ...NO_USAGE, inputTokens: 60, cacheReadTokens: 40, outputTokens: 10 }
    expect(costOf(short, price)).toBe(60_000 + 4000 + 50_000)
    expect(costOf({ ...short, inputTokens: 61 }, price)).toBe(122_000 + 8000 + 100_000)
  })

  it('formats cents rounded half up and dollars with six decimals', () => {
    expect(toCents(fromDollars(0.125))).toBe(13)
    expect(toDollars(toNanoUsd(1_234_567))).toBe(0.001235)
    expect(scale(fromDollars(2), 1.5)).toBe(fromDollars(3))
  })
})
