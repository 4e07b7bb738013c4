import { afterEach, describe, expect, it } from 'vitest'
import {
  createGateway,
  memoryStore,
  openaiCompatible,
  type Gateway,
  type KeyProvider,
  type NewKey,
  type WireForm,
} from '../../src/index.ts'
import { serve } from '../../src/node.ts'
import {
  sendRequest,
  CHAT,
  parseEvents,
  ENDPOINTS,
  MESSAGE,
  streamedText,
  type Reply as ClientReply,
} from '../support/send-request.ts'
import { PRICE } from '../support/stage.ts'
import { startUpstream, type Reply, type UpstreamRequest } from '../support/upstream.ts'
import { CUT, eventsUntilText } from '../support/upstream-events.ts'

type Name = 'a' | 'b' | 'c'
type Config = WireForm<KeyProvider>

interface TestGateway {
  readonly gateway: Gateway
  readonly url: string
  /** The providers called, in order. */
  readonly calledProviders: Name[]
  readonly newSecret: (configs: readonly Config[], fields?: Partial<WireForm<NewKey>>) => Promise<string>
}

const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close()
})

/** Starts a gateway with three providers on one upstream, distinguished by path. */
async function start(
  replies: Partial<Record<Name, (request: UpstreamRequest) => Reply>> = {},
  random: () => number = () => 0,
): Promise<TestGateway> {
  const calledProviders: Name[] = []
  const upstream = await startUpstream({
    reply: (request) => {
      const name = request.path.slice(1, 2) as Name
      calledProviders.push(name)
      return replies[name]?.(request) ?? `Hello from ${name}.`
    },
  })
  const models = ['large', 'small'].map((id) => ({
    id,
    price: PRICE,
    contextWindowTokens: 200_000,
    maxOutputTokens: 1000,
  }))
  const gateway = createGateway({
    providers: (['a', 'b', 'c'] as const).map((name) =>
      openaiCompatible({ name, baseUrl: `${upstream.url}/${name}`, models }),
    ),
    store: memoryStore(),
    cache: false,
    runtime: { random },
  })
  const server = await serve(gateway, { port: 0 })
  closing.push(upstream.close, gateway.close, server.close)
  const newSecret: TestGateway['newSecret'] = async (provider_configs, fields) =>
    (await gateway.keys.create({ name: 'routed', provider_configs, ...fields })).value
  return { gateway, url: server.url, calledProviders: calledProviders, newSecret }
}

const WEIGHTS: readonly Config[] = [
  { provider: 'a', weight: 1 },
  { provider: 'b', weight: 5 },
  { provider: 'c', weight: 3 },
]

function send(fixture: TestGateway, secret: string, body: object = {}, path: string = CHAT.path): Promise<ClientReply> {
  return sendRequest({ url: fixture.url, secret }, { ...CHAT.body, model: 'large', ...body }, { path })
}

const down: Reply = { kind: 'failure', status: 503, headers: { 'x-should-retry': 'false' } }

describe('a model without a provider', () => {
  it('is sent to the providers of the key in proportion to their weights', async () => {
    let draws = 0
    // The numbers are evenly distributed over 0 to 1 in a fixed order.
    const fixture = await start({}, () => ((draws++ * 41) % 90) / 90)
    const secret = await fixture.newSecret(WEIGHTS)
    for (let count = 0; count < 90; count += 1) {
      const { path } = count % 2 === 0 ? CHAT : MESSAGE
      expect((await send(fixture, secret, { stream: count % 3 === 0 }, path)).status).toBe(200)
    }
    const times = (name: Name): number => fixture.calledProviders.filter((one) => one === name).length
    expect({ a: times('a'), b: times('b'), c: times('c') }).toEqual({ a: 10, b: 50, c: 30 })
  })

  it.each(ENDPOINTS)(
    'falls back in descending order of weight, whole and as a stream ($name endpoint)',
    async ({ path }) => {
      for (const stream of [false, true]) {
        const fixture = await start({ b: () => down, c: () => down })
        const secret = await fixture.newSecret(WEIGHTS)
        const reply = await send(fixture, secret, { stream }, path)

        expect(fixture.calledProviders).toEqual(['b', 'c', 'a'])
        expect(reply.status).toBe(200)
        expect(reply.text).toContain(stream ? 'from' : 'Hello from a.')
      }
    },
  )

  it('is sent to the drawn provider first, then to the one with the highest weight', async () => {
    const fixture = await start({ a: () => down, b: () => down }, () => 0.99)
    expect((await send(fixture, await fixture.newSecret(WEIGHTS))).status).toBe(200)
    expect(fixture.calledProviders).toEqual(['a', 'b', 'c'])
  })

  it('is sent to a provider of weight 0 only when the others fail', async () => {
    const fixture = await start({ a: () => down }, () => 0.999)
    const secret = await fixture.newSecret([
      { provider: 'a', weight: 1 },
      { provider: 'b', weight: 0 },
    ])
    expect((await send(fixture, secret)).text).toContain('Hello from b.')
    expect(fixture.calledProviders).toEqual(['a', 'b'])
  })

  it('is sent only to providers that the key may use', async () => {
    const fixture = await start({}, () => 0.999)
    const split = await fixture.newSecret([
      { provider: 'a', weight: 1, allowed_models: ['large'] },
      { provider: 'b', weight: 1, allowed_models: ['sm*'] },
    ])
    expect((await send(fixture, split)).text).toContain('from a.')
    expect((await send(fixture, split, { model: 'small' })).text).toContain('from b.')
    expect((await send(fixture, split, { model: 'a/small' })).status).toBe(403)
    expect((await send(fixture, split, { model: 'c/large' })).status).toBe(403)
    const narrow = await fixture.newSecret(WEIGHTS, { allowed_models: ['c/*'] })
    expect((await send(fixture, narrow)).text).toContain('from c.')
    const none = await fixture.newSecret(WEIGHTS, { allowed_models: ['d/*'] })
    expect((await send(fixture, none)).error['code']).toBe('model_not_allowed')
    expect(fixture.calledProviders).toEqual(['a', 'b', 'c'])
  })

  it('never falls back to a route that the key may not use', async () => {
    const fixture = await start({ b: () => down })
    const secret = await fixture.newSecret(WEIGHTS, { allowed_models: ['b/*'] })
    expect((await send(fixture, secret)).status).toBe(503)
    expect(fixture.calledProviders).toEqual(['b'])
  })

  it('is sent to the providers that list it, in their order, for a key without providers', async () => {
    const fixture = await start()
    expect((await send(fixture, await fixture.newSecret([]))).status).toBe(200)
    expect(fixture.calledProviders).toEqual(['a'])
  })
})

