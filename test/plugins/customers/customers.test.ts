import OpenAI from 'openai'
import { describe, expect, it } from 'vitest'
import type { BoundGateway } from '../../../src/gateway.ts'
import { anthropic, createGateway, type GatewayOptions, memoryStore, openaiCompatible } from '../../../src/index.ts'
import { NO_USAGE } from '../../../src/core/money.ts'
import type { ProviderCall } from '../../../src/core/ports.ts'
import type { Store } from '../../../src/core/store.ts'
import { EchoProvider } from '../../../src/testing/echo-provider.ts'
import { waitUntil } from '../../support/wait-until.ts'

/** Uses 10 prompt tokens at $1 and 1,000 completion tokens at $2 per million. */
class CostlyProvider extends EchoProvider {
  override async complete(call: ProviderCall): ReturnType<EchoProvider['complete']> {
    const { response, ignored } = await super.complete(call)
    return { response: { ...response, usage: { ...NO_USAGE, inputTokens: 10, outputTokens: 1000 } }, ignored }
  }
}

/** Billed with the margin 1. */
const REQUEST_USD = 0.00201
/** Dollars that suffice for this number of requests, but not for the shortest further one. */
const enoughFor = (requests: number): number => requests * REQUEST_USD + 0.00003
const NOW = Date.UTC(2026, 10, 28, 10, 30)

function setUp(options: Partial<GatewayOptions> = {}) {
  const clock = { now: NOW }
  const gateway = createGateway({
    providers: [new CostlyProvider()],
    store: memoryStore(),
    margin: 1,
    cache: false,
    runtime: { now: () => clock.now },
    ...options,
  })
  return { gateway, clock }
}

interface Asked {
  readonly text?: string
  readonly key?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: object
  readonly maxTokens?: number
}

async function ask(
  { fetch }: Pick<BoundGateway, 'fetch'>,
  { text = 'Hello', key, headers = {}, body, maxTokens = 1000 }: Asked = {},
) {
  const response = await fetch('http://gateway/v1/chat/completions', {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...(key !== undefined && { authorization: `Bearer ${key}` }),
      ...headers,
    },
    body: JSON.stringify({
      model: 'contract/echo',
      max_tokens: maxTokens,
      messages: [{ role: 'user', content: text }],
      ...body,
    }),
  })
  return { status: response.status, headers: response.headers, body: await response.json() }
}

const messageOf = ({ body }: { body: { error?: { message: string } } }): string => body.error?.message ?? ''

describe('a context in process', () => {
  it('needs no virtual key', async () => {
    const { gateway } = setUp()
    expect(await ask(gateway)).toMatchObject({ status: 401 })
    expect(await ask(gateway.with({ customer: 'acme' }))).toMatchObject({ status: 200 })
    expect(await ask(gateway.with({ user: 'alice@example.com' }))).toMatchObject({ status: 200 })
  })

  it('must name a customer or a user, unless the request has a key', async () => {
    const { gateway } = setUp()
    const { value: key } = await gateway.keys.create({ name: 'app' })
    const bound = gateway.with({ session: 's1' })
    expect(await ask(bound)).toMatchObject({ status: 401 })
    expect(await ask(bound, { key })).toMatchObject({ status: 200 })
    expect(await ask(bound, { key: 'sk-bf-unknown-unknown' })).toMatchObject({ status: 401 })
  })

  it('accepts the key "application" of clients that must send one', async () => {
    const { gateway } = setUp({ plans: { free: { rateLimits: [{ requests: 3, window: '1d' }] } } })
    await gateway.customers.create({ id: 'acme', plan: 'free' })
    const { fetch } = gateway.with({ customer: 'acme' })
    expect(await ask({ fetch }, { key: 'application' })).toMatchObject({ status: 200 })
    expect(await ask({ fetch }, { headers: { 'x-api-key': 'application' } })).toMatchObject({ status: 200 })
    const client = new OpenAI({ apiKey: 'application', baseURL: 'http://gateway/v1', maxRetries: 0, fetch })
    const request = { model: 'contract/echo', messages: [{ role: 'user' as const, content: 'Hello' }] }
    expect((await client.chat.completions.create(request)).choices).toHaveLength(1)
    await expect(client.chat.completions.create(request)).rejects.toThrow('429')
  })

  it('is not implied by the key "application"', async () => {
    const { gateway } = setUp()
    expect(await ask(gateway, { key: 'application' })).toMatchObject({ status: 401 })
    expect(await ask(gateway.with({ session: 's1' }), { key: 'application' })).toMatchObject({ status: 401 })
    expect(await ask(gateway, { key: 'application', headers: { 'X-Svc-Customer': 'acme' } })).toMatchObject({
      status: 401,
    })
  })

  it.each([
    [{ customer: 'a b' }, 'customer'],
    [{ customer: '..' }, 'customer'],
    [{ customer: '' }, 'customer'],
    [{ customer: 'a'.repeat(129) }, 'customer'],
    [{ user: 'a b' }, 'user'],
    [{ user: 'ü' }, 'user'],
    [{ session: 's\n' }, 'session'],
    [{ customer: 'a', tags: { 'a b': 'x' } }, 'tags'],
    [{ customer: 'a', tags: { a: 'x,y' } }, 'tags'],
    [{ customer: 'a', tags: { a: 'x'.repeat(65) } }, 'tags'],
    [{ customer: 'a', tags: Object.fromEntries(Array.from({ length: 17 }, (_, n) => [`t${n}`, 'x'])) }, 'tags'],
    [{ customer: 'a', payer: 'someone' }, 'payer'],
    [{ user: 'a', payer: 'customer' }, 'customer'],
    [{ costumer: 'a' }, 'costumer'],
  ])('is refused at once if it is %j', (context, field) => {
    const { gateway } = setUp()
    expect(() => gateway.with(context as object)).toThrow(`gateway.with: ${field}: expected`)
  })

  it('may be an object whose fields are getters', async () => {
    class User {
      get customer(): string {
        return 'acme'
      }
    }
    const { gateway } = setUp({ customers: { autoCreate: false } })
    const { value: key } = await gateway.keys.create({ name: 'app' })
    expect(messageOf(await ask(gateway.with(new User()), { key }))).toContain('There is no customer "acme"')
  })

  it.each([[Promise.resolve({ customer: 'acme' })], [[{ customer: 'acme' }]], [new Map([['customer', 'acme']])]])(
    'is refused at once if it is another kind of object, such as %o',
    (context) => {
      const { gateway } = setUp()
      expect(() => gateway.with(context as object)).toThrow('gateway.with: context: expected an object')
    },
  )

  it('cannot be changed later through the object', async () => {
    const { gateway } = setUp({ customers: { autoCreate: false } })
    const context = { customer: 'acme', user: 'alice' }
    const bound = gateway.with(context)
    context.customer = 'other'
    expect(messageOf(await ask(bound))).toContain('There is no customer "acme"')
  })
})

