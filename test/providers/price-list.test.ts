import { describe, expect, it } from 'vitest'
import { openai, openaiCompatible } from '../../src/index.ts'
import { groq, openrouter, priceList } from '../../src/providers.ts'
import { catalogOf } from '../../scripts/refresh-catalog.ts'

const pricedAt = '2026-11-20'

const modelsDev = {
  openai: {
    models: {
      'gpt-4o-mini': { cost: { input: 0.2, output: 0.8 }, limit: { context: 128_000, output: 16_384 } },
      'gpt-of-tomorrow': {
        cost: { input: 3, output: 12, cache_read: 0.3, tiers: [{ input: 6, output: 18, tier: { size: 200_000 } }] },
        limit: { context: 1_000_000, output: 64_000 },
        modalities: { output: ['text'] },
      },
      'a-picture': { cost: { input: 1, output: 2 }, modalities: { output: ['image'] } },
    },
  },
  groq: { models: { 'new-llama': { cost: { input: 0.05, output: 0.08 }, limit: { context: 8192, output: 4096 } } } },
}

const litellm = {
  sample_spec: { mode: 'one of: chat, …', input_cost_per_token: 0 },
  'openrouter/vendor/model-1': {
    litellm_provider: 'openrouter',
    mode: 'chat',
    input_cost_per_token: 3e-6,
    output_cost_per_token: 1.5e-5,
    cache_read_input_token_cost: 3e-7,
    input_cost_per_token_above_200k_tokens: 6e-6,
    output_cost_per_token_above_200k_tokens: 2.25e-5,
    max_input_tokens: 1_000_000,
    max_output_tokens: 64_000,
  },
  'openrouter/free/model': {
    litellm_provider: 'openrouter',
    mode: 'chat',
    input_cost_per_token: 0,
    output_cost_per_token: 0,
  },
  'openrouter/image': { litellm_provider: 'openrouter', mode: 'image_generation', input_cost_per_token: 1e-6 },
}

/** Returns a file of models.dev with one model, `x`. */
function ofOpenai(cost: object): object {
  return { openai: { models: { x: { cost } } } }
}

