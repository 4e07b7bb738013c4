import { callerOfKey } from '../../src/governance/caller.ts'
import { expect, it } from 'vitest'
import { GatewayError } from '../../src/core/errors.ts'
import { fromDollars } from '../../src/core/money.ts'
import { DURATION_CODES, periodOf, type DurationCode } from '../../src/core/store.ts'
import { readSpent } from '../../src/governance/balances.ts'
import { counterName, keyOwner, sharedOwner } from '../../src/governance/limits.ts'
import type { Reservation } from '../../src/governance/reservation.ts'
import type { VirtualKey } from '../../src/governance/virtual-key.ts'
import {
  quote,
  createTestGovernance,
  usage,
  type TestGovernance,
  parseKeyChange,
  parseNewKey,
} from '../governance/test-governance.ts'
import { cases, fc } from '../support/properties.ts'

const CENT = 10_000_000
const BUDGET_CODES: readonly DurationCode[] = ['1h', '1d', '1w', '1M']

/** Actions on keys that share a budget, in two processes with one store, in any order. */
const action = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({ type: fc.constant('reserve' as const), key: fc.nat(2), cents: fc.nat(60), on: fc.nat(1) }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      type: fc.constant('settle' as const),
      pick: fc.nat(),
      share: fc.double({ min: 0, max: 1, noNaN: true }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      type: fc.constant('limit' as const),
      key: fc.nat(2),
      cents: fc.option(fc.nat(300)),
      every: fc.constantFrom(...DURATION_CODES),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      type: fc.constant('wait' as const),
      ms: fc.constantFrom(1, 59_999, 300_000, 3_600_000, 86_400_000, 7 * 86_400_000),
    }),
  },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('replace' as const), key: fc.nat(2) }) },
)

interface OpenReservation {
  readonly reservation: Reservation
  readonly key: VirtualKey
  readonly cents: number
  readonly at: number
}

interface Bill {
  readonly key: string
  readonly amount: number
  readonly at: number
}

const start = fc.constantFrom(
  Date.UTC(2026, 0, 31, 23, 59, 59, 999),
  Date.UTC(2028, 1, 28, 23, 59),
  Date.UTC(2026, 11, 31, 23, 30),
  Date.UTC(2026, 5, 17, 8),
)

it('no sequence of reservations, settlements, changes, deletions and time loses or doubles an amount', async () => {
  await fc.assert(
    fc.asyncProperty(start, fc.array(action, { maxLength: 50 }), async (begin, actions) => {
      const first = createTestGovernance({ at: begin })
      const second = createTestGovernance({ store: first.store, clock: first.clock })
      const processes = [first, second]
      await first.shared.budgets.insert('team', {
        id: 'team',
        name: 'Team',
        limit: { max: fromDollars(2), every: '1d' },
      })
      const create = async (n: number): Promise<VirtualKey> =>
        (await first.keyring.create(parseNewKey({ name: `key ${n}`, budget_limit_cents: 100, budget_id: 'team' }))).key
      const keys = await Promise.all([0, 1, 2].map(create))
      const open: OpenReservation[] = []
      const bills: Bill[] = []

      for (const step of actions) {
        if (step.type === 'wait') first.clock.at += step.ms
        if (step.type === 'limit') {
          const change =
            step.cents === null
              ? { budget_limit_cents: null }
              : { budget_limit_cents: step.cents, budget_reset_duration: step.every }
          keys[step.key] = await first.keyring.update(keys[step.key]!.id, parseKeyChange(change))
        }
        if (step.type === 'replace') {
          await first.keyring.remove(keys[step.key]!.id)
          keys[step.key] = await create(step.key)
        }
        if (step.type === 'reserve') {
          const key = keys[step.key]!
          const reservation = await tryReserve(processes[step.on]!, key, step.cents)
          if (reservation !== undefined) open.push({ reservation, key, cents: step.cents, at: first.clock.at })
        }
        const [settled] = step.type === 'settle' ? open.splice(step.pick % Math.max(1, open.length), 1) : []
        if (step.type === 'settle' && settled !== undefined && first.clock.at - settled.at < 600_000) {
          const amount = Math.floor(settled.cents * CENT * step.share)
          await settled.reservation.settle(usage(1, 1, amount))
          await settled.reservation.settle(usage(1, 1, amount))
          bills.push({ key: settled.key.id, amount, at: settled.at })
        }
        await expectSpentEqualsBills(first, keys, bills)
      }
    }),
    { numRuns: cases(150) },
  )
})