it('the audit trail and the request log name the customer, user and session of a request', async () => {
  const log: object[] = []
  const { gateway } = setUp({ log: (record) => void log.push(record), admin: { key: 'an-admin-key-of-this-test' } })
  const context = { customer: 'acme', user: 'alice', session: 's1' }
  const { value: key } = await gateway.keys.create({ name: 'app', trustsContext: true })
  await ask(gateway.with(context))
  await ask(gateway, { key, headers: { 'X-Svc-Customer': 'acme', 'X-Svc-User': 'bob' } })
  await ask(gateway, { key })
  const { records } = await gateway.audit.read({ customer: 'acme' })
  expect(records).toMatchObject([context, { customer: 'acme', user: 'bob', session: null }])
  const get = async (query: string) => {
    const headers = { 'x-admin-key': 'an-admin-key-of-this-test' }
    const response = await gateway.fetch(`http://gateway/api/governance/audit?${query}`, { headers })
    return { status: response.status, body: await response.json() }
  }
  expect(await get('customer=acme&user=bob')).toMatchObject({ status: 200, body: { records: [{ user: 'bob' }] } })
  expect(await get('customer=a%20b')).toMatchObject({ status: 400, body: { error: { param: 'customer' } } })
  expect(log.filter((record) => 'latency_ms' in record)).toMatchObject([context, { user: 'bob' }, { status: 200 }])
})

it('plugins see the context of a request', async () => {
  const seen: unknown[] = []
  const { gateway } = setUp({
    plugins: [
      {
        name: 'observer',
        onRequest: ({ context }) => void seen.push(context),
        onEnd: ({ context }) => void seen.push(context),
      },
    ],
  })
  const context = { customer: 'acme', user: 'alice', session: 's', tags: { feature: 'chat' } }
  await ask(gateway.with(context))
  await waitUntil(() => seen.length === 2)
  await ask(gateway)
  await waitUntil(() => seen.length === 3)
  expect(seen).toEqual([context, context, {}])
})

