import { afterEach, describe, expect, it, vi } from 'vitest'
import { createGateway, type Gateway, memoryStore } from '../../../src/index.ts'
import { type BillingEvent, billingEvents, stripeMeter, type StripeMeterOptions } from '../../../src/billing.ts'
import { NO_USAGE } from '../../../src/core/money.ts'
import type { ProviderCall } from '../../../src/core/ports.ts'
import { EchoProvider } from '../../../src/testing/echo-provider.ts'
import { type StripeReaction, startStripe } from './stripe-server.ts'

/** Uses 10 prompt tokens at $1 and 1,000 completion tokens at $2 per million: $0.00201. */
class CostlyProvider extends EchoProvider {
  override async complete(call: ProviderCall): ReturnType<EchoProvider['complete']> {
    const { response, ignored } = await super.complete(call)
    return { response: { ...response, usage: { ...NO_USAGE, inputTokens: 10, outputTokens: 1000 } }, ignored }
  }
}

const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close()
})

async function setUp(reactions: StripeReaction[] = [], options: Partial<StripeMeterOptions> = {}) {
  const stripe = await startStripe(reactions)
  closing.push(stripe.close)
  const send = stripeMeter({
    apiKey: 'sk_test_secret',
    eventName: 'llm_usage',
    customerId: (customer) => (customer === undefined ? null : `cus_${customer}`),
    baseUrl: stripe.baseUrl,
    timeoutMs: 300,
    ...options,
  })
  const store = memoryStore()
  const logged: string[] = []
  const gateway = createGateway({
    providers: [new CostlyProvider()],
    store,
    margin: 1.5,
    cache: false,
    runtime: { random: () => 0 },
    log: (record) => void logged.push(JSON.stringify(record)),
    plugins: [billingEvents({ send, batch: { delayMs: 20 } })],
  })
  closing.push(() => gateway.close())
  return { stripe, gateway, store, logged, send }
}

async function ask({ fetch }: Pick<Gateway, 'fetch'>): Promise<string> {
  const response = await fetch('http://gateway/v1/chat/completions', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'contract/echo', max_tokens: 1000, messages: [{ role: 'user', content: 'Hi' }] }),
  })
  await response.text()
  return response.headers.get('x-request-id') ?? ''
}

const EVENT: BillingEvent = {
  id: 'req_1',
  at: Date.UTC(2026, 10, 28, 12, 0, 0, 900),
  day: '2026-11-28',
  customer: 'acme',
  keyId: 'application',
  model: 'contract/echo',
  status: 200,
  billedNanoUsd: 1_234,
  theoreticalNanoUsd: 1_000,
  actualNanoUsd: 1_000,
  tokens: { prompt: 1, completion: 1, saved: 0 },
  isCacheHit: false,
}

const DELIVERY = { now: EVENT.at + 60_000, firstTriedAt: EVENT.at, signal: new AbortController().signal }

