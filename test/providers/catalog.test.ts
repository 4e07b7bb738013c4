import { describe, expect, it, onTestFinished } from 'vitest'
import { isSafeModelName, splitModelName } from '../../src/core/prompt.ts'
import type { Model, Provider } from '../../src/core/ports.ts'
import {
  anthropic,
  ANTHROPIC_MODELS,
  openai,
  OPENAI_MODELS,
  openaiCompatible,
} from '../../src/providers/main-providers.ts'
import { extractive } from '../../src/testing/extractive/extractive.ts'
import { familyOf } from '../../src/providers/vendor.ts'
import anthropicCatalog from '../../src/providers/models/anthropic.json' with { type: 'json' }
import { config } from 'zod'
import english from 'zod/v4/locales/en.js'
import { createModelDirectory, type CatalogOptions } from '../../src/providers/catalog.ts'
import { checkPrice } from '../../src/providers/provider-options.ts'
import { failureOf } from '../support/provider-call.ts'

const vendors = [openai({ apiKey: 'k' }), anthropic({ apiKey: 'k' })]
const local = openaiCompatible({ name: 'local', baseUrl: 'http://localhost/v1', defaultPrice: { input: 0, output: 0 } })

describe.each([
  ['OpenAI', OPENAI_MODELS],
  ['Anthropic', ANTHROPIC_MODELS],
])('the catalog of %s', (_vendor, models) => {
  it.each(models.map((model) => [model.id, model] as const))('%s has a plausible price with a date', (_id, model) => {
    expect(checkPrice(model.price, 'price')).toBeUndefined()
    expect(model.price.output).toBeGreaterThan(model.price.input)
    // Only the first version of GPT-4o has no prompt cache.
    if (model.id !== 'gpt-4o-2024-05-13') expect(model.price.cacheRead).toBeLessThan(model.price.input)
    expect(model.pricedAt).toMatch(/^2026-\d\d-\d\d$/)
    expect(model.maxOutputTokens).toBeLessThanOrEqual(model.contextWindowTokens)
    expect(isSafeModelName(model.id)).toBe(true)
  })

  it('have one small model of the family, which is listed', () => {
    const small = models.filter((model) => model.small === undefined)
    expect(small).toHaveLength(1)
    const others = models.filter((model) => model.small !== undefined)
    expect(new Set(others.map((model) => model.small))).toEqual(new Set(small.map((model) => model.id)))
    expect(small[0]?.retired).toBeUndefined()
    expect(new Set(models.map((model) => model.family)).size).toBe(1)
  })

  it('list every model once', () => {
    expect(new Set(models.map((model) => model.id)).size).toBe(models.length)
  })
})

/** OpenAI charges for cache writes since GPT-5.6. */
const chargesForCacheWrites = ({ id }: Model): boolean => {
  const [, major, minor = 0] = (/^gpt-(\d+)(?:\.(\d+))?/.exec(id) ?? []).map(Number)
  return major !== undefined && (major > 5 || (major === 5 && minor >= 6))
}

it.each(OPENAI_MODELS.filter(chargesForCacheWrites).map((model) => [model.id, model.price] as const))(
  '%s has a price for cache writes of 1.25 times its input price',
  (_id, price) => {
    expect(price.cacheWrite).toBeCloseTo(1.25 * price.input, 9)
    expect(price.long?.cacheWrite).toBeCloseTo(1.25 * (price.long?.input ?? 0), 9)
  },
)

it.each([
  ['openai', 'gpt-6.2-astra', { input: 8, output: 40, cacheRead: 0.4, cacheWrite: 10 }],
  ['openai', 'gpt-6.2-sol', { input: 2, output: 10, cacheRead: 0.1, cacheWrite: 2.5 }],
  ['openai', 'gpt-4o-2024-05-13', { input: 5, output: 15 }],
  ['openai', 'gpt-4o-2024-08-06', { input: 2.5, output: 10 }],
  ['openai', 'gpt-4o-2031-01-01', { input: 2.5, output: 10 }],
  ['openai', 'gpt-4o-latest', { input: 2.5, output: 10 }],
  ['anthropic', 'claude-fable-5-2', { input: 8, output: 40, cacheRead: 0.2, cacheWrite: 10, cacheWrite1h: 16 }],
])('%s serves %s at its own price, and unknown dates at the price of the undated model', (vendor, id, price) => {
  expect(createModelDirectory({ providers: vendors }).resolve(`${vendor}/${id}`)?.model.price).toMatchObject(price)
})

