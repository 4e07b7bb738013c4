import { callerOfKey } from '../../src/governance/caller.ts'
import { describe, expect, it } from 'vitest'
import type { Model } from '../../src/core/ports.ts'
import { type QuoteCandidate, type QuoteOptions, WorstCaseQuote } from '../../src/governance/reservation.ts'
import type { VirtualKey } from '../../src/governance/virtual-key.ts'
import { createTestGovernance, usage, type TestGovernance, parseNewKey } from './test-governance.ts'

const model = (id: string, input: number): Model => ({
  id,
  family: 'f',
  contextWindowTokens: 1_000_000,
  maxOutputTokens: 1000,
  price: { input, output: 1 },
})
const CHEAP = model('cheap', 1)
const EXPENSIVE = model('expensive', 10)

const quoteCandidates = (candidates: readonly QuoteCandidate[], options: Partial<QuoteOptions> = {}): WorstCaseQuote =>
  new WorstCaseQuote({
    candidates: () => candidates,
    promptTokens: () => 4_000,
    outputTokens: 100,
    extraOutputTokens: 0,
    outputs: 1,
    models: () => [],
    messages: [],
    margin: 1,
    ...options,
  })

/** Creates a token counter that counts its calls. */
function createCounter(tokens: number | undefined): {
  readonly count: () => Promise<number | undefined>
  calls: number
} {
  const counter = {
    calls: 0,
    count: async () => {
      counter.calls += 1
      return tokens
    },
  }
  return counter
}

async function createKey(governance: TestGovernance, fields: Record<string, number>): Promise<VirtualKey> {
  return (await governance.keyring.create(parseNewKey({ name: 'k', ...fields }))).key
}

describe('a quote', () => {
  it('costs as much as its most expensive candidate, with one bound per candidate', () => {
    const quote = quoteCandidates([
      { model: CHEAP, promptTokens: 4_000 },
      { model: EXPENSIVE, promptTokens: 1_000 },
    ])
    expect(quote.cost(0)).toBe(1_000 * 10_000)
    expect(quote.promptBound?.(CHEAP)).toBe(4_000)
    expect(quote.promptBound?.(EXPENSIVE)).toBe(1_000)
  })

  it('multiplies the output by the number of outputs, and the total by the margin', () => {
    const options = { outputs: 3, extraOutputTokens: 50, margin: 2 }
    const quote = quoteCandidates([{ model: CHEAP, promptTokens: 10 }], options)
    expect(quote.cost(100)).toBe(2 * (10 + 450) * 1000)
  })
})

describe('a prompt bound that exceeds the budget', () => {
  it('is replaced once by the count of each countable candidate', async () => {
    const governance = createTestGovernance()
    const key = await createKey(governance, { budget_limit_cents: 1 })
    const counter = createCounter(900)
    const candidates = [
      { model: EXPENSIVE, promptTokens: 4_000, count: counter.count },
      { model: CHEAP, promptTokens: 4_000 },
    ]
    const reservation = await governance.ledger.reserve(callerOfKey(key), quoteCandidates(candidates))
    expect(counter.calls).toBe(1)
    expect(reservation.outputTokens).toBe(100)
    expect(reservation.quote.promptBound?.(EXPENSIVE)).toBe(900)
    expect(reservation.quote.promptBound?.(CHEAP)).toBe(4_000)
    await reservation.settle(usage(900, 10, 9_000_000))
  })

  it('rejects the request when the count fails or also exceeds the budget', async () => {
    for (const tokens of [undefined, 3_000]) {
      const governance = createTestGovernance()
      const key = await createKey(governance, { budget_limit_cents: 1 })
      const counter = createCounter(tokens)
      const quote = quoteCandidates([{ model: EXPENSIVE, promptTokens: 4_000, count: counter.count }])
      await expect(governance.ledger.reserve(callerOfKey(key), quote)).rejects.toMatchObject({
        kind: 'budget-exceeded',
      })
      expect(counter.calls).toBe(1)
    }
  })

  it('is never raised by a count', async () => {
    const governance = createTestGovernance()
    const key = await createKey(governance, { budget_limit_cents: 1 })
    const quote = quoteCandidates([{ model: EXPENSIVE, promptTokens: 990, count: createCounter(5_000).count }])
    expect((await governance.ledger.reserve(callerOfKey(key), quote)).quote.promptBound?.(EXPENSIVE)).toBe(990)
  })

  it('is not counted when a shorter output limit fits', async () => {
    const governance = createTestGovernance()
    const key = await createKey(governance, { budget_limit_cents: 1 })
    const counter = createCounter(5)
    const candidates = [{ model: CHEAP, promptTokens: 50, count: counter.count }]
    const reservation = await governance.ledger.reserve(
      callerOfKey(key),
      quoteCandidates(candidates, { outputTokens: 100_000 }),
    )
    expect(counter.calls).toBe(0)
    expect(reservation.outputTokens).toBe(9_950)
  })

  it('gives the same forecast as the reservation', async () => {
    const governance = createTestGovernance()
    const key = await createKey(governance, { budget_limit_cents: 1 })
    const quote = quoteCandidates([{ model: EXPENSIVE, promptTokens: 4_000, count: createCounter(900).count }])
    const forecast = await governance.ledger.forecast(callerOfKey(key), quote)
    const reservation = await governance.ledger.reserve(callerOfKey(key), quote)
    expect(forecast.error).toBeUndefined()
    expect(forecast.outputTokens).toBe(reservation.outputTokens)
  })

  it('is counted by the gateway for a token limit, and by the model for a budget', async () => {
    const governance = createTestGovernance()
    const key = await createKey(governance, { budget_limit_cents: 1, rate_limit_tokens: 1_000 })
    const [tokenCounter, budgetCounter] = [createCounter(950), createCounter(900)]
    const quote = quoteCandidates([{ model: EXPENSIVE, promptTokens: 4_000, count: budgetCounter.count }], {
      countPrompt: async () => (await tokenCounter.count()) ?? 0,
    })
    await governance.ledger.reserve(callerOfKey(key), quote)
    expect([tokenCounter.calls, budgetCounter.calls]).toEqual([1, 1])
  })
})
