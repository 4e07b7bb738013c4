import { describe, expect, it } from 'vitest'
import type { Model } from '../../../src/core/ports.ts'
import { toNanoUsd, ZERO } from '../../../src/core/money.ts'
import { textOfMessage } from '../../../src/core/messages.ts'
import { type Message, type Prompt } from '../../../src/core/prompt.ts'
import {
  costsOf,
  isSafe,
  maySwitch,
  createUnchangedOption,
  type Outlook,
} from '../../../src/plugins/savings/choose-tiers.ts'
import { bestGrowth, sendingCost } from '../../../src/plugins/savings/memory.ts'
import { cases, fc } from '../../support/properties.ts'
import { jobOf, meter, MODEL, smallModel, waterfallOf } from './bench.ts'
import { promptOf, prose, text } from './conversation.ts'

const CACHED: Model = { ...MODEL, price: { input: 3, output: 15, cacheRead: 0.3, cacheWrite: 3.75 } }
const MINUTE = 60_000

function outlook(turns: number, more: Partial<Outlook> = {}): Outlook {
  return { model: CACHED, turns, growth: 1000, staysWarm: true, ...more }
}

describe('the cost of a prompt', () => {
  it.each([
    ['reads the cached tokens and writes the others', CACHED, 10_000, 4000, 4000 * 300 + 6000 * 3750],
    ['reads at most the whole prompt', CACHED, 10_000, 12_000, 10_000 * 300],
    ['ignores the cache if the model has no lower price for reading it', MODEL, 10_000, 4000, 10_000 * 3000],
  ] as const)('%s', (_, model, tokens, cachedTokens, cost) => {
    expect(sendingCost(model, tokens, cachedTokens)).toBe(cost)
  })
})

describe('the cost of an option', () => {
  const nextCut = { limit: 20_000, target: 12_000, callCost: toNanoUsd(7) }

  it('reads a growing prompt from the cache on later turns', () => {
    const { thisRequest, total } = costsOf(createUnchangedOption(50_000, 50_000), outlook(2))
    expect(thisRequest).toBe(50_000 * 300)
    expect(total).toBe(50_000 * 300 + (50_000 * 300 + 1000 * 3750) + (51_000 * 300 + 1000 * 3750))
  })

  it('includes another cut when a growing prompt exceeds its limit', () => {
    const option = { tokens: 19_500, cachedTokens: 0, callCost: ZERO, nextCut }
    expect(costsOf(option, outlook(1)).total).toBe(19_500 * 3750 + 12_000 * 3750 + 7)
  })

  it('includes the full input and the calls on each turn without a growing prompt', () => {
    const option = { tokens: 4000, cachedTokens: 0, callCost: toNanoUsd(5), callCostPerTurn: toNanoUsd(5) }
    expect(costsOf(option, outlook(3)).total).toBe(4 * (4000 * 3750 + 5))
  })

  it('reads nothing if requests are further apart than the lifetime of the cache', () => {
    const { total } = costsOf(createUnchangedOption(50_000, 0), outlook(1, { staysWarm: false, growth: 0 }))
    expect(total).toBe(2 * 50_000 * 3750)
  })
})

describe('a switch', () => {
  const costs = (thisRequest: number, total: number) => ({
    thisRequest: toNanoUsd(thisRequest),
    total: toNanoUsd(total),
  })

  it.each([
    ['is allowed if this request is already cheaper', costs(100, 500), costs(90, 400), true],
    ['is allowed if the gain is twice the loss', costs(100, 500), costs(140, 420), true],
    ['is not allowed for a smaller gain', costs(100, 500), costs(140, 421), false],
    ['is not allowed if the total is not lower', costs(100, 500), costs(90, 500), false],
  ] as const)('%s', (_, current, candidate, expected) => {
    expect(maySwitch({ current, candidate })).toBe(expected)
  })

  const rewritten = { tokens: 12_000, cachedTokens: 0, callCost: ZERO }
  const growing = { ...rewritten, nextCut: { limit: 30_000, target: 12_000, callCost: ZERO } }
  const whole = (tokens: number, cachedTokens: number) => sendingCost(CACHED, tokens, cachedTokens)

  it.each([
    ['a growing prompt without a loss so far', growing, 50_000, 0, true],
    ['a growing prompt after a loss of less than this request', growing, 50_000, whole(50_000, 50_000), true],
    ['a growing prompt after a greater loss', growing, 50_000, whole(50_000, 50_000) + 1, false],
    ['a new prompt on each turn that costs more than reading everything', rewritten, 50_000, 0, false],
    ['a cached growing prompt that recoups an earlier loss', { ...growing, cachedTokens: 12_000 }, 50_000, 1e9, true],
    ['the same if the savings so far pay for returning', rewritten, 50_000, -whole(50_000, 0), true],
    ['a new prompt on each turn that costs less than reading everything', rewritten, 200_000, 0, true],
  ] as const)('is checked for safety: %s', (_, option, tokens, debt, expected) => {
    const unchangedCost = sendingCost(CACHED, tokens, tokens)
    const risk = { debt: toNanoUsd(debt), option, tokens, cachedTokens: tokens, unchangedCost }
    expect(isSafe(risk, outlook(5, { growth: 0 }))).toBe(expected)
  })
})