describe('a context in headers', () => {
  const headers = {
    'X-Svc-Customer': 'acme',
    'X-Svc-User': 'alice',
    'X-Svc-Session': 's',
    'X-Svc-Tags': 'feature=chat,team=search',
  }

  it.each(Object.entries(headers))('%s is refused with 403 for a key that does not permit it', async (name, value) => {
    const { gateway } = setUp()
    const { value: key } = await gateway.keys.create({ name: 'app' })
    for (const spelling of [name, name.toLowerCase(), name.toUpperCase()]) {
      const refused = await ask(gateway, { key, headers: { [spelling]: value } })
      expect(refused).toMatchObject({ status: 403, body: { error: { code: 'context_not_trusted', param: name } } })
      expect(messageOf(refused)).toContain('trustsContext')
    }
    const bound = await ask(gateway.with({ customer: 'mine' }), { headers: { [name]: value } })
    expect(bound).toMatchObject({ status: 403 })
  })

  it('is accepted for a key that permits it', async () => {
    const { gateway } = setUp({
      plans: { free: { budgets: [{ limitUsd: enoughFor(1), window: '1d' }] } },
      customers: { defaultPlan: 'free' },
    })
    const { value: key } = await gateway.keys.create({ name: 'app', trustsContext: true })
    expect(await ask(gateway, { key, headers })).toMatchObject({ status: 200 })
    expect(await ask(gateway, { key, headers })).toMatchObject({ status: 402 })
    expect(await ask(gateway, { key, headers: { 'X-Svc-Customer': 'other' } })).toMatchObject({ status: 200 })
    expect(await ask(gateway, { key })).toMatchObject({ status: 200 })
    expect(await ask(gateway, { key, headers: { 'X-Svc-Customer': 'a b' } })).toMatchObject({ status: 400 })
    expect(await ask(gateway, { key, headers: { 'X-Svc-Tags': 'feature' } })).toMatchObject({ status: 400 })
  })

  it('does not override the customer of the key, nor the context of the application', async () => {
    const { gateway } = setUp({
      plans: { free: { budgets: [{ limitUsd: enoughFor(1), window: '1d' }] } },
      customers: { defaultPlan: 'free' },
    })
    const { value: key } = await gateway.keys.create({ name: 'app', trustsContext: true, customer: 'of-key' })
    expect(await ask(gateway, { key, headers: { 'X-Svc-Customer': 'other' } })).toMatchObject({ status: 200 })
    expect(await ask(gateway, { key, headers: { 'X-Svc-Customer': 'other2' } })).toMatchObject({ status: 402 })
    const bound = gateway.with({ customer: 'of-application' })
    expect(await ask(bound, { key, headers: { 'X-Svc-Customer': 'other' } })).toMatchObject({ status: 200 })
    expect(await ask(bound, { key })).toMatchObject({ status: 402 })
  })
})

describe('a customer', () => {
  it('is refused from its expiry on', async () => {
    const { gateway, clock } = setUp()
    await gateway.customers.create({ id: 'acme', expiresAt: new Date(NOW + 60_000).toISOString() })
    const bound = gateway.with({ customer: 'acme' })
    clock.now = NOW + 59_999
    expect(await ask(bound)).toMatchObject({ status: 200 })
    clock.now = NOW + 60_000
    expect(await ask(bound)).toMatchObject({ status: 403 })
  })

  it('is refused for its number of requests before its budget', async () => {
    const { gateway } = setUp({
      plans: {
        free: {
          budgets: [{ limitUsd: enoughFor(1), window: '1d' }],
          rateLimits: [{ requests: 1, window: '1d' }],
        },
      },
      customers: { defaultPlan: 'free' },
    })
    const bound = gateway.with({ customer: 'acme' })
    expect(await ask(bound)).toMatchObject({ status: 200 })
    expect(await ask(bound)).toMatchObject({ status: 429 })
  })

  it('cannot raise the maximum of tokens of a key', async () => {
    const { gateway } = setUp({
      plans: { free: { permissions: { maxTokens: 500 } } },
      customers: { defaultPlan: 'free' },
    })
    const { value: key } = await gateway.keys.create({ name: 'app', maxTokens: 100 })
    const bound = gateway.with({ customer: 'acme' })
    expect(await ask(bound, { key, maxTokens: 101 })).toMatchObject({ status: 403 })
    expect(await ask(bound, { key, maxTokens: 100 })).toMatchObject({ status: 200 })
  })
})

it('users and sessions without a customer have limits of their own for each key', async () => {
  const { gateway } = setUp({
    plans: { free: { perUser: [{ requests: 2, window: '1d' }], perSession: { requests: 1 } } },
    customers: { defaultPlan: 'free' },
  })
  const { value: first } = await gateway.keys.create({ name: 'first' })
  const { value: second } = await gateway.keys.create({ name: 'second' })
  for (const key of [first, second]) {
    const asked = (session: string) => ask(gateway.with({ user: 'alice', session }), { key })
    expect(await asked('a')).toMatchObject({ status: 200 })
    expect(await asked('a')).toMatchObject({ status: 429 })
    expect(await asked('b')).toMatchObject({ status: 200 })
    expect(await asked('c')).toMatchObject({ status: 429 })
  }
})