it('an unknown date and -latest take the price of the undated model wherever it is listed', () => {
  const priced = (id: string, input: number) => ({ id, price: { input, output: input } })
  const models = [priced('m-2024-01-01', 1), priced('m', 2), priced('m-2025-01-01', 3)]
  const provider = openaiCompatible({ name: 'x', baseUrl: 'http://localhost/v1', models })

  expect(
    ['m', 'm-latest', 'm-2030-01-01', 'm-2024-01-01', 'm-2025-01-01'].map((id) => provider.model(id)?.price.input),
  ).toEqual([2, 2, 2, 1, 3])
})

it.each(['LLAMA3', 'llama3:latest', 'Llama3:Latest', 'llama3-LATEST', 'Llama3-2030-01-01'])(
  'the default price does not apply to %s, which is another spelling of a model with a price',
  (id) => {
    const price = { input: 5, output: 10 }
    const listed = { defaultPrice: { input: 0, output: 0 }, models: [{ id: 'llama3', price }] }
    const provider = openaiCompatible({ name: 'x', baseUrl: 'http://localhost/v1', ...listed })

    expect(provider.model(id)).toMatchObject({ id, price })
    expect(provider.model('llama3.3')?.price.input).toBe(0)
  },
)

it('a price in catalog.models applies to -latest and unknown dates of the model', () => {
  const price = { input: 9, output: 90 }
  const models = ['openai/gpt-4o', 'openai/new'].map((id) => ({ id, price }))
  const directory = createModelDirectory({ providers: vendors, catalog: { models } })

  const inputPrices = ['gpt-4o', 'gpt-4o-latest', 'gpt-4o-2031-01-01', 'gpt-4o-2024-05-13', 'new-latest', 'gpt-5'].map(
    (id) => directory.resolve(`openai/${id}`)?.model.price.input,
  )
  expect(inputPrices).toEqual([9, 9, 9, 5, 9, 1.25])
})

describe('families', () => {
  it.each([
    ['claude-sonnet-5-5', 'claude'],
    ['anthropic/claude-3-haiku', 'claude'],
    ['gpt-4o', 'gpt'],
    ['o4-mini', 'gpt'],
    ['gemini-3.6-flash', 'gemini'],
    ['meta-llama/Llama-3.3-70B-Instruct', 'llama'],
    ['mistral-large-latest', 'mistral'],
    ['Codestral-2501', 'mistral'],
    ['something-else', undefined],
    ['', undefined],
  ])('the id %s is of the family %s', (id, family) => {
    expect(familyOf(id)).toBe(family)
  })
})

