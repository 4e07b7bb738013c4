import { callerOfKey } from '../../src/governance/caller.ts'
import { expect, it } from 'vitest'
import { GatewayError } from '../../src/core/errors.ts'
import { fromDollars } from '../../src/core/money.ts'
import { periodOf, type DurationCode } from '../../src/core/store.ts'
import { createAdminRecords, type AdminRecords } from '../../src/plugins/admin/admin-records.ts'
import { quote, createTestGovernance, usage, type TestGovernance } from '../governance/test-governance.ts'
import { cases, fc } from '../support/properties.ts'

const CENT = 10_000_000
const window = fc.constantFrom<DurationCode>('1h', '1d', '1w', '1M')
const cents = fc.nat(200)

/** Actions of an administrator and two callers, in any order. */
const action = fc.oneof(
  { weight: 5, arbitrary: fc.record({ type: fc.constant('use' as const), key: fc.nat(1), cents: fc.nat(40) }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('budget' as const), cents, every: window }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('renew' as const), cents, every: window }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('key' as const), key: fc.nat(1), cents, every: window }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('leave' as const), key: fc.nat(1), shares: fc.boolean() }) },
  {
    weight: 2,
    arbitrary: fc.record({
      type: fc.constant('wait' as const),
      ms: fc.constantFrom(1, 60_000, 3_600_000, 86_400_000, 7 * 86_400_000, -1, -5_000, -600_000),
    }),
  },
)

type Action = typeof action extends fc.Arbitrary<infer value> ? value : never

/** The last milliseconds of a month, a leap day, a week and a year. */
const start = fc.constantFrom(
  Date.UTC(2026, 0, 31, 23, 59, 59, 999),
  Date.UTC(2028, 1, 29, 23, 59, 59, 999),
  Date.UTC(2027, 0, 3, 23, 59, 59, 999),
  Date.UTC(2026, 11, 31, 23, 59, 59, 999),
)

/** A daily budget becomes weekly, and the clock is set back to the day before the only request. */
const CLOCK_SET_BACK: [number, Action[]] = [
  Date.UTC(2026, 0, 31, 23, 59, 59, 999),
  [
    { type: 'wait', ms: 1 },
    { type: 'use', key: 1, cents: 1 },
    { type: 'key', key: 1, cents: 0, every: '1w' },
    { type: 'wait', ms: -600_000 },
  ],
]

interface Bill {
  readonly key: number
  readonly amount: number
  readonly at: number
  /** Whether the key shared the budget at that time. */
  readonly shared: boolean
}

function sumIn(bills: readonly Bill[], now: number, every: DurationCode): number {
  const { start: from, end } = periodOf(now, every)
  return bills.filter(({ at }) => at >= from && at < end).reduce((sum, { amount }) => sum + amount, 0)
}

/** Bills an amount to a key. Returns undefined if the budget rejects it. */
async function bill(governance: TestGovernance, id: string, amount: number): Promise<number | undefined> {
  try {
    const key = await governance.keyring.read(id)
    const reservation = await governance.ledger.reserve(callerOfKey(key), {
      ...quote(1, 1),
      cost: () => fromDollars(amount / 1e9),
    })
    await reservation.settle(usage(1, 1, amount))
    return amount
  } catch (error) {
    if (GatewayError.is(error) && error.kind === 'budget-exceeded') return undefined
    throw error
  }
}

