import { describe, expect, it } from 'vitest'
import { NO_USAGE } from '../../../src/core/money.ts'
import type { Model, ProviderCall } from '../../../src/core/ports.ts'
import { createGateway, type Gateway, type GatewayOptions, memoryStore } from '../../../src/index.ts'
import { rowTallyName } from '../../../src/governance/usage-rows.ts'
import { EchoProvider } from '../../../src/testing/echo-provider.ts'
import { cases, fc } from '../../support/properties.ts'

/**
 * Prompt tokens are free, and completion tokens cost one billionth of a dollar. The last message is the number of tokens
 * that a response uses. A request for at most 16 tokens reserves their whole price, or is refused.
 */
class NanoProvider extends EchoProvider {
  override readonly models: readonly Model[] = [
    {
      id: 'echo',
      family: 'echo',
      contextWindowTokens: 100_000,
      maxOutputTokens: 1000,
      price: { input: 0, output: 0.001 },
    },
  ]
  /** Ends the requests whose message ends with `wait`. */
  readonly waiting: (() => void)[] = []

  override async complete(call: ProviderCall): ReturnType<EchoProvider['complete']> {
    const { response, ignored } = await super.complete(call)
    const text = response.parts.map((part) => (part.type === 'text' ? part.text : '')).join('')
    if (text.endsWith('wait')) await new Promise<void>((resolve) => this.waiting.push(resolve))
    return { response: { ...response, usage: { ...NO_USAGE, inputTokens: 10, outputTokens: parseInt(text) } }, ignored }
  }
}

const NANO = 1e-9
const MINUTE_MS = 60_000
const DAY_MS = 24 * 60 * MINUTE_MS
const NOW = Date.UTC(2026, 10, 16)
const ADMIN_KEY = 'an-admin-key-of-a-test'

function setUp(options: Partial<GatewayOptions> = {}, clock = { now: NOW }) {
  const provider = new NanoProvider()
  const gateway = createGateway({
    providers: [provider],
    store: memoryStore(),
    margin: 1,
    cache: false,
    admin: { key: ADMIN_KEY },
    customers: { defaultPlan: 'pro' },
    timeouts: { totalMs: DAY_MS },
    runtime: { now: () => clock.now },
    ...options,
  })
  return { gateway, clock, provider }
}

interface Asked {
  readonly customer?: string
  readonly user?: string
  readonly session?: string
  /** Tokens that are reserved. @default those that are used */
  readonly most?: number
  readonly waits?: boolean
}

async function ask(gateway: Gateway, used: number, asked: Asked = {}): Promise<number> {
  const { most = used, waits = false, customer = 'acme', ...context } = asked
  const response = await gateway.with({ customer, ...context }).fetch('http://gateway/v1/chat/completions', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      model: 'contract/echo',
      max_tokens: most,
      messages: [{ role: 'user', content: `${used}${waits ? ' wait' : ''}` }],
    }),
  })
  await response.text()
  return response.status
}

const remainingOf = async (gateway: Gateway, query: object = {}): Promise<number> => {
  const { budgets, rateLimits } = await gateway.usage.summary({ customer: 'acme', ...query })
  return Math.min(
    ...budgets.map(({ remainingNanoUsd }) => remainingNanoUsd),
    ...rateLimits.filter(({ remaining }) => remaining === 0).map(() => 0),
  )
}