describe('a plan', () => {
  it('limits a customer over all its keys and users, in several windows', async () => {
    const { gateway, clock } = setUp({
      plans: {
        pro: {
          budgets: [
            { limitUsd: enoughFor(3), window: '1M' },
            { limitUsd: enoughFor(2), window: '1d' },
          ],
        },
      },
      customers: { defaultPlan: 'pro' },
    })
    const { value: key } = await gateway.keys.create({ name: 'app' })
    expect(await ask(gateway.with({ customer: 'acme', user: 'a' }))).toMatchObject({ status: 200 })
    expect(await ask(gateway.with({ customer: 'acme', user: 'b' }), { key })).toMatchObject({ status: 200 })
    const daily = await ask(gateway.with({ customer: 'acme' }))
    expect(daily.status).toBe(402)
    expect(messageOf(daily)).toBe(
      'The budget of this customer is exceeded: this request could cost more than the amount that remains of $0.004050 per day. Lower max_tokens, retry after 2026-11-29T00:00:00.000Z, or raise the limit.',
    )
    expect(daily.body).toMatchObject({
      error: {
        details: {
          limit: { level: 'customer', kind: 'budget', window: '1d', resets_at: '2026-11-29T00:00:00.000Z' },
        },
      },
    })
    expect(await ask(gateway.with({ customer: 'other' }))).toMatchObject({ status: 200 })
    clock.now += 24 * 3_600_000
    expect(await ask(gateway.with({ customer: 'acme' }))).toMatchObject({ status: 200 })
    const monthly = await ask(gateway.with({ customer: 'acme' }))
    expect(messageOf(monthly)).toContain('per month')
  })

  it('limits each user of a customer', async () => {
    const { gateway } = setUp({
      plans: {
        pro: {
          perUser: [
            { limitUsd: enoughFor(1), window: '1d' },
            { requests: 5, window: '1h' },
          ],
        },
      },
      customers: { defaultPlan: 'pro' },
    })
    const alice = gateway.with({ customer: 'acme', user: 'alice' })
    expect(await ask(alice)).toMatchObject({ status: 200 })
    const refused = await ask(alice)
    expect(refused.status).toBe(402)
    expect(messageOf(refused)).toContain('The budget of this user is exceeded')
    expect(await ask(gateway.with({ customer: 'acme', user: 'bob' }))).toMatchObject({ status: 200 })
    expect(await ask(gateway.with({ customer: 'other', user: 'alice' }))).toMatchObject({ status: 200 })
  })

  it('limits the models that it names', async () => {
    const { gateway } = setUp({
      plans: {
        pro: {
          budgets: [
            { limitUsd: enoughFor(1), window: '1d', models: ['*/ech*'] },
            { limitUsd: 0, window: '1d', models: ['*opus*'] },
          ],
        },
      },
      customers: { defaultPlan: 'pro' },
    })
    const bound = gateway.with({ customer: 'acme' })
    expect(await ask(bound)).toMatchObject({ status: 200 })
    const refused = await ask(bound)
    expect(refused.status).toBe(402)
    expect(messageOf(refused)).toContain('The budget of this customer for */ech* is exceeded')
  })

  it('can have a rolling window, which an amount leaves when it is older', async () => {
    const { gateway, clock } = setUp({
      plans: { pro: { rateLimits: [{ requests: 2, window: '1h', rolling: true }] } },
      customers: { defaultPlan: 'pro' },
    })
    const bound = gateway.with({ customer: 'acme' })
    const MINUTE = 60_000
    expect(await ask(bound)).toMatchObject({ status: 200 })
    clock.now += 40 * MINUTE
    expect(await ask(bound)).toMatchObject({ status: 200 })
    clock.now += 19 * MINUTE
    const refused = await ask(bound)
    expect(refused.status).toBe(429)
    expect(messageOf(refused)).toContain('The request limit of this customer is reached: 2 requests within 60 minutes.')
    clock.now += 6 * MINUTE
    expect(await ask(bound)).toMatchObject({ status: 200 })
    expect(await ask(bound)).toMatchObject({ status: 429 })
  })

  it('limits a session until it has been idle', async () => {
    const { gateway, clock } = setUp({
      plans: { pro: { perSession: { requests: 2, idleMinutes: 30 } } },
      customers: { defaultPlan: 'pro' },
    })
    const bound = gateway.with({ customer: 'acme', session: 'run-1' })
    expect(await ask(bound)).toMatchObject({ status: 200 })
    expect(await ask(bound)).toMatchObject({ status: 200 })
    const refused = await ask(bound)
    expect(refused.status).toBe(429)
    expect(refused.headers.get('x-should-retry')).toBe('false')
    expect(refused.headers.get('retry-after')).toBeNull()
    expect(messageOf(refused)).toBe(
      'The request limit of this session is reached: 2 requests per session. Start a new session, or raise the limit.',
    )
    expect(await ask(gateway.with({ customer: 'acme', session: 'run-2' }))).toMatchObject({ status: 200 })
    expect(await ask(gateway.with({ customer: 'other', session: 'run-1' }))).toMatchObject({ status: 200 })
    clock.now += 3_600_000
    expect(await ask(bound)).toMatchObject({ status: 200 })
  })

  it('ends a session that repeats its last turn', async () => {
    const { gateway } = setUp({ plans: { pro: { perSession: { sameTurn: 2 } } }, customers: { defaultPlan: 'pro' } })
    const bound = gateway.with({ customer: 'acme', session: 'run-1' })
    const turn = (id: string, result: string): Asked => ({
      body: {
        messages: [
          { role: 'user', content: 'Look.' },
          {
            role: 'assistant',
            content: `Try ${id}.`,
            tool_calls: [{ id, type: 'function', function: { name: 'look', arguments: '{}' } }],
          },
          { role: 'tool', tool_call_id: id, content: result },
        ],
        tools: [{ type: 'function', function: { name: 'look', parameters: { type: 'object' } } }],
      },
    })
    expect(await ask(bound, turn('call_1', 'nothing'))).toMatchObject({ status: 200 })
    expect(await ask(bound, turn('call_2', 'nothing'))).toMatchObject({ status: 200 })
    const refused = await ask(bound, turn('call_3', 'nothing'))
    expect(refused.status).toBe(429)
    expect(refused.headers.get('x-should-retry')).toBe('false')
    expect(messageOf(refused)).toBe(
      'The loop guard of this session is reached: 2 requests with the same last turn per session. Stop the loop, or change what is sent.',
    )
    expect(await ask(bound, turn('call_4', 'something'))).toMatchObject({ status: 200 })
  })

  it('restricts what the key permits', async () => {
    const { gateway } = setUp({
      plans: { pro: { permissions: { allowedModels: ['contract/other*'], maxTokens: 10 } } },
      customers: { defaultPlan: 'pro' },
    })
    expect(await ask(gateway.with({ customer: 'acme' }))).toMatchObject({
      status: 403,
      body: { error: { code: 'model_not_allowed' } },
    })
  })

  it('may have a margin of its own', async () => {
    const { gateway } = setUp({ plans: { pro: { margin: 3 } }, customers: { defaultPlan: 'pro' } })
    const { headers } = await ask(gateway.with({ customer: 'acme' }))
    expect(headers.get('x-svc-billed-amount')).toBe('$0.006030')
  })

  it('is refused at the start if it is not valid', () => {
    expect(() => setUp({ plans: { pro: { budgets: [{ limitUsd: -1, window: '1d' }] } } })).toThrow(
      'plans.pro.budgets[0].limitUsd',
    )
    expect(() => setUp({ plans: { pro: { rateLimits: [{ window: '1d' }] } } })).toThrow(
      'plans.pro.rateLimits[0]: expected requests, tokens or both',
    )
    expect(() => setUp({ plans: { pro: { at: { 2: {} } } } })).toThrow('plans.pro.at[2]')
    expect(() => setUp({ customers: { defaultPlan: 'pr' }, plans: { pro: {} } })).toThrow('customers.defaultPlan')
  })
})

