import { callerOfKey } from '../../src/governance/caller.ts'
import { describe, expect, it } from 'vitest'
import { toNanoUsd, fromDollars } from '../../src/core/money.ts'
import { periodOf, type DurationCode } from '../../src/core/store.ts'
import type { Quote } from '../../src/governance/reservation.ts'
import type { KeySettings } from '../../src/plugins/admin/admin-api.ts'
import type { VirtualKey } from '../../src/governance/virtual-key.ts'
import {
  NOON,
  quote,
  createTestGovernance,
  usage,
  type TestGovernance,
  parseKeyChange,
  parseNewKey,
} from './test-governance.ts'
import { resultOrError } from '../support/result-or-error.ts'
import { memoryStore } from '../../src/stores/memory.ts'

const UNLIMITED = Number.MAX_SAFE_INTEGER
const HOUR_END = NOON + 3_600_000

async function createKey(governance: TestGovernance, fields: KeySettings): Promise<VirtualKey> {
  return (await governance.keyring.create(parseNewKey({ name: 'app', ...fields }))).key
}

describe('request limits', () => {
  it('accept exactly 100 of 300 parallel requests', async () => {
    const governance = createTestGovernance()
    const key = await createKey(governance, { rateLimitRequests: 100 })
    const all = await Promise.allSettled(
      Array.from({ length: 300 }, () => governance.ledger.reserve(callerOfKey(key), quote(10, 10))),
    )
    expect(all.filter((one) => one.status === 'fulfilled')).toHaveLength(100)
    const rejected = all.find((one) => one.status === 'rejected')
    expect(rejected?.reason).toMatchObject({
      kind: 'rate-limited',
      message: expect.stringContaining('100 requests per hour') as string,
      details: {
        code: 'rate_limit_exceeded',
        retryAfterSeconds: 3600,
        rate: { limit: 100, remaining: 0, resetAt: HOUR_END },
      },
    })
  })

  it('report one less remaining request after each request', async () => {
    const governance = createTestGovernance()
    const key = await createKey(governance, { rateLimitRequests: 5 })
    for (const remaining of [4, 3, 2, 1, 0]) {
      const reservation = await governance.ledger.reserve(callerOfKey(key), quote(1, 1))
      expect(reservation.rate).toEqual({ limit: 5, remaining, resetAt: HOUR_END })
      expect(await governance.ledger.status(callerOfKey(key))).toEqual(reservation.rate)
      expect(await governance.reports.limits(key)).toMatchObject({ remainingRequests: remaining, requestLimit: 5 })
      await reservation.settle(usage(1, 1))
      expect(await governance.ledger.status(callerOfKey(key))).toEqual(reservation.rate)
    }
  })

  it('are not charged for a rejected request', async () => {
    const governance = createTestGovernance()
    const key = await createKey(governance, { rateLimitRequests: 10, rateLimitTokens: 100, budgetLimitCents: 1 })
    await expect(governance.ledger.reserve(callerOfKey(key), quote(101, 1))).rejects.toMatchObject({
      kind: 'rate-limited',
    })
    await expect(governance.ledger.reserve(callerOfKey(key), quote(1, 20, 1_000_000))).rejects.toMatchObject({
      kind: 'budget-exceeded',
    })
    expect(await governance.reports.limits(key)).toMatchObject({
      remainingRequests: 10,
      remainingTokens: 100,
      remainingBudgetCents: 1,
    })
  })

  it('count a failed request that used no tokens', async () => {
    const governance = createTestGovernance()
    const key = await createKey(governance, { rateLimitRequests: 10, rateLimitTokens: 100, budgetLimitCents: 1 })
    const reservation = await governance.ledger.reserve(callerOfKey(key), quote(50, 1, 1000))
    await reservation.settle(usage(0, 0))
    expect(await governance.reports.limits(key)).toMatchObject({
      remainingRequests: 9,
      remainingTokens: 100,
      remainingBudgetCents: 1,
    })
  })

  it.each([
    ['rateLimitRequests', 'rate-limited'],
    ['rateLimitTokens', 'rate-limited'],
    ['budgetLimitCents', 'budget-exceeded'],
  ])('of zero in %s reject free requests too', async (field, kind) => {
    const governance = createTestGovernance()
    const key = await createKey(governance, { [field]: 0 })
    await expect(governance.ledger.reserve(callerOfKey(key), quote(0, 0))).rejects.toMatchObject({ kind })
  })

  it('report the maximum safe integer without limits and 0 without a key', async () => {
    const governance = createTestGovernance({ at: NOON + 5 })
    const key = await createKey(governance, {})
    const unlimited = { limit: UNLIMITED, remaining: UNLIMITED, resetAt: HOUR_END }
    expect(await governance.ledger.status(callerOfKey(key))).toEqual(unlimited)
    expect((await governance.ledger.reserve(callerOfKey(key), quote(1, 1))).rate).toEqual(unlimited)
    expect(await governance.ledger.status(undefined)).toEqual({ limit: 0, remaining: 0, resetAt: HOUR_END })
  })

  it.each<[DurationCode, string]>([
    ['1m', '2026-01-15T12:01:00.000Z'],
    ['1h', '2026-01-15T13:00:00.000Z'],
    ['1d', '2026-01-16T00:00:00.000Z'],
    ['1w', '2026-01-19T00:00:00.000Z'],
    ['1M', '2026-02-01T00:00:00.000Z'],
  ])('reset after the window %s at %s', async (every, end) => {
    const governance = createTestGovernance()
    const key = await createKey(governance, { rateLimitRequests: 1, rateLimitResetDuration: every })
    const { rate, settle } = await governance.ledger.reserve(callerOfKey(key), quote(1, 1))
    await settle(usage(1, 1))
    expect(new Date(rate.resetAt).toISOString()).toBe(end)
    governance.clock.at = rate.resetAt - 1
    await expect(governance.ledger.reserve(callerOfKey(key), quote(1, 1))).rejects.toMatchObject({
      details: { retryAfterSeconds: 1 },
    })
    governance.clock.at = rate.resetAt
    expect((await governance.ledger.reserve(callerOfKey(key), quote(1, 1))).rate.remaining).toBe(0)
  })
})

