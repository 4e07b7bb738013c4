import { describe, expect, it } from 'vitest'
import type { Settlement, Store } from '../../src/core/store.ts'
import { Settlements } from '../../src/governance/settlements.ts'
import { guardStore } from '../../src/stores/store-rules.ts'
import { memoryStore } from '../../src/stores/memory.ts'
import { resultOrError, settled } from '../support/result-or-error.ts'

const settlementOf = (reservationId: string): Settlement => ({ reservationId, charges: [], tallies: [] })

/** Creates settlements on a store that fails while `failure` is set. The test fires the timers. */
function createTestSettlements() {
  const inner = memoryStore()
  const state: { failure: Error | undefined; readonly recorded: string[]; readonly timers: (() => void)[] } = {
    failure: undefined,
    recorded: [],
    timers: [],
  }
  const store = {
    ...inner,
    settle: async (settlement: Settlement) => {
      if (state.failure !== undefined) throw state.failure
      state.recorded.push(settlement.reservationId)
      return true
    },
  }
  const dropped: string[] = []
  const settlements = new Settlements(store, {
    after: (_ms, callback) => {
      state.timers.push(callback)
      return () => {}
    },
    onDropped: ({ reservationId }) => void dropped.push(reservationId),
  })
  return { state, settlements, dropped }
}

describe('settlements', () => {
  it('are retried in order after the store recovers, without another request', async () => {
    const { state, settlements } = createTestSettlements()
    state.failure = new Error('away')
    for (const reservationId of ['a', 'b'])
      await expect(settled(() => settlements.settle(settlementOf(reservationId)))).rejects.toThrow('away')
    expect(state.timers).toHaveLength(1)
    state.timers.shift()?.()
    await expect.poll(() => state.timers.length).toBe(1)
    state.failure = undefined
    state.timers.shift()?.()
    await expect.poll(() => state.recorded).toEqual(['a', 'b'])
    expect(state.timers).toEqual([])
    expect(settlements.counts().dropped).toBe(0)
  })

  it('discard, count and report the oldest settlement above the maximum', async () => {
    const { state, settlements, dropped } = createTestSettlements()
    const ids = Array.from({ length: 10_001 }, (_, n) => String(n))
    state.failure = new Error('away')
    for (const id of ids) await settled(() => settlements.settle(settlementOf(id))).catch(() => {})
    expect(dropped).toEqual(['0'])
    expect(settlements.counts().dropped).toBe(1)
    state.failure = undefined
    expect(await settlements.retry()).toBe(0)
    expect(state.recorded).toEqual(ids.slice(1))
  })

  it('with amounts that the store rejects are discarded and do not block others', async () => {
    const { state, settlements, dropped } = createTestSettlements()
    state.failure = new RangeError('The amount is NaN.')
    await expect(settled(() => settlements.settle(settlementOf('wrong')))).rejects.toThrow(RangeError)
    state.failure = undefined
    await settlements.settle(settlementOf('right'))
    expect(dropped).toEqual(['wrong'])
    expect(state.recorded).toEqual(['right'])
  })
})

/** Creates a store that queues its calls. Each `next` runs the oldest one. */
function createStepwiseStore(inner: Store) {
  const calls: (() => void)[] = []
  const inOrder = <Result>(work: () => Result | Promise<Result>): Promise<Result> =>
    new Promise((resolve, reject) => {
      calls.push(() => void settled(work).then(resolve, reject))
    })
  const store: Store = {
    ...inner,
    reserve: (request) => inOrder(() => inner.reserve(request)),
    settle: (settlement) => inOrder(() => inner.settle(settlement)),
    ping: () => inOrder(() => inner.ping()),
  }
  const next = async (): Promise<void> => {
    calls.shift()?.()
    await new Promise((resolve) => void setImmediate(resolve))
  }
  return { store, calls, next }
}

it('bills a request once when its reservation opens after the timeout', async () => {
  const inner = memoryStore()
  const { store, calls, next } = createStepwiseStore(inner)
  const timers: (() => void)[] = []
  const after = (_ms: number, callback: () => void): (() => void) => {
    timers.push(callback)
    return () => {}
  }
  const guarded = guardStore(store, { after, timeoutMs: 500 })
  const settlements = new Settlements(guarded)
  const charge = { counter: 'a', amount: 5, expiresAt: Date.now() + 60_000 }
  const settlement = { reservationId: 'late', charges: [charge], tallies: [] }

  const first = resultOrError(() =>
    settlements.settle(settlement, { reservationId: 'late', claims: [], expiresAfterMs: 60_000 }),
  )
  await guarded.get('another')
  timers.shift()?.()
  await first
  const retry = settlements.retry()
  await new Promise((resolve) => void setImmediate(resolve))
  // Both attempts to open the reservation are in the store's queue.
  expect(calls).toHaveLength(2)
  while (calls.length > 0) await next()

  expect(await retry).toBe(0)
  expect(inner.levels(['a'])).toEqual([{ spent: 5, held: 0 }])
})
