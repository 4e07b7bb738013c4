import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import type { Provider } from '../../src/core/ports.ts'
import type { Store } from '../../src/core/store.ts'
import { createGateway, memoryStore, type Gateway, type GatewayOptions } from '../../src/index.ts'
import { gatewayOptions, MODEL } from '../support/fleet/jobs.ts'

type Mode = 'pass' | 'fail' | 'hang' | 'slow'
type Method = 'get' | 'reserve' | 'settle' | 'levels' | 'append' | 'ping'

/** Creates a memory store whose calls fail, hang or take 1.9 seconds on demand. */
function failingStore() {
  const inner = memoryStore()
  const state: {
    mode: Mode
    modes: Partial<Record<Method, Mode>>
    readonly calls: Method[]
    readonly held: (() => void)[]
  } = { mode: 'pass', modes: {}, calls: [], held: [] }
  const answer = async <result>(method: Method, work: () => result | Promise<result>): Promise<result> => {
    state.calls.push(method)
    const mode = state.modes[method] ?? state.mode
    if (mode === 'fail') throw new Error('connection refused')
    if (mode === 'hang') await new Promise<void>((resolve) => void state.held.push(resolve))
    if (mode === 'slow') await new Promise((resolve) => setTimeout(resolve, 1_900))
    return work()
  }
  const store: Store = {
    ...inner,
    get: (key) => answer('get', () => inner.get(key)),
    reserve: (request) => answer('reserve', () => inner.reserve(request)),
    settle: (settlement) => answer('settle', () => inner.settle(settlement)),
    levels: (counters) => answer('levels', () => inner.levels(counters)),
    append: (log, entry) => answer('append', () => inner.append(log, entry)),
    ping: () => answer('ping', () => inner.ping()),
    // The data outlives the gateway.
    close: async () => {},
  }
  return { store, state, inner }
}

async function gatewayOn(store: Store, more: Partial<GatewayOptions> = {}) {
  const options = gatewayOptions(store)
  const [provider] = options.providers
  if (provider === undefined) throw new Error('The options of the fleet have one provider.')
  const calls = { upstream: 0 }
  const countingProvider: Provider = {
    ...provider,
    complete: (call) => {
      calls.upstream += 1
      return provider.complete(call)
    },
  }
  const gateway = createGateway({ ...options, providers: [countingProvider], ...more })
  const { id, value } = await gateway.keys.create({ name: 'app', budget_limit_cents: 1_000 })
  return { gateway, id, secret: value, calls }
}

async function ask(gateway: Gateway, secret: string) {
  const response = await gateway.fetch('http://gateway/v1/chat/completions', {
    method: 'POST',
    headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: MODEL, max_tokens: 16, messages: [{ role: 'user', content: 'Hello there.' }] }),
  })
  await response.text()
  return { status: response.status, retryAfter: response.headers.get('retry-after') }
}

/** The platform timer, for use while a test fakes timers. */
const nextTurn = setImmediate

/**
 * Lets fake time pass until the request is answered. Each step leaves it some turns of its own: a deadline that begins late,
 * because a module is still being loaded, passes as well.
 */
async function answerInTime<answer>(response: Promise<answer>): Promise<answer> {
  let isAnswered = false
  const end = (): void => void (isAnswered = true)
  response.then(end, end)
  while (!isAnswered) {
    for (let turn = 0; turn < 10; turn += 1) await new Promise<void>((resolve) => void nextTurn(resolve))
    await vi.advanceTimersByTimeAsync(100)
  }
  return response
}

const requestsOf = async (gateway: Gateway, id: string) => (await gateway.keys.usage(id)).requests

describe('a request while its store does not answer', () => {
  beforeEach(() => void vi.useFakeTimers())
  afterEach(() => void vi.useRealTimers())

  it('is answered with 503 and Retry-After after the timeout of one call, without an upstream call', async () => {
    const { store, state } = failingStore()
    const { gateway, secret, calls } = await gatewayOn(store)
    expect((await ask(gateway, secret)).status).toBe(200)
    state.mode = 'hang'
    const answer = await answerInTime(ask(gateway, secret))
    expect(answer).toEqual({ status: 503, retryAfter: '1' })
    expect(calls.upstream).toBe(1)
  })

  it('is answered immediately after the store has timed out, until a ping succeeds', async () => {
    const { store, state } = failingStore()
    const { gateway, secret } = await gatewayOn(store)
    await ask(gateway, secret)
    state.mode = 'hang'
    const answer = await answerInTime(ask(gateway, secret))
    expect(answer.status).toBe(503)
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
    const answer = await answerInTime(ask(gateway, secret))
    expect(answer).toEqual({ status: 503, retryAfter: '1' })
    expect(calls.upstream).toBe(0)
  })

  it('holds no amount when its reservation was accepted after the timeout', async () => {
    const { store, state, inner } = failingStore()
    const { gateway, id, secret } = await gatewayOn(store)
    await ask(gateway, secret)
    state.modes = { reserve: 'hang' }
    const answer = await answerInTime(ask(gateway, secret))
    expect(answer.status).toBe(503)
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
    const answer = await answerInTime(ask(gateway, secret))
    expect(answer.status).toBe(200)
    expect(await requestsOf(gateway, id)).toBe(1)
    expect(await gateway.metrics.prometheus()).toContain('sluice_waiting_settlements 1')
    state.modes = {}
    await vi.advanceTimersByTimeAsync(3_000)
    expect(await requestsOf(gateway, id)).toBe(2)
    expect((await gateway.audit.read({ keyId: id })).records).toHaveLength(2)
    expect(await gateway.metrics.prometheus()).toContain('sluice_waiting_settlements 0')
  })
})

