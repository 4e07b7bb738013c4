import { describe, expect, it } from 'vitest'
import { NO_USAGE } from '../../../src/core/money.ts'
import type { ProviderCall } from '../../../src/core/ports.ts'
import type { Store } from '../../../src/core/store.ts'
import {
  createGateway,
  type Gateway,
  type GatewayOptions,
  memoryStore,
  type UsageGroup,
  type UsageReportRow,
} from '../../../src/index.ts'
import { EchoProvider } from '../../../src/testing/echo-provider.ts'

/** Uses as many completion tokens as the prompt has characters. */
class CountingProvider extends EchoProvider {
  override async complete(call: ProviderCall): ReturnType<EchoProvider['complete']> {
    const { response, ignored } = await super.complete(call)
    const text = JSON.stringify(call.prompt.messages)
    return { response: { ...response, usage: { ...NO_USAGE, inputTokens: 10, outputTokens: text.length } }, ignored }
  }
}

const NOW = Date.UTC(2026, 10, 28, 23, 59)
const ADMIN_KEY = 'an-admin-key-of-a-test'

function setUp(options: Partial<GatewayOptions> = {}) {
  const clock = { now: NOW }
  const store = options.store ?? memoryStore({ now: () => clock.now })
  const open = () =>
    createGateway({
      providers: [new CountingProvider()],
      margin: 1.5,
      cache: false,
      admin: { key: ADMIN_KEY },
      runtime: { now: () => clock.now },
      ...options,
      store,
    })
  return { gateway: open(), open, clock, store }
}

interface Asked {
  readonly customer?: string | undefined
  readonly user?: string | undefined
  readonly session?: string | undefined
  readonly feature?: string | undefined
  readonly key?: string | undefined
  readonly text?: string
  readonly body?: object
  readonly headers?: Readonly<Record<string, string>>
}

/** Resolves with the billed amount of the header in nano-dollars. */
async function ask(
  gateway: Gateway,
  { key, text = 'Hello', body, headers, feature, ...context }: Asked,
): Promise<number> {
  const tags = feature === undefined ? {} : { tags: { feature } }
  const response = await gateway.with({ ...context, ...tags }).fetch('http://gateway/v1/chat/completions', {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...(key !== undefined && { authorization: `Bearer ${key}` }),
      ...headers,
    },
    body: JSON.stringify({
      model: 'contract/echo',
      max_tokens: 1000,
      messages: [{ role: 'user', content: text }],
      ...body,
    }),
  })
  await response.text()
  expect(response.status).toBe(200)
  const [, dollars = '', decimals = ''] =
    /^\$(\d+)\.(\d{6})$/.exec(response.headers.get('x-svc-billed-amount') ?? '') ?? []
  return Number(dollars + decimals.padEnd(9, '0'))
}

const GROUPS: readonly UsageGroup[] = ['customer', 'user', 'session', 'key', 'model', 'provider', 'tag:feature', 'day']
const WHOLE = { from: '2026-11-28', to: '2026-11-29' }

const sumBilled = (rows: readonly UsageReportRow[]): number =>
  rows.reduce((sum, { cost }) => sum + cost.billedNanoUsd, 0)

async function allRows(gateway: Gateway, query: Parameters<Gateway['usage']['report']>[0]) {
  const rows: UsageReportRow[] = []
  let pages = 0
  for (let after: string | null | undefined; after !== null; pages++) {
    const page = await gateway.usage.report({ ...query, ...(after !== undefined && { after }) })
    expect(sumBilled(page.rows)).toBe(page.totals.cost.billedNanoUsd)
    rows.push(...page.rows)
    after = page.next
  }
  return { rows, pages }
}

