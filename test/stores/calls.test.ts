/** @own-process: PGlite takes 500 MB, which a shared process would keep. */
import { Redis } from 'ioredis'
import { afterAll, describe, expect, it } from 'vitest'
import type { Store } from '../../src/core/store.ts'
import { createGateway } from '../../src/index.ts'
import { postgresStore, type PostgresClient } from '../../src/postgres.ts'
import { redisStore } from '../../src/redis.ts'
import { gatewayOptions, MODEL } from '../support/fleet/jobs.ts'
import { newName } from '../support/fleet/scenarios.ts'
import { openPglite, openPool, type OpenPostgres } from '../support/postgres.ts'
import { postgresServer, redisServer } from '../support/servers.ts'

const redis = redisServer()
const postgres = postgresServer()

afterAll(async () => {
  await redis?.stop()
  await postgres?.stop()
})

/** A store whose client records each call to its server. */
interface CountedStore {
  readonly store: Store
  readonly calls: string[]
  readonly close: () => Promise<void>
}

async function countedRedis(): Promise<CountedStore> {
  const inner = new Redis((await redis?.start()) ?? '')
  const calls: string[] = []
  const client = {
    call: (command: string) => inner.call(command),
    eval: (script: string, count: number, ...rest: string[]) => {
      calls.push('eval')
      return inner.eval(script, count, ...rest)
    },
    evalsha: (sha: string, count: number, ...rest: string[]) => {
      calls.push('evalsha')
      return inner.evalsha(sha, count, ...rest)
    },
  }
  return { store: redisStore({ client, prefix: newName() }), calls, close: async () => inner.disconnect() }
}

async function countedPostgres({ client, close }: OpenPostgres): Promise<CountedStore> {
  const calls: string[] = []
  const countingClient: PostgresClient = {
    query: (text, parameters) => {
      calls.push(/\.(\w+)\(/.exec(text)?.[1] ?? text)
      if (!('query' in client)) throw new Error('The client of this test has a method query.')
      return client.query(text, parameters)
    },
  }
  const store = postgresStore({ client: countingClient, schema: newName() })
  await store.migrate()
  return { store, calls, close }
}

const engines = [
  { engine: 'Redis', isSkipped: redis === undefined, open: countedRedis },
  { engine: 'PGlite', isSkipped: false, open: async () => countedPostgres(await openPglite()) },
  {
    engine: 'PostgreSQL',
    isSkipped: postgres === undefined,
    open: async () => countedPostgres(await openPool((await postgres?.start()) ?? '')),
  },
]

describe.each(engines)('a gateway on $engine', ({ isSkipped, open }) => {
  it.skipIf(isSkipped)(
    'makes 2 calls for each answered or rejected request of a cached key, and audits both',
    async () => {
      const { store, calls, close } = await open()
      // A fixed clock, so that cached keys do not expire during a slow test.
      const startedAt = Date.now()
      const gateway = createGateway({
        ...gatewayOptions(store),
        // Ignores the background search for open batches.
        batches: { concurrency: 0 },
        runtime: { now: () => startedAt },
      })
      try {
        // The first call of each script sends its text.
        await store.append('other', { at: startedAt, value: 'x' })
        const shared = await gateway.budgets.create({ name: 'team', max_limit: 10, reset_duration: '1M' })
        const { id, value } = await gateway.keys.create({
          name: 'counted',
          budget_limit_cents: 1_000,
          budget_id: shared.id,
          rate_limit_requests: 2,
        })
        const ask = async (): Promise<number> => {
          const response = await gateway.fetch('http://gateway/v1/chat/completions', {
            method: 'POST',
            headers: { authorization: `Bearer ${value}`, 'content-type': 'application/json' },
            body: JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: 'Hello there.' }] }),
          })
          await response.text()
          return response.status
        }
        expect(await ask()).toBe(200)
        calls.length = 0
        expect(await ask()).toBe(200)
        expect(calls).toHaveLength(2)
        calls.length = 0
        expect(await ask()).toBe(429)
        expect(calls).toHaveLength(2)
        const { records } = await gateway.audit.read({ keyId: id })
        expect(records.map(({ status }) => status)).toEqual([200, 200, 429])
        expect((await gateway.audit.read()).records).toEqual(records)
      } finally {
        await gateway.close()
        await close()
      }
    },
    120_000,
  )
})
