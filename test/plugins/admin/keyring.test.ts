import { describe, expect, it } from 'vitest'
import { GatewayError } from '../../../src/core/errors.ts'
import { toListedKey, toKeyRecord } from '../../../src/plugins/admin/keyring.ts'
import { NOON, createTestGovernance, parseKeyChange, parseNewKey } from '../../governance/test-governance.ts'
import { settled } from '../../support/result-or-error.ts'

const SECRET = /^sk-bf-[0-9a-f-]{36}$/

describe('the keyring', () => {
  it('finds a created key only by its secret', async () => {
    const { keyring, lookup } = createTestGovernance()
    const { key, secret } = await keyring.create(parseNewKey({ name: 'app' }))
    expect(secret).toMatch(SECRET)
    expect(await lookup.find(secret)).toEqual(key)
    const wrong = [
      secret.slice(0, -1),
      `${secret}0`,
      secret.toUpperCase(),
      `${secret}${secret}`,
      'null',
      '',
      key.id,
      key.hash,
    ]
    for (const text of wrong) expect(await lookup.find(text)).toBeUndefined()
    for (const text of ['__proto__', "' OR 1=1", '{"$gt":""}', '\u0000', '\ud800']) {
      expect(await lookup.find(text)).toBeUndefined()
    }
  })

  it('does not store the secret, and does not show the secret or its hash', async () => {
    const { keyring, store } = createTestGovernance()
    const { key, secret } = await keyring.create(parseNewKey({ name: 'app' }))
    const keys = await store.list('', { limit: 100 })
    const texts = [...keys, ...(await Promise.all(keys.map((name) => store.get(name))))].join('\n')
    expect(texts).not.toContain(secret.slice(6))
    const shown = JSON.stringify([toKeyRecord(key, 0), toListedKey(key, 0)])
    expect(shown).not.toContain(key.hash)
    expect(shown).not.toContain(secret)
    expect(shown).toContain(secret.slice(0, 10))
  })

  it('applies a change immediately in the same process and within two seconds in another', async () => {
    const here = createTestGovernance()
    const there = createTestGovernance({ store: here.store, clock: here.clock })
    const { key, secret } = await here.keyring.create(parseNewKey({ name: 'app' }))
    expect(await there.lookup.find(secret)).toMatchObject({ active: true })
    await here.keyring.update(key.id, parseKeyChange({ isActive: false }))
    expect(await here.lookup.find(secret)).toMatchObject({ active: false })
    expect(await there.lookup.find(secret)).toMatchObject({ active: true })
    here.clock.at += 2_000
    expect(await there.lookup.find(secret)).toMatchObject({ active: false })
    await here.keyring.update(key.id, parseKeyChange({ isActive: true }))
    expect(await here.lookup.find(secret)).toMatchObject({ active: true })
    await here.keyring.remove(key.id)
    expect(await here.lookup.find(secret)).toBeUndefined()
    here.clock.at += 2_000
    expect(await there.lookup.find(secret)).toBeUndefined()
  })

  it('caches look-ups of valid and unknown secrets', async () => {
    const { keyring, store, clock } = createTestGovernance()
    let reads = 0
    const counting = createTestGovernance({ clock, store: { ...store, get: (key) => ((reads += 1), store.get(key)) } })
    const { secret } = await keyring.create(parseNewKey({ name: 'app' }))
    await counting.lookup.find(secret)
    await counting.lookup.find('sk-bf-wrong')
    expect(reads).toBe(3)
    for (let n = 0; n < 10; n += 1) {
      await counting.lookup.find(secret)
      await counting.lookup.find('sk-bf-wrong')
    }
    expect(reads).toBe(3)
  })

  it('keeps a valid secret cached during a flood of wrong secrets', async () => {
    const { keyring, store, clock } = createTestGovernance()
    let reads = 0
    const flooded = createTestGovernance({ clock, store: { ...store, get: (key) => ((reads += 1), store.get(key)) } })
    const { secret } = await keyring.create(parseNewKey({ name: 'app' }))
    await flooded.lookup.find(secret)
    await Promise.all(Array.from({ length: 12_000 }, (_, n) => flooded.lookup.find(`sk-bf-${n}`)))
    reads = 0
    expect(await flooded.lookup.find(secret)).toBeDefined()
    expect(reads).toBe(0)
  })

  it('does not cache the old record when a look-up runs during a change', async () => {
    const { store, clock } = createTestGovernance()
    let open = (): void => {}
    const gate = { wait: Promise.resolve() }
    const slow = createTestGovernance({
      clock,
      store: {
        ...store,
        get: async (key) => {
          const found = await store.get(key)
          await gate.wait
          return found
        },
      },
    })
    const { key, secret } = await slow.keyring.create(parseNewKey({ name: 'app' }))
    gate.wait = new Promise((resolve) => (open = resolve))
    const early = slow.lookup.find(secret)
    const change = slow.keyring.update(key.id, parseKeyChange({ isActive: false }))
    open()
    await Promise.all([early, change])
    expect(await slow.lookup.find(secret)).toMatchObject({ active: false })
  })

  it.each([
    ['truncated JSON', '{"id":'],
    ['null', 'null'],
    ['an array', '[]'],
    ['a record with unreadable limits', '{"budget":null}'],
  ])('rejects with overloaded if the stored record is %s', async (_label, text) => {
    const { keyring, store, clock } = createTestGovernance()
    const { key, secret } = await keyring.create(parseNewKey({ name: 'app', budgetLimitCents: 100 }))
    await store.set(`key:${key.id}`, text)
    const other = createTestGovernance({ store, clock })
    await expect(settled(() => other.lookup.find(secret))).rejects.toMatchObject({ kind: 'overloaded' })
    expect((await other.keyring.page({ limit: 10 })).records).toEqual([])
    await other.keyring.remove(key.id)
    clock.at += 2_000
    expect(await other.lookup.find(secret)).toBeUndefined()
  })

  it('rejects a record with a corrupt limit instead of ignoring the limit', async () => {
    const { keyring, lookup, store, clock } = createTestGovernance()
    const { key, secret } = await keyring.create(parseNewKey({ name: 'app', budgetLimitCents: 100, plan: 'free' }))
    for (const damage of [
      { budget: { max: null, every: '1M' } },
      { budget: { max: 1, every: '2M' } },
      { plan: 'gone' },
    ]) {
      await store.set(`key:${key.id}`, JSON.stringify({ ...key, ...damage }))
      clock.at += 2_000
      await expect(settled(() => lookup.find(secret))).rejects.toMatchObject({ kind: 'overloaded' })
    }
  })

  it('rejects look-ups when the store fails', async () => {
    const { store } = createTestGovernance()
    const broken = createTestGovernance({ store: { ...store, get: () => Promise.reject(new Error('down')) } })
    await expect(settled(() => broken.lookup.find('sk-bf-any'))).rejects.toThrow('down')
  })

  it('lists each key once over several pages', async () => {
    const { keyring } = createTestGovernance()
    const created = await Promise.all(
      Array.from({ length: 25 }, (_, n) => keyring.create(parseNewKey({ name: `key ${n}` }))),
    )
    const found: string[] = []
    for (let more = true; more;) {
      const after = found.at(-1)
      const page = await keyring.page(after === undefined ? { limit: 10 } : { limit: 10, after })
      found.push(...page.records.map((key) => key.id))
      more = page.hasMore
    }
    expect(found).toEqual(created.map(({ key }) => key.id).toSorted())
  })

  it.each(['unknown', '', '__proto__', '../key', 'a b', 'x'.repeat(1000)])('does not find the id %j', async (id) => {
    const { keyring } = createTestGovernance()
    await expect(settled(() => keyring.read(id))).rejects.toMatchObject({ kind: 'not-found' })
    await expect(settled(() => keyring.update(id, parseKeyChange({ isActive: false })))).rejects.toMatchObject({
      kind: 'not-found',
    })
    await expect(settled(() => keyring.remove(id))).rejects.toMatchObject({ kind: 'not-found' })
  })

  it('applies parallel updates of different fields', async () => {
    const { keyring } = createTestGovernance()
    const { key } = await keyring.create(parseNewKey({ name: 'app' }))
    await Promise.all([
      keyring.update(key.id, parseKeyChange({ description: 'new' })),
      keyring.update(key.id, parseKeyChange({ maxTokens: 5 })),
      keyring.update(key.id, parseKeyChange({ budgetLimitCents: 7 })),
    ])
    expect(await keyring.read(key.id)).toMatchObject({
      description: 'new',
      permissions: { maxTokens: 5 },
      budget: { max: 70_000_000, every: '1M' },
    })
  })

  it('rejects a reference to a shared record that does not exist', async () => {
    const { keyring, shared } = createTestGovernance()
    await expect(settled(() => keyring.create(parseNewKey({ name: 'app', budgetId: 'team' })))).rejects.toMatchObject({
      kind: 'invalid-admin-request',
      details: { param: 'budgetId' },
    })
    await shared.rateLimits.insert('slow', { id: 'slow', name: 'Slow' })
    const { key } = await keyring.create(parseNewKey({ name: 'app', rateLimitId: 'slow' }))
    await expect(settled(() => keyring.update(key.id, parseKeyChange({ budgetId: 'team' })))).rejects.toBeInstanceOf(
      GatewayError,
    )
    await shared.rateLimits.remove('slow')
    expect(await keyring.update(key.id, parseKeyChange({ isActive: false }))).toMatchObject({ active: false })
  })

  it('accepts the key record as an update without changes', async () => {
    const { keyring } = createTestGovernance()
    const fields = {
      name: 'app',
      budgetLimitCents: 5,
      plan: 'free',
      allowedModels: ['a/*'],
      expiresAt: '2027-01-01T00:00:00Z',
    }
    const { key } = await keyring.create(parseNewKey({ ...fields, providerConfigs: [{ provider: 'a' }] }))
    const shown = JSON.parse(JSON.stringify(toKeyRecord(key, 3))) as Record<string, unknown>
    const updated = await keyring.update(key.id, parseKeyChange(shown))
    expect(toKeyRecord(updated, 3)).toEqual(shown)
  })

  it('formats a key as the admin API returns it', async () => {
    const { keyring } = createTestGovernance()
    const { key } = await keyring.create(parseNewKey({ name: 'app', budgetLimitCents: 500 }))
    expect(toListedKey(key, 12)).toEqual({
      id: key.id,
      name: 'app',
      keyPrefix: key.prefix,
      isActive: true,
      currentUsageCents: 12,
      budgetLimitCents: 500,
    })
    expect(toKeyRecord(key, 0)).toMatchObject({
      createdAt: new Date(NOON).toISOString(),
      budgetResetDuration: '1M',
      rateLimitRequests: Number.MAX_SAFE_INTEGER,
      rateLimitTokens: Number.MAX_SAFE_INTEGER,
      expiresAt: null,
    })
  })
})