describe('token limits', () => {
  it('reserve the prompt and settle the actual total', async () => {
    const governance = createTestGovernance()
    const key = await createKey(governance, { rateLimitTokens: 100 })
    const first = await governance.ledger.reserve(callerOfKey(key), quote(60, 1000))
    await expect(governance.ledger.reserve(callerOfKey(key), quote(41, 1))).rejects.toMatchObject({
      kind: 'rate-limited',
      details: { rate: { limit: 100, remaining: 40, resetAt: HOUR_END } },
    })
    await first.settle(usage(30, 20))
    expect(await governance.reports.rateLimit(key)).toEqual({
      requestLimit: UNLIMITED,
      requestRemaining: UNLIMITED,
      requestResetAt: '2026-01-15T13:00:00.000Z',
      tokenLimit: 100,
      tokenRemaining: 50,
      tokenResetAt: '2026-01-15T13:00:00.000Z',
    })
    await (await governance.ledger.reserve(callerOfKey(key), quote(50, 1))).settle(usage(50, 500))
    await expect(governance.ledger.reserve(callerOfKey(key), quote(0, 1))).rejects.toMatchObject({
      kind: 'rate-limited',
    })
  })

  it('advise a retry while the prompt is not counted, because it may fit in the next window', async () => {
    const governance = createTestGovernance()
    const key = await createKey(governance, { rateLimitTokens: 100 })
    await (await governance.ledger.reserve(callerOfKey(key), quote(100, 1))).settle(usage(100, 0))
    const bound = quote(400, 1)
    const error = governance.ledger.reserve(callerOfKey(key), {
      ...bound,
      recount: { tokens: { callsUpstream: false, run: async () => quote(90, 1) } },
    })
    await expect(error).rejects.toThrow(`Retry after ${new Date(HOUR_END).toISOString()}.`)
    await expect(error).rejects.not.toMatchObject({ details: { advice: { shouldRetry: 'false' } } })
  })

  it('appear in the headers of a request that they reject; other requests show the request limit', async () => {
    const governance = createTestGovernance()
    const key = await createKey(governance, { rateLimitTokens: 100, rateLimitRequests: 7 })
    const error = governance.ledger.reserve(callerOfKey(key), quote(200, 1))
    await expect(error).rejects.toMatchObject({ details: { rate: { limit: 100, remaining: 100 } } })
    await expect(error).rejects.toThrow('Send a shorter prompt.')
    expect((await governance.ledger.reserve(callerOfKey(key), quote(10, 1))).rate).toMatchObject({
      limit: 7,
      remaining: 6,
    })
  })
})