describe('a usage summary', () => {
  it('has the amounts of each limit of the customer, its user and its session', async () => {
    const { gateway, clock } = setUp({
      plans: {
        pro: {
          budgets: [
            { limitUsd: 100 * NANO, window: '1M' },
            { limitUsd: 50 * NANO, window: '1h', rolling: true, models: ['*echo'] },
          ],
          rateLimits: [{ requests: 10, tokens: 1000, window: '1d' }],
          perUser: [{ limitUsd: 40 * NANO, window: '1d' }],
          perSession: { limitUsd: 30 * NANO, sameTurn: 5 },
        },
      },
    })
    expect(await ask(gateway, 9, { user: 'alice', session: 's1' })).toBe(200)
    expect(await ask(gateway, 5, { user: 'bob' })).toBe(200)
    clock.now += 7 * MINUTE_MS
    const summary = await gateway.usage.summary({ customer: 'acme', user: 'alice', session: 's1' })
    const used = { requests: 1, tokens: { prompt: 10, completion: 9 }, billedNanoUsd: 9, billedUsd: 0 }
    expect(summary).toMatchObject({
      customer: 'acme',
      user: 'alice',
      session: 's1',
      at: '2026-11-16T00:07:00.000Z',
      budgets: [
        {
          level: 'customer',
          window: '1M',
          models: null,
          limitNanoUsd: 100,
          spentNanoUsd: 14,
          heldNanoUsd: 0,
          remainingNanoUsd: 86,
          raises: [],
          startsAt: '2026-11-01T00:00:00.000Z',
          resetsAt: '2026-12-01T00:00:00.000Z',
        },
        {
          level: 'customer',
          window: 'rolling 1h',
          models: ['*echo'],
          limitNanoUsd: 50,
          spentNanoUsd: 14,
          remainingNanoUsd: 36,
          startsAt: '2026-11-15T23:05:00.000Z',
          resetsAt: '2026-11-16T01:05:00.000Z',
          forecastNanoUsd: null,
        },
        { level: 'user', window: '1d', limitNanoUsd: 40, spentNanoUsd: 9, remainingNanoUsd: 31 },
        { level: 'session', window: 'session', limitNanoUsd: 30, spentNanoUsd: 9, startsAt: null, resetsAt: null },
      ],
      rateLimits: [
        { level: 'customer', window: '1d', unit: 'requests', limit: 10, spent: 2, held: 0, remaining: 8 },
        { level: 'customer', window: '1d', unit: 'tokens', limit: 1000, spent: 34, remaining: 966 },
      ],
      today: { from: '2026-11-16', ...used, models: [{ model: 'contract/echo', ...used }] },
      month: { from: '2026-11-01', ...used, models: [{ model: 'contract/echo', ...used }] },
      isComplete: true,
    })
    expect(await gateway.usage.summary({ customer: 'acme' })).toMatchObject({
      user: null,
      session: null,
      budgets: [{ window: '1M' }, { window: 'rolling 1h' }],
      month: { requests: 2, billedNanoUsd: 14 },
    })
  })

  it('equals what limits refuse and what requests have used, after any traffic', async () => {
    const event = fc.record({
      used: fc.integer({ min: 1, max: 16 }),
      extra: fc.integer({ min: 0, max: 6 }),
      kind: fc.constantFrom('ask', 'wait', 'end', 'later'),
      user: fc.constantFrom('alice', 'bob'),
      minutes: fc.integer({ min: 0, max: 25 }),
    })
    await fc.assert(
      fc.asyncProperty(fc.array(event, { maxLength: 25 }), async (events) => {
        const { gateway, clock, provider } = setUp({
          plans: {
            pro: {
              budgets: [
                { limitUsd: 90 * NANO, window: '1d' },
                { limitUsd: 40 * NANO, window: '1h', rolling: true },
              ],
              rateLimits: [{ requests: 9, window: '1h', rolling: true }],
              perUser: [{ limitUsd: 25 * NANO, window: '1h', rolling: true }],
            },
          },
        })
        await gateway.customers.create({ id: 'acme' })
        const settled: { at: number; user: string; amount: number }[] = []
        const running: { at: number; user: string; used: number; held: number; done: Promise<number> }[] = []
        const send = async (used: number, held: number, user: string): Promise<number> => {
          const at = clock.now
          const status = await ask(gateway, used, { user, most: held })
          if (status === 200) settled.push({ at, user, amount: used })
          return status
        }
        for (const { kind, used, extra, user, minutes } of events) {
          const most = Math.min(16, used + extra)
          if (kind === 'ask') await send(used, most, user)
          else if (kind === 'later') clock.now += minutes * MINUTE_MS
          else if (kind === 'wait') {
            const before = provider.waiting.length
            const done = ask(gateway, used, { user, most, waits: true })
            const status = await Promise.race([done, untilWaiting(provider, before)])
            if (status === undefined) running.push({ at: clock.now, user, used, held: most, done })
          } else {
            const ended = running.shift()
            if (ended === undefined) continue
            provider.waiting.shift()?.()
            expect(await ended.done).toBe(200)
            settled.push({ at: ended.at, user: ended.user, amount: ended.used })
          }
          const { budgets, rateLimits } = await gateway.usage.summary({ customer: 'acme', user })
          const step = (at: number): number => Math.floor(at / (5 * MINUTE_MS))
          const isRecent = ({ at }: { readonly at: number }): boolean => step(at) >= step(clock.now) - 12
          const ofUser = (made: { readonly user: string }): boolean => made.user === user
          const spent = (made: readonly { readonly amount: number }[]): number =>
            made.reduce((sum, { amount }) => sum + amount, 0)
          const held = (made: typeof running): number => made.reduce((sum, request) => sum + request.held, 0)
          expect(budgets.map(({ spentNanoUsd, heldNanoUsd }) => [spentNanoUsd, heldNanoUsd])).toEqual([
            [spent(settled), held(running)],
            [spent(settled.filter(isRecent)), held(running.filter(isRecent))],
            [spent(settled.filter(isRecent).filter(ofUser)), held(running.filter(isRecent).filter(ofUser))],
          ])
          expect(rateLimits).toMatchObject([
            { spent: settled.filter(isRecent).length, held: running.filter(isRecent).length },
          ])
          const isFull = rateLimits.some(({ remaining }) => remaining === 0)
          const remaining = Math.min(...budgets.map(({ remainingNanoUsd }) => remainingNanoUsd))
          if (remaining < 16 && !isFull) expect(await send(1, remaining + 1, user)).toBe(402)
          if (remaining > 0 && remaining <= 16 && extra === 0)
            expect(await send(Math.min(used, remaining), remaining, user)).toBe(isFull ? 429 : 200)
        }
        for (const release of provider.waiting) release()
        await Promise.all(running.map(({ done }) => done))
        await gateway.close()
      }),
      { numRuns: cases(150) },
    )
  })

  it('contains what was billed before the window of a budget was changed', async () => {
    const { gateway } = setUp({ plans: { pro: { budgets: [{ limitUsd: 100 * NANO, window: '1M' }] } } })
    expect(await ask(gateway, 14)).toBe(200)
    await gateway.customers.update('acme', { budgets: [{ limitUsd: 20 * NANO, window: '1d' }] })
    expect(await gateway.usage.summary({ customer: 'acme' })).toMatchObject({
      budgets: [{ window: '1d', limitNanoUsd: 20, spentNanoUsd: 14, heldNanoUsd: 0, remainingNanoUsd: 6 }],
    })
    expect(await ask(gateway, 7)).toBe(402)
    expect(await ask(gateway, 6)).toBe(200)
    expect(await remainingOf(gateway)).toBe(0)
  })

  it('contains what a request holds that began before the window of its budget was changed', async () => {
    const { gateway, provider } = setUp({ plans: { pro: { budgets: [{ limitUsd: 100 * NANO, window: '1M' }] } } })
    const done = ask(gateway, 3, { most: 12, waits: true })
    await untilWaiting(provider, 0)
    await gateway.customers.update('acme', { budgets: [{ limitUsd: 20 * NANO, window: '1d' }] })
    expect(await gateway.usage.summary({ customer: 'acme' })).toMatchObject({
      budgets: [{ spentNanoUsd: 0, heldNanoUsd: 12, remainingNanoUsd: 8 }],
    })
    expect(await ask(gateway, 9)).toBe(402)
    for (const release of provider.waiting) release()
    expect(await done).toBe(200)
    expect(await gateway.usage.summary({ customer: 'acme' })).toMatchObject({
      budgets: [{ spentNanoUsd: 3, heldNanoUsd: 0, remainingNanoUsd: 17 }],
    })
  })

  it('names raises that have not ended, which the limit contains', async () => {
    const { gateway, clock } = setUp({ plans: { pro: { budgets: [{ limitUsd: 1, window: '1M' }] } } })
    await gateway.customers.create({ id: 'acme' })
    await gateway.customers.raise('acme', { addUsd: 0.5, window: '1M', until: '2026-11-17T00:00:00Z' })
    const raises = [{ addUsd: 0.5, until: '2026-11-17T00:00:00.000Z' }]
    expect((await gateway.usage.summary({ customer: 'acme' })).budgets).toMatchObject([{ limitUsd: 1.5, raises }])
    clock.now += DAY_MS
    expect((await gateway.usage.summary({ customer: 'acme' })).budgets).toMatchObject([{ limitUsd: 1, raises: [] }])
  })

  it('forecasts a calendar window from the time since it began, after a tenth of it', async () => {
    const budgets = [{ limitUsd: 1, window: '1d' }] as const
    const { gateway, clock } = setUp({
      plans: { pro: { budgets, rateLimits: [{ requests: 100, window: '1d' }] } },
    })
    await ask(gateway, 12)
    clock.now = NOW + DAY_MS / 10 - 1
    expect((await gateway.usage.summary({ customer: 'acme' })).budgets).toMatchObject([{ forecastNanoUsd: null }])
    clock.now = NOW + DAY_MS / 4
    expect(await gateway.usage.summary({ customer: 'acme' })).toMatchObject({
      budgets: [{ spentNanoUsd: 12, forecastNanoUsd: 48, forecastUsd: 0 }],
      rateLimits: [{ unit: 'requests', spent: 1, forecast: 4 }],
    })
  })

  it('forecasts from the time since the customer was created in the window', async () => {
    const plans = { pro: { budgets: [{ limitUsd: 1, window: '1d' }] } } as const
    const { gateway, clock } = setUp({ plans }, { now: NOW + DAY_MS / 2 })
    await ask(gateway, 10)
    clock.now += DAY_MS / 4
    expect((await gateway.usage.summary({ customer: 'acme' })).budgets).toMatchObject([{ forecastNanoUsd: 20 }])
  })

  it('names neither parents nor other customers, nor what the operator pays', async () => {
    const { gateway } = setUp({ margin: 3, plans: { pro: { budgets: [{ limitUsd: 1, window: '1d' }] } } })
    await gateway.customers.create({ id: 'secret-group' })
    await gateway.customers.create({ id: 'acme', parentId: 'secret-group' })
    await gateway.customers.create({ id: 'rival', parentId: 'secret-group' })
    await ask(gateway, 16)
    await ask(gateway, 11, { customer: 'rival' })
    const summary = await gateway.usage.summary({ customer: 'acme' })
    expect(summary.budgets).toMatchObject([{ level: 'customer', spentNanoUsd: 48 }])
    expect(summary.month.billedNanoUsd).toBe(48)
    const text = JSON.stringify(summary)
    for (const hidden of ['secret-group', 'rival', 'theoretical', 'actual', 'margin', 'saved', ':16,', ':33,', ':81,'])
      expect(text).not.toContain(hidden)
  })

  it('counts today and this month by model, as a report does', async () => {
    const { gateway, clock } = setUp({ plans: { pro: {} } })
    await ask(gateway, 16, { user: 'alice', session: 's1' })
    clock.now += 2 * DAY_MS
    await ask(gateway, 4, { user: 'alice' })
    await ask(gateway, 2, { user: 'bob' })
    const summaryOf = (query: object) => gateway.usage.summary({ customer: 'acme', ...query })
    expect(await summaryOf({})).toMatchObject({
      today: { billedNanoUsd: 6, requests: 2 },
      month: { billedNanoUsd: 22, requests: 3 },
    })
    expect(await summaryOf({ user: 'alice' })).toMatchObject({
      today: { billedNanoUsd: 4 },
      month: { billedNanoUsd: 20 },
    })
    expect(await summaryOf({ session: 's1' })).toMatchObject({
      today: { billedNanoUsd: 0 },
      month: { billedNanoUsd: 16 },
    })
    const { totals } = await gateway.usage.report({ filter: { customer: 'acme' } })
    expect(totals).toMatchObject({ requests: 3, cost: { billedNanoUsd: 22 } })
  })

  it('says if usage of a user may be missing, because the customer has too many', async () => {
    const store = memoryStore()
    const { gateway } = setUp({ plans: { pro: {} }, store })
    await ask(gateway, 9, { user: 'u1' })
    await store.reserve({ reservationId: 'r', claims: [], expiresAfterMs: 1000 })
    const row = JSON.stringify(['(other)', '(other)', 'application', 'contract/echo', 'contract'])
    const amounts = { [`requests ${row}`]: 2, [`billed ${row}`]: 5 }
    await store.settle({
      reservationId: 'r',
      charges: [],
      tallies: [{ name: rowTallyName('customer:acme', NOW, 3), amounts }],
    })
    expect(await gateway.usage.summary({ customer: 'acme' })).toMatchObject({
      isComplete: true,
      month: { requests: 3, billedNanoUsd: 14 },
    })
    expect(await gateway.usage.summary({ customer: 'acme', user: 'u1' })).toMatchObject({
      isComplete: false,
      month: { requests: 1, billedNanoUsd: 9 },
    })
  })

  it('is refused for an unknown customer and an invalid field', async () => {
    const { gateway } = setUp({ plans: { pro: {} } })
    await expect(gateway.usage.summary({ customer: 'acme' })).rejects.toMatchObject({ kind: 'not-found' })
    for (const [query, param] of [
      [{}, 'customer'],
      [{ customer: 'a b' }, 'customer'],
      [{ customer: 'acme', user: 'ü' }, 'user'],
      [{ customer: 'acme', session: '' }, 'session'],
      [{ customer: 'acme', users: 'x' }, 'users'],
    ] as const)
      await expect(gateway.usage.summary(query as { customer: string })).rejects.toMatchObject({
        kind: 'invalid-admin-request',
        details: { param },
      })
  })
})