it('customers above the maximum are refused, and leave nothing in the store', async () => {
  const store = memoryStore({ now: () => NOW })
  const { gateway } = setUp({ store, customers: { maxCreated: 1 } })
  expect(await ask(gateway.with({ customer: 'first' }))).toMatchObject({ status: 200 })
  for (const customer of ['second', 'third'])
    expect(messageOf(await ask(gateway.with({ customer })))).toContain('The maximum number of customers')
  const keys = await store.list('', { limit: 100 })
  expect(keys.filter((key) => /second|third/.test(key))).toEqual([])
  expect((await gateway.customers.list({ search: 'first' })).customers).toHaveLength(1)
})

it('a customer that is created while a request of it is refused is found by its name', async () => {
  const { swap, ...others } = memoryStore({ now: () => NOW })
  const store: Store = {
    ...others,
    swap: async (key, expected, value, options) => {
      const swapped = swap(key, expected, value, options)
      if (key === 'customer:acme' && options?.quota !== undefined) {
        await swapped.catch(() => {})
        await gateway.customers.create({ id: 'acme' })
      }
      return swapped
    },
  }
  const { gateway } = setUp({ store, customers: { maxCreated: 0 } })
  expect(await ask(gateway.with({ customer: 'acme' }))).toMatchObject({ status: 403 })
  expect((await gateway.customers.list({ search: 'ACME' })).customers).toHaveLength(1)
  expect(await ask(gateway.with({ customer: 'acme' }))).toMatchObject({ status: 200 })
})