describe('budgets', () => {
  it('reserve the worst case and settle the actual amount', async () => {
    const governance = createTestGovernance()
    const key = await createKey(governance, { budgetLimitCents: 100 })
    const reservation = await governance.ledger.reserve(callerOfKey(key), quote(100, 400, 1_000_000))
    expect(reservation.outputTokens).toBe(400)
    await reservation.settle(usage(100, 50, 150_000_000))
    expect(await governance.reports.limits(key)).toMatchObject({ remainingBudgetCents: 85, budgetLimitCents: 100 })
    expect(await governance.reports.spentCents([key])).toEqual([15])
  })

  it('lower the output limit to what the remaining budget covers', async () => {
    const governance = createTestGovernance()
    const key = await createKey(governance, { budgetLimitCents: 100 })
    const reservation = await governance.ledger.reserve(callerOfKey(key), quote(100, 5_000, 1_000_000))
    expect(reservation.outputTokens).toBe(900)
    await expect(governance.ledger.reserve(callerOfKey(key), quote(1, 16, 1))).rejects.toMatchObject({
      kind: 'budget-exceeded',
    })
  })

  it.each([
    [84, 16, 16],
    [85, 16, undefined],
    [84, 4_000, 16],
    [85, 4_000, undefined],
    [95, 5, 5],
    [96, 5, undefined],
    [99, 1, 1],
  ])(
    'for 100 tokens, with %i prompt tokens and %i requested, allow %s output tokens',
    async (prompt, requested, allowed) => {
      const governance = createTestGovernance()
      const key = await createKey(governance, { budgetLimitCents: 10 })
      const reserved = governance.ledger.reserve(callerOfKey(key), quote(prompt, requested, 1_000_000))
      if (allowed === undefined) await expect(reserved).rejects.toMatchObject({ kind: 'budget-exceeded' })
      else expect((await reserved).outputTokens).toBe(allowed)
    },
  )

  it('report their name and limit in the error, but not the spent amount', async () => {
    const governance = createTestGovernance()
    await governance.shared.budgets.insert('team', {
      id: 'team',
      name: 'Team A',
      limit: { max: fromDollars(5), every: '1w' },
    })
    const key = await createKey(governance, { budgetLimitCents: 100_000, budgetId: 'team', rateLimitRequests: 9 })
    const first = await governance.ledger.reserve(callerOfKey(key), quote(1, 0, 1_234_567_890))
    await first.settle(usage(1, 0, 1_234_567_890))
    const error = await resultOrError(() => governance.ledger.reserve(callerOfKey(key), quote(4, 0, 1_000_000_000)))
    expect(error).toMatchObject({ kind: 'budget-exceeded', details: { rate: { limit: 9, remaining: 8 } } })
    const { message } = error as Error
    expect(message).toContain(
      'The shared budget "Team A" is exceeded: this request could cost more than the amount that remains of $5.000000 per week',
    )
    expect(message).not.toContain('1.23')
    expect(message).not.toContain('3.76')
  })

  it('report the budget with the least remaining amount, without held amounts', async () => {
    const governance = createTestGovernance()
    await governance.shared.budgets.insert('team', {
      id: 'team',
      name: 'Team',
      limit: { max: fromDollars(1), every: '1M' },
    })
    const one = await createKey(governance, { budgetId: 'team' })
    const two = await createKey(governance, { budgetLimitCents: 50, budgetId: 'team' })
    await governance.ledger.reserve(callerOfKey(one), quote(450, 500, 1_000_000))
    expect(await governance.reports.limits(two)).toMatchObject({ remainingBudgetCents: 50, budgetLimitCents: 50 })
  })

  it('leave the budget of the key unchanged when the shared budget rejects the request', async () => {
    const governance = createTestGovernance()
    await governance.shared.budgets.insert('team', {
      id: 'team',
      name: 'Team',
      limit: { max: fromDollars(0.05), every: '1M' },
    })
    const one = await createKey(governance, { budgetLimitCents: 100, budgetId: 'team' })
    const two = await createKey(governance, { budgetLimitCents: 100, budgetId: 'team' })
    const reservation = await governance.ledger.reserve(callerOfKey(one), quote(30, 20, 1_000_000))
    expect(reservation.outputTokens).toBe(20)
    await expect(governance.ledger.reserve(callerOfKey(two), quote(30, 20, 1_000_000))).rejects.toMatchObject({
      kind: 'budget-exceeded',
    })
    await reservation.settle(usage(30, 0, 30_000_000))
    const second = await governance.ledger.reserve(callerOfKey(two), quote(1, 200, 1_000_000))
    expect(second.outputTokens).toBe(19)
    await second.settle(usage(1, 19, 20_000_000))
    expect(await governance.reports.spentCents([one, two])).toEqual([3, 2])
    expect(await governance.reports.limits(two)).toMatchObject({ remainingBudgetCents: 0, budgetLimitCents: 5 })
  })

  it('reject all requests after they are deleted', async () => {
    const governance = createTestGovernance()
    await governance.shared.budgets.insert('team', {
      id: 'team',
      name: 'Team',
      limit: { max: fromDollars(5), every: '1M' },
    })
    const key = await createKey(governance, { budgetId: 'team' })
    await governance.ledger.reserve(callerOfKey(key), quote(1, 1))
    await governance.shared.budgets.remove('team')
    await expect(governance.ledger.reserve(callerOfKey(key), quote(1, 1))).rejects.toThrow(
      /"team" \(which no longer exists\).* per hour\. Raise the limit, or assign another limit to the key\.$/,
    )
    await governance.shared.rateLimits.insert('slow', { id: 'slow', name: 'Slow', tokens: { max: 5, every: '1h' } })
    const other = await createKey(governance, { rateLimitId: 'slow' })
    await governance.shared.rateLimits.remove('slow')
    const rejected = governance.ledger.reserve(callerOfKey(other), quote(1, 1))
    await expect(rejected).rejects.toMatchObject({ kind: 'rate-limited' })
    await expect(rejected).rejects.toThrow(
      /: 0 requests per hour\. Raise the limit, or assign another limit to the key\.$/,
    )
  })

  it('accept free models when they are exhausted', async () => {
    const governance = createTestGovernance()
    const key = await createKey(governance, { budgetLimitCents: 1 })
    await (await governance.ledger.reserve(callerOfKey(key), quote(10, 0, 1_000_000))).settle(usage(10, 0, 10_000_000))
    await expect(governance.ledger.reserve(callerOfKey(key), quote(1, 1, 1))).rejects.toMatchObject({
      kind: 'budget-exceeded',
    })
    expect((await governance.ledger.reserve(callerOfKey(key), quote(1, 5_000, 0))).outputTokens).toBe(5_000)
  })

  it('reject a quote of NaN, and bill the reserved amount for a bill of NaN', async () => {
    const governance = createTestGovernance()
    const key = await createKey(governance, { budgetLimitCents: 100 })
    await expect(governance.ledger.reserve(callerOfKey(key), quote(1, 1, Number.NaN))).rejects.toMatchObject({
      kind: 'budget-exceeded',
    })
    const reservation = await governance.ledger.reserve(callerOfKey(key), quote(10, 10, 1_000_000))
    await reservation.settle(usage(Number.NaN, -5, Number.NaN))
    expect(await governance.reports.spentCents([key])).toEqual([2])
    expect(await governance.reports.usage(key)).toMatchObject({ tokens: { prompt: 0, completion: 0 } })
  })

  it('include earlier charges when their window changes or when a key gets its first budget', async () => {
    const governance = createTestGovernance()
    const { id } = await createKey(governance, {})
    const spend = async (billed: number): Promise<void> => {
      const reservation = await governance.ledger.reserve(
        callerOfKey(await governance.keyring.read(id)),
        quote(1, 1, billed),
      )
      await reservation.settle(usage(1, 1, billed))
    }
    await spend(30_000_000)
    for (const every of ['1M', '1d', '1w', '1h', '1M'] as const) {
      const key = await governance.keyring.update(
        id,
        parseKeyChange({ budgetLimitCents: 10, budgetResetDuration: every }),
      )
      expect(await governance.reports.spentCents([key])).toEqual([3])
    }
    governance.clock.at = Date.UTC(2026, 0, 16)
    await spend(20_000_000)
    for (const [every, cents] of [
      ['1M', 5],
      ['1w', 5],
      ['1d', 2],
      ['1h', 2],
    ] as const) {
      const key = await governance.keyring.update(id, parseKeyChange({ budgetResetDuration: every }))
      expect(await governance.reports.spentCents([key])).toEqual([cents])
    }
  })

  it('charge only the configured windows', async () => {
    const governance = createTestGovernance()
    await governance.shared.budgets.insert('team', {
      id: 'team',
      name: 'Team',
      limit: { max: fromDollars(1), every: '1d' },
    })
    const key = await createKey(governance, { budgetLimitCents: 10, budgetResetDuration: '1w', budgetId: 'team' })
    const reservation = await governance.ledger.reserve(callerOfKey(key), quote(1, 1, 1_000_000))
    const { charges } = reservation.settlement(usage(1, 1, 2_000_000))
    const day = periodOf(NOON, '1d').start
    const week = periodOf(NOON, '1w').start
    expect(charges.map(({ counter }) => counter)).toEqual([
      `budget:key:${key.id}:1w:${week}`,
      `budget:shared:team:1d:${day}`,
    ])
    const free = await governance.ledger.reserve(callerOfKey(await createKey(governance, {})), quote(1, 1, 1_000_000))
    expect(free.settlement(usage(1, 1, 2_000_000)).charges).toEqual([])
  })

  it.each(['key', 'shared'])(
    'of a %s reject by the amount spent in the new window after the window changes',
    async (owner) => {
      const governance = createTestGovernance()
      const fields = owner === 'key' ? { budgetLimitCents: 5 } : { budgetId: 'team' }
      await governance.shared.budgets.insert('team', {
        id: 'team',
        name: 'Team',
        limit: { max: fromDollars(0.05), every: '1M' },
      })
      const { id } = await createKey(governance, fields)
      const ask = async (cents: number) =>
        governance.ledger.reserve(callerOfKey(await governance.keyring.read(id)), {
          ...quote(1, 1),
          cost: () => fromDollars(cents / 100),
        })
      const change = async (every: DurationCode): Promise<void> => {
        if (owner === 'key') await governance.keyring.update(id, parseKeyChange({ budgetResetDuration: every }))
        else await governance.shared.budgets.change('team', (team) => ({ ...team, limit: { ...team.limit, every } }))
      }
      await (await ask(2)).settle(usage(1, 1, fromDollars(0.02)))
      const running = await ask(1)
      for (const every of ['1h', '1d', '1w'] as const) {
        await change(every)
        // The running request reserves one more cent in the previous window.
        await expect(ask(3)).rejects.toMatchObject({ kind: 'budget-exceeded' })
        await (await ask(2)).settle(usage(1, 1, 0))
      }
      await running.settle(usage(1, 1, fromDollars(0.01)))
      await expect(ask(3)).rejects.toMatchObject({ kind: 'budget-exceeded' })
      await (await ask(2)).settle(usage(1, 1, 0))
      governance.clock.at = Date.UTC(2026, 0, 19)
      await (await ask(5)).settle(usage(1, 1, 0))
    },
  )

  it('include what a request of an hour holds in an earlier window when their window changes', async () => {
    const governance = createTestGovernance({ at: NOON + 50 * 60_000, expiresAfterMs: 3_600_000 })
    const { id } = await createKey(governance, { budgetLimitCents: 5, budgetResetDuration: '1h' })
    const reserve = async (cents: number) =>
      governance.ledger.reserve(callerOfKey(await governance.keyring.read(id)), {
        ...quote(1, 1),
        cost: () => fromDollars(cents / 100),
      })
    await reserve(3)
    governance.clock.at += 40 * 60_000
    await governance.keyring.update(id, parseKeyChange({ budgetResetDuration: '1d' }))

    await expect(reserve(3)).rejects.toMatchObject({ kind: 'budget-exceeded' })
    await (await reserve(2)).settle(usage(1, 1, 0))
  })

  it('keep earlier charges when a request is settled while they are read after a window change', async () => {
    const store = memoryStore({ now: () => NOON })
    let settleBetween = async (): Promise<void> => {}
    const governance = createTestGovernance({
      store: {
        ...store,
        tallies: async (names) => {
          const sums = await store.tallies(names)
          await settleBetween()
          return sums
        },
      },
    })
    const { id } = await createKey(governance, { budgetLimitCents: 10, budgetResetDuration: '1d' })
    const ask = async (cents: number) =>
      governance.ledger.reserve(callerOfKey(await governance.keyring.read(id)), {
        ...quote(1, 1),
        cost: () => fromDollars(cents / 100),
      })
    await (await ask(5)).settle(usage(1, 1, fromDollars(0.05)))
    await governance.keyring.update(id, parseKeyChange({ budgetResetDuration: '1w' }))
    const running = await ask(4)
    settleBetween = async () => running.settle(usage(1, 1, fromDollars(0.04)))
    governance.clock.at += 60_000
    await expect(ask(2)).rejects.toMatchObject({ kind: 'budget-exceeded' })
  })

  it('reject a request that the store rejects with an unknown claim index', async () => {
    const store = memoryStore({ now: () => NOON })
    const governance = createTestGovernance({
      store: { ...store, reserve: () => ({ accepted: false, rejectedIndex: 7, levels: [] }) },
    })
    const key = await createKey(governance, { budgetLimitCents: 10 })
    expect(await resultOrError(() => governance.ledger.reserve(callerOfKey(key), quote(1, 1, 1000)))).toMatchObject({
      kind: 'budget-exceeded',
    })
  })

  it('reject a recount that the store rejects with an unknown claim index', async () => {
    const store = memoryStore({ now: () => NOON })
    const rejections = [
      { accepted: false, rejectedIndex: 1, levels: [0, 0] },
      { accepted: false, rejectedIndex: 7, levels: [] },
    ] as const
    let calls = 0
    const governance = createTestGovernance({
      store: { ...store, reserve: () => rejections[calls++] ?? rejections[1] },
    })
    const key = await createKey(governance, { rateLimitRequests: 10, budgetLimitCents: 10 })
    let recounts = 0
    const run = async (): Promise<Quote> => {
      recounts += 1
      return quote(1, 1)
    }
    const countable = { ...quote(1, 1, 1000), recount: { budget: { run, callsUpstream: true } } }
    expect(await resultOrError(async () => governance.ledger.reserve(callerOfKey(key), countable))).toMatchObject({
      kind: 'rate-limited',
    })
    expect(recounts).toBe(0)
  })

  it('are not exceeded by a burst of parallel requests with partial grants', async () => {
    const governance = createTestGovernance()
    const key = await createKey(governance, { budgetLimitCents: 10 })
    let billed = 0
    await Promise.allSettled(
      Array.from({ length: 1_000 }, async (_, n) => {
        const reservation = await governance.ledger.reserve(callerOfKey(key), quote(3, 40, 1_000_000))
        await Promise.resolve()
        const output = n % 2 === 0 ? reservation.outputTokens : 0
        billed += (3 + output) * 1_000_000
        await reservation.settle(usage(3, output, (3 + output) * 1_000_000))
      }),
    )
    expect(billed).toBeLessThanOrEqual(100_000_000)
    expect(billed).toBeGreaterThan(0)
    expect(await governance.reports.spentCents([key])).toEqual([Math.round(billed / 1e7)])
  })
})