describe('a rewritten conversation', () => {
  it('stays rewritten if sending everything would cost more on this turn', () => {
    const growing = {
      tokens: 12_000,
      cachedTokens: 0,
      callCost: ZERO,
      nextCut: { limit: 30_000, target: 12_000, callCost: ZERO },
    }
    const risk = { debt: toNanoUsd(1e9), option: growing, tokens: 50_000, cachedTokens: 50_000 }
    const isSafeAt = (cachedTokens: number) =>
      isSafe({ ...risk, unchangedCost: sendingCost(CACHED, 50_000, cachedTokens) }, outlook(5))
    expect([isSafeAt(0), isSafeAt(50_000)]).toEqual([true, false])
  })
})

describe('the growth of a prompt between two cuts', () => {
  it('increases with the cost of a cut, and is 0 without a lower price for reading', () => {
    expect(bestGrowth(CACHED, toNanoUsd(45e6), 1000)).toBe(Math.round(Math.sqrt((2 * 45e6 * 1000) / 300)))
    expect(bestGrowth(MODEL, toNanoUsd(45e6), 1000)).toBe(0)
  })
})

/** An upstream that caches each prefix for five minutes after its last use. */
function upstreamOf(model: Model): (sent: Prompt, now: number) => Promise<number> {
  let known: { readonly texts: readonly string[]; readonly at: number }[] = []
  const shared = (one: readonly string[], other: readonly string[]): number => {
    const differs = one.findIndex((words, at) => words !== other[at])
    return differs === -1 ? one.length : differs
  }
  return async (sent, now) => {
    const texts = sent.messages.map(textOfMessage)
    known = known.filter(({ at }) => now - at <= 5 * MINUTE)
    const same = Math.max(0, ...known.map((one) => shared(one.texts, texts)))
    known.push({ texts, at: now })
    const sizes = await Promise.all(sent.messages.map((message) => meter.countMessage(message)))
    const cachedTokens = sizes.slice(0, same).reduce((sum, size) => sum + size, 0)
    return sendingCost(
      model,
      sizes.reduce((sum, size) => sum + size, 0),
      cachedTokens,
    )
  }
}

const price = fc.constantFrom(
  { input: 3, output: 15, cacheRead: 0.3, cacheWrite: 3.75 },
  { input: 3, output: 15, cacheRead: 0.75, cacheWrite: 3 },
  { input: 3, output: 15, cacheRead: 0.3, cacheWrite: 6 },
  { input: 3, output: 15, cacheRead: 1.5 },
  { input: 3, output: 15 },
)

const scenario = fc.record({
  price,
  /** The available tiers, including the more expensive ones. */
  open: fc.constantFrom<readonly number[]>([2, 3, 4], [2], [3], [4]),
  opening: fc.integer({ min: 50, max: 9000 }),
  turns: fc.array(
    fc.record({
      asked: fc.integer({ min: 3, max: 300 }),
      responded: fc.integer({ min: 3, max: 2500 }),
      gap: fc.constantFrom(10_000, MINUTE, 4 * MINUTE, 10 * MINUTE),
    }),
    { minLength: 3, maxLength: 25 },
  ),
})

type Scenario = typeof scenario extends fc.Arbitrary<infer value> ? value : never

interface Played {
  /** The extra cost compared with sending everything on every turn, and the cost of sending everything. */
  readonly excess: number
  readonly plain: number
  /** The most expensive rewritten request so far. */
  readonly rewriting: number
}

/** The state after each turn of a conversation in automatic mode. */
async function* playTurns({ price: prices, open, opening, turns }: Scenario): AsyncGenerator<Played> {
  const model = { ...MODEL, price: prices, thresholdFactor: 0.25 }
  const waterfall = waterfallOf({ tiers: (own) => own.filter(({ tier }) => open.includes(tier)) })
  const { small } = smallModel((words) => `Facts and values: ${words.slice(100, 2000)}`)
  const [real, whole] = [upstreamOf(model), upstreamOf(model)]
  const messages: Message[] = [{ role: 'user', parts: [text(prose(1, opening))] }]
  let now = 1e12
  let [excess, plain, rewriting] = [0, 0, 0]
  for (const [at, { asked, responded, gap }] of turns.entries()) {
    const prompt = promptOf([...messages], 'chat')
    const { rewrite, spent } = await waterfall(jobOf(prompt, { model, small, now }))
    const paid = (await real(rewrite?.prompt ?? prompt, now)) + spent
    const everything = await whole(prompt, now)
    excess += paid - everything
    plain += everything
    // A tier may decline after its small-model call. That call is then the only cost of rewriting.
    rewriting = Math.max(rewriting, rewrite === undefined ? spent : paid)
    yield { excess, plain, rewriting }
    now += gap
    messages.push({ role: 'assistant', parts: [text(prose(at * 2 + 2, responded))] })
    messages.push({ role: 'user', parts: [text(prose(at * 2 + 3, asked))] })
  }
}

/** Turns that add much and then nothing, so the expected growth does not occur. */
const STALLING: Scenario = {
  price: { input: 3, output: 15, cacheRead: 0.3, cacheWrite: 3.75 },
  open: [2],
  opening: 2907,
  turns: [
    { asked: 46, responded: 1389, gap: 10_000 },
    { asked: 105, responded: 2362, gap: 240_000 },
    { asked: 3, responded: 3, gap: 240_000 },
    { asked: 3, responded: 3, gap: 10_000 },
  ],
}

describe('automatic mode', () => {
  it('costs at most as much as sending everything and rewriting one request, whenever the conversation ends', async () => {
    await fc.assert(
      fc.asyncProperty(scenario, async (one) => {
        for await (const { excess, rewriting } of playTurns(one)) expect(excess).toBeLessThanOrEqual(rewriting)
      }),
      { numRuns: cases(30), examples: [[STALLING]] },
    )
  }, 120_000)
})
