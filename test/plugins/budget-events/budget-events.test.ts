import { afterEach, describe, expect, it, vi } from 'vitest'
import { type BudgetEvent, createGateway, type Gateway, type GatewayOptions, memoryStore } from '../../../src/index.ts'
import { NO_USAGE } from '../../../src/core/money.ts'
import type { ProviderCall } from '../../../src/core/ports.ts'
import type { Store } from '../../../src/core/store.ts'
import type { BoundGateway } from '../../../src/gateway.ts'
import { EchoProvider } from '../../../src/testing/echo-provider.ts'

/** Uses 10 prompt tokens at $1 and 1,000 completion tokens at $2 per million: $0.00201 with the margin 1. */
class CostlyProvider extends EchoProvider {
  override async complete(call: ProviderCall): ReturnType<EchoProvider['complete']> {
    const { response, ignored } = await super.complete(call)
    return { response: { ...response, usage: { ...NO_USAGE, inputTokens: 10, outputTokens: 1000 } }, ignored }
  }
}

const REQUEST_USD = 0.00201
const NOW = Date.UTC(2026, 10, 28, 10, 30)

const gateways: Gateway[] = []
afterEach(async () => {
  await Promise.all(gateways.splice(0).map((gateway) => gateway.close()))
})

function setUp(options: Partial<GatewayOptions> = {}) {
  const events: BudgetEvent[] = []
  const clock = { now: NOW }
  const gateway = createGateway({
    providers: [new CostlyProvider()],
    store: memoryStore({ now: () => clock.now }),
    margin: 1,
    cache: false,
    runtime: { now: () => clock.now },
    plugins: [{ name: 'listener', onBudget: (event) => void events.push(event) }],
    ...options,
  })
  gateways.push(gateway)
  return { gateway, events, clock }
}

async function ask({ fetch }: Pick<BoundGateway, 'fetch'>, key?: string): Promise<number> {
  const response = await fetch('http://gateway/v1/chat/completions', {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...(key !== undefined && { authorization: `Bearer ${key}` }) },
    body: JSON.stringify({
      model: 'contract/echo',
      max_tokens: 1000,
      messages: [{ role: 'user', content: 'Hello' }],
    }),
  })
  await response.text()
  return response.status
}

const shares = (events: readonly BudgetEvent[]): readonly number[] => events.map(({ share }) => share).toSorted()
/** All events of earlier requests are recorded and delivered within a few turns of the worker. */
const settled = async (events: readonly BudgetEvent[], count: number): Promise<void> => {
  await vi.waitFor(() => expect(events).toHaveLength(count), { timeout: 5_000 })
}