async function tryReserve(
  governance: TestGovernance,
  key: VirtualKey,
  cents: number,
): Promise<Reservation | undefined> {
  try {
    return await governance.ledger.reserve(callerOfKey(key), { ...quote(1, 1), cost: () => fromDollars(cents / 100) })
  } catch (error) {
    if (GatewayError.is(error) && error.kind === 'budget-exceeded') return undefined
    throw error
  }
}

/** Expects that the spent amount of each owner and window equals its bills, also for windows without a budget. */
async function expectSpentEqualsBills(
  governance: TestGovernance,
  keys: readonly VirtualKey[],
  bills: readonly Bill[],
): Promise<void> {
  const now = governance.clock.at
  for (const every of BUDGET_CODES) {
    const period = periodOf(now, every)
    const within = bills.filter((bill) => bill.at >= period.start && bill.at < period.end)
    const sum = (some: readonly Bill[]): number => some.reduce((total, bill) => total + bill.amount, 0)
    const windows = [...keys.map((key) => keyOwner(key.id)), sharedOwner('team')].map((owner) => {
      return { owner, every, period, counter: counterName('budget', owner, every, period) }
    })
    const expected = [...keys.map((key) => sum(within.filter((bill) => bill.key === key.id))), sum(within)]
    expect((await readSpent(governance.store, windows, now)).map(({ spent }) => spent)).toEqual(expected)
  }
}

it('with unchanged limits, the billed amount of a window never exceeds them', async () => {
  const request = fc.record({
    at: fc.nat(7_200_000),
    length: fc.nat(500_000),
    cents: fc.nat(40),
    share: fc.double({ min: 0, max: 1, noNaN: true }),
  })
  await fc.assert(
    fc.asyncProperty(fc.array(request, { maxLength: 60 }), async (requests) => {
      const begin = Date.UTC(2026, 0, 31, 23)
      const governance = createTestGovernance({ at: begin })
      const every = { budget_reset_duration: '1h' as const }
      const { key } = await governance.keyring.create(parseNewKey({ name: 'app', budget_limit_cents: 100, ...every }))
      const events = requests.flatMap((one, id) => [
        { at: begin + one.at, id, settles: false },
        { at: begin + one.at + one.length, id, settles: true },
      ])
      const open = new Map<number, Reservation>()
      const billed = new Map<number, number>()
      for (const { at, id, settles } of events.toSorted((a, b) => a.at - b.at)) {
        governance.clock.at = at
        const { cents, share, at: offset } = requests[id]!
        const reservation = settles ? open.get(id) : await tryReserve(governance, key, cents)
        if (reservation === undefined) continue
        open.set(id, reservation)
        if (!settles) continue
        const amount = Math.floor(cents * CENT * share)
        await reservation.settle(usage(1, 1, amount))
        const window = periodOf(begin + offset, '1h').start
        billed.set(window, (billed.get(window) ?? 0) + amount)
      }
      for (const amount of billed.values()) expect(amount).toBeLessThanOrEqual(100 * CENT)
    }),
    { numRuns: cases(150) },
  )
})

it('a clock that is set back by an hour, or that differs between processes, does not reset a spent window', async () => {
  const begin = Date.UTC(2026, 1, 1, 0, 0, 2)
  const first = createTestGovernance({ at: begin })
  const late = createTestGovernance({ store: first.store, clock: { at: begin - 5_000 } })
  const { key } = await first.keyring.create(
    parseNewKey({ name: 'app', budget_limit_cents: 100, rate_limit_requests: 2, rate_limit_reset_duration: '1h' }),
  )
  const spend = async (governance: TestGovernance): Promise<void> =>
    (await governance.ledger.reserve(callerOfKey(key), quote(1, 1))).settle(usage(1, 1))
  await spend(first)
  await spend(first)
  await expect(spend(first)).rejects.toMatchObject({ kind: 'rate-limited' })
  await spend(late)
  await spend(late)
  await expect(spend(late)).rejects.toMatchObject({ kind: 'rate-limited' })
  first.clock.at += 3_600_000
  await spend(first)
  first.clock.at -= 3_600_000
  await expect(spend(first)).rejects.toMatchObject({ kind: 'rate-limited' })
  first.clock.at -= 3_600_000
  await expect(spend(first)).rejects.toMatchObject({ kind: 'rate-limited' })
})