describe('a usage report', () => {
  it('sums to the headers, the audit trail and the usage of keys in every grouping, over midnight and two gateways', async () => {
    const { gateway, open, clock } = setUp()
    const second = open()
    const keys = [await gateway.keys.create({ name: 'a' }), await gateway.keys.create({ name: 'b' })]
    let seed = 29
    const pick = <Item>(...items: readonly Item[]): Item | undefined =>
      items[(seed = (seed * 48_271) % 2_147_483_647) % items.length]
    let billed = 0
    const billedByKey = new Map<string, number>()
    for (let index = 0; index < 120; index++) {
      if (index === 60) clock.now += 2 * 60_000
      const key = pick(keys[0], keys[1], undefined)
      const customer = pick('acme', 'globex', undefined)
      const user =
        pick('alice', 'bob', undefined) ?? (key === undefined && customer === undefined ? 'carol' : undefined)
      const amount = await ask(pick(gateway, second) ?? gateway, {
        key: key?.value,
        customer,
        user,
        session: pick('s1', 's2', undefined),
        feature: pick('chat', 'search', undefined),
        text: 'x'.repeat(pick(1, 10, 33, 100) ?? 1),
      })
      billed += amount
      if (key !== undefined) billedByKey.set(key.id, (billedByKey.get(key.id) ?? 0) + amount)
    }
    expect(billed).toBeGreaterThan(0)
    for (let mask = 0; mask < 2 ** GROUPS.length; mask += 5) {
      const groupBy = GROUPS.filter((_, index) => (mask & (1 << index)) !== 0)
      const { rows } = await allRows(gateway, { ...WHOLE, groupBy, limit: 2 })
      expect(sumBilled(rows)).toBe(billed)
      expect(rows.reduce((sum, { requests }) => sum + requests, 0)).toBe(120)
    }
    const { rows: byKey } = await allRows(second, { ...WHOLE, groupBy: ['key'], limit: 1000 })
    for (const { id } of keys) {
      expect(byKey.find(({ group }) => group['key'] === id)?.cost.billedNanoUsd).toBe(billedByKey.get(id))
      const usage = await gateway.keys.usage(id)
      expect(Math.round(usage.cost.billedUsd * 1e6) * 1000).toBe(billedByKey.get(id))
    }
    const { rows: byDay } = await allRows(gateway, { ...WHOLE, groupBy: ['day'], limit: 1000 })
    expect(byDay.map(({ group, requests }) => [group['day'], requests])).toEqual([
      ['2026-11-28', 60],
      ['2026-11-29', 60],
    ])
    const audit = await gateway.audit.read({ limit: 1000 })
    expect(audit.records.reduce((sum, { costUsd }) => sum + Math.round(costUsd * 1e6) * 1000, 0)).toBe(billed)
  })

  it('contains exactly the usage of a filter', async () => {
    const { gateway } = setUp()
    const first = await ask(gateway, { customer: 'acme', user: 'alice', feature: 'chat' })
    await ask(gateway, { customer: 'acme', user: 'bob', feature: 'chat' })
    await ask(gateway, { customer: 'globex', user: 'alice', feature: 'chat' })
    const filter = { customer: 'acme', user: 'alice', 'tag:feature': 'chat' } as const
    const { rows } = await gateway.usage.report({ groupBy: ['customer', 'user'], filter })
    expect(rows).toMatchObject([
      { group: { customer: 'acme', user: 'alice' }, requests: 1, cost: { billedNanoUsd: first } },
    ])
    expect((await gateway.usage.report({ filter: { customer: 'unknown' } })).rows).toEqual([])
  })

  it('stays exact with 600 users and sessions, and names what does not fit', async () => {
    const { gateway } = setUp()
    let billed = 0
    for (let index = 0; index < 1_300; index++)
      billed += await ask(gateway, { customer: 'acme', user: `u${index % 600}`, session: `s${index}` })
    const { rows } = await allRows(gateway, { groupBy: ['user', 'session'] })
    expect(sumBilled(rows)).toBe(billed)
    expect(rows.some(({ group }) => group['session'] === '(other)')).toBe(true)
    expect(rows.length).toBeLessThan(1_300)
  })

  it('names what a full tally of the store counts together', async () => {
    const { gateway, store } = setUp()
    await ask(gateway, { customer: 'acme', user: 'u1' })
    await store.reserve({ reservationId: 'r', claims: [], expiresAfterMs: 1000 })
    const name = `usage-rows:customer:acme:3:${Date.UTC(2026, 10, 28)}`
    const amounts = { 'requests (other)': 4, 'billed (other)': 7 }
    await store.settle({ reservationId: 'r', charges: [], tallies: [{ name, amounts }] })
    const { rows } = await gateway.usage.report({ groupBy: ['customer', 'model', 'tag:feature'] })
    expect(rows).toMatchObject([
      {
        group: { customer: 'acme', model: '(other)', 'tag:feature': '(other)' },
        requests: 4,
        cost: { billedNanoUsd: 7 },
      },
      { group: { customer: 'acme', model: 'contract/echo', 'tag:feature': '' }, requests: 1 },
    ])
  })

  it('contains the usage of deleted customers and keys', async () => {
    const { gateway } = setUp()
    const key = await gateway.keys.create({ name: 'a' })
    const ofKey = await ask(gateway, { key: key.value })
    const ofCustomer = await ask(gateway, { customer: 'acme' })
    await gateway.keys.delete(key.id)
    await gateway.customers.delete('acme')
    const { rows } = await gateway.usage.report({ groupBy: ['customer'] })
    expect(rows.map(({ cost }) => cost.billedNanoUsd)).toEqual([ofKey, ofCustomer])
  })

  it.each(['a report', 'a deletion'])(
    'removes the entries of deleted records in %s after their usage',
    async (step) => {
      const { gateway, clock, store } = setUp()
      const entries = () => store.list('usage-owner', { limit: 100 })
      const key = await gateway.keys.create({ name: 'a' })
      for (const customer of ['acme', 'globex']) await ask(gateway, { customer })
      await gateway.keys.delete(key.id)
      await gateway.customers.delete('acme')
      await gateway.customers.delete('globex')
      clock.now += 200 * 86_400_000
      await ask(gateway, { customer: 'globex' })
      await gateway.customers.delete('globex')
      await gateway.customers.create({ id: 'last' })
      clock.now = NOW + 399 * 86_400_000
      await gateway.usage.report({})
      expect((await entries()).length).toBeGreaterThan(3)
      clock.now = NOW + 403 * 86_400_000
      if (step === 'a report') await gateway.usage.report({})
      else await gateway.customers.delete('last')
      const owners = (await entries()).map((entry) => entry.replace(/^usage-owner-end:\d+/, 'end'))
      const expected = ['end:customer:globex', 'usage-owner:customer:globex']
      const ofLast = step === 'a report' ? [] : ['end:customer:last', 'usage-owner:customer:last']
      expect(owners.toSorted()).toEqual([...expected, ...ofLast].toSorted())
      const { rows } = await gateway.usage.report({ from: '2027-06-01', groupBy: ['customer'] })
      expect(rows).toMatchObject([{ group: { customer: 'globex' }, requests: 1 }])
    },
  )

  it('pages over 10,000 customers with a bounded number of calls for each page', async () => {
    let calls = 0
    const inner = memoryStore({ now: () => NOW })
    const counting: Store = {
      ...inner,
      list: (...parameters) => (calls++, inner.list(...parameters)),
      tallies: (...parameters) => (calls++, inner.tallies(...parameters)),
    }
    const { gateway } = setUp({ store: counting })
    for (let index = 0; index < 10_000; index++) await inner.set(`customer:c${index}`, '{}')
    const amount = await ask(gateway, { customer: 'last-one' })
    calls = 0
    const { rows, pages } = await allRows(gateway, { from: '2026-11-28', groupBy: ['customer'], limit: 1_000 })
    expect(rows).toMatchObject([{ group: { customer: 'last-one' }, cost: { billedNanoUsd: amount } }])
    expect(pages).toBe(11)
    expect(calls / pages).toBeLessThanOrEqual(8)
  })

  it.each([
    ['safety_identifier', { body: { safety_identifier: 'u7' } }],
    ['user', { body: { user: 'u7' } }],
  ])('attributes usage to the user in %s', async (_name, asked) => {
    const { gateway } = setUp()
    const { value: key } = await gateway.keys.create({ name: 'a' })
    await ask(gateway, { key, ...asked })
    const { rows } = await gateway.usage.report({ groupBy: ['user'] })
    expect(rows).toMatchObject([{ group: { user: 'u7' }, requests: 1 }])
  })

  it('attributes usage to the session of Claude Code and the user in the metadata', async () => {
    const { gateway } = setUp()
    const { value: key } = await gateway.keys.create({ name: 'a' })
    const response = await gateway.fetch('http://gateway/v1/messages', {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': key, 'x-claude-code-session-id': 'run-1' },
      body: JSON.stringify({
        model: 'contract/echo',
        max_tokens: 100,
        metadata: { user_id: 'u8' },
        messages: [{ role: 'user', content: 'Hello' }],
      }),
    })
    await response.text()
    const { rows } = await gateway.usage.report({ groupBy: ['user', 'session'] })
    expect(rows).toMatchObject([{ group: { user: 'u8', session: 'run-1' }, requests: 1 }])
  })

  it.each([
    [{ groupBy: 'user' }, 'groupBy'],
    [{ groupBy: ['user', 'team'] }, 'groupBy[1]'],
    [{ groupBy: ['user', 'user'] }, 'groupBy'],
    [{ from: '2026-13-01' }, 'from'],
    [{ from: '2026-11-29', to: '2026-11-28' }, 'from'],
    [{ from: '2024-01-01' }, 'from'],
    [{ filter: 'acme' }, 'filter'],
    [{ filter: { day: '2026-11-28' } }, 'filter.day'],
    [{ filter: { customer: undefined } }, 'filter.customer'],
    [{ limit: 0 }, 'limit'],
    [{ after: 'budget:x' }, 'after'],
    [{ grupBy: [] }, 'grupBy'],
  ])('is refused for %j', async (query, param) => {
    const { gateway } = setUp()
    await expect(gateway.usage.report(query as object)).rejects.toMatchObject({
      kind: 'invalid-admin-request',
      details: { param },
    })
  })
})