describe('budget events', () => {
  it('name the budget of a key, the share, the amounts and the window', async () => {
    const { gateway, events } = setUp()
    const { id, value } = await gateway.keys.create({ name: 'app', budgetLimitCents: 1, budgetResetDuration: '1d' })
    for (let request = 0; request < 3; request += 1) await ask(gateway, value)
    await settled(events, 1)
    expect(events).toEqual([
      {
        id: expect.any(String),
        type: 'budget',
        level: 'key',
        keyId: id,
        share: 0.5,
        limitUsd: 0.01,
        spentUsd: 0.00603,
        window: '1d',
        windowStart: Date.UTC(2026, 10, 28),
        resetsAt: Date.UTC(2026, 10, 29),
        at: NOW,
      },
    ])
  })

  it('are recorded once for each share and window, and again in the next window', async () => {
    const { gateway, events, clock } = setUp()
    const { value } = await gateway.keys.create({ name: 'app', budgetLimitCents: 1, budgetResetDuration: '1d' })
    for (let request = 0; request < 8; request += 1) await ask(gateway, value)
    await settled(events, 4)
    expect(shares(events)).toEqual([0.5, 0.8, 0.95, 1])
    clock.now += 86_400_000
    for (let request = 0; request < 3; request += 1) await ask(gateway, value)
    await settled(events, 5)
    expect(events.at(-1)).toMatchObject({ share: 0.5, windowStart: Date.UTC(2026, 10, 29) })
    expect(new Set(events.map(({ id }) => id)).size).toBe(5)
  })

  it('report a budget that does not cover a request as used completely', async () => {
    // Enough for one request, but not for the shortest further one.
    const limitUsd = REQUEST_USD + 0.00003
    const { gateway, events } = setUp({
      plans: { pro: { budgets: [{ limitUsd, window: '1d' }], warnAt: [1] } },
      customers: { defaultPlan: 'pro' },
    })
    const bound = gateway.with({ customer: 'acme' })
    expect([await ask(bound), await ask(bound), await ask(bound)]).toEqual([200, 402, 402])
    await settled(events, 1)
    expect(events[0]).toMatchObject({ share: 1, customer: 'acme', limitUsd, spentUsd: REQUEST_USD })
  })

  it('name the customer, the user or the session of the other budgets', async () => {
    const budget = { limitUsd: REQUEST_USD, window: '1d' } as const
    const { gateway, events } = setUp({
      plans: {
        pro: {
          budgets: [budget, { ...budget, rolling: true }],
          perUser: [budget],
          perSession: { limitUsd: REQUEST_USD },
          warnAt: [0.9],
        },
      },
      customers: { defaultPlan: 'pro' },
    })
    expect(await ask(gateway.with({ customer: 'acme', user: 'alice', session: 's' }))).toBe(200)
    await settled(events, 4)
    const facts = events.map(({ level, keyId, customer, user, session, window }) => ({
      level,
      keyId,
      customer,
      user,
      session,
      window,
    }))
    expect(facts).toEqual(
      expect.arrayContaining([
        { level: 'customer', customer: 'acme', window: '1d' },
        { level: 'customer', customer: 'acme', window: 'rolling 1d' },
        { level: 'user', customer: 'acme', user: 'alice', window: '1d' },
        { level: 'session', customer: 'acme', user: 'alice', session: 's', window: 'session' },
      ]),
    )
  })

  it('are recorded for concurrent requests that reach a share together', async () => {
    const { gateway, events } = setUp()
    const { value } = await gateway.keys.create({ name: 'app', budgetLimitCents: 100 })
    await Promise.all(Array.from({ length: 300 }, () => ask(gateway, value)))
    await settled(events, 1)
    expect(events[0]).toMatchObject({ share: 0.5 })
  })

  it('are delivered again with the same id until each plugin has received them', async () => {
    const received: BudgetEvent[] = []
    const others: BudgetEvent[] = []
    const { gateway } = setUp({
      budgetWarnings: [0.1],
      runtime: { random: () => 0 },
      store: memoryStore(),
      plugins: [
        {
          name: 'flaky',
          onBudget: (event) => {
            received.push(event)
            if (received.length < 3) throw new Error('unavailable')
          },
        },
        { name: 'other', onBudget: (event) => void others.push(event) },
      ],
      log: () => {},
    })
    const { value } = await gateway.keys.create({ name: 'app', budgetLimitCents: 1 })
    await ask(gateway, value)
    await settled(received, 3)
    expect(new Set(received.map(({ id }) => id)).size).toBe(1)
    expect(others).toEqual([received[0]])
  })

  it('are delivered by another process if one ends between the settlement and the record', async () => {
    const store = memoryStore()
    const first = setUp({
      store: withoutChecks(store),
      runtime: {},
    })
    const { value } = await first.gateway.keys.create({ name: 'app', budgetLimitCents: 1 })
    for (let request = 0; request < 3; request += 1) await ask(first.gateway, value)
    const second = setUp({ store, runtime: {} })
    await ask(second.gateway)
    await settled(second.events, 1)
    expect(second.events[0]).toMatchObject({ share: 0.5 })
    expect(first.events).toEqual([])
  })

  it('can be switched off for keys and for plans', async () => {
    const { gateway, events } = setUp({
      budgetWarnings: [],
      plans: { pro: { budgets: [{ limitUsd: REQUEST_USD, window: '1d' }], warnAt: [] } },
      customers: { defaultPlan: 'pro' },
    })
    const { value } = await gateway.keys.create({ name: 'app', budgetLimitCents: 1 })
    for (let request = 0; request < 8; request += 1) await ask(gateway, value)
    for (let request = 0; request < 2; request += 1) await ask(gateway.with({ customer: 'acme' }))
    await gateway.close()
    expect(events).toEqual([])
  })

  it('cost a gateway without a listener no call of the store', async () => {
    const without = await callsOf([])
    const withListener = await callsOf([{ name: 'listener', onBudget: () => {} }])
    expect(without.filter((name) => ['levels', 'entries', 'append', 'swap'].includes(name))).toEqual([])
    expect(withListener).toEqual(expect.arrayContaining(['levels', 'entries']))
  })

  it('cost a request far from each share no call of the store', async () => {
    const { calls, settledEntries } = await countCalls([{ name: 'listener', onBudget: () => {} }], 100_000)
    expect(settledEntries).toEqual(['audit', 'audit'])
    expect(calls.filter((name) => ['levels', 'append', 'swap'].includes(name))).toEqual([])
  })

  it.each([[[0]], [[1.5]], [['0.5']], [0.5]])('reject the shares %j', (budgetWarnings) => {
    const options = { providers: [new CostlyProvider()], budgetWarnings } as unknown
    expect(() => createGateway(options as GatewayOptions)).toThrow('budgetWarnings')
  })
})

/** The store of a process that ends before it finds the events that its settlements caused. */
function withoutChecks(store: Store): Store {
  return new Proxy(store, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name)
      if (name === 'entries') return async () => []
      if (name === 'list') return async () => []
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}

const callsOf = async (plugins: GatewayOptions['plugins']): Promise<readonly string[]> =>
  (await countCalls(plugins, 2)).calls

/** The calls of the store by five requests, and the logs of the entries of the last settlement. */
async function countCalls(plugins: GatewayOptions['plugins'], budgetLimitCents: number) {
  const calls: string[] = []
  let settledEntries: readonly string[] = []
  const inner = memoryStore()
  const store: Store = new Proxy<Store>(inner, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name)
      if (typeof value !== 'function') return value
      return (...parameters: unknown[]) => {
        calls.push(String(name))
        if (name === 'settle') {
          const [{ entries = [] }] = parameters as Parameters<Store['settle']>
          settledEntries = entries.map(({ log }) => log.replace(/:.*/, ''))
        }
        return Reflect.apply(value, target, parameters)
      }
    },
  })
  const gateway = createGateway({
    providers: [new CostlyProvider()],
    store,
    margin: 1,
    cache: false,
    batches: false,
    ...(plugins !== undefined && { plugins }),
  })
  const { value } = await gateway.keys.create({ name: 'app', budgetLimitCents })
  await ask(gateway, value)
  calls.length = 0
  for (let request = 0; request < 5; request += 1) await ask(gateway, value)
  // The worker runs within 50 ms after a settlement that may have reached a share.
  if (budgetLimitCents === 2)
    await vi.waitFor(() => expect(plugins?.length === 0 || calls.includes('levels')).toBe(true))
  await gateway.close()
  return { calls, settledEntries }
}
