import { callerOfKey } from '../../../src/governance/caller.ts'
import { describe, expect, it } from 'vitest'
import { parseConfiguration } from '../../../src/plugins/admin/admin-input.ts'
import { applyConfiguration, createAdminRecords } from '../../../src/plugins/admin/admin-records.ts'
import { quote, createTestGovernance, usage, parseKeyChange } from '../../governance/test-governance.ts'
import { sha256 } from '#hash'
import { toWire } from '../../../src/core/field-names.ts'

const SECRET = 'sk-bf-00000000-0000-4000-8000-000000000001'
const CONFIGURATION = {
  virtual_keys: [
    { id: 'app', name: 'App', value: SECRET, budget_id: 'team', budget_limit_cents: 100 },
    { name: 'Hashed', value_sha256: sha256('sk-svc-elsewhere').toUpperCase(), rate_limit_id: 'slow' },
  ],
  budgets: [{ id: 'team', name: 'Team', max_limit: 12.5, reset_duration: '1w' }],
  rate_limits: [{ id: 'slow', request_max_limit: 5, request_reset_duration: '1m', token_max_limit: null }],
}

describe('the configuration', () => {
  it('stores keys given by secret or by hash, and shared budgets and rate limits', async () => {
    const governance = createTestGovernance()
    await applyConfiguration(parseConfiguration(CONFIGURATION), governance)
    expect(await governance.lookup.find(SECRET)).toMatchObject({
      id: 'app',
      prefix: 'sk-bf-0000',
      budgetId: 'team',
      budget: { max: 1e9, every: '1M' },
    })
    expect(await governance.lookup.find('sk-svc-elsewhere')).toMatchObject({ name: 'Hashed', prefix: '' })
    expect(await governance.shared.budgets.read('team')).toEqual({
      id: 'team',
      name: 'Team',
      limit: { max: 12.5e9, every: '1w' },
    })
    expect(await governance.shared.rateLimits.read('slow')).toEqual({
      id: 'slow',
      name: 'slow',
      requests: { max: 5, every: '1m' },
    })
  })

  it('does not duplicate keys or reset usage when several processes apply it again', async () => {
    const governance = createTestGovernance()
    await applyConfiguration(parseConfiguration(CONFIGURATION), governance)
    const before = (await governance.keyring.page({ limit: 10 })).records
    await (
      await governance.ledger.reserve(callerOfKey(before[0]!), quote(1, 1, 1_000_000))
    ).settle(usage(1, 1, 50_000_000))
    governance.clock.at += 5_000
    const others = [1, 2, 3].map(() => createTestGovernance({ store: governance.store, clock: governance.clock }))
    await Promise.all(others.map((other) => applyConfiguration(parseConfiguration(CONFIGURATION), other)))
    expect((await governance.keyring.page({ limit: 10 })).records).toEqual(before)
    expect(await others[0]!.reports.spentCents([before[0]!])).toEqual([5])
  })

  it('overrides stored records, but leaves a disabled key disabled', async () => {
    const governance = createTestGovernance()
    await applyConfiguration(parseConfiguration(CONFIGURATION), governance)
    await governance.keyring.update('app', parseKeyChange({ is_active: false, budget_limit_cents: 999, max_tokens: 5 }))
    await applyConfiguration(parseConfiguration(CONFIGURATION), governance)
    const key = await governance.lookup.find(SECRET)
    expect(key).toMatchObject({ active: false, budget: { max: 1e9 }, permissions: {} })
    const [app] = CONFIGURATION.virtual_keys
    await applyConfiguration(
      parseConfiguration({ ...CONFIGURATION, virtual_keys: [{ ...app, is_active: true }] }),
      governance,
    )
    expect(await governance.lookup.find(SECRET)).toMatchObject({ active: true })
  })

  it('replaces the secret of a key immediately and keeps its usage', async () => {
    const governance = createTestGovernance()
    await applyConfiguration(
      parseConfiguration({ virtual_keys: [{ id: 'app', name: 'App', value: SECRET }] }),
      governance,
    )
    const old = await governance.keyring.read('app')
    await (await governance.ledger.reserve(callerOfKey(old), quote(1, 1))).settle(usage(1, 1, 70_000_000))
    const next = { id: 'app', name: 'App', value: `${SECRET}-new` }
    await applyConfiguration(parseConfiguration({ virtual_keys: [next] }), governance)
    expect(await governance.lookup.find(SECRET)).toBeUndefined()
    const key = await governance.lookup.find(next.value)
    expect(await governance.reports.spentCents([key!])).toEqual([7])
  })

  it('rejects a secret that belongs to another key', async () => {
    const governance = createTestGovernance()
    await applyConfiguration(
      parseConfiguration({ virtual_keys: [{ id: 'app', name: 'App', value: SECRET }] }),
      governance,
    )
    const thief = parseConfiguration({ virtual_keys: [{ id: 'other', name: 'Other', value: SECRET }] })
    await expect(applyConfiguration(thief, governance)).rejects.toMatchObject({ kind: 'conflict' })
    expect(await governance.lookup.find(SECRET)).toMatchObject({ id: 'app' })
  })

  it.each<[string, unknown]>([
    ['governance', 5],
    ['governance.virtual_key', { virtual_key: [] }],
    ['governance.virtual_keys', { virtual_keys: {} }],
    ['governance.virtual_keys[0]', { virtual_keys: [{ name: 'a' }] }],
    ['governance.virtual_keys[0]', { virtual_keys: [{ name: 'a', value: SECRET, value_sha256: sha256('x') }] }],
    ['governance.virtual_keys[0].value', { virtual_keys: [{ name: 'a', value: 'short' }] }],
    ['governance.virtual_keys[0].value_sha256', { virtual_keys: [{ name: 'a', value_sha256: 'abc' }] }],
    ['governance.virtual_keys[0].name', { virtual_keys: [{ value: SECRET }] }],
    [
      'governance.virtual_keys[1]',
      {
        virtual_keys: [
          { name: 'a', value: SECRET },
          { name: 'b', value: SECRET },
        ],
      },
    ],
    ['governance.budgets[0].id', { budgets: [{ id: '.', max_limit: 1 }] }],
    ['governance.budgets[0].id', { budgets: [{ id: '..', max_limit: 1 }] }],
    ['governance.budgets[0].max_limit', { budgets: [{ id: 'a', max_limit: -1 }] }],
    ['governance.budgets[0].max_limit', { budgets: [{ id: 'a', max_limit: Number.NaN }] }],
    ['governance.budgets[0].max_limit', { budgets: [{ id: 'a', max_limit: 9_000_001 }] }],
    ['governance.budgets[0].maxLimitUsd', { budgets: [{ id: 'a' }] }],
    ['governance.budgets[0].reset_duration', { budgets: [{ id: 'a', max_limit: 1, reset_duration: '2d' }] }],
    [
      'governance.budgets[1]',
      {
        budgets: [
          { id: 'a', max_limit: 1 },
          { id: 'a', max_limit: 1 },
        ],
      },
    ],
    ['governance.rate_limits[0].id', { rate_limits: [{ id: 'a b' }] }],
    ['governance.rate_limits[0].request_max_limit', { rate_limits: [{ id: 'a', request_max_limit: 0.5 }] }],
  ])('reports the path %s of an invalid field', (path, value) => {
    expect(() => parseConfiguration(value)).toThrow(expect.objectContaining({ details: { param: path } }) as Error)
  })

  it.each<[string, unknown, string]>([
    [
      'governance.virtualKeys[0].budgetLimitCent',
      { virtualKeys: [{ name: 'a', value: SECRET, budgetLimitCent: 5 }] },
      'there is no such field. Did you mean budgetLimitCents?',
    ],
    [
      'governance.virtualKeys[0].budgetLimitCents',
      { virtualKeys: [{ name: 'a', value: SECRET, budgetLimitCents: 5, budget_limit_cents: 5 }] },
      'budget_limit_cents is the same field. Set only one of them.',
    ],
    [
      'governance.rateLimits',
      { rateLimits: [], rate_limits: [] },
      'rate_limits is the same field. Set only one of them.',
    ],
    [
      'governance.virtual_keys[0].providerConfigs[0].weight',
      { virtual_keys: [{ name: 'a', value: SECRET, providerConfigs: [{ provider: 'x', weight: -1 }] }] },
      'expected a number from 0 to 1000000, got -1.',
    ],
    [
      'governance.virtualKeys[0]',
      { virtualKeys: [{ name: 'a', value: SECRET, value_sha256: sha256('x') }] },
      'expected either value or valueSha256, got an object.',
    ],
    [
      'governance.rateLimits[1]',
      { rateLimits: [{ id: 'a' }, { id: 'a' }] },
      'an earlier entry has the same id. Use unique values.',
    ],
    [
      'governance.keys',
      { keys: [] },
      'there is no such field. The fields are virtualKeys, budgets, rateLimits, customers.',
    ],
    ['governance.virtualkeys', { virtualkeys: [] }, 'there is no such field. Did you mean virtualKeys?'],
  ])('names the field %s as it is written', (path, value, text) => {
    expect(() => parseConfiguration(value)).toThrow(
      expect.objectContaining({ message: `createGateway: ${path}: ${text}`, details: { param: path } }) as Error,
    )
  })

  it('may be in camel case, with the same result, and mix the names of fields', async () => {
    const mixed = {
      virtualKeys: [
        { id: 'app', name: 'App', value: SECRET, budgetId: 'team', budget_limit_cents: 100 },
        { name: 'Hashed', valueSha256: sha256('sk-svc-elsewhere').toUpperCase(), rateLimitId: 'slow' },
      ],
      budgets: [{ id: 'team', name: 'Team', maxLimitUsd: 12.5, resetDuration: '1w' }],
      rateLimits: [{ id: 'slow', requestMaxLimit: 5, request_reset_duration: '1m', tokenMaxLimit: null }],
    }

    expect(parseConfiguration(mixed)).toEqual(parseConfiguration(CONFIGURATION))
  })

  it('may consist of records of the admin API', async () => {
    const { store, clock, keyring, shared } = createTestGovernance()
    const runtime = { now: () => clock.at, uuid: () => 'new' }
    const records = createAdminRecords({ store, runtime, keyring, shared })
    const budget = await records.budgets.create({ id: 'team', maxLimitUsd: 5 })
    const rateLimit = await records.rateLimits.create({ id: 'fair', tokenMaxLimit: 5 })
    const { value: _, ...key } = await records.keys.create({ name: 'app', budgetId: 'team', plan: 'free' })
    const exported: unknown = toWire({
      virtualKeys: [{ ...key, valueSha256: sha256(SECRET) }],
      budgets: [budget],
      rateLimits: [rateLimit],
    })
    const other = createTestGovernance()
    await applyConfiguration(parseConfiguration(JSON.parse(JSON.stringify(exported))), other)

    expect(JSON.stringify(exported)).toContain('"budget_limit_cents"')
    expect(await other.lookup.find(SECRET)).toMatchObject({ id: key.id, name: 'app', budgetId: 'team', plan: 'free' })
    expect(await other.shared.budgets.read('team')).toEqual(await shared.budgets.read('team'))
    expect(await other.shared.rateLimits.read('fair')).toEqual(await shared.rateLimits.read('fair'))
  })

  it('does not put secrets into errors', () => {
    const attempt = (): unknown => parseConfiguration({ virtual_keys: [{ name: 5, value: SECRET }] })
    expect(attempt).toThrow('governance.virtual_keys[0].name')
    expect(attempt).not.toThrow(new RegExp(SECRET))
  })

  it('rejects a key that refers to an unknown record', async () => {
    const governance = createTestGovernance()
    const dangling = parseConfiguration({ virtual_keys: [{ name: 'a', value: SECRET, budget_id: 'none' }] })
    await expect(applyConfiguration(dangling, governance)).rejects.toMatchObject({ details: { param: 'budgetId' } })
  })
})

it('generates an id for a shared record that is created without one', async () => {
  const { store, clock, keyring, shared } = createTestGovernance()
  const runtime = { now: () => clock.at, uuid: () => 'new' }
  const records = createAdminRecords({ store, runtime, keyring, shared })
  await records.budgets.create({ name: 'Team', maxLimitUsd: 0 })
  expect(await shared.budgets.read('new')).toEqual({ id: 'new', name: 'Team', limit: { max: 0, every: '1M' } })
  await records.rateLimits.create({ id: 'mine', tokenMaxLimit: 3 })
  expect(await shared.rateLimits.read('mine')).toEqual({ id: 'mine', name: 'mine', tokens: { max: 3, every: '1h' } })
})