it('the reports equal the billed amounts after any sequence of changes and requests', async () => {
  await fc.assert(
    fc.asyncProperty(start, fc.array(action, { maxLength: 40 }), async (begin, actions) => {
      const governance = createTestGovernance({ at: begin })
      const { clock } = governance
      const { budgets, keys } = recordsOf(governance)
      await budgets.create({ id: 'team', maxLimitUsd: 2, resetDuration: '1d' })
      const ids = await Promise.all(
        ['a', 'b'].map(async (name) => (await keys.create({ name, budgetId: 'team', budgetLimitCents: 100 })).id),
      )
      const shares = [true, true]
      const bills: Bill[] = []

      for (const step of actions) {
        if (step.type === 'wait') clock.at = Math.max(begin, clock.at + step.ms)
        if (step.type === 'budget') {
          await budgets.update('team', { maxLimitUsd: step.cents / 100, resetDuration: step.every })
        }
        if (step.type === 'renew') {
          await budgets.delete('team')
          await budgets.create({ id: 'team', maxLimitUsd: step.cents / 100, resetDuration: step.every })
        }
        if (step.type === 'key') {
          const change = { budgetLimitCents: step.cents, budgetResetDuration: step.every }
          await keys.update(ids[step.key] ?? '', change)
        }
        if (step.type === 'leave') {
          shares[step.key] = step.shares
          await keys.update(ids[step.key] ?? '', { budgetId: step.shares ? 'team' : null })
        }
        if (step.type !== 'use') continue
        const team = await budgets.get('team')
        const own = await keys.get(ids[step.key] ?? '')
        const amount = await bill(governance, ids[step.key] ?? '', step.cents * CENT)
        const isShared = shares[step.key] === true
        const limits = [
          [Number(own['budgetLimitCents']), bills.filter(({ key }) => key === step.key), own['budgetResetDuration']],
          ...(isShared ? [[team.maxLimitUsd * 100, bills.filter((bill) => bill.shared), team.resetDuration]] : []),
        ] as [number, Bill[], DurationCode][]
        const fits = limits.every(
          ([limit, some, every]) =>
            Math.round(limit) * CENT - sumIn(some, clock.at, every) >= Math.max(1, step.cents * CENT) ||
            (step.cents === 0 && limit > 0),
        )
        expect(amount !== undefined).toBe(fits)
        if (amount !== undefined) bills.push({ key: step.key, amount, at: clock.at, shared: isShared })
      }

      const team = await budgets.get('team')
      const together = sumIn(
        bills.filter((bill) => bill.shared),
        clock.at,
        team.resetDuration,
      )
      expect(team.currentUsageCents).toBe(together / CENT)
      expect(team.resetsAt).toBe(new Date(periodOf(clock.at, team.resetDuration).end).toISOString())
      for (const [index, id] of ids.entries()) {
        const own = bills.filter(({ key }) => key === index)
        const every = (await keys.get(id))['budgetResetDuration'] as DurationCode
        const usage = await keys.usage(id)
        expect(usage['currentUsageCents']).toBe(sumIn(own, clock.at, every) / CENT)
        // The other hourly tallies begin when the budget gets an hourly window.
        if (every === '1h') continue
        const within = own.filter(({ at }) => periodOf(at, every).start === periodOf(clock.at, every).start)
        expect(usage).toMatchObject({
          requests: within.length,
          cost: { billedUsd: sumIn(own, clock.at, every) / 1e9 },
        })
      }
    }),
    { numRuns: cases(200), examples: [CLOCK_SET_BACK] },
  )
})

it('concurrent changes of one record by two processes are all applied', async () => {
  const here = createTestGovernance()
  const there = createTestGovernance({ store: here.store, clock: here.clock })
  const { id } = await recordsOf(here).keys.create({ name: 'contended' })
  const changes = {
    description: 'changed',
    budgetLimitCents: 5,
    rateLimitRequests: 6,
    rateLimitTokens: 7,
    maxTokens: 8,
    disableTools: true,
    plan: 'pro',
    allowedModels: ['a/*'],
    expiresAt: '2030-01-01T00:00:00.000Z',
    isActive: false,
  } as const
  await Promise.all(
    Object.entries(changes).map(([field, value], index) =>
      recordsOf(index % 2 === 0 ? here : there).keys.update(id, { [field]: value }),
    ),
  )
  expect(await recordsOf(here).keys.get(id)).toMatchObject(changes)
})

function recordsOf({ store, keyring, shared, clock }: TestGovernance): AdminRecords {
  const runtime = { now: () => clock.at, uuid: () => crypto.randomUUID() }
  return createAdminRecords({ store, runtime, keyring, shared })
}
