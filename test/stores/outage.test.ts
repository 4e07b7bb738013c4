import { Redis } from 'ioredis'
import { Pool } from 'pg'
import { afterAll, describe, expect, it } from 'vitest'
import type { Provider } from '../../src/core/ports.ts'
import type { Store } from '../../src/core/store.ts'
import { createGateway } from '../../src/index.ts'
import { postgresStore } from '../../src/postgres.ts'
import { redisStore } from '../../src/redis.ts'
import { gatewayOptions, MODEL } from '../support/fleet/jobs.ts'
import { newName } from '../support/fleet/scenarios.ts'
import { isOnPath, postgresServer, redisServer, restartableRedis } from '../support/servers.ts'
import { startTcpProxy, type ProxyMode } from '../support/tcp-proxy.ts'

const redis = redisServer()
const postgres = postgresServer()

interface Opened {
  readonly store: Store
  readonly close: () => Promise<void>
}

async function openRedis(port: number): Promise<Opened> {
  const client = new Redis(port, '127.0.0.1', { enableOfflineQueue: false, retryStrategy: () => 50, lazyConnect: true })
  client.on('error', () => {})
  await client.connect()
  return { store: redisStore({ client, prefix: newName() }), close: async () => client.disconnect() }
}

async function openPostgres(port: number, url: string): Promise<Opened> {
  const address = new URL(url)
  address.port = String(port)
  const client = new Pool({
    connectionString: address.href,
    max: 10,
    query_timeout: 2_000,
    connectionTimeoutMillis: 2_000,
  })
  client.on('error', () => {})
  const store = postgresStore({ client, schema: newName() })
  await store.migrate()
  return { store, close: () => client.end() }
}

const engines = [
  { engine: 'redis', server: redis, open: openRedis },
  { engine: 'postgres', server: postgres, open: openPostgres },
] as const

afterAll(async () => {
  await redis?.stop()
  await postgres?.stop()
})

/**
 * The 5 seconds that a request may wait for its store, and half as much again for its own work: the timers of a busy
 * process come late.
 */
const DEADLINE_MS = 7_500
/** Waits for a condition. The timeout of the test limits the wait. */
const PATIENCE = { timeout: 280_000 }
const TEST_MS = 300_000

/** A clock that stops while this process does not run, so that a busy machine does not fail the test. */
function ownClock(): { readonly now: () => number; readonly stop: () => void } {
  let time = 0
  const timer = setInterval(() => void (time += 10), 10)
  return { now: () => time, stop: () => clearInterval(timer) }
}

interface ModelResponse {
  readonly status: number
  readonly ms: number
  readonly retryAfter: string | null
}

/** A gateway with one key on a store that fails during the test. */
interface Scene {
  readonly ask: () => Promise<ModelResponse>
  /** Number of upstream calls so far. */
  readonly calls: () => number
  readonly billedUsd: () => Promise<number>
  readonly close: () => Promise<void>
}

async function createScene({ store, close }: Opened): Promise<Scene> {
  const options = gatewayOptions(store)
  const [provider] = options.providers
  if (provider === undefined) throw new Error('The options of the fleet have one provider.')
  let calls = 0
  const countingProvider: Provider = {
    ...provider,
    complete: async (call) => {
      calls += 1
      return provider.complete(call)
    },
  }
  const gateway = createGateway({ ...options, providers: [countingProvider] })
  const { id, value: secret } = await gateway.keys.create({ name: 'outage', budget_limit_cents: 100_000 })
  const clock = ownClock()
  return {
    ask: async () => {
      const startedAt = clock.now()
      const response = await gateway.fetch('http://gateway/v1/chat/completions', {
        method: 'POST',
        headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
        body: JSON.stringify({ model: MODEL, max_tokens: 16, messages: [{ role: 'user', content: 'Hello there.' }] }),
      })
      await response.text()
      return { status: response.status, ms: clock.now() - startedAt, retryAfter: response.headers.get('retry-after') }
    },
    calls: () => calls,
    billedUsd: async () => {
      return (await gateway.keys.usage(id)).cost.billedUsd
    },
    close: async () => {
      clock.stop()
      await gateway.close().catch(() => {})
      await close()
    },
  }
}

/** Sends requests, fails and restores the store while they run, and compares the bill with the upstream calls. */
async function failUnderLoad(
  { ask, calls, billedUsd }: Scene,
  { fail, recover, isAway }: { fail: () => unknown; recover: () => unknown; isAway: boolean },
): Promise<void> {
  expect((await ask()).status).toBe(200)
  const one = await billedUsd()

  const burst = Array.from({ length: 60 }, ask)
  await expect.poll(calls, { ...PATIENCE, interval: 1 }).toBeGreaterThan(10)
  await fail()
  const responses = await Promise.all(burst)
  const called = calls()
  const afterwards = await Promise.all(Array.from({ length: 5 }, ask))
  responses.push(...afterwards)
  expect(responses.filter(({ status }) => status !== 200 && status !== 503)).toEqual([])
  expect(responses.filter(({ ms }) => ms > DEADLINE_MS)).toEqual([])
  expect(responses.filter(({ status, retryAfter }) => status === 503 && retryAfter === null)).toEqual([])
  if (isAway) {
    expect(afterwards.map(({ status }) => status)).toEqual([503, 503, 503, 503, 503])
    expect(calls()).toBe(called)
  }

  await recover()
  await expect.poll(async () => (await ask()).status, PATIENCE).toBe(200)
  await expect.poll(billedUsd, PATIENCE).toBeCloseTo(calls() * one, 6)
}

describe.each(engines)('while $engine is', ({ server, open }) => {
  it.skipIf(server === undefined).each<ProxyMode>(['hang', 'slow', 'cut'])(
    'in the state %s, each request is answered with 200 or 503 in time, and each upstream call is billed once afterwards',
    async (mode) => {
      const url = (await server?.start()) ?? ''
      const proxy = await startTcpProxy(url)
      const scene = await createScene(await open(proxy.port, url))
      try {
        await failUnderLoad(scene, {
          fail: () => proxy.set(mode),
          recover: () => proxy.set('pass'),
          isAway: mode !== 'slow',
        })
      } finally {
        proxy.set('pass')
        await scene.close()
        await proxy.close()
      }
    },
    TEST_MS,
  )
})

describe('while a Redis with an append-only file is stopped and started again', () => {
  it.skipIf(!isOnPath('redis-server'))(
    'each request is answered with 200 or 503 in time, and each upstream call is billed once afterwards',
    async () => {
      const own = restartableRedis()
      const port = await own.start()
      const scene = await createScene(await openRedis(port))
      try {
        await failUnderLoad(scene, { fail: own.kill, recover: own.start, isAway: true })
      } finally {
        await scene.close()
        await own.remove()
      }
    },
    TEST_MS,
  )
})