it('releases a reservation immediately when the store response is lost', async () => {
  const { store, clock } = createTestGovernance()
  let fails = true
  const lossy = {
    ...store,
    reserve: async (request: Parameters<typeof store.reserve>[0]) => {
      const result = await store.reserve(request)
      if (fails) throw new Error('cut')
      return result
    },
  }
  const governance = createTestGovernance({ store: lossy, clock })
  const key = await createKey(governance, { budgetLimitCents: 1, rateLimitRequests: 1 })
  await expect(governance.ledger.reserve(callerOfKey(key), quote(10, 0, 1_000_000))).rejects.toThrow('cut')
  fails = false
  expect((await governance.ledger.reserve(callerOfKey(key), quote(10, 0, 1_000_000))).rate.remaining).toBe(0)
})

describe('settling', () => {
  it('calls the store once when called repeatedly', async () => {
    const { store, clock } = createTestGovernance()
    let calls = 0
    const counting = {
      ...store,
      settle: (...args: Parameters<typeof store.settle>) => ((calls += 1), store.settle(...args)),
    }
    const governance = createTestGovernance({ store: counting, clock })
    const reservation = await governance.ledger.reserve(callerOfKey(await createKey(governance, {})), quote(1, 1))
    await Promise.all([reservation.settle(usage(1, 1)), reservation.settle(usage(1, 1))])
    await reservation.settle(usage(1, 1))
    expect(calls).toBe(1)
  })

  it('charges once when called repeatedly', async () => {
    const governance = createTestGovernance()
    const key = await createKey(governance, { budgetLimitCents: 100 })
    const reservation = await governance.ledger.reserve(callerOfKey(key), quote(1, 1, 1_000_000))
    await Promise.all([reservation.settle(usage(1, 1, 10_000_000)), reservation.settle(usage(9, 9, 90_000_000))])
    await reservation.settle(usage(9, 9, 90_000_000))
    expect(await governance.reports.spentCents([key])).toEqual([1])
    expect(await governance.reports.usage(key)).toMatchObject({ requests: 1, tokens: { total: 2 } })
  })

  it('charges the window in which the request was accepted', async () => {
    const governance = createTestGovernance({ at: HOUR_END - 1 })
    const key = await createKey(governance, { rateLimitTokens: 100 })
    const reservation = await governance.ledger.reserve(callerOfKey(key), quote(10, 1))
    governance.clock.at = HOUR_END
    await reservation.settle(usage(10, 80))
    expect(await governance.reports.rateLimit(key)).toMatchObject({ tokenRemaining: 100 })
    governance.clock.at = HOUR_END - 1
    expect(await governance.reports.rateLimit(key)).toMatchObject({ tokenRemaining: 10 })
  })

  it('succeeds after the limits change or the key is deleted', async () => {
    const governance = createTestGovernance()
    const key = await createKey(governance, { budgetLimitCents: 100, rateLimitRequests: 5 })
    const reservation = await governance.ledger.reserve(callerOfKey(key), quote(1, 1, 1_000_000))
    await governance.keyring.update(key.id, parseKeyChange({ budgetLimitCents: null, rateLimitRequests: null }))
    await governance.keyring.remove(key.id)
    await reservation.settle(usage(1, 1, 30_000_000))
    expect(await governance.reports.spentCents([key])).toEqual([3])
    expect(await governance.ledger.status(callerOfKey(key))).toMatchObject({ remaining: 4 })
  })

  it('charges after the reservation has expired', async () => {
    const governance = createTestGovernance()
    const key = await createKey(governance, { budgetLimitCents: 1 })
    const lost = await governance.ledger.reserve(callerOfKey(key), quote(10, 0, 1_000_000))
    await expect(governance.ledger.reserve(callerOfKey(key), quote(10, 0, 1_000_000))).rejects.toMatchObject({
      kind: 'budget-exceeded',
    })
    governance.clock.at += 600_000
    await governance.ledger.reserve(callerOfKey(key), quote(5, 0, 1_000_000))
    await lost.settle(usage(4, 0, 4_000_000))
    expect(await governance.store.levels([`budget:key:${key.id}:1M:${Date.UTC(2026, 0, 1)}`])).toEqual([
      { spent: 4_000_000, held: 5_000_000 },
    ])
  })

  it('rejects when the store fails, and is charged once with a later settlement', async () => {
    const healthy = createTestGovernance()
    let down = false
    const store = {
      ...healthy.store,
      settle: (settlement: Parameters<typeof healthy.store.settle>[0]) =>
        down ? Promise.reject(new Error('down')) : healthy.store.settle(settlement),
    }
    const governance = createTestGovernance({ store, clock: healthy.clock })
    const key = await createKey(governance, { budgetLimitCents: 100 })
    const reservations = await Promise.all(
      Array.from({ length: 4 }, () => governance.ledger.reserve(callerOfKey(key), quote(1, 1, 1_000_000))),
    )
    down = true
    for (const reservation of reservations.slice(0, 3)) {
      await expect(reservation.settle(usage(1, 1, 10_000_000))).rejects.toThrow('down')
    }
    expect(await governance.ledger.retry()).toBe(3)
    expect(await governance.reports.spentCents([key])).toEqual([0])
    down = false
    await reservations[3]!.settle(usage(1, 1, 10_000_000))
    expect(await governance.reports.spentCents([key])).toEqual([4])
    expect(await governance.ledger.retry()).toBe(0)
  })
})