describe('a fallback', () => {
  it('continues a stream that broke off before its first word', async () => {
    const fixture = await start({
      b: () => ({ kind: 'events', items: [CUT] }),
      c: (request) => ({ kind: 'events', items: [...eventsUntilText(request.dialect).slice(0, 1), CUT] }),
    })
    const reply = await send(fixture, await fixture.newSecret(WEIGHTS), { stream: true })
    expect(reply.status).toBe(200)
    expect(streamedText(reply.text)).toBe('Hello from a.')
    expect(new Set(fixture.calledProviders)).toEqual(new Set(['b', 'c', 'a']))
  })

  it('does not continue a stream whose first word was sent', async () => {
    const fixture = await start({
      b: (request) => ({ kind: 'events', items: [...eventsUntilText(request.dialect), CUT] }),
    })
    const reply = await send(fixture, await fixture.newSecret(WEIGHTS), { stream: true })
    expect(reply.status).toBe(200)
    expect(fixture.calledProviders).toEqual(['b'])
    expect(parseEvents(reply.text).at(-1)?.data).toMatchObject({ error: { type: 'upstream_error' } })
  })

  it('is not called for an invalid request', async () => {
    const fixture = await start({ b: () => ({ kind: 'failure', status: 400 }) })
    expect((await send(fixture, await fixture.newSecret(WEIGHTS))).status).toBe(400)
    expect(fixture.calledProviders).toEqual(['b'])
  })

  it('is called immediately after a 429 with Retry-After', async () => {
    const fixture = await start({ b: () => ({ kind: 'failure', status: 429, headers: { 'retry-after': '15' } }) })
    expect((await send(fixture, await fixture.newSecret(WEIGHTS))).text).toContain('from c.')
    expect(fixture.calledProviders).toEqual(['b', 'c'])
  })
})

it('calls a failing provider three times before the next one', async () => {
  const fixture = await start({ b: () => ({ kind: 'failure', status: 500 }) })
  expect((await send(fixture, await fixture.newSecret(WEIGHTS))).text).toContain('from c.')
  expect(fixture.calledProviders).toEqual(['b', 'b', 'b', 'c'])
})

it('returns 429 with Retry-After, without a bill, when all providers return 429', async () => {
  const limited = (seconds: string) => (): Reply => ({
    kind: 'failure',
    status: 429,
    headers: { 'retry-after': seconds },
  })
  const fixture = await start({ a: limited('300'), b: limited('30'), c: limited('120') })
  const secret = await fixture.newSecret(WEIGHTS, { budget_limit_cents: 100 })
  for (const stream of [false, true]) {
    const reply = await send(fixture, secret, { stream })
    expect([reply.status, reply.error['type'], reply.error['code']]).toEqual([
      429,
      'rate_limit_error',
      'upstream_rate_limited',
    ])
    expect(reply.headers['retry-after']).toBe('30')
  }
  expect(fixture.calledProviders).toEqual(['b', 'c', 'a', 'b', 'c', 'a'])
  const [key] = (await fixture.gateway.keys.list()).keys
  expect(key?.currentUsageCents).toBe(0)
})