describe('stripeMeter', () => {
  it('creates a meter event with the billed amount in nano-dollars for each request', async () => {
    const { stripe, gateway } = await setUp()
    const id = await ask(gateway.with({ customer: 'acme' }))
    await vi.waitFor(() => expect(stripe.recorded).toHaveLength(1))
    expect(stripe.recorded).toEqual([
      { identifier: id, customer: 'cus_acme', value: '3015000', timestamp: expect.any(Number) },
    ])
    const [{ authorization, body } = { authorization: '', body: '' }] = stripe.received
    expect(authorization).toBe('Bearer sk_test_secret')
    expect(new URLSearchParams(body).get('event_name')).toBe('llm_usage')
  })

  it.each<readonly [string, StripeReaction[]]>([
    ['fails', ['error', 'rate-limit']],
    ['hangs', ['hang']],
    ['loses the response after it has recorded the event', ['lose']],
    ['rejects the key for a while', ['unauthorized']],
  ])('counts each event once if Stripe %s', async (_name, reactions) => {
    const { stripe, gateway } = await setUp(reactions)
    const bound = gateway.with({ customer: 'acme' })
    const ids = [await ask(bound), await ask(bound), await ask(bound)]
    await vi.waitFor(() => expect(stripe.recorded).toHaveLength(3), { timeout: 10_000, interval: 20 })
    expect(stripe.recorded.map(({ identifier }) => identifier).toSorted()).toEqual(ids.toSorted())
    const sum = stripe.recorded.reduce((total, { value }) => total + Number(value), 0)
    const report = await gateway.usage.report({ filter: { customer: 'acme' } })
    expect(sum).toBe(report.totals.cost.billedNanoUsd)
  })

  it('takes the answer that an event exists as a delivery', async () => {
    const { send, stripe } = await setUp(['lose'])
    expect(await send([EVENT], DELIVERY)).toMatchObject({ retry: [{ id: EVENT.id }], rejected: [] })
    expect(await send([EVENT], DELIVERY)).toEqual({ retry: [], rejected: [] })
    expect(stripe.duplicates()).toBe(1)
    expect(stripe.recorded).toHaveLength(1)
  })

  it('keeps an event that Stripe rejects as a dead letter, without the key, and delivers those behind it', async () => {
    const { stripe, gateway, store, logged } = await setUp(['no-customer'], { concurrency: 1 })
    const bound = gateway.with({ customer: 'acme' })
    const first = await ask(bound)
    const second = await ask(bound)
    await vi.waitFor(() => expect(stripe.recorded.map(({ identifier }) => identifier)).toEqual([second]))
    await vi.waitFor(async () => expect(await store.get(`outbox-dead:billing:${first}`)).toContain('No such customer'))
    expect(await store.get(`outbox-dead:billing:${first}`)).not.toContain('secret')
    expect(logged.join()).not.toContain('secret')
  })

  it('stops at a status that all events would receive, and repeats the rest', async () => {
    const { send, stripe } = await setUp(['rate-limit'], { concurrency: 1 })
    const events = ['req_1', 'req_2', 'req_3'].map((id) => ({ ...EVENT, id }))
    const result = await send(events, DELIVERY)
    expect(result).toMatchObject({ retry: [{ id: 'req_1' }, { id: 'req_2' }, { id: 'req_3' }], rejected: [] })
    expect(stripe.received).toHaveLength(1)
  })

  it('rejects events that Stripe would not accept or could count twice', async () => {
    const { send, stripe } = await setUp()
    const old = { ...EVENT, at: DELIVERY.now - 35 * 86_400_000 }
    const reasons = await Promise.all([
      send([old], DELIVERY),
      send([EVENT], { ...DELIVERY, firstTriedAt: DELIVERY.now - 23.5 * 3_600_000 }),
    ])
    expect(reasons).toEqual([
      { retry: [], rejected: [{ id: 'req_1', reason: expect.stringContaining('older than 35 days') }] },
      { retry: [], rejected: [{ id: 'req_1', reason: expect.stringContaining('first sent more than 23 hours ago') }] },
    ])
    expect(stripe.received).toEqual([])
  })

  it('sends nothing for free events and for customers that Stripe does not bill', async () => {
    const { send, stripe } = await setUp()
    const { customer: _, ...internal } = EVENT
    expect(await send([{ ...EVENT, billedNanoUsd: 0 }, internal], DELIVERY)).toEqual({ retry: [], rejected: [] })
    expect(stripe.received).toEqual([])
  })

  it('rejects an event whose customer is unknown, and repeats one whose customer cannot be looked up', async () => {
    const unknown = await setUp([], { customerId: () => undefined })
    expect(await unknown.send([EVENT], DELIVERY)).toMatchObject({ rejected: [{ id: 'req_1' }], retry: [] })
    const failing = await setUp([], { customerId: () => Promise.reject(new Error('database unavailable')) })
    expect(await failing.send([EVENT], DELIVERY)).toMatchObject({
      rejected: [],
      retry: [{ id: 'req_1', reason: 'customerId failed: database unavailable' }],
    })
  })

  it.each([[{}], [{ apiKey: 'k' }], [{ apiKey: 'k', eventName: 'e', baseUrl: 'http://example.com' }]])(
    'throws for the options %j',
    (options) => {
      expect(() => stripeMeter(options as StripeMeterOptions)).toThrow('stripeMeter')
    },
  )
})

describe('billingEvents', () => {
  it('has amounts in nano-dollars, and the margin of the gateway', async () => {
    const events: BillingEvent[] = []
    const gateway = createGateway({
      providers: [new CostlyProvider()],
      margin: 2,
      cache: false,
      plugins: [billingEvents({ send: (sent) => void events.push(...sent), batch: { delayMs: 1 } })],
    })
    closing.push(() => gateway.close())
    const id = await ask(gateway.with({ customer: 'acme', user: 'u_1' }))
    await vi.waitFor(() => expect(events).toHaveLength(1))
    expect(events[0]).toMatchObject({
      id,
      customer: 'acme',
      user: 'u_1',
      billedNanoUsd: 4_020_000,
      theoreticalNanoUsd: 2_010_000,
      actualNanoUsd: 2_010_000,
    })
  })

  it.each([[{}], [{ send: () => {}, batch: { maxEvents: 0 } }], [{ send: () => {}, timeoutMs: 60_000 }]])(
    'throws for the options %j',
    (options) => {
      expect(() => billingEvents(options as Parameters<typeof billingEvents>[0])).toThrow('billingEvents')
    },
  )
})
