import { describe, expect, it } from 'vitest'
import { parseNewKey } from './test-governance.ts'
import { GatewayError } from '../../src/core/errors.ts'
import type { JsonObject } from '../../src/core/json.ts'
import type { Model } from '../../src/core/ports.ts'
import type { Prompt } from '../../src/core/prompt.ts'
import { checkAccess, type RequestedAccess } from '../../src/governance/access.ts'
import { outputLimit, mayUse, orderProviders, isRestricted, type VirtualKey } from '../../src/governance/virtual-key.ts'
import { makeKey } from '../../src/plugins/admin/keyring.ts'
import type { WireForm } from '../../src/core/field-names.ts'
import type { KeySettings } from '../../src/plugins/admin/admin-api.ts'
import { fc } from '../support/properties.ts'

const key = (fields: WireForm<KeySettings>): VirtualKey =>
  makeKey({ id: 'id', hash: '', prefix: '', createdAt: 0 }, parseNewKey({ name: 'app', ...fields }))

const prompt = (body: JsonObject, maxTokens?: number): Prompt => ({
  native: { dialect: 'chat', value: body },
  model: 'openai/gpt-x',
  messages: [],
  settings: maxTokens === undefined ? {} : { maxTokens },
  tools: Array.isArray(body['tools']) ? [{ name: 'tool', native: { dialect: 'chat', value: {} } }] : [],
  stream: false,
})

const accessTo = (requested: Prompt, modelName: string = requested.model): RequestedAccess => ({
  modelName,
  fields: requested.native.value,
  maxTokens: requested.settings.maxTokens,
  prompt: requested,
})

const rejectionKind = (requested: Prompt, fields: WireForm<KeySettings>): string | undefined => {
  try {
    checkAccess(key(fields), accessTo(requested))
    return undefined
  } catch (error) {
    return GatewayError.is(error) ? error.kind : String(error)
  }
}

describe('a model', () => {
  it.each<[string, WireForm<KeySettings>, boolean]>([
    ['openai/gpt-x', {}, true],
    ['openai/gpt-x', { allowed_models: ['openai/gpt-x'] }, true],
    ['openai/gpt-x-mini', { allowed_models: ['openai/gpt-x'] }, false],
    ['openai/gpt-x-mini', { allowed_models: ['openai/gpt-x*'] }, true],
    ['openai/gpt-x', { allowed_models: ['*'] }, true],
    ['openai/gpt-x', { allowed_models: [] }, false],
    ['openai/gpt-x', { allowed_models: ['OPENAI/gpt-x'] }, false],
    ['openai/gpt.x', { allowed_models: ['openai/gpt?x'] }, false],
    ['alias', { allowed_models: ['alias'] }, true],
    ['alias', { allowed_models: ['openai/*'] }, false],
    ['openai/gpt-x', { provider_configs: [{ provider: 'openai' }] }, true],
    ['anthropic/claude', { provider_configs: [{ provider: 'openai' }] }, false],
    ['openai/gpt-x', { provider_configs: [{ provider: 'openai', allowed_models: ['gpt-y'] }] }, false],
    ['openai/gpt-x', { provider_configs: [{ provider: 'openai', allowed_models: ['gpt-*'] }] }, true],
    ['openai/gpt-x', { provider_configs: [{ provider: 'openai', allowed_models: ['openai/gpt-x'] }] }, true],
    ['openai/a/b', { provider_configs: [{ provider: 'openai', allowed_models: ['a/b'] }] }, true],
    ['alias', { provider_configs: [{ provider: 'openai' }] }, false],
  ])('%s under %j is allowed: %s', (name, fields, allowed) => {
    expect(mayUse(key(fields), name)).toBe(allowed)
  })

  it('is allowed by any of its names', () => {
    expect(mayUse(key({ allowed_models: ['openai/*'] }), 'alias', ['openai/gpt-x'])).toBe(true)
    expect(mayUse(key({ allowed_models: ['openai/*'] }), 'alias', ['anthropic/claude'])).toBe(false)
    expect(mayUse(key({ allowed_models: ['alias'] }), 'alias', ['anthropic/claude'])).toBe(true)
  })

  it('is rejected if its provider is not configured for the key, even when its name is allowed', () => {
    const configs = { provider_configs: [{ provider: 'openai', allowed_models: ['gpt-x'] }] }
    expect(mayUse(key(configs), 'alias', ['openai/gpt-x'])).toBe(true)
    expect(mayUse(key(configs), 'alias', ['openai/gpt-y'])).toBe(false)
    expect(mayUse(key({ ...configs, allowed_models: ['alias'] }), 'alias', ['anthropic/claude'])).toBe(false)
  })

  it('truncates the name of a rejected model in the message', () => {
    expect(rejectionKind(prompt({}), { allowed_models: ['other'] })).toBe('model-not-allowed')
    const name = 'x'.repeat(10_000)
    expect(() => checkAccess(key({ allowed_models: [] }), accessTo(prompt({}), name))).toThrow(/x{100}\./)
  })
})

describe('tools', () => {
  it.each<[JsonObject, boolean]>([
    [{}, false],
    [{ tools: [{}] }, true],
    [{ functions: [{}] }, true],
    [{ functions: [] }, false],
    [{ mcp_servers: [{}] }, true],
    [{ web_search_options: {} }, true],
    [{ web_search_options: null }, false],
  ])('in the body %j are rejected for a key without tools: %s', (body, isRejected) => {
    expect(rejectionKind(prompt(body), { disable_tools: true })).toBe(isRejected ? 'tools-disabled' : undefined)
    expect(rejectionKind(prompt(body), { disable_tools: false })).toBeUndefined()
  })
})