describe('GET /api/governance/customers/:id/usage', () => {
  const get = async (gateway: Gateway, path: string, key: string = ADMIN_KEY) => {
    const response = await gateway.fetch(`http://gateway/api/governance/customers/${path}`, {
      headers: { 'x-admin-key': key },
    })
    return { status: response.status, body: await response.json() }
  }

  it('returns the summary with the names of the wire', async () => {
    const { gateway } = setUp({ plans: { pro: { budgets: [{ limitUsd: 100 * NANO, window: '1d' }] } } })
    await ask(gateway, 9, { user: 'alice' })
    expect(await get(gateway, 'acme/usage?user=alice')).toMatchObject({
      status: 200,
      body: {
        customer: 'acme',
        user: 'alice',
        session: null,
        budgets: [
          { limit_nano_usd: 100, spent_nano_usd: 9, remaining_nano_usd: 91, resets_at: '2026-11-17T00:00:00.000Z' },
        ],
        rate_limits: [],
        today: { models: [{ model: 'contract/echo', billed_nano_usd: 9 }] },
        is_complete: true,
      },
    })
    expect(await get(gateway, 'acme/usage?users=alice')).toMatchObject({
      status: 400,
      body: { error: { param: 'users' } },
    })
    expect(await get(gateway, 'other/usage')).toMatchObject({ status: 404 })
    expect(await get(gateway, 'acme/usage', 'wrong')).toMatchObject({ status: 401 })
  })
})

/** Resolves with undefined when one more request waits. */
async function untilWaiting(provider: NanoProvider, before: number): Promise<undefined> {
  while (provider.waiting.length === before) await new Promise((resolve) => setImmediate(resolve))
}
