import { describe, expect, it } from 'vitest'
import type { NanoUsd } from '../../src/core/money.ts'
import { DURATION_CODES } from '../../src/core/store.ts'
import { APPLICATION_KEY, callerOfKey } from '../../src/governance/caller.ts'
import { ContextLevel, ROLLING_STEPS } from '../../src/governance/levels.ts'
import type { LimitKind } from '../../src/governance/limits.ts'
import type { Quote, Reservation } from '../../src/governance/reservation.ts'
import { createTestGovernance, type TestGovernance, usage } from './test-governance.ts'

const quoteOf = (amount: number): Quote => ({ promptTokens: amount, outputTokens: 0, cost: () => amount as NanoUsd })

describe.each(DURATION_CODES)('a rolling window of %s', (every) => {
  it.each<LimitKind>(['tokens', 'budget'])('counts %s until they are older than the window', async (kind) => {
    const { stepMs, count } = ROLLING_STEPS[every]
    const governance = createTestGovernance({ at: Date.UTC(2026, 10, 2), expiresAfterMs: 600_000 })
    const limits = [{ kind, max: 10, window: { type: 'rolling', every } }] as const
    const level = new ContextLevel({ name: 'user', owner: 'user:x', limits })
    const caller = { ...callerOfKey(APPLICATION_KEY), levels: [level] }
    const reserve = async (amount: number): Promise<Reservation> => governance.ledger.reserve(caller, quoteOf(amount))

    await (await reserve(10)).settle(usage(10, 0, 10))
    governance.clock.at += (count + 1) * stepMs - 1
    await expect(reserve(1)).rejects.toThrow('of this user is')
    governance.clock.at += 1
    await (await reserve(10)).settle(usage(10, 0, 10))
    await expect(reserve(1)).rejects.toThrow('of this user is')
  })
})

it('a rolling window counts what a process with a slower clock reserves in the step before', async () => {
  const fast = createTestGovernance()
  const slow = createTestGovernance({ store: fast.store, at: fast.clock.at - 1 })
  const limits = [{ kind: 'budget', max: 10, window: { type: 'rolling', every: '1h' } }] as const
  const reserve = ({ ledger }: TestGovernance, level: ContextLevel, amount: number) =>
    ledger.reserve({ ...callerOfKey(APPLICATION_KEY), levels: [level] }, quoteOf(amount))
  const ofFast = new ContextLevel({ name: 'user', owner: 'user:x', limits })
  const ofSlow = new ContextLevel({ name: 'user', owner: 'user:x', limits })

  await (await reserve(fast, ofFast, 1)).settle(usage(1, 0, 1))
  await (await reserve(slow, ofSlow, 9)).settle(usage(9, 0, 9))
  await expect((async () => reserve(fast, ofFast, 1))()).rejects.toThrow('The budget of this user is exceeded')
})

it('a session with a running request is not idle', async () => {
  const governance = createTestGovernance({ expiresAfterMs: 600_000 })
  const limits = [{ kind: 'budget', max: 10, window: { type: 'idle', idleMs: 60_000 } }] as const
  const caller = {
    ...callerOfKey(APPLICATION_KEY),
    levels: [new ContextLevel({ name: 'session', owner: 'session:x', limits })],
  }
  const reserve = async (amount: number): Promise<Reservation> => governance.ledger.reserve(caller, quoteOf(amount))

  const running = await reserve(10)
  governance.clock.at += 300_000
  await expect(reserve(1)).rejects.toThrow('The budget of this session is exceeded')
  await running.settle(usage(10, 0, 10))
  await expect(reserve(1)).rejects.toThrow('The budget of this session is exceeded')
})

it('a raise of a budget ends at its time', async () => {
  const governance = createTestGovernance()
  // Before the limits of the level are computed again for another reason.
  const until = governance.clock.at + 30_000
  const limits = [
    { kind: 'budget', max: 10, window: { type: 'calendar', every: '1M' }, raises: [{ amount: 5, until }] },
  ] as const
  const caller = {
    ...callerOfKey(APPLICATION_KEY),
    levels: [new ContextLevel({ name: 'customer', owner: 'customer:x', limits })],
  }
  const reserve = async (amount: number): Promise<Reservation> => governance.ledger.reserve(caller, quoteOf(amount))

  await (await reserve(12)).settle(usage(12, 0, 12))
  await expect(reserve(4)).rejects.toThrow('The budget of this customer is exceeded')
  await (await reserve(1)).settle(usage(0, 0, 0))
  governance.clock.at = until
  await expect(reserve(1)).rejects.toThrow('The budget of this customer is exceeded')
})

describe('a request that the vendor counts before it is reserved', () => {
  const recounted = (models: readonly string[], counts: { vendor: number }): Quote => ({
    ...quoteOf(100),
    uncountedCost: 100 as NanoUsd,
    models,
    messages: [{ role: 'user', parts: [{ type: 'text', text: 'Hello' }] }],
    recount: {
      budget: {
        callsUpstream: true,
        run: async () => {
          counts.vendor += 1
          return { ...quoteOf(1), models, messages: [] }
        },
      },
    },
  })

  it.each([
    ['a limit for its model', { window: { type: 'calendar', every: '1d' }, models: ['*opus*'] }],
    ['a loop guard', { window: { type: 'idle', idleMs: 60_000 }, isPerTurn: true }],
  ] as const)('counts against %s', async (_, limit) => {
    const counts = { vendor: 0 }
    const governance = createTestGovernance()
    const limits = [
      { kind: 'requests', max: 2, ...limit },
      { kind: 'budget', max: 50, window: { type: 'calendar', every: '1d' } },
    ] as const
    const level = new ContextLevel({ name: 'customer', owner: 'customer:x', limits })
    const caller = { ...callerOfKey(APPLICATION_KEY), levels: [level] }
    const reserve = async (): Promise<Reservation> => governance.ledger.reserve(caller, recounted(['a/opus-5'], counts))

    await (await reserve()).settle(usage(1, 0, 1))
    await (await reserve()).settle(usage(1, 0, 1))
    await expect(reserve()).rejects.toThrow('is reached')
    expect(counts.vendor).toBe(2)
  })
})