describe('the directory', () => {
  it('resolves <provider>/<model_id>, split at the first slash', () => {
    const directory = createModelDirectory({ providers: [...vendors, local] })
    expect(directory.resolve('openai/gpt-4o')).toMatchObject({
      name: 'openai/gpt-4o',
      provider: { name: 'openai' },
      model: { id: 'gpt-4o', family: 'gpt' },
    })
    expect(directory.resolve('local/meta-llama/Llama-3.3')?.model.id).toBe('meta-llama/Llama-3.3')
    expect(directory.resolve('anthropic/claude-sonnet-5-5')?.model.price).toMatchObject({ input: 2, output: 10 })
  })

  it.each([
    '',
    '/',
    'openai',
    'openai/',
    '/gpt-4o',
    'gpt-4o',
    'nobody/gpt-4o',
    'openai/no-such-model',
    '__proto__/x',
    'constructor/x',
    'toString/valueOf',
    '__proto__',
    'hasOwnProperty',
    'openai/__proto__',
    'local/../admin',
    'local/a b',
    'local/a?b',
    'local/%2f',
    'local/漢',
    'local/a\r\nx: y',
    `local/${'x'.repeat(300)}`,
  ])('does not resolve %j', (name) => {
    expect(createModelDirectory({ providers: [...vendors, local] }).resolve(name)).toBeUndefined()
  })

  it('lists the identifiers of the message gateway with their context windows and defaults', () => {
    const directory = createModelDirectory({ providers: vendors })
    const windows = anthropicCatalog.aliases.map(({ id }) => [id, directory.resolve(id)?.model.contextWindowTokens])
    expect(windows).toEqual([
      ['model-sonnet-4-20250514', 200_000],
      ['model-sonnet-4-20250514-optim', 128_000],
      ['model-haiku-4-20250514', 128_000],
      ['model-opus-4-20250514', 200_000],
    ])
    const optimized = directory.resolve('model-sonnet-4-20250514-optim')
    expect(optimized).toMatchObject({
      name: 'model-sonnet-4-20250514-optim',
      provider: { name: 'anthropic' },
      model: { id: 'claude-sonnet-4-20250514', thresholdFactor: 0.5, defaults: { temperature: 0.7, topP: 0.9 } },
    })
    expect(directory.resolve('model-sonnet-4-20250514')?.model.thresholdFactor).toBeUndefined()
    expect(directory.resolve('anthropic/claude-sonnet-4-20250514')?.model.defaults).toBeUndefined()
  })

  it('lists the models of the providers, then aliases, and each listed name resolves to the listed model', () => {
    const directory = createModelDirectory({ providers: [...vendors, local] })
    const names = directory.list().map(({ name }) => name)
    expect(names.slice(-4)).toEqual(anthropicCatalog.aliases.map(({ id }) => id))
    expect(names).toContain('openai/gpt-6-luna')
    expect(names).not.toContain('anthropic/claude-sonnet-4-20250514')
    expect(new Set(names).size).toBe(names.length)
    for (const route of directory.list()) expect(directory.resolve(route.name)).toEqual(route)
  })

  it('has no alias of a provider that is not configured', () => {
    const directory = createModelDirectory({ providers: [local] })
    expect(directory.list()).toEqual([])
    expect(directory.resolve('model-opus-4-20250514')).toBeUndefined()
  })

  it('lets an operator change the target of an alias, and add an alias', () => {
    const aliases = [
      { id: 'model-opus-4-20250514', target: 'local/big', contextWindowTokens: 64_000, maxOutputTokens: 1000 },
      { id: 'fast', target: 'local/small', displayName: 'The fast one', thresholdFactor: 2 },
    ]
    const directory = createModelDirectory({ providers: [local], catalog: { aliases } })
    expect(directory.list().map(({ name }) => name)).toEqual(['model-opus-4-20250514', 'fast'])
    expect(directory.resolve('model-opus-4-20250514')).toMatchObject({
      provider: { name: 'local' },
      model: { id: 'big', contextWindowTokens: 64_000, maxOutputTokens: 1000 },
    })
    expect(directory.resolve('fast')?.model).toMatchObject({ displayName: 'The fast one', thresholdFactor: 2 })
  })

  it('limits the context window of an alias to that of its target', () => {
    const aliases = [
      { id: 'a', target: 'anthropic/claude-haiku-4-5', contextWindowTokens: 900_000, maxOutputTokens: 900_000 },
    ]
    const model = createModelDirectory({ providers: vendors, catalog: { aliases } }).resolve('a')?.model as Model
    expect([model.contextWindowTokens, model.maxOutputTokens]).toEqual([200_000, 64_000])
  })

  it('sets no sampling parameters for an alias whose target rejects them', () => {
    const defaults = { temperature: 0.7, topP: 0.9 }
    const aliases = [
      { id: 'new', target: 'anthropic/claude-sonnet-5-5', defaults },
      { id: 'old', target: 'anthropic/claude-haiku-4-5', defaults },
    ]
    const directory = createModelDirectory({ providers: vendors, catalog: { aliases } })
    expect(directory.resolve('new')?.model.defaults).toBeUndefined()
    expect(directory.resolve('old')?.model.defaults).toEqual(defaults)
  })

  it('lets an operator change and add models without changing the provider', () => {
    const models = [
      { id: 'openai/gpt-4o', price: { input: 1, output: 2 } },
      { id: 'anthropic/claude-next', price: { input: 1, output: 2 }, contextWindowTokens: 10_000 },
    ]
    const directory = createModelDirectory({ providers: vendors, catalog: { models } })
    expect(directory.resolve('openai/gpt-4o')?.model).toMatchObject({
      id: 'gpt-4o',
      price: { input: 1, output: 2 },
      contextWindowTokens: 128_000,
    })
    expect(directory.resolve('anthropic/claude-next')?.model).toEqual({
      id: 'claude-next',
      family: 'claude',
      contextWindowTokens: 10_000,
      maxOutputTokens: 10_000,
      price: { input: 1, output: 2 },
    })
    expect(directory.list().filter(({ name }) => name === 'openai/gpt-4o')).toHaveLength(1)
    expect(directory.list().map(({ name }) => name)).toContain('anthropic/claude-next')
    expect(vendors[0]?.model('gpt-4o')?.price.input).toBe(2.5)
    expect(splitModelName('anthropic/claude-next')).toEqual({ provider: 'anthropic', id: 'claude-next' })
  })

  it.each([
    [
      { models: [{ id: 'gpt-4o' }] },
      'createGateway: catalog.models[0].id: expected <provider>/<model_id> of a configured provider, got "gpt-4o".',
    ],
    [
      { models: [{ id: 'openai/new' }] },
      'createGateway: catalog.models[0]: the model "openai/new" has no price. Set price to { input, output } in dollars per million tokens.',
    ],
    [
      { aliases: [{ id: 'a b', target: 'openai/gpt-4o' }] },
      'createGateway: catalog.aliases[0].id: expected 1 to 200 letters, digits and . : @ + / _ -, got "a b".',
    ],
    [
      { aliases: [{ id: 'a', target: 'gpt-4o' }] },
      'createGateway: catalog.aliases[0].target: expected <provider>/<model_id>, got "gpt-4o".',
    ],
    [
      { aliases: [{ id: 'a', target: 'local/x' }] },
      'createGateway: catalog.aliases[0].target: no configured provider serves "local/x". Choose another model, or configure its provider.',
    ],
    [
      {
        aliases: [
          { id: 'a', target: 'openai/gpt-4o' },
          { id: 'a', target: 'openai/o3' },
        ],
      },
      'createGateway: catalog.aliases[1]: the alias "a" is listed twice. Remove one of the entries.',
    ],
    [
      { extra: 1 } as CatalogOptions,
      'createGateway: catalog.extra: there is no such option. The options are models, aliases.',
    ],
  ])('rejects %j', async (catalog, text) => {
    const failure = await failureOf(Promise.resolve().then(() => createModelDirectory({ providers: vendors, catalog })))
    expect([failure.kind, failure.message]).toEqual(['invalid-request', text])
  })

  it('rejects two providers with the same name', async () => {
    const failure = await failureOf(Promise.resolve().then(() => createModelDirectory({ providers: [local, local] })))
    expect(failure.message).toBe(
      'createGateway: providers[1]: the name "local" is used by another provider. Set a different name.',
    )
  })
})