describe('reports', () => {
  it('sum usage over the window and by model', async () => {
    const governance = createTestGovernance({ at: Date.UTC(2026, 0, 12, 5) })
    const key = await createKey(governance, { budgetLimitCents: 1000, budgetResetDuration: '1w' })
    const spend = async (model: string, saved: number): Promise<void> => {
      const reservation = await governance.ledger.reserve(callerOfKey(key), quote(10, 5, 1_000_000))
      await reservation.settle({
        promptTokens: 10,
        completionTokens: 5,
        savedTokens: saved,
        theoretical: fromDollars(0.02),
        actual: fromDollars(0.005),
        billed: fromDollars(0.03),
        model,
      })
    }
    await spend('openai/b', 7)
    governance.clock.at = Date.UTC(2026, 0, 15, 23, 59)
    await spend('openai/b', 0)
    await spend('anthropic/a', 1)
    const failed = await governance.ledger.reserve(callerOfKey(key), quote(10, 5, 1_000_000))
    await failed.settle({ ...usage(0, 0), model: 'invented by a caller' })
    const model = (name: string, requests: number, saved: number) => ({
      model: name,
      requests,
      tokens: { prompt: 10 * requests, completion: 5 * requests, total: 15 * requests, saved },
      cost: {
        theoreticalUsd: 0.02 * requests,
        actualUsd: 0.005 * requests,
        billedUsd: 0.03 * requests,
        savingsUsd: 0.015 * requests,
      },
    })
    const { model: _name, ...total } = model('', 3, 8)
    expect(await governance.reports.usage(key)).toEqual({
      keyId: key.id,
      periodStart: '2026-01-12T00:00:00.000Z',
      currentUsageCents: 9,
      budgetLimitCents: 1000,
      budgetResetsAt: '2026-01-19T00:00:00.000Z',
      ...total,
      requests: 4,
      byModel: [model('anthropic/a', 1, 1), model('openai/b', 2, 7)],
    })
    governance.clock.at = Date.UTC(2026, 0, 19)
    expect(await governance.reports.usage(key)).toMatchObject({ requests: 0, currentUsageCents: 0, byModel: [] })
  })

  it('show the maximum safe integer for a key without limits', async () => {
    const governance = createTestGovernance()
    const key = await createKey(governance, {})
    expect(await governance.reports.limits(key)).toEqual({
      remainingRequests: UNLIMITED,
      requestLimit: UNLIMITED,
      requestResetAt: '2026-01-15T13:00:00.000Z',
      remainingTokens: UNLIMITED,
      tokenLimit: UNLIMITED,
      tokenResetAt: '2026-01-15T13:00:00.000Z',
      remainingBudgetCents: UNLIMITED,
      budgetLimitCents: UNLIMITED,
      budgetResetsAt: '2026-01-15T13:00:00.000Z',
    })
    expect(await governance.reports.usage(key)).toMatchObject({ budgetLimitCents: UNLIMITED, requests: 0 })
    expect(await governance.reports.spentCents([])).toEqual([])
  })

  it('count unusual model names', async () => {
    const governance = createTestGovernance()
    const key = await createKey(governance, {})
    for (const model of ['__proto__', 'requests x', '\ud800', 'a b']) {
      await (await governance.ledger.reserve(callerOfKey(key), quote(1, 1))).settle({ ...usage(1, 1), model })
    }
    const { byModel, requests } = await governance.reports.usage(key)
    expect(requests).toBe(4)
    expect(byModel.map((entry) => [entry.model, entry.requests])).toEqual([
      ['__proto__', 1],
      ['a b', 1],
      ['requests x', 1],
      ['\ud800', 1],
    ])
  })
})

