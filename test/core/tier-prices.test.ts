import { describe, expect, it } from 'vitest'
import { costOf, highestCostOf, NO_USAGE, type Price, priceAtTiers, scale, scalePrice } from '../../src/core/money.ts'
import { openaiCompatible } from '../../src/index.ts'
import { ANTHROPIC_MODELS, OPENAI_MODELS } from '../../src/providers/main-providers.ts'
import { fc } from '../support/properties.ts'

const rate = fc.integer({ min: 1, max: 10_000 }).map((thousandths) => thousandths / 1000)
const rates = fc.record(
  { input: rate, output: rate, cacheRead: rate, cacheWrite: rate, cacheWrite1h: rate },
  { requiredKeys: ['input', 'output'] },
)
const price: fc.Arbitrary<Price> = fc
  .tuple(rates, fc.option(rates, { nil: undefined }), fc.integer({ min: 1, max: 5000 }))
  .map(([short, long, aboveTokens]) => ({ ...short, ...(long !== undefined && { long: { ...long, aboveTokens } }) }))
const tokens = fc.nat(4000)
const usage = fc
  .record({
    inputTokens: tokens,
    cacheReadTokens: tokens,
    cacheWriteTokens: tokens,
    cacheWrite1hTokens: tokens,
    outputTokens: tokens,
  })
  .map((counts) => ({ ...NO_USAGE, ...counts }))
const factor = fc.constantFrom(0.5, 1, 1.1, 1.75, 1.8, 2, 2.5, 6)

describe('the price of a tier', () => {
  it('with a factor multiplies every cost by it, also of a long prompt', () => {
    fc.assert(
      fc.property(price, usage, factor, (list, used, by) => {
        const expected = scale(costOf(used, list), by)
        // Prices are rounded to a millionth of a dollar per million tokens, and costs to a billionth of a dollar.
        expect(Math.abs(costOf(used, scalePrice(list, by)) - expected)).toBeLessThanOrEqual(1 + 20_000 * 0.0005 + by)
      }),
    )
  })

  it('never costs more than its worst case', () => {
    fc.assert(
      fc.property(price, usage, factor, (list, used, by) => {
        const scaled = scalePrice(list, by)
        const prompt = used.inputTokens + used.cacheReadTokens + used.cacheWriteTokens + used.cacheWrite1hTokens
        expect(costOf(used, scaled)).toBeLessThanOrEqual(highestCostOf(scaled, prompt, used.outputTokens, '1h'))
      }),
    )
  })

  it('is the list price for tiers that are unknown or not reported', () => {
    const list: Price = { input: 1, output: 2, tiers: { priority: 2 } }
    for (const tiers of [undefined, {}, { service_tier: '' }, { service_tier: 'turbo' }, { speed: 'constructor' }]) {
      expect(priceAtTiers(list, tiers)).toBe(list)
    }
    expect(priceAtTiers(list, { service_tier: 'priority' })).toMatchObject({ input: 2, output: 4 })
  })

  it('with prices of its own is multiplied by the factors of other tiers, in any order', () => {
    const own = { input: 10, output: 20, long: { aboveTokens: 5, input: 20, output: 30 } }
    const list: Price = { input: 1, output: 2, tiers: { batch: own, fast: 2, 'inference_geo:us': 1.1, slow: own } }
    const expected = { input: 22, output: 44, long: { aboveTokens: 5, input: 44, output: 66 } }
    for (const tiers of [
      { service_tier: 'batch', speed: 'fast', inference_geo: 'inference_geo:us' },
      { inference_geo: 'inference_geo:us', service_tier: 'fast', speed: 'slow' },
    ]) {
      const { input, output, long } = priceAtTiers(list, tiers)
      expect([input, output, long?.input, long?.output]).toEqual(
        [expected.input, expected.output, expected.long.input, expected.long.output].map((value) =>
          expect.closeTo(value, 9),
        ),
      )
      expect(long?.aboveTokens).toBe(5)
    }
  })
})

describe('the prices of tiers in options', () => {
  const create = (tiers: object) => () =>
    openaiCompatible({
      name: 'local',
      baseUrl: 'http://127.0.0.1:1/v1',
      models: [{ id: 'm', price: { input: 1, output: 2, tiers: tiers as NonNullable<Price['tiers']> } }],
    })

  it('are factors or prices', () => {
    expect(create({ priority: 2, flex: { input: 0.5, output: 1 }, 'inference_geo:us': 1.1 })).not.toThrow()
  })

  it.each<[string, object, string]>([
    ['a factor of 0, which would make requests free', { priority: 0 }, 'models[0].price.tiers.priority'],
    ['a factor in percent', { priority: 200 }, 'models[0].price.tiers.priority'],
    ['a text', { priority: '2' }, 'models[0].price.tiers.priority'],
    ['prices without output', { priority: { input: 1 } }, 'models[0].price.tiers.priority.output'],
    ['prices per token', { flex: { input: 1e-6, output: 1 } }, 'models[0].price.tiers.flex.input'],
    ['an unknown field', { flex: { input: 1, output: 1, tiers: {} } }, 'models[0].price.tiers.flex.tiers'],
    ['a list', [2], 'models[0].price.tiers'],
  ])('are rejected with the path: %s', (_, tiers, path) => {
    expect(create(tiers)).toThrow(path)
  })
})

describe('the built-in prices of tiers', () => {
  const tiersOf = (id: string): Price['tiers'] =>
    [...OPENAI_MODELS, ...ANTHROPIC_MODELS].find((model) => model.id === id)?.price.tiers

  it('are those that the vendors publish', () => {
    expect(tiersOf('gpt-6-astra')).toEqual({ flex: 0.5, priority: 2, ultrafast: 6 })
    expect(tiersOf('gpt-5.5')).toEqual({ flex: 0.5, priority: { input: 12.5, output: 75, cacheRead: 1.25 } })
    expect(tiersOf('claude-fable-5-2')).toEqual({ fast: 2, 'inference_geo:us': 1.1, batch: 0.5 })
    expect(tiersOf('claude-opus-4-5-20251101')).toEqual({ batch: 0.5 })
    expect(tiersOf('gpt-6.2-astra')).toBeUndefined()
  })

  it('cost at most twice the list price in fast mode, except where the vendor says more', () => {
    const dearest = OPENAI_MODELS.flatMap(({ id, price: { input, tiers = {} } }) => {
      const tier = tiers['priority']
      return tier === undefined ? [] : [[id, typeof tier === 'number' ? tier : tier.input / input] as const]
    })
    expect(dearest.filter(([, by]) => by > 2)).toEqual([['gpt-5.5', 2.5]])
    expect(dearest.every(([, by]) => by > 1)).toBe(true)
  })
})