describe('the price of a custom provider', () => {
  const customProvider = (price: unknown, unlisted?: unknown): Provider => {
    const model = { id: 'm', family: 'f', contextWindowTokens: 1000, maxOutputTokens: 100 }
    return {
      ...extractive({ name: 'custom' }),
      models: [{ ...model, id: 'first', price: { input: 1, output: 1 } }, { ...model, price } as Model],
      model: (id) => ({ ...model, id, price: unlisted }) as Model,
    }
  }

  it.each([
    ['without an output price', { input: 3 }, 'price.output: expected dollars per million tokens, got undefined'],
    ['that is NaN', { input: NaN, output: 1 }, 'price.input: expected dollars per million tokens, got NaN'],
    ['that is infinite', { input: 1, output: Infinity }, 'price.output: expected dollars'],
    ['that is negative', { input: 1, output: -1 }, 'price.output: expected dollars'],
    [
      'without a price of long prompts',
      { input: 1, output: 1, long: { aboveTokens: 9, input: 1 } },
      'price.long.output:',
    ],
    ['that is missing', undefined, 'price: expected an object, got undefined'],
  ])('%s is rejected at the start by its path', (_name, price, message) => {
    expect(() => createModelDirectory({ providers: [extractive(), customProvider(price)] })).toThrow(
      `createGateway: providers[1].models[1].${message}`,
    )
  })

  it('is rejected with the same text if the application has loaded a language of zod', () => {
    config(english())
    onTestFinished(() => void config({ localeError: undefined }))

    expect(() => createModelDirectory({ providers: [customProvider(undefined)] })).toThrow(
      'createGateway: providers[0].models[1].price: expected an object, got undefined.',
    )
  })

  it('of a model that is not listed is checked when the model is requested', () => {
    const valid = { input: 1, output: 1 }
    const directory = (unlisted: unknown) =>
      createModelDirectory({ providers: [customProvider(valid, unlisted)] }).resolve('custom/x')

    expect(directory(valid)?.model.price).toEqual(valid)
    for (const price of [{ input: 1 }, { input: NaN, output: 1 }, { input: 1, output: -1 }, undefined]) {
      expect(() => directory(price)).toThrow('The model has no valid price')
    }
  })
})

describe('two accounts at one vendor', () => {
  it('are used under different names', () => {
    const directory = createModelDirectory({
      providers: [
        openai({ apiKey: 'k' }),
        openai({ name: 'openai-eu', apiKey: 'k' }),
        anthropic({ name: 'claude-2', apiKey: 'k' }),
      ],
    })
    const [gpt] = OPENAI_MODELS
    const [claude] = ANTHROPIC_MODELS

    expect(directory.resolve(`openai/${gpt?.id}`)?.provider.name).toBe('openai')
    expect(directory.resolve(`openai-eu/${gpt?.id}`)?.provider.name).toBe('openai-eu')
    expect(directory.resolve(`claude-2/${claude?.id}`)?.provider.name).toBe('claude-2')
  })
})