describe("with onStoreFailure 'allow'", () => {
  it('serves a known key while the store fails, and bills and audits once after it recovers', async () => {
    const { store, state } = failingStore()
    const { gateway, id, secret, calls } = await gatewayOn(store, { onStoreFailure: 'allow', keyCacheMs: 0 })
    expect((await ask(gateway, secret)).status).toBe(200)
    state.mode = 'fail'
    for (let n = 0; n < 3; n += 1) expect((await ask(gateway, secret)).status).toBe(200)
    expect(calls.upstream).toBe(4)
    state.mode = 'pass'
    await expect.poll(() => requestsOf(gateway, id), { timeout: 60_000 }).toBe(4)
    expect((await gateway.audit.read({ keyId: id })).records).toHaveLength(4)
    await gateway.close()
    const restarted = createGateway(gatewayOptions(store))
    expect(await requestsOf(restarted, id)).toBe(4)
  })

  it('does not bill a settlement twice when its reply was lost', async () => {
    const { store, inner } = failingStore()
    let fails = true
    const losing: Store = {
      ...store,
      reserve: async (request) => {
        if (fails && request.claims.length > 0) throw new Error('cut')
        return inner.reserve(request)
      },
      settle: async (settlement) => {
        const isSettled = await inner.settle(settlement)
        if (fails && settlement.tallies.length > 0) throw new Error('cut')
        return isSettled
      },
    }
    const { gateway, id, secret } = await gatewayOn(losing, { onStoreFailure: 'allow' })
    expect((await ask(gateway, secret)).status).toBe(200)
    fails = false
    await gateway.close()
    expect(await requestsOf(createGateway(gatewayOptions(store)), id)).toBe(1)
  })

  it('answers a key that this process has not read with 503, and an expired key with 401', async () => {
    const { store, state } = failingStore()
    let time = Date.now()
    const { gateway } = await gatewayOn(store, { onStoreFailure: 'allow', runtime: { now: () => time } })
    const unseen = await gateway.keys.create({ name: 'unseen' })
    const expired = await gateway.keys.create({ name: 'expired', expires_at: new Date(time + 60_000).toISOString() })
    expect((await ask(gateway, expired.value)).status).toBe(200)
    state.mode = 'fail'
    expect((await ask(gateway, unseen.value)).status).toBe(503)
    time += 60_000
    expect((await ask(gateway, expired.value)).status).toBe(401)
  })

  it('answers /ready with 200 and reports degraded health while the store fails; by default both are 503', async () => {
    for (const [onStoreFailure, status, health] of [
      ['allow', 200, 'degraded'],
      ['refuse', 503, 'unhealthy'],
    ] as const) {
      const { store, state } = failingStore()
      const { gateway } = await gatewayOn(store, { onStoreFailure })
      state.mode = 'fail'
      const ready = await gateway.fetch('http://gateway/ready')
      expect(ready.status).toBe(status)
      expect(await ready.json()).toMatchObject({ dependencies: { redis: false } })
      const found = await gateway.fetch('http://gateway/health')
      expect(found.status).toBe(status)
      expect(await found.json()).toMatchObject({ status: health })
      state.mode = 'pass'
      expect((await gateway.fetch('http://gateway/ready')).status).toBe(200)
    }
  })
})

describe('a disabled key', () => {
  it('is rejected immediately by the process that disabled it, and by other processes after keyCacheMs', async () => {
    let time = Date.now()
    const { store } = failingStore()
    const runtime = { now: () => time }
    const { gateway: here, id, secret } = await gatewayOn(store, { runtime, keyCacheMs: 5_000 })
    const there = createGateway({ ...gatewayOptions(store), runtime, keyCacheMs: 5_000 })
    const never = createGateway({ ...gatewayOptions(store), runtime, keyCacheMs: 0 })
    for (const gateway of [here, there, never]) expect((await ask(gateway, secret)).status).toBe(200)
    await here.keys.update(id, { is_active: false })
    expect((await ask(here, secret)).status).toBe(401)
    expect((await ask(never, secret)).status).toBe(401)
    expect((await ask(there, secret)).status).toBe(200)
    time += 5_000
    expect((await ask(there, secret)).status).toBe(401)
  })

  it('cannot be cached for longer than 5 seconds', () => {
    expect(() => createGateway({ ...gatewayOptions(memoryStore()), keyCacheMs: 5_001 })).toThrow('keyCacheMs')
  })
})