describe('a model that a request names beside its own', () => {
  const withAdvisor = (model: string): Prompt => {
    const value = { type: 'advisor_20260301', name: 'advisor', model }
    return { ...prompt({}), tools: [{ name: 'advisor', native: { dialect: 'messages', value } }] }
  }
  const withAddedAdvisor = (model: string): Prompt => {
    const value = { type: 'tool_addition', tool: { definition: { type: 'advisor_20260301', model } } }
    return {
      ...prompt({}),
      messages: [{ role: 'user', parts: [{ type: 'opaque', native: { dialect: 'messages', value } }] }],
    }
  }
  const restrictions: readonly WireForm<KeySettings>[] = [
    { allowed_models: ['openai/gpt-x', 'openai/gpt-y'] },
    { provider_configs: [{ provider: 'openai', allowed_models: ['gpt-x', 'gpt-y'] }] },
  ]

  it.each(restrictions)('is rejected as a fallback for the restricted key %j', (fields) => {
    expect(rejectionKind(prompt({ fallbacks: [{ model: 'gpt-y' }] }), fields)).toBe('model-not-allowed')
    expect(rejectionKind(prompt({ models: ['gpt-z'] }), fields)).toBe('model-not-allowed')
    expect(rejectionKind(prompt({ fallbacks: [{ model: 'gpt-z' }] }), {})).toBeUndefined()
  })

  it.each(restrictions)('is rejected in a tool unless the key %j may use it', (fields) => {
    for (const requested of [withAdvisor, withAddedAdvisor]) {
      expect(rejectionKind(requested('gpt-z'), fields)).toBe('model-not-allowed')
      expect(rejectionKind(requested('gpt-y'), fields)).toBeUndefined()
      expect(rejectionKind(requested('gpt-z'), {})).toBeUndefined()
    }
  })
})

describe('max_tokens', () => {
  const model = { maxOutputTokens: 50 } as Model

  it('is rejected above the maximum of the key', () => {
    expect(rejectionKind(prompt({}, 11), { max_tokens: 10 })).toBe('max-tokens-exceeded')
    expect(rejectionKind(prompt({}, 10), { max_tokens: 10 })).toBeUndefined()
    expect(rejectionKind(prompt({}), { max_tokens: 10 })).toBeUndefined()
    expect(rejectionKind(prompt({}, 1_000_000), {})).toBeUndefined()
  })

  it('defaults to the smaller maximum of key and model', () => {
    expect(outputLimit(key({ max_tokens: 10 }), 7, model)).toBe(7)
    expect(outputLimit(key({ max_tokens: 10 }), undefined, model)).toBe(10)
    expect(outputLimit(key({ max_tokens: 100 }), undefined, model)).toBe(50)
    expect(outputLimit(key({}), undefined, model)).toBe(50)
  })
})

describe('weights', () => {
  const configs = [
    { provider: 'a', weight: 1, allowedModels: [] },
    { provider: 'b', weight: 3, allowedModels: ['m*'] },
    { provider: 'c', weight: 0, allowedModels: [] },
  ]
  const providerOrder = (model: string, random: number): string =>
    orderProviders(configs, model, () => random)
      .map((config) => config.provider)
      .join('')

  it.each([
    ['m1', 0, 'bac'],
    ['m1', 0.749, 'bac'],
    ['m1', 0.75, 'abc'],
    ['m1', 0.999, 'abc'],
    ['other', 0, 'ac'],
    ['other', 0.999, 'ac'],
  ])('the model %s and the random number %d give the order %s', (model, random, order) => {
    expect(providerOrder(model, random)).toBe(order)
  })

  it('keeps the first provider first without weights, and returns none without providers', () => {
    const zero = configs.map((config) => ({ ...config, weight: 0 }))
    expect(orderProviders(zero, 'm', () => 0.5).map((config) => config.provider)).toEqual(['a', 'b', 'c'])
    expect(orderProviders([], 'm', () => 0.5)).toEqual([])
  })

  it('returns each serving provider once, and the fallbacks in descending order of weight', () => {
    const config = fc.record({ weight: fc.nat(5), allowedModels: fc.constantFrom([], ['m'], ['x']) })
    fc.assert(
      fc.property(fc.array(config), fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }), (drawn, random) => {
        const all = drawn.map((config, index) => ({ ...config, provider: String(index) }))
        const [first, ...rest] = orderProviders(all, 'm', () => random)
        const serving = all.filter(({ allowedModels }) => allowedModels[0] !== 'x')
        expect(new Set(first === undefined ? [] : [first, ...rest])).toEqual(new Set(serving))
        expect(rest.map(({ weight }) => weight)).toEqual(rest.map(({ weight }) => weight).toSorted((a, b) => b - a))
        if (serving.some(({ weight }) => weight > 0)) expect(first?.weight).toBeGreaterThan(0)
      }),
    )
  })
})

describe('the checks of access', () => {
  it.each<[string, WireForm<KeySettings>, boolean]>([
    ['are not needed for a key without restrictions', {}, false],
    ['are needed for a key with a list of models', { allowed_models: ['*'] }, true],
    ['are needed for a key with providers', { provider_configs: [{ provider: 'openai' }] }, true],
    ['are needed for a key with a limit of tokens', { max_tokens: 10 }, true],
    ['are needed for a key without tools', { disable_tools: true }, true],
    ['are not needed for a key with tools', { disable_tools: false }, false],
  ])('%s', (_, fields, isNeeded) => {
    expect(isRestricted(key(fields))).toBe(isNeeded)
  })
})
