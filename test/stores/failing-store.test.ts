import { describe, expect, it } from 'vitest'
import type { Store } from '../../src/core/store.ts'
import { createGateway, memoryStore } from '../../src/index.ts'
import { gatewayOptions } from '../support/fleet/jobs.ts'
import { ask, failingStore, gatewayOn, requestsOf } from './failing.ts'

describe("with onStoreFailure: 'allow'", () => {
  it('serves a known key while the store fails, and bills and audits once after it recovers', async () => {
    const { store, state } = failingStore()
    const { gateway, id, secret, calls } = await gatewayOn(store, {
      onStoreFailure: 'allow',
      keyCacheMs: 0,
    })
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
    for (const [storeFailure, status, health] of [
      ['allow', 200, 'degraded'],
      ['refuse', 503, 'unhealthy'],
    ] as const) {
      const { store, state } = failingStore()
      const { gateway } = await gatewayOn(store, { onStoreFailure: storeFailure })
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