describe('a limit for some models', () => {
  const messages = (
    { fetch }: Pick<BoundGateway, 'fetch'>,
    path: string,
    body: object,
  ): ReturnType<BoundGateway['fetch']> =>
    fetch(`http://gateway/v1/${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ messages: [{ role: 'user', content: 'Hello' }], ...body }),
    })
  const setUpVendor = () =>
    setUp({
      providers: [
        anthropic({
          apiKey: 'sk-test',
          fetch: async () =>
            Response.json({ type: 'error', error: { type: 'api_error', message: 'down' } }, { status: 400 }),
        }),
      ],
      plans: {
        free: {
          budgets: [{ limitUsd: 0, window: '1d', models: ['*opus*'] }],
          rateLimits: [{ requests: 1, window: '1d', models: ['*haiku*'] }],
        },
      },
      customers: { defaultPlan: 'free' },
    }).gateway.with({ customer: 'acme' })

  it('applies to the models of a request that the vendor may use besides the requested one', async () => {
    const bound = setUpVendor()
    const body = { model: 'claude-sonnet-4-5', max_tokens: 100 }
    expect((await messages(bound, 'messages', body)).status).toBe(400)
    expect((await messages(bound, 'messages', { ...body, fallbacks: [{ model: 'claude-opus-4-5' }] })).status).toBe(402)
  })

  it('counts token counts', async () => {
    const bound = setUpVendor()
    const body = { model: 'claude-haiku-4-5' }
    expect((await messages(bound, 'messages/count_tokens', body)).status).toBe(200)
    expect((await messages(bound, 'messages/count_tokens', body)).status).toBe(429)
  })
})

describe('what is stored', () => {
  it('is separate for each customer, and for each user without a customer', async () => {
    const { gateway } = setUp({ cache: {} })
    const { value: key } = await gateway.keys.create({ name: 'app' })
    const cacheOf = async (bound: Pick<BoundGateway, 'fetch'>, asked: Asked = {}): Promise<string | null> =>
      (await ask(bound, { text: 'What is the capital of France?', ...asked })).headers.get('x-svc-cache')
    const callers = [
      () => cacheOf(gateway.with({ customer: 'acme' })),
      () => cacheOf(gateway.with({ customer: 'acme' }), { key }),
      () => cacheOf(gateway.with({ customer: 'other' })),
      () => cacheOf(gateway.with({ user: 'acme' })),
      () => cacheOf(gateway.with({ user: 'other' })),
      () => cacheOf(gateway.with({ user: 'other' }), { key }),
      () => cacheOf(gateway, { key }),
    ]
    for (const first of callers) expect(await first()).toBe('MISS')
    for (const second of callers) expect(await second()).toBe('HIT')
    expect(await cacheOf(gateway.with({ customer: 'acme', user: 'anyone', session: 's' }))).toBe('HIT')
  })
})

describe('a customer with a vendor key of its own', () => {
  const VENDOR_KEYS: Readonly<Record<string, string>> = {
    acme: 'sk-acme-0123456789abcdef',
    other: 'sk-other-0123456789abcde',
  }

  function setUpVendor(options: Partial<GatewayOptions> = {}) {
    const sent: string[] = []
    const fetch = async (_url: unknown, init?: RequestInit): Promise<Response> => {
      sent.push(new Headers(init?.headers).get('authorization') ?? '')
      return Response.json({
        id: 'x',
        object: 'chat.completion',
        created: 0,
        model: 'small',
        choices: [{ index: 0, message: { role: 'assistant', content: 'Hi' }, finish_reason: 'stop' }],
        usage: { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 },
      })
    }
    const models = [
      { id: 'small', family: 'f', contextWindowTokens: 10_000, maxOutputTokens: 1000, price: { input: 1, output: 2 } },
    ]
    const setup = setUp({
      providers: [
        openaiCompatible({
          name: 'vendor',
          baseUrl: 'http://vendor.test/v1',
          models,
          apiKey: ({ customer = '', payer }) =>
            payer === 'customer' ? VENDOR_KEYS[customer] : 'sk-operator-0123456789',
        }),
        openaiCompatible({ name: 'fixed', baseUrl: 'http://fixed.test/v1', models, apiKey: 'sk-operator-0123456789' }),
      ],
      margin: 1.5,
      runtime: { fetch },
      ...options,
    })
    return { ...setup, sent }
  }
  const request = { body: { model: 'vendor/small' } }

  it('is billed by the vendor, and not by the gateway', async () => {
    const { gateway, sent } = setUpVendor()
    const { status, headers } = await ask(gateway.with({ customer: 'acme', payer: 'customer' }), request)
    expect(status).toBe(200)
    expect(sent).toEqual(['Bearer sk-acme-0123456789abcdef'])
    expect(
      Object.fromEntries(
        ['billed-amount', 'actual-cost', 'vendor-charge', 'profit-margin'].map((name) => [
          name,
          headers.get(`x-svc-${name}`),
        ]),
      ),
    ).toEqual({
      'billed-amount': '$0.000000',
      'actual-cost': '$0.000000',
      'vendor-charge': '$0.000020',
      'profit-margin': '0x',
    })
    const operator = await ask(gateway.with({ customer: 'acme' }), request)
    expect(operator.headers.get('x-svc-billed-amount')).toBe('$0.000030')
    expect(operator.headers.get('x-svc-vendor-charge')).toBeNull()
    expect(sent[1]).toBe('Bearer sk-operator-0123456789')
  })

  it('never falls back to the key of the operator', async () => {
    const { gateway, sent } = setUpVendor()
    const withoutKey = await ask(gateway.with({ customer: 'none', payer: 'customer' }), request)
    expect(withoutKey).toMatchObject({ status: 403, body: { error: { code: 'customer_key_missing' } } })
    const fixed = await ask(gateway.with({ customer: 'acme', payer: 'customer' }), { body: { model: 'fixed/small' } })
    expect(fixed).toMatchObject({ status: 403, body: { error: { code: 'customer_key_missing' } } })
    expect(sent).toEqual([])
  })

  it('shares no cached response with requests that the operator pays', async () => {
    const { gateway, sent } = setUpVendor({ cache: { scope: 'global' } })
    const question = { ...request, text: 'What is the capital of France?' }
    await ask(gateway.with({ customer: 'acme' }), question)
    await ask(gateway.with({ customer: 'acme', payer: 'customer' }), question)
    await ask(gateway.with({ customer: 'other', payer: 'customer' }), question)
    expect(sent).toHaveLength(3)
    const { headers } = await ask(gateway.with({ customer: 'other', payer: 'customer' }), question)
    expect(headers.get('x-svc-cache')).toBe('HIT')
  })

  it('can be limited by a plan that counts what the vendor charges', async () => {
    const limited = { budgets: [{ limitUsd: 0.0003, window: '1d' }], payer: 'customer' } as const
    const { gateway } = setUpVendor({
      plans: { counted: { ...limited, countsVendorCharge: true }, free: limited },
      customers: { defaultPlan: 'counted' },
    })
    const statuses: number[] = []
    for (let count = 0; count < 12; count++)
      statuses.push((await ask(gateway.with({ customer: 'acme' }), request)).status)
    expect(statuses).toContain(402)
    const free = setUpVendor({ plans: { free: limited }, customers: { defaultPlan: 'free' } })
    for (let count = 0; count < 12; count++)
      expect((await ask(free.gateway.with({ customer: 'acme' }), request)).status).toBe(200)
  })
})

describe('a plan near the end of a budget', () => {
  class FamilyProvider extends CostlyProvider {
    override readonly models = ['large', 'small'].map((id) => ({
      id,
      family: 'echo',
      contextWindowTokens: 100_000,
      maxOutputTokens: 1000,
      price: id === 'large' ? { input: 1, output: 2 } : { input: 0.1, output: 0.2 },
      ...(id === 'large' && { small: 'small' }),
    }))
  }
  const plans = {
    pro: {
      budgets: [{ limitUsd: enoughFor(4), window: '1M' }],
      at: { 0.4: { savings: 'max' }, 0.7: { model: 'small' } },
    },
  } as const
  const large = { body: { model: 'contract/large' } }

  it('shortens prompts, and then uses the small model, and says so', async () => {
    const { gateway } = setUp({ providers: [new FamilyProvider()], plans, customers: { defaultPlan: 'pro' } })
    const bound = gateway.with({ customer: 'acme' })
    const seen: unknown[] = []
    for (let count = 0; count < 6; count++) {
      const { status, headers } = await ask(bound, large)
      seen.push([status, headers.get('x-svc-degraded'), headers.get('x-svc-theoretical-cost')])
    }
    expect(seen).toEqual([
      [200, null, '$0.002010'],
      [200, null, '$0.002010'],
      [200, 'savings=max', '$0.002010'],
      [200, 'savings=max, model=contract/small', '$0.000201'],
      [200, 'savings=max, model=contract/small', '$0.000201'],
      [200, 'savings=max, model=contract/small', '$0.000201'],
    ])
    expect(
      await ask(gateway.with({ customer: 'other' }), large).then(({ headers }) => headers.get('x-svc-degraded')),
    ).toBeNull()
  })

  it('counts what was billed before the window of the budget was changed', async () => {
    const { gateway } = setUp({ providers: [new FamilyProvider()], plans, customers: { defaultPlan: 'pro' } })
    const bound = gateway.with({ customer: 'acme' })
    for (let count = 0; count < 3; count++) await ask(bound, large)
    await gateway.customers.update('acme', { budgets: [{ limitUsd: enoughFor(4), window: '1d' }] })
    const { headers } = await ask(bound, large)
    expect(headers.get('x-svc-degraded')).toBe('savings=max, model=contract/small')
  })

  it('counts the earlier steps of a rolling window, until they leave it', async () => {
    const { gateway, clock } = setUp({
      providers: [new FamilyProvider()],
      plans: { pro: { ...plans.pro, budgets: [{ limitUsd: enoughFor(4), window: '1h', rolling: true }] } },
      customers: { defaultPlan: 'pro' },
    })
    const bound = gateway.with({ customer: 'acme' })
    const degraded = async (): Promise<string | null> => (await ask(bound, large)).headers.get('x-svc-degraded')
    for (let count = 0; count < 3; count++) await ask(bound, large)
    clock.now += 30 * 60_000
    expect(await degraded()).toBe('savings=max, model=contract/small')
    clock.now += 40 * 60_000
    expect(await degraded()).toBeNull()
  })

  it('changes nothing while the store fails and requests are served without it', async () => {
    const store = memoryStore()
    let isFailing = false
    const levels: typeof store.levels = (counters) => {
      if (isFailing) throw new Error('The store is not reachable.')
      return store.levels(counters)
    }
    const { gateway } = setUp({
      providers: [new FamilyProvider()],
      plans,
      customers: { defaultPlan: 'pro' },
      store: { ...store, levels },
      onStoreFailure: 'allow',
      runtime: { stderr: () => {} },
    })
    const bound = gateway.with({ customer: 'acme' })
    for (let count = 0; count < 3; count++) await ask(bound, large)
    isFailing = true
    const { status, headers } = await ask(bound, large)
    expect([status, headers.get('x-svc-degraded')]).toEqual([200, null])
  })

  it('keeps a level that the caller chose, and a model whose replacement the caller may not use', async () => {
    const { gateway } = setUp({ providers: [new FamilyProvider()], plans, customers: { defaultPlan: 'pro' } })
    const { value: key } = await gateway.keys.create({ name: 'app', allowedModels: ['contract/large'] })
    const bound = gateway.with({ customer: 'acme' })
    for (let count = 0; count < 3; count++) await ask(bound, large)
    const { headers } = await ask(bound, { ...large, key, headers: { 'X-Savings-Level': 'off' } })
    expect(headers.get('x-svc-degraded')).toBeNull()
    expect(headers.get('x-svc-theoretical-cost')).toBe('$0.002010')
  })
})

describe('the default plan', () => {
  const options = {
    plans: { dear: { margin: 3, payer: 'customer', permissions: { maxTokens: 1 }, perSession: { requests: 1 } } },
    customers: { defaultPlan: 'dear' },
  } as const

  it('changes nothing for a request of a key alone, whatever its headers', async () => {
    const { gateway } = setUp({ ...options, plans: { dear: { margin: 3, permissions: { maxTokens: 1 } } } })
    const { value: key } = await gateway.keys.create({ name: 'app', trustsContext: true })
    for (const headers of [
      {},
      { 'X-Savings-Level': 'off' },
      { 'Cache-Control': 'no-cache' },
      { 'X-Svc-Tags': 'a=b' },
      { 'X-Svc-Session': 's' },
    ]) {
      const { status, headers: received } = await ask(gateway, { key, headers })
      expect([status, received.get('x-svc-profit-margin')]).toEqual([200, '1x'])
    }
  })

  it('limits users and sessions without a customer, but has no margin, permissions or payer for them', async () => {
    const { gateway } = setUp(options)
    const bound = gateway.with({ user: 'alice', session: 's' })
    const { status, headers } = await ask(bound)
    expect([status, headers.get('x-svc-profit-margin'), headers.get('x-svc-vendor-charge')]).toEqual([200, '1x', null])
    expect(await ask(bound)).toMatchObject({ status: 429 })
  })

  it('is the same for the items of a batch', async () => {
    const { gateway } = setUp({ ...options, plans: { dear: { margin: 3 } } })
    const { value: key, id } = await gateway.keys.create({ name: 'app' })
    const headers = { 'content-type': 'application/json', 'x-api-key': key }
    const params = { model: 'contract/echo', max_tokens: 1000, messages: [{ role: 'user', content: 'Hi' }] }
    const body = JSON.stringify({ requests: [{ custom_id: 'one', params }] })
    await gateway.fetch('http://gateway/v1/messages/batches', { method: 'POST', headers, body })
    await gateway.batches.work()
    expect((await gateway.keys.usage(id)).cost).toMatchObject({ theoreticalUsd: REQUEST_USD, billedUsd: REQUEST_USD })
  })
})

it('a plan with more limits than a request can have refuses the requests of its customers', async () => {
  const windows = ['1m', '1h', '1d', '1w', '1M'] as const
  const limits = windows.map((window) => ({ requests: 100, tokens: 1e6, window }))
  const { gateway } = setUp({
    plans: { many: { rateLimits: limits, perUser: limits } },
    customers: { defaultPlan: 'many' },
  })
  expect(await ask(gateway.with({ customer: 'acme' }))).toMatchObject({ status: 200 })
  const refused = await ask(gateway.with({ customer: 'acme', user: 'alice' }))
  expect(refused).toMatchObject({ status: 403, body: { error: { code: 'customer_invalid' } } })
  expect(messageOf(refused)).toContain('would have 26 limits')
})
