import { describe, expect, it } from 'vitest'
import type { Model } from '../../src/core/model.ts'
import { parseNewKey } from '../../src/governance/keyring.ts'
import { createQuote, type QuoteCandidate, type QuoteOptions } from '../../src/governance/reservation.ts'
import type { VirtualKey } from '../../src/governance/virtual-key.ts'
import { testGovernance, used, type TestGovernance } from './test-governance.ts'

const model = (id: string, input: number): Model => ({
  id,
  family: 'f',
  contextWindow: 1_000_000,
  maxOutputTokens: 1000,
  price: { input, output: 1 },
})
const CHEAP = model('cheap', 1)
const DEAR = model('dear', 10)

const quoteOf = (
  candidates: readonly QuoteCandidate[],
  more: Partial<QuoteOptions> = {},
): ReturnType<typeof createQuote> =>
  createQuote({
    candidates: () => candidates,
    promptTokens: () => 4_000,
    outputTokens: 100,
    choices: 1,
    margin: 1,
    ...more,
  })

/** A counter, and how often it was asked. */
function counter(tokens: number | undefined): { readonly count: () => Promise<number | undefined>; calls: number } {
  const counting = {
    calls: 0,
    count: async () => {
      counting.calls += 1
      return tokens
    },
  }
  return counting
}

async function keyWith(place: TestGovernance, fields: Record<string, number>): Promise<VirtualKey> {
  return (await place.keyring.create(parseNewKey({ name: 'k', ...fields }))).key
}

describe('a quote', () => {
  it('costs as much as its most expensive candidate, each with its own bound', () => {
    const quote = quoteOf([
      { model: CHEAP, promptTokens: 4_000 },
      { model: DEAR, promptTokens: 1_000 },
    ])
    expect(quote.cost(0)).toBe(1_000 * 10_000)
    expect(quote.promptBound?.(CHEAP)).toBe(4_000)
    expect(quote.promptBound?.(DEAR)).toBe(1_000)
  })

  it('multiplies the answer by the number of choices, and the sum by the margin', () => {
    const quote = quoteOf([{ model: CHEAP, promptTokens: 10 }], { choices: 3, margin: 2 })
    expect(quote.cost(100)).toBe(2 * (10 + 300) * 1000)
  })
})

describe('a reservation whose bound does not fit', () => {
  it('counts each candidate that can be counted, and repeats the step once', async () => {
    const place = testGovernance()
    const key = await keyWith(place, { budget_limit_cents: 1 })
    const counting = counter(900)
    const candidates = [
      { model: DEAR, promptTokens: 4_000, count: counting.count },
      { model: CHEAP, promptTokens: 4_000 },
    ]
    const reservation = await place.ledger.reserve(key, quoteOf(candidates))
    expect(counting.calls).toBe(1)
    expect(reservation.outputTokens).toBe(100)
    expect(reservation.quote.promptBound?.(DEAR)).toBe(900)
    expect(reservation.quote.promptBound?.(CHEAP)).toBe(4_000)
    await reservation.settle(used(900, 10, 9_000_000))
  })

  it('is rejected when the count fails, or does not fit either', async () => {
    for (const tokens of [undefined, 3_000]) {
      const place = testGovernance()
      const key = await keyWith(place, { budget_limit_cents: 1 })
      const counting = counter(tokens)
      const quote = quoteOf([{ model: DEAR, promptTokens: 4_000, count: counting.count }])
      await expect(place.ledger.reserve(key, quote)).rejects.toMatchObject({ kind: 'budget-exceeded' })
      expect(counting.calls).toBe(1)
    }
  })

  it('is never raised by a count', async () => {
    const place = testGovernance()
    const key = await keyWith(place, { budget_limit_cents: 1 })
    const quote = quoteOf([{ model: DEAR, promptTokens: 990, count: counter(5_000).count }])
    expect((await place.ledger.reserve(key, quote)).quote.promptBound?.(DEAR)).toBe(990)
  })

  it('is not counted when the answer is shortened because of its length', async () => {
    const place = testGovernance()
    const key = await keyWith(place, { budget_limit_cents: 1 })
    const counting = counter(5)
    const candidates = [{ model: CHEAP, promptTokens: 50, count: counting.count }]
    const reservation = await place.ledger.reserve(key, quoteOf(candidates, { outputTokens: 100_000 }))
    expect(counting.calls).toBe(0)
    expect(reservation.outputTokens).toBe(9_950)
  })

  it('has a forecast equal to the reservation', async () => {
    const place = testGovernance()
    const key = await keyWith(place, { budget_limit_cents: 1 })
    const quote = quoteOf([{ model: DEAR, promptTokens: 4_000, count: counter(900).count }])
    const forecast = await place.ledger.forecast(key, quote)
    const reservation = await place.ledger.reserve(key, quote)
    expect(forecast.error).toBeUndefined()
    expect(forecast.outputTokens).toBe(reservation.outputTokens)
  })

  it('of a token limit is counted by the gateway, and then of a budget by its model', async () => {
    const place = testGovernance()
    const key = await keyWith(place, { budget_limit_cents: 1, rate_limit_tokens: 1_000 })
    const [tokens, model_] = [counter(950), counter(900)]
    const quote = quoteOf([{ model: DEAR, promptTokens: 4_000, count: model_.count }], {
      countPrompt: async () => (await tokens.count()) ?? 0,
    })
    await place.ledger.reserve(key, quote)
    expect([tokens.calls, model_.calls]).toEqual([1, 1])
  })
})
