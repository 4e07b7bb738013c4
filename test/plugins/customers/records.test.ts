import { describe, expect, it } from 'vitest'
import { createGateway, type Gateway, type GatewayOptions, memoryStore, type Store } from '../../../src/index.ts'
import { EchoProvider } from '../../../src/testing/echo-provider.ts'

const NOW = Date.UTC(2026, 10, 28, 10, 30)
const ADMIN_KEY = 'an-admin-key-of-this-test'
const PATH = '/api/governance/customers'
const budget = (limitUsd: number, window: '1d' | '1M' = '1M') => ({ limitUsd, window })

function setUp(options: Partial<GatewayOptions> = {}) {
  const clock = { now: NOW }
  const store = memoryStore({ now: () => clock.now })
  const gateway = createGateway({
    providers: [new EchoProvider()],
    store,
    margin: 1,
    cache: false,
    admin: { key: ADMIN_KEY },
    plans: {
      free: { budgets: [budget(1)] },
      pro: { budgets: [budget(20), budget(2, '1d')], perSession: { requests: 9 } },
    },
    customers: { defaultPlan: 'free' },
    runtime: { now: () => clock.now },
    ...options,
  })
  return { gateway, clock, store }
}

async function call({ fetch }: Pick<Gateway, 'fetch'>, method: string, path: string, body?: unknown) {
  const response = await fetch(`http://gateway${PATH}${path}`, {
    method,
    headers: { 'x-admin-key': ADMIN_KEY, ...(body !== undefined && { 'content-type': 'application/json' }) },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
  return { status: response.status, body: await response.json() }
}

async function ask(gateway: Gateway, customer: string): Promise<number> {
  const { fetch } = gateway.with({ customer })
  const body = { model: 'contract/echo', max_tokens: 10, messages: [{ role: 'user', content: 'Hi' }] }
  const headers = { 'content-type': 'application/json' }
  return (await fetch('http://g/v1/chat/completions', { method: 'POST', headers, body: JSON.stringify(body) })).status
}

describe('gateway.customers', () => {
  it('creates, reads, updates and deletes a customer', async () => {
    const { gateway } = setUp()
    const created = await gateway.customers.create({ id: 'acme', plan: 'pro', metadata: { team_id: 'x' } })
    expect(created).toEqual({
      id: 'acme',
      object: 'customer',
      name: 'acme',
      parentId: null,
      plan: 'pro',
      metadata: { team_id: 'x' },
      budgets: null,
      rateLimits: null,
      permissions: {},
      payer: null,
      isActive: true,
      expiresAt: null,
      createdAt: '2026-11-28T10:30:00.000Z',
      raises: [],
    })
    expect(await gateway.customers.get('acme')).toEqual(created)
    const changed = await gateway.customers.update('acme', {
      name: 'Acme Inc.',
      budgets: [budget(5)],
      rateLimits: [{ requests: 10, window: '1h', models: ['*opus*'] }],
      permissions: { allowedModels: ['contract/*'], maxTokens: 50 },
      expiresAt: '2027-01-01T00:00:00Z',
      payer: 'customer',
    })
    expect(changed).toMatchObject({ name: 'Acme Inc.', budgets: [budget(5)], payer: 'customer', plan: 'pro' })
    const reset = await gateway.customers.update('acme', {
      plan: null,
      budgets: null,
      rateLimits: null,
      permissions: null,
      expiresAt: null,
      payer: null,
      metadata: null,
    })
    expect(reset).toEqual({ ...created, name: 'Acme Inc.', plan: null, metadata: {} })
    expect(await gateway.customers.delete('acme')).toEqual({ id: 'acme', object: 'customer', deleted: true })
    await expect(gateway.customers.get('acme')).rejects.toMatchObject({ kind: 'not-found' })
    await expect(gateway.customers.update('acme', { name: 'x' })).rejects.toMatchObject({ kind: 'not-found' })
    await expect(gateway.customers.delete('acme')).rejects.toMatchObject({ kind: 'not-found' })
  })

  it('takes effect at once for requests of this process', async () => {
    const { gateway } = setUp()
    expect(await ask(gateway, 'acme')).toBe(200)
    await gateway.customers.update('acme', { isActive: false })
    expect(await ask(gateway, 'acme')).toBe(403)
    await gateway.customers.update('acme', { isActive: true, budgets: [budget(0)] })
    expect(await ask(gateway, 'acme')).toBe(402)
    await gateway.customers.raise('acme', { addUsd: 1, window: '1M', until: '2026-12-01T00:00:00Z' })
    expect(await ask(gateway, 'acme')).toBe(200)
  })

  it.each([
    [{ parentld: 'x' }, 'parentld', 'Did you mean parentId?'],
    [{ plan: 'prо' }, 'plan', 'pro'],
    [{ plan: 'pr' }, 'plan', 'Did you mean pro?'],
    [{ parentId: 'nobody' }, 'parentId', 'there is no customer with the id "nobody"'],
    [{ parentId: 'a b' }, 'parentId', 'expected an id'],
    [{ id: 'a b' }, 'id', 'expected an id'],
    [{ name: '' }, 'name', '1 to 200'],
    [{ metadata: { a: 'x'.repeat(501) } }, 'metadata', '500'],
    [{ metadata: { ['x'.repeat(65)]: 'a' } }, 'metadata', '64'],
    [{ metadata: { a: 1 } }, 'metadata', '500'],
    [{ metadata: Object.fromEntries(Array.from({ length: 17 }, (_, n) => [n, 'a'])) }, 'metadata', '16'],
    [{ budgets: [{ limitUsd: 1 }] }, 'budgets.0.window', '"1m"'],
    [{ budgets: [{ limitUsd: -1, window: '1M' }] }, 'budgets.0.limitUsd', '0 to 9000000'],
    [{ budgets: [{ limitUsd: 1, windw: '1M' }] }, 'budgets.0.window', 'expected'],
    [{ budgets: [{ limitUsd: 1, window: '1M', roling: true }] }, 'budgets.0.roling', 'Did you mean rolling?'],
    [{ budgets: Array.from({ length: 7 }, () => budget(1)) }, 'budgets', 'at most 6'],
    [{ rateLimits: [{ window: '1M' }] }, 'rateLimits.0', 'requests, tokens or both'],
    [{ permissions: { maxTokens: 0 } }, 'permissions.maxTokens', 'from 1'],
    [{ payer: 'vendor' }, 'payer', 'operator'],
    [{ expiresAt: 'tomorrow' }, 'expiresAt', 'time zone'],
    [{ isActive: 'yes' }, 'isActive', 'true'],
  ])('refuses %j', async (fields, param, text) => {
    const { gateway } = setUp()
    const refused = gateway.customers.create(fields as object)
    await expect(refused).rejects.toMatchObject({ kind: 'invalid-admin-request', details: { param } })
    await expect(refused).rejects.toThrow(text)
  })

  it('allows four levels and no circle', async () => {
    const { gateway } = setUp({ plans: { free: {} } })
    const { customers } = gateway
    await customers.create({ id: 'a' })
    await customers.create({ id: 'b', parentId: 'a' })
    await customers.create({ id: 'c', parentId: 'b' })
    await customers.create({ id: 'd', parentId: 'c' })
    const tooDeep = { kind: 'invalid-admin-request', details: { param: 'parentId' } }
    await expect(customers.create({ id: 'e', parentId: 'd' })).rejects.toMatchObject(tooDeep)
    await expect(customers.update('a', { parentId: 'd' })).rejects.toThrow('circle')
    await expect(customers.update('a', { parentId: 'a' })).rejects.toThrow('circle')
    await customers.create({ id: 'root' })
    await expect(customers.update('a', { parentId: 'root' })).rejects.toThrow('more than 4 levels')
    await customers.update('c', { parentId: 'root' })
    await customers.update('a', { parentId: 'root' })
    expect(await ask(gateway, 'd')).toBe(200)
  })

  it('allows 24 limits of all levels', async () => {
    const { gateway } = setUp()
    const { customers } = gateway
    const six = Array.from({ length: 6 }, (_, n) => budget(n + 1))
    await customers.create({ id: 'a', budgets: six })
    await customers.create({
      id: 'b',
      parentId: 'a',
      budgets: six,
      rateLimits: [{ requests: 1, tokens: 1, window: '1d' }],
    })
    await expect(customers.create({ id: 'c', parentId: 'b', budgets: six, plan: 'pro' })).rejects.toThrow(
      '27 limits, of which 6 are those that a key may have; expected at most 24',
    )
    await customers.create({ id: 'c', parentId: 'b', budgets: six.slice(0, 4) })
    await expect(customers.update('a', { rateLimits: [{ requests: 1, window: '1d' }] })).rejects.toThrow(
      'requests of the customer "c" would have 25 limits',
    )
  })

  it('does not delete a customer with children', async () => {
    const { gateway } = setUp()
    await gateway.customers.create({ id: 'org' })
    await gateway.customers.create({ id: 'team', parentId: 'org' })
    await expect(gateway.customers.delete('org')).rejects.toMatchObject({ kind: 'conflict' })
    await gateway.customers.update('team', { parentId: null })
    await gateway.customers.delete('org')
    await gateway.customers.delete('team')
  })

  it('refuses a second customer with the same id', async () => {
    const { gateway } = setUp()
    await gateway.customers.create({ id: 'acme', name: 'First' })
    await expect(gateway.customers.create({ id: 'acme', name: 'Second' })).rejects.toMatchObject({ kind: 'conflict' })
    expect((await gateway.customers.list({ search: 'first' })).customers).toHaveLength(1)
    expect((await gateway.customers.list({ search: 'second' })).customers).toHaveLength(0)
  })
})

describe('a raise', () => {
  it('ends by itself, and is dropped with the next change', async () => {
    const { gateway, clock } = setUp()
    await gateway.customers.create({ id: 'acme', plan: 'pro', budgets: [budget(0)] })
    const raised = await gateway.customers.raise('acme', {
      addUsd: 5,
      window: '1M',
      until: '2026-11-28T12:00:00+01:00',
    })
    expect(raised.raises).toEqual([{ addUsd: 5, window: '1M', until: '2026-11-28T11:00:00.000Z' }])
    expect(await ask(gateway, 'acme')).toBe(200)
    clock.now += 3_600_000
    expect(await ask(gateway, 'acme')).toBe(402)
    expect((await gateway.customers.get('acme')).raises).toEqual([])
    const changed = await gateway.customers.update('acme', { name: 'Acme' })
    expect(changed.raises).toEqual([])
  })

  it('needs a budget of its window, a time in the future and an amount', async () => {
    const { gateway } = setUp()
    await gateway.customers.create({ id: 'acme', plan: 'pro' })
    const until = '2027-01-01T00:00:00Z'
    const raise = (fields: object) => gateway.customers.raise('acme', { addUsd: 1, window: '1M', until, ...fields })
    await expect(raise({ window: '1h' })).rejects.toThrow('no budget with the window 1h')
    await expect(raise({ until: '2026-01-01T00:00:00Z' })).rejects.toThrow('until: expected a time in the future')
    await expect(raise({ addUsd: 0 })).rejects.toThrow('addUsd: expected')
    await expect(raise({ addUSD: 1 })).rejects.toThrow('Did you mean addUsd?')
    for (let count = 0; count < 16; count += 1) await raise({})
    await expect(raise({})).rejects.toMatchObject({ kind: 'conflict' })
  })
})

describe('the admin API of customers', () => {
  it('has the names of the wire, except in metadata', async () => {
    const { gateway } = setUp()
    const body = {
      id: 'acme',
      plan: 'pro',
      metadata: { team_id: 'x', teamId: 'y' },
      budgets: [{ limit_usd: 1, window: '1d' }],
    }
    const created = await call(gateway, 'POST', '', { ...body, permissions: { max_tokens: 5 } })
    expect(created).toEqual({
      status: 201,
      body: {
        ...body,
        object: 'customer',
        name: 'acme',
        parent_id: null,
        rate_limits: null,
        permissions: { max_tokens: 5 },
        payer: null,
        is_active: true,
        expires_at: null,
        created_at: '2026-11-28T10:30:00.000Z',
        raises: [],
      },
    })
    expect(await call(gateway, 'GET', '/acme')).toEqual({ status: 200, body: created.body })
    const sentBack = await call(gateway, 'PUT', '/acme', { ...created.body, name: 'Acme' })
    expect(sentBack).toEqual({ status: 200, body: { ...created.body, name: 'Acme' } })
    const raised = await call(gateway, 'POST', '/acme/raise', {
      add_usd: 1,
      window: '1d',
      until: '2027-01-01T00:00:00Z',
    })
    expect(raised.body.raises).toEqual([{ add_usd: 1, window: '1d', until: '2027-01-01T00:00:00.000Z' }])
    const listed = await call(gateway, 'GET', '?search=AC&active=true&plan=pro&limit=5')
    expect(listed).toMatchObject({ status: 200, body: { customers: [{ id: 'acme' }], has_more: false, next: null } })
    expect(await call(gateway, 'DELETE', '/acme')).toMatchObject({ status: 200, body: { deleted: true } })
    expect(await call(gateway, 'GET', '/acme')).toMatchObject({ status: 404 })
  })

  it('names the field of an error as on the wire', async () => {
    const { gateway } = setUp()
    const refusals = [
      ['POST', '', { parent_id: 'nobody' }, 'parent_id'],
      ['POST', '', { parentId: 'x' }, 'parentId'],
      ['POST', '', { budgets: [{ limit_usd: -1, window: '1d' }] }, 'budgets.0.limit_usd'],
      ['PUT', '/acme', {}, null],
      ['POST', '/acme/raise', { add_usd: 1, window: '1d', until: 'x' }, 'until'],
    ] as const
    await call(gateway, 'POST', '', { id: 'acme' })
    for (const [method, path, body, param] of refusals)
      expect(await call(gateway, method, path, body)).toMatchObject({ status: 400, body: { error: { param } } })
    for (const query of ['limit=0', 'limit=x', 'active=yes', 'search=', 'parent=a%20b', 'plann=pro'])
      expect(await call(gateway, 'GET', `?${query}`)).toMatchObject({ status: 400 })
  })

  it('requires the admin key', async () => {
    const { gateway } = setUp()
    for (const [method, path] of [
      ['GET', ''],
      ['POST', ''],
      ['GET', '/a'],
      ['PUT', '/a'],
      ['DELETE', '/a'],
      ['POST', '/a/raise'],
    ] as const)
      expect((await gateway.fetch(`http://g${PATH}${path}`, { method })).status).toBe(401)
  })
})

describe('configured customers', () => {
  it('are stored at startup, parents first, and override stored records', async () => {
    const { gateway, store } = setUp({
      governance: {
        customers: [
          { id: 'team', parentId: 'org', metadata: { team_id: 'x' } },
          { id: 'org', plan: 'pro' },
        ],
      },
    })
    expect(await ask(gateway, 'team')).toBe(200)
    expect(await gateway.customers.get('team')).toMatchObject({ parentId: 'org', metadata: { team_id: 'x' } })
    await gateway.customers.update('org', { isActive: false, name: 'Changed' })
    const again = setUp({ store, governance: { customers: [{ id: 'org', plan: 'free', name: 'Org' }] } })
    expect(await again.gateway.customers.get('org')).toMatchObject({ plan: 'free', name: 'Org', isActive: false })
  })

  it('are checked at startup', () => {
    const start = (customers: readonly object[]) => () =>
      setUp({ governance: { customers: customers as { id: string }[] } })
    expect(start([{ id: 'a', pln: 'pro' }])).toThrow('governance.customers[0].pln')
    expect(start([{ name: 'a' }])).toThrow('governance.customers[0].id')
    expect(start([{ id: 'a', plan: 'gold' }])).toThrow('governance.customers[0].plan')
    expect(start([{ id: 'a' }, { id: 'a' }])).toThrow('governance.customers[1]: an earlier entry has the same id')
  })
})

describe('the list of customers', () => {
  const ids = async (gateway: Gateway, query: object): Promise<readonly string[]> => {
    const found: string[] = []
    for (let after: string | undefined, pages = 0; pages < 1_000; pages += 1) {
      const page = await gateway.customers.list({ ...query, ...(after !== undefined && { after }) })
      found.push(...page.customers.map(({ id }) => id))
      expect(page.hasMore).toBe(page.next !== null)
      if (page.next === null) return found
      after = page.next
    }
    throw new Error('The list has no end.')
  }

  it('is searched by the beginning of the id, and of the name in any case', async () => {
    const { gateway } = setUp()
    await gateway.customers.create({ id: 'c1', name: 'Ümlaut AG: Süd' })
    await gateway.customers.create({ id: 'c2', name: 'ümlaut' })
    await gateway.customers.create({ id: 'c3', name: 'c1' })
    await gateway.customers.create({ id: 'C4', name: `${'x'.repeat(100)}y` })
    for (const limit of [1, 2, 100]) {
      expect(await ids(gateway, { search: 'c1', limit })).toEqual(['c1', 'c3'])
      expect(await ids(gateway, { search: 'ÜML', limit })).toEqual(expect.arrayContaining(['c1', 'c2']))
      expect(await ids(gateway, { search: 'ümlaut ag: s', limit })).toEqual(['c1'])
      expect(await ids(gateway, { search: 'x'.repeat(90), limit })).toEqual(['C4'])
      expect(await ids(gateway, { search: `${'x'.repeat(90)}y`, limit })).toEqual([])
      expect(await ids(gateway, { search: 'c', limit })).toEqual(['c1', 'c2', 'c3'])
      expect(await ids(gateway, { limit })).toEqual(['C4', 'c1', 'c2', 'c3'])
    }
    await gateway.customers.update('c2', { name: 'Other' })
    expect(await ids(gateway, { search: 'üml' })).toEqual(['c1'])
    expect(await ids(gateway, { search: 'oth' })).toEqual(['c2'])
  })

  it('contains customers that requests have created', async () => {
    const { gateway } = setUp()
    await ask(gateway, 'Acme')
    expect(await ids(gateway, { search: 'acme' })).toEqual(['Acme'])
  })

  it('ignores entries that do not match their record', async () => {
    const { gateway, store } = setUp()
    await gateway.customers.create({ id: 'org' })
    await gateway.customers.create({ id: 'acme', name: 'Acme' })
    await store.set('customer-name:other:acme', 'x')
    await store.set('customer-name:gone:gone', 'x')
    await store.set('customer-child:org:acme', 'x')
    expect(await ids(gateway, { search: 'other' })).toEqual([])
    expect(await ids(gateway, { search: 'gone' })).toEqual([])
    expect(await ids(gateway, { parent: 'org' })).toEqual([])
    await gateway.customers.delete('org')
  })

  it('finds each customer after concurrent changes of its name and parent', async () => {
    for (let seed = 1; seed <= 30; seed += 1) {
      const random = seeded(seed)
      const plain = memoryStore({ now: () => NOW })
      const { gateway } = setUp({ store: slowed(plain, random), plans: { free: {} } })
      await gateway.customers.create({ id: 'p0' })
      await gateway.customers.create({ id: 'p1' })
      await gateway.customers.create({ id: 'acme', name: 'N0' })
      const change = () =>
        gateway.customers.update('acme', {
          name: `N${Math.floor(random() * 3)}`,
          parentId: [null, 'p0', 'p1'][Math.floor(random() * 3)] ?? null,
        })
      await Promise.all(Array.from({ length: 8 }, change))
      const { name, parentId } = await gateway.customers.get('acme')
      for (const candidate of ['N0', 'N1', 'N2'])
        expect(await ids(gateway, { search: candidate })).toEqual(candidate === name ? ['acme'] : [])
      for (const candidate of ['p0', 'p1'])
        expect(await ids(gateway, { parent: candidate })).toEqual(candidate === parentId ? ['acme'] : [])
    }
  })

  it('never leaves a circle or a deleted parent after concurrent changes', async () => {
    for (let seed = 1; seed <= 30; seed += 1) {
      const random = seeded(seed)
      const { gateway } = setUp({ store: slowed(memoryStore({ now: () => NOW }), random), plans: { free: {} } })
      for (const id of ['a', 'b', 'c']) await gateway.customers.create({ id })
      await Promise.allSettled([
        gateway.customers.update('a', { parentId: 'b' }),
        gateway.customers.update('b', { parentId: 'a' }),
        gateway.customers.create({ id: 'child', parentId: 'c' }),
        gateway.customers.delete('c'),
      ])
      const { customers } = await gateway.customers.list()
      const statuses = await Promise.all(customers.map(({ id }) => ask(gateway, id)))
      expect(statuses.every((status) => status === 200)).toBe(true)
    }
  })

  it('pages and searches 100,000 customers with a bounded number of store calls', async () => {
    const counts = { list: 0, get: 0 }
    const plain = memoryStore({ now: () => NOW })
    const store: Store = {
      ...plain,
      list: (...given) => {
        counts.list += 1
        return plain.list(...given)
      },
      get: (key) => {
        counts.get += 1
        return plain.get(key)
      },
    }
    const { gateway } = setUp({ store, plans: { free: {}, rare: {} } })
    await gateway.customers.create({ id: 'org' })
    // Written as `create` does, which would take long for so many.
    await gateway.customers.create({ id: 'template', name: 'Template' })
    const template = JSON.parse((await plain.get('customer:template')) ?? '')
    expect(await plain.list('customer-name:template:', { limit: 2 })).toEqual(['customer-name:template:template'])
    await gateway.customers.delete('template')
    for (let n = 0; n < 100_000; n += 1) {
      const id = `c${String(n).padStart(6, '0')}`
      const customer = {
        ...template,
        id,
        name: `Company ${n}`,
        ...(n % 1_000 === 0 && { parent: 'org' }),
        ...(n === 99_999 && { plan: 'rare' }),
      }
      await plain.set(`customer:${id}`, JSON.stringify(customer))
      await plain.set(`customer-name:company%20${n}:${id}`, 'entry')
      if (n % 1_000 === 0) await plain.set(`customer-child:org:${id}`, 'entry')
    }
    const costOf = async <Value>(work: () => Promise<Value>): Promise<readonly [Value, number]> => {
      Object.assign(counts, { list: 0, get: 0 })
      return [await work(), counts.list + counts.get]
    }
    const [found, calls] = await costOf(() => gateway.customers.list({ search: 'company 99999' }))
    expect(found.customers.map(({ id }) => id)).toEqual(['c099999'])
    expect(calls).toBeLessThan(10)
    const [children, childCalls] = await costOf(() => gateway.customers.list({ parent: 'org', limit: 10 }))
    expect(children.customers).toHaveLength(10)
    expect(childCalls).toBeLessThan(120)
    const [rare, rareCalls] = await costOf(() => gateway.customers.list({ plan: 'rare' }))
    expect(rare).toMatchObject({ customers: [], hasMore: true })
    expect(rareCalls).toBeLessThan(1_100)
    const second = await gateway.customers.list({ plan: 'rare', after: rare.next ?? '' })
    expect(second.next).toBe('c001999')
    const last = await gateway.customers.list({ plan: 'rare', after: 'c099900' })
    expect(last).toMatchObject({ customers: [{ id: 'c099999' }], hasMore: false })
    const [page, pageCalls] = await costOf(() => gateway.customers.list({ after: 'c049999' }))
    expect(page.customers.map(({ id }) => id)).toEqual(
      Array.from({ length: 100 }, (_, n) => `c${String(50_000 + n).padStart(6, '0')}`),
    )
    expect(pageCalls).toBe(101)
    expect(await ids(gateway, { search: 'company 1234', limit: 7 })).toHaveLength(11)
  }, 120_000)
})

function seeded(seed: number): () => number {
  let state = seed
  return () => {
    state = (state * 48_271) % 2_147_483_647
    return state / 2_147_483_647
  }
}

/** Lets calls overlap in many orders. */
function slowed(store: Store, random: () => number): Store {
  const pause = async (): Promise<void> => {
    const longest = random() < 0.2 ? 200 : 6
    for (let turns = Math.floor(random() * longest); turns > 0; turns -= 1) await undefined
  }
  return {
    ...store,
    get: async (key) => {
      await pause()
      return store.get(key)
    },
    set: async (...given) => {
      await pause()
      return store.set(...given)
    },
    swap: async (...given) => {
      await pause()
      return store.swap(...given)
    },
    delete: async (key) => {
      await pause()
      return store.delete(key)
    },
    list: async (...given) => {
      await pause()
      return store.list(...given)
    },
  }
}