describe('GET /api/governance/usage', () => {
  const get = (gateway: Gateway, query: string, headers: Readonly<Record<string, string>> = {}) =>
    gateway.fetch(`http://gateway/api/governance/usage?${query}`, { headers: { 'x-admin-key': ADMIN_KEY, ...headers } })

  it('requires the admin key', async () => {
    const { gateway } = setUp()
    expect((await get(gateway, '', { 'x-admin-key': 'wrong' })).status).toBe(401)
  })

  it('returns a page in JSON, with the names of tags unchanged', async () => {
    const { gateway } = setUp()
    const amount = await ask(gateway, { customer: 'acme', feature: 'chat' })
    await ask(gateway, { customer: 'globex' })
    const response = await get(gateway, 'group_by=customer,tag:feature&limit=1')
    expect(await response.json()).toMatchObject({
      from: '2026-11-01',
      to: '2026-11-28',
      rows: [{ group: { customer: 'acme', 'tag:feature': 'chat' }, cost: { billed_nano_usd: amount } }],
      totals: { requests: 1 },
      next: 'customer:acme',
    })
    expect((await get(gateway, 'groupBy=customer')).status).toBe(400)
  })

  it('returns CSV whose values no spreadsheet runs as a formula', async () => {
    const { gateway } = setUp()
    await ask(gateway, { customer: 'acme', user: '=HYPERLINK("http://x")' })
    const response = await get(gateway, 'group_by=user&customer=acme', { accept: 'text/csv' })
    expect(response.headers.get('content-type')).toBe('text/csv; charset=utf-8')
    const [header, row, end] = (await response.text()).split('\r\n')
    expect(header).toMatch(/^"user",requests,prompt_tokens,/)
    expect(row).toMatch(/^"'=HYPERLINK\(""http:\/\/x""\)",1,10,/)
    expect(end).toBe('')
  })
})