describe('priceList', () => {
  it("reads models.dev's format, replaces catalog prices, and serves new models", () => {
    const provider = openai({ prices: priceList(modelsDev, { pricedAt }) })

    expect(provider.model('gpt-4o-mini')).toMatchObject({
      price: { input: 0.2, output: 0.8 },
      pricedAt,
      tokenizer: 'o200k',
    })
    expect(provider.model('gpt-of-tomorrow')).toMatchObject({
      price: { input: 3, output: 12, cacheRead: 0.3, long: { aboveTokens: 200_000, input: 6, output: 18 } },
      contextWindowTokens: 1_000_000,
      maxOutputTokens: 64_000,
      pricedAt,
    })
    expect(provider.model('a-picture')).toBeUndefined()
    expect(provider.models.map(({ id }) => id)).toContain('gpt-of-tomorrow')
    expect(groq({ prices: priceList(modelsDev, { pricedAt }) }).model('new-llama')?.price.input).toBe(0.05)
  })

  it("reads LiteLLM's format and converts dollars per token to dollars per million tokens", () => {
    const provider = openrouter({ prices: priceList(litellm, { pricedAt }) })

    expect(provider.models.map(({ id }) => id)).toEqual(['vendor/model-1'])
    expect(provider.model('vendor/model-1')).toMatchObject({
      price: { input: 3, output: 15, cacheRead: 0.3, long: { aboveTokens: 200_000, input: 6, output: 22.5 } },
      contextWindowTokens: 1_000_000,
    })
    expect(provider.model('free/model')).toBeUndefined()
  })

  it("reads LiteLLM's prices of tiers and of cache writes of one hour", () => {
    const rates = { litellm_provider: 'openai', mode: 'chat', input_cost_per_token: 2e-6, output_cost_per_token: 1e-5 }
    const row = {
      ...rates,
      cache_creation_input_token_cost: 2.5e-6,
      cache_creation_input_token_cost_above_1hr: 4e-6,
      input_cost_per_token_above_272k_tokens: 4e-6,
      output_cost_per_token_above_272k_tokens: 1.5e-5,
      input_cost_per_token_priority: 4e-6,
      output_cost_per_token_priority: 2e-5,
      cache_creation_input_token_cost_priority: 5e-6,
      input_cost_per_token_above_272k_tokens_priority: 8e-6,
      output_cost_per_token_above_272k_tokens_priority: 3e-5,
      input_cost_per_token_flex: 1e-6,
      provider_specific_entry: { us: 1.1, fast: 2, 'x-service': 1 },
    }
    const prices = priceList({ tiered: row, plain: rates }, { pricedAt })
    const provider = openai({ prices })
    expect(provider.model('tiered')?.price).toEqual({
      input: 2,
      output: 10,
      cacheWrite: 2.5,
      cacheWrite1h: 4,
      long: { aboveTokens: 272_000, input: 4, output: 15, cacheWrite: 2.5, cacheWrite1h: 4 },
      tiers: {
        priority: {
          input: 4,
          output: 20,
          cacheWrite: 5,
          long: { aboveTokens: 272_000, input: 8, output: 30, cacheWrite: 5 },
        },
        fast: 2,
        'inference_geo:us': 1.1,
      },
    })
    expect(provider.model('plain')?.price).toEqual({ input: 2, output: 10 })
  })

  it('keeps the prices of tiers in the catalog while the list price is the same', () => {
    const listed = (input: number): object => ({ openai: { models: { 'gpt-5-mini': { cost: { input, output: 2 } } } } })
    const priceOf = (input: number) => openai({ prices: priceList(listed(input), { pricedAt }) }).model('gpt-5-mini')
    expect(priceOf(0.25)?.price.tiers).toEqual({ flex: 0.5, priority: 1.8 })
    expect(priceOf(0.3)?.price.tiers).toBeUndefined()
  })

  it('serves any provider of the chat format under its name in the file', () => {
    const provider = openaiCompatible({
      name: 'groq',
      baseUrl: 'http://127.0.0.1:1/v1',
      prices: priceList(modelsDev, { pricedAt }),
    })

    expect(provider.models.map(({ id }) => id)).toEqual(['new-llama'])
  })

  it.each([
    ['an array', [], /LiteLLM's or models.dev's/],
    ['another object', { a: { b: 1 } }, /LiteLLM's or models.dev's/],
    ['a negative price', ofOpenai({ input: -1, output: 1 }), 'file.openai.models["x"].cost.input: expected 0 to'],
    ['a price as text', ofOpenai({ input: '1', output: 1 }), 'file.openai.models["x"].cost.input: expected 0 to'],
    ['a missing input price', ofOpenai({ output: 1 }), 'file.openai.models["x"].cost.input: expected 0 to'],
    ['a missing output price', ofOpenai({ input: 1 }), 'file.openai.models["x"].cost.output: expected 0 to'],
    ['an infinite price', ofOpenai({ input: 1, output: Infinity }), 'cost.output: expected 0 to 10000 dollars'],
    [
      'a missing price of long prompts',
      ofOpenai({ input: 1, output: 1, tiers: [{ input: 2, tier: { size: 200_000 } }] }),
      'file.openai.models["x"].cost.tiers[0].output: expected 0 to',
    ],
    [
      'a missing output price of LiteLLM',
      { 'gpt-x': { litellm_provider: 'openai', mode: 'chat', input_cost_per_token: 1e-6 } },
      'file["gpt-x"].output_cost_per_token: expected 0 to 10000 dollars per million tokens, got undefined',
    ],
    [
      'an output price of LiteLLM that is null',
      { 'gpt-x': { litellm_provider: 'openai', input_cost_per_token: 1e-6, output_cost_per_token: null } },
      'file["gpt-x"].output_cost_per_token: expected 0 to 10000 dollars per million tokens, got undefined',
    ],
    [
      'a negative price of LiteLLM',
      { 'gpt-x': { litellm_provider: 'openai', input_cost_per_token: 1e-6, output_cost_per_token: -1 } },
      'file["gpt-x"].output_cost_per_token: expected 0 to 10000 dollars per million tokens, got -1 per token',
    ],
  ])('rejects %s', (_name, file, message) => {
    expect(() => openai({ prices: priceList(file, { pricedAt }) })).toThrow(message)
  })

  it('accepts embedding models of LiteLLM without an output price', () => {
    const file = { embed: { litellm_provider: 'openai', mode: 'embedding', input_cost_per_token: 1e-7 } }

    expect(openai({ prices: priceList(file, { pricedAt }) }).model('embed')?.price).toEqual({ input: 0.1, output: 0 })
  })

  it('rejects a date that is not a day', () => {
    expect(() => priceList(modelsDev, { pricedAt: 'yesterday' })).toThrow(
      /pricedAt: expected a date, YYYY-MM-DD, got "yesterday"/,
    )
  })
})

describe('scripts/refresh-catalog', () => {
  it('writes the models of each vendor, with the source and the date', () => {
    expect(catalogOf(modelsDev, pricedAt, 'models.dev')).toMatchObject({
      source: 'models.dev',
      pricedAt: '2026-11-20',
      models: {
        groq: [
          { id: 'new-llama', contextWindowTokens: 8192, maxOutputTokens: 4096, price: { input: 0.05, output: 0.08 } },
        ],
      },
    })
  })
})
