import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createGateway, GatewayError, type Gateway } from '../../../src/index.ts'
import { extractive } from '../../../src/testing.ts'

let gateway: Gateway
let id: string

beforeAll(async () => {
  gateway = createGateway({ providers: [extractive()] })
  id = (await gateway.keys.create({ name: 'app' })).id
})

afterAll(() => gateway.close())

/** Calls a method as an untyped program does. */
async function messageOf(api: object, method: string, given: readonly unknown[]): Promise<string> {
  try {
    await Reflect.apply(Reflect.get(api, method), api, given)
  } catch (error) {
    if (error instanceof GatewayError && /^invalid-(admin-)?request$/.test(error.kind)) return error.message
    throw error
  }
  throw new Error('The arguments were accepted.')
}

describe('a method of the in-process administration without its arguments names what is expected', () => {
  it.each([
    ['keys', 'create', [], 'The record is not valid: expected an object, such as {"name": "app"}, got undefined.'],
    ['keys', 'create', [null], 'The record is not valid: expected an object, such as {"name": "app"}, got null.'],
    [
      'keys',
      'create',
      [[]],
      'The record is not valid: expected an object, such as {"name": "app"}, got an empty list.',
    ],
    ['keys', 'create', ['app'], 'expected an object, such as {"name": "app"}, got a string of 3 characters.'],
    ['keys', 'create', [{}], 'name: expected a string of 1 to 200 characters, got undefined.'],
    [
      'keys',
      'update',
      ['id'],
      'The record is not valid: expected an object, such as {"isActive": true}, got undefined.',
    ],
    ['keys', 'update', ['id', {}], 'contains no field to change. Send at least one field, such as {"isActive": true}.'],
    [
      'budgets',
      'create',
      [],
      'The record is not valid: expected an object, such as {"id": "team", "maxLimitUsd": 50}, got',
    ],
    [
      'budgets',
      'update',
      ['id'],
      'The record is not valid: expected an object, such as {"maxLimitUsd": 50}, got undefined',
    ],
    ['rateLimits', 'create', [], 'such as {"id": "fair", "requestMaxLimit": 100}, got undefined.'],
    ['rateLimits', 'update', ['id'], 'such as {"requestMaxLimit": 100}, got undefined.'],
  ] as const)('%s.%s(%j)', async (api, method, given, text) => {
    expect(await messageOf(gateway[api], method, given)).toContain(text)
  })

  it.each([
    ['keys', ['get', 'update', 'delete', 'usage', 'rateLimit', 'limits'], 'virtual key'],
    ['budgets', ['get', 'update', 'delete'], 'budget'],
    ['rateLimits', ['get', 'update', 'delete'], 'rate limit'],
  ] as const)('%s.%s()', async (api, methods, noun) => {
    for (const method of methods) {
      for (const [value, shown] of [
        [undefined, 'undefined'],
        [null, 'null'],
        [{ id }, 'an object'],
      ]) {
        const text = await messageOf(gateway[api], method, [value, { name: 'other' }])
        expect(text).toBe(`id: expected the id of a ${noun} as a string, got ${String(shown)}.`)
      }
    }
  })

  it.each(['keys', 'budgets', 'rateLimits'] as const)('%s.list(query)', async (api) => {
    const expected = 'expected an object, such as { limit: 100 }'
    expect(await messageOf(gateway[api], 'list', [null])).toBe(`query: ${expected}, got null.`)
    expect(await messageOf(gateway[api], 'list', [5])).toBe(`query: ${expected}, got 5.`)
    expect(await messageOf(gateway[api], 'list', [{ limt: 5 }])).toBe(
      'limt: there is no such field. Did you mean limit?',
    )
  })

  it('audit.read(query)', async () => {
    const { audit } = gateway
    expect(await messageOf(audit, 'read', [null])).toBe(
      'audit.read: expected an object, such as { limit: 100 }, got null.',
    )
    expect(await messageOf(audit, 'read', [{ key: id }])).toBe(
      'audit.read: key: there is no such option. Did you mean keyId?',
    )
    expect(await messageOf(audit, 'read', [{ limit: 5000 }])).toBe(
      'audit.read: limit: expected an integer from 1 to 1000, got 5000.',
    )
    expect(await messageOf(audit, 'read', [{ from: '2026-01-01' }])).toBe(
      'audit.read: from: expected milliseconds since 1970, got "2026-01-01".',
    )
  })

  it('cache.clear(filter), which would otherwise remove the answers of all keys', async () => {
    const { cache } = gateway
    expect(await messageOf(cache, 'clear', [{ key: id }])).toBe(
      'cache.clear: key: there is no such option. Did you mean keyId?',
    )
    expect(await messageOf(cache, 'clear', [id])).toContain('expected an object, such as { keyId: "<id>" }, got ')
    expect(await messageOf(cache, 'clear', [{ keyId: 5 }])).toBe(
      'cache.clear: keyId: expected the id of a key as a string, got 5.',
    )
  })
})

describe('a record', () => {
  it('keeps each limit if the same field is undefined under its other name', async () => {
    const fields = {
      name: 'app',
      budgetLimitCents: 1,
      budget_limit_cents: undefined,
      rate_limit_requests: 2,
      rateLimitRequests: undefined,
      allowedModels: ['extractive/*'],
      allowed_models: undefined,
      disable_tools: true,
      disableTools: undefined,
      providerConfigs: [{ provider: 'extractive', allowedModels: ['a'], allowed_models: undefined }],
    }

    const created = await gateway.keys.create(fields)
    const updated = await gateway.keys.update(created.id, { budgetLimitCents: 3, budget_limit_cents: undefined })

    expect(created).toMatchObject({
      budgetLimitCents: 1,
      rateLimitRequests: 2,
      allowedModels: ['extractive/*'],
      disableTools: true,
      providerConfigs: [{ provider: 'extractive', allowedModels: ['a'] }],
    })
    expect(updated.budgetLimitCents).toBe(3)
  })

  it.each([
    [
      'a getter of its class',
      new (class Customer {
        readonly name = 'app'
        get budgetLimitCents(): number {
          return 1
        }
      })(),
    ],
    ['its prototype', Object.assign(Object.create({ budgetLimitCents: 1 }), { name: 'app' })],
    ['a hidden field', Object.defineProperty({ name: 'app' }, 'budgetLimitCents', { value: 1 })],
  ])('whose limit comes from %s is rejected, because the limit would be lost', async (_, record) => {
    expect(await messageOf(gateway.keys, 'create', [record])).toContain(
      'budgetLimitCents: the field is inherited. Pass a plain object.',
    )
  })
})
