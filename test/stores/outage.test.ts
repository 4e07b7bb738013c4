import { Redis } from 'ioredis'
import { Pool } from 'pg'
import { afterAll, describe, expect, it } from 'vitest'
import type { Provider, Store } from '../../src/core/ports.ts'
import { createGateway, type Gateway } from '../../src/index.ts'
import { postgresStore } from '../../src/postgres.ts'
import { redisStore } from '../../src/redis.ts'
import { gatewayOptions, MODEL } from '../support/fleet/jobs.ts'
import { newName } from '../support/fleet/laws.ts'
import { postgresServer, redisServer } from '../support/servers.ts'
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

/** Each call of the store ends within 2 s, and a request makes at most about ten, one after the other. */
const DEADLINE_MS = 15_000

interface Answer {
  readonly status: number
  readonly ms: number
  readonly retryAfter: string | null
}

async function ask(gateway: Gateway, secret: string): Promise<Answer> {
  const startedAt = performance.now()
  const response = await gateway.fetch(
    new Request('http://gateway/v1/chat/completions', {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: MODEL, max_tokens: 16, messages: [{ role: 'user', content: 'Hello there.' }] }),
    }),
  )
  await response.text()
  return { status: response.status, ms: performance.now() - startedAt, retryAfter: response.headers.get('retry-after') }
}

describe.each(engines)('while $engine is', ({ server, open }) => {
  it.skipIf(server === undefined).each<ProxyMode>(['hang', 'slow', 'cut'])(
    'in the state %s, every answer is 200 or 503, and each upstream call is billed once afterwards',
    async (mode) => {
      const url = (await server?.start()) ?? ''
      const proxy = await startTcpProxy(url)
      const { store, close } = await open(proxy.port, url)
      let calls = 0
      const options = gatewayOptions(store)
      const [provider] = options.providers
      const counted: Provider = {
        ...provider!,
        complete: async (call) => {
          calls += 1
          return provider!.complete(call)
        },
      }
      const gateway = createGateway({ ...options, providers: [counted] })
      const { id, value: secret } = await gateway.keys.create({ name: 'outage', budget_limit_cents: 100_000 })
      try {
        expect((await ask(gateway, secret)).status).toBe(200)
        const usage = async () =>
          (await gateway.keys.usage(id)) as {
            readonly requests: number
            readonly cost: { readonly billed_usd: number }
          }
        const one = (await usage()).cost.billed_usd

        const burst = Array.from({ length: 60 }, () => ask(gateway, secret))
        await expect.poll(() => calls, { timeout: 15_000, interval: 1 }).toBeGreaterThan(10)
        proxy.set(mode)
        const answers = await Promise.all(burst)
        for (let n = 0; n < 5; n += 1) burst.push(ask(gateway, secret))
        answers.push(...(await Promise.all(burst.slice(-5))))
        expect(answers.filter(({ status }) => status !== 200 && status !== 503)).toEqual([])
        expect(answers.filter(({ ms }) => ms > DEADLINE_MS)).toEqual([])
        if (mode !== 'slow') expect(answers.slice(-5).map(({ status }) => status)).toEqual([503, 503, 503, 503, 503])

        proxy.set('pass')
        await expect.poll(async () => (await ask(gateway, secret)).status, { timeout: 15_000 }).toBe(200)
        await expect.poll(async () => (await usage()).cost.billed_usd, { timeout: 15_000 }).toBeCloseTo(calls * one, 6)
      } finally {
        proxy.set('pass')
        await gateway.close().catch(() => {})
        await proxy.close()
        await close()
      }
    },
    90_000,
  )
})
