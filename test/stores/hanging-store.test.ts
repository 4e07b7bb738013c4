import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { ask, failingStore, gatewayOn, requestsOf } from './failing.ts'

/** The platform timer, for use while a test fakes timers. */
const nextTurn = setImmediate

/**
 * Lets fake time pass until the request is answered. Each step leaves it some turns of its own: a deadline that begins late,
 * because a module is still being loaded, passes as well.
 */
async function responseInTime<Result>(pending: Promise<Result>): Promise<Result> {
  let isResponded = false
  const end = (): void => void (isResponded = true)
  pending.then(end, end)
  while (!isResponded) {
    for (let turn = 0; turn < 10; turn += 1) await new Promise<void>((resolve) => void nextTurn(resolve))
    await vi.advanceTimersByTimeAsync(100)
  }
  return pending
}

describe('a request while its store does not answer', () => {
  beforeEach(() => void vi.useFakeTimers())
  afterEach(() => void vi.useRealTimers())

  it('is answered with 503 and Retry-After after the timeout of one call, without an upstream call', async () => {
    const { store, state } = failingStore()
    const { gateway, secret, calls } = await gatewayOn(store)
    expect((await ask(gateway, secret)).status).toBe(200)
    state.mode = 'hang'
    const Result = await responseInTime(ask(gateway, secret))
    expect(Result).toEqual({ status: 503, retryAfter: '1' })
    expect(calls.upstream).toBe(1)
  })

  it('is answered immediately after the store has timed out, until a ping succeeds', async () => {
    const { store, state } = failingStore()
    const { gateway, secret } = await gatewayOn(store)
    await ask(gateway, secret)
    state.mode = 'hang'
    const Result = await responseInTime(ask(gateway, secret))
    expect(Result.status).toBe(503)
    state.calls.length = 0
    expect((await ask(gateway, secret)).status).toBe(503)
    expect(state.calls).toEqual([])
    state.mode = 'pass'
    for (const resolve of state.held.splice(0)) resolve()
    await vi.advanceTimersByTimeAsync(3_000)
    expect((await ask(gateway, secret)).status).toBe(200)
  })

  it('is answered with 503 after storeTimeoutMs when several slow calls together take longer', async () => {
    const { store, state } = failingStore()
    const { gateway, secret, calls } = await gatewayOn(store, { keyCacheMs: 0 })
    state.mode = 'slow'
    const Result = await responseInTime(ask(gateway, secret))
    expect(Result).toEqual({ status: 503, retryAfter: '1' })
    expect(calls.upstream).toBe(0)
  })

  it('holds no amount when its reservation was accepted after the timeout', async () => {
    const { store, state, inner } = failingStore()
    const { gateway, id, secret } = await gatewayOn(store)
    await ask(gateway, secret)
    state.modes = { reserve: 'hang' }
    const Result = await responseInTime(ask(gateway, secret))
    expect(Result.status).toBe(503)
    for (const resolve of state.held.splice(0)) resolve()
    await vi.advanceTimersByTimeAsync(0)
    const month = Date.UTC(new Date().getUTCFullYear(), new Date().getUTCMonth())
    const [level] = await inner.levels([`budget:key:${id}:1M:${month}`])
    expect(level?.held).toBe(0)
    expect(level?.spent).toBeGreaterThan(0)
  })

  it('receives its answer while the settlement hangs, and is billed when the store answers again', async () => {
    const { store, state } = failingStore()
    const { gateway, id, secret } = await gatewayOn(store)
    await ask(gateway, secret)
    state.modes = { settle: 'hang' }
    const Result = await responseInTime(ask(gateway, secret))
    expect(Result.status).toBe(200)
    expect(await requestsOf(gateway, id)).toBe(1)
    expect(await gateway.metrics.prometheus()).toContain('sluice_waiting_settlements 1')
    state.modes = {}
    await vi.advanceTimersByTimeAsync(3_000)
    expect(await requestsOf(gateway, id)).toBe(2)
    expect((await gateway.audit.read({ keyId: id })).records).toHaveLength(2)
    expect(await gateway.metrics.prometheus()).toContain('sluice_waiting_settlements 0')
  })
})