it('shared rate limits count the requests and tokens of all keys together', async () => {
  const governance = createTestGovernance()
  const limit = {
    id: 'slow',
    name: 'Slow',
    requests: { max: 3, every: '1h' },
    tokens: { max: 100, every: '1d' },
  } as const
  await governance.shared.rateLimits.insert('slow', limit)
  const keys = await Promise.all(
    [1, 2].map(() => createKey(governance, { rateLimitId: 'slow', rateLimitRequests: 50 })),
  )
  for (const key of [...keys, ...keys].slice(0, 3))
    await (await governance.ledger.reserve(callerOfKey(key), quote(10, 1))).settle(usage(10, 5))
  const [first] = keys
  await expect(governance.ledger.reserve(callerOfKey(first!), quote(10, 1))).rejects.toThrow(
    'The shared request limit "Slow" is reached',
  )
  expect(await governance.ledger.status(callerOfKey(first!))).toMatchObject({ limit: 3, remaining: 0 })
  governance.clock.at = HOUR_END
  await expect(governance.ledger.reserve(callerOfKey(first!), quote(56, 1))).rejects.toThrow(
    'The shared token limit "Slow" is reached',
  )
  expect((await governance.ledger.reserve(callerOfKey(first!), quote(55, 1))).rate).toMatchObject({
    limit: 3,
    remaining: 2,
  })
})

it('stays exact for amounts near the maximum safe integer', async () => {
  const governance = createTestGovernance()
  const key = await createKey(governance, { budgetLimitCents: 900_000_000 })
  const nearly = 900_000_000 * 1e7 - 1
  await (
    await governance.ledger.reserve(callerOfKey(key), {
      promptTokens: 1,
      outputTokens: 1,
      cost: () => toNanoUsd(nearly),
    })
  ).settle(usage(1, 1, nearly))
  expect(
    (await governance.ledger.reserve(callerOfKey(key), { promptTokens: 1, outputTokens: 1, cost: () => toNanoUsd(1) }))
      .outputTokens,
  ).toBe(1)
  await expect(
    governance.ledger.reserve(callerOfKey(key), { promptTokens: 1, outputTokens: 1, cost: () => toNanoUsd(1) }),
  ).rejects.toMatchObject({ kind: 'budget-exceeded' })
})
