/** @own-process: PGlite takes 500 MB, which a shared process would keep. */
import { randomUUID } from 'node:crypto'
import { vector } from '@electric-sql/pglite-pgvector'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { VectorIndex } from '../../src/core/cache.ts'
import { postgresResponseStore, postgresVectorIndex } from '../../src/postgres.ts'
import { redisResponseStore, redisVectorIndex } from '../../src/redis.ts'
import { testResponseStore } from '../contract/response-store.ts'
import { testVectorIndex } from '../contract/vector-index.ts'
import { openPglite, openPool, openPostgresJs, type OpenPostgres } from '../support/postgres.ts'
import {
  openCluster,
  openIoredis,
  openNodeRedis,
  openUpstash,
  type OpenClient,
  type OpenRedis,
} from '../support/redis.ts'
import { postgresServer, redisCluster, redisServer, type TestServer } from '../support/servers.ts'

const redis7 = redisServer()
const redis8 = redisServer('REDIS8_URL')
const valkey = redisServer('VALKEY_URL')
const cluster = redisCluster()
const postgres = postgresServer()

const LIMITS = { dimensions: 8, entries: 250 }
const HOUR_MS = 3_600_000
const IN_AN_HOUR = Date.now() + HOUR_MS

/** Returns a unit vector in the plane of the first two axes. */
function at(degrees: number): Float32Array {
  const vector = new Float32Array(8)
  vector[0] = Math.cos((degrees / 180) * Math.PI)
  vector[1] = Math.sin((degrees / 180) * Math.PI)
  return vector
}

type Added = Partial<Parameters<VectorIndex['add']>[0]> & { readonly id: string }

async function add(index: VectorIndex, entry: Added): Promise<void> {
  await index.add({ scope: 's', owner: 'k', vector: at(0), expiresAt: IN_AN_HOUR, ...entry })
}

async function idsIn(index: VectorIndex, scope = 's'): Promise<readonly string[]> {
  const found = await index.nearest(scope, at(0), { minSimilarity: 0.5, limit: 100 })
  return found.map(({ id }) => id).toSorted()
}

/** Declares tests in addition to the contract. `open` opens the index as another process does. */
function testShared(open: (limits?: { maxPerScope?: number; maxPerKey?: number }) => Promise<VectorIndex>): void {
  it('drops the vector of a full scope that expires first', async () => {
    const index = await open({ maxPerScope: 2 })
    await add(index, { id: 'first', expiresAt: IN_AN_HOUR })
    await add(index, { id: 'second', expiresAt: IN_AN_HOUR + 1 })
    await add(index, { id: 'third', expiresAt: IN_AN_HOUR + 2 })
    await add(index, { id: 'elsewhere', scope: 't' })
    expect(await idsIn(index)).toEqual(['second', 'third'])
    expect(await idsIn(index, 't')).toEqual(['elsewhere'])
  })

  it('drops vectors of a key that exceeds its limit, in any scope, and of no other key', async () => {
    const index = await open({ maxPerKey: 2 })
    await add(index, { id: 'other', owner: 'other', expiresAt: IN_AN_HOUR - 1_000 })
    for (const [count, scope] of ['s', 't', 'u'].entries()) {
      await add(index, { id: `own ${count}`, scope, expiresAt: IN_AN_HOUR + count })
    }
    expect(await idsIn(index)).toEqual(['other'])
    expect([await idsIn(index, 't'), await idsIn(index, 'u')]).toEqual([['own 1'], ['own 2']])
  })

  it.each([{ maxPerScope: 0 }, { maxPerKey: 0 }])('stores no vector with the limit %o', async (limits) => {
    const index = await open(limits)
    await add(index, { id: 'a' })
    expect(await idsIn(index)).toEqual([])
  })

  it('finds vectors that another process added, and none that it removed', async () => {
    const [one, other] = [await open(), await open()]
    await add(one, { id: 'a' })
    expect(await idsIn(other)).toEqual(['a'])
    await add(one, { id: 'b' })
    await one.remove('a')
    expect(await idsIn(other)).toEqual(['b'])
    await one.clear()
    expect(await idsIn(other)).toEqual([])
    await add(other, { id: 'c' })
    expect(await idsIn(one)).toEqual(['c'])
  })
}

afterAll(async () => {
  for (const server of [redis7, redis8, postgres]) await server?.stop()
})

const redisSetups: readonly {
  readonly name: string
  readonly server: TestServer | undefined
  readonly open: OpenRedis
}[] = [
  { name: 'ioredis on Redis 7', server: redis7, open: openIoredis },
  { name: 'ioredis on Redis 8', server: redis8, open: openIoredis },
  { name: 'ioredis on Valkey', server: valkey, open: openIoredis },
  { name: 'node-redis on Redis 8', server: redis8, open: openNodeRedis },
  { name: '@upstash/redis on Redis 8', server: redis8, open: openUpstash },
  { name: 'a cluster of Redis 7', server: cluster, open: openCluster },
]

for (const { name, server, open } of redisSetups) {
  describe.skipIf(server === undefined)(`the cache in ${name}`, () => {
    let opened: OpenClient
    beforeAll(async () => {
      opened = await open((await server?.start()) ?? '')
    })
    afterAll(() => opened.close())
    const prefix = (): string => `test-${randomUUID()}`

    testVectorIndex(
      `redisVectorIndex with ${name}`,
      async ({ now }) => redisVectorIndex({ client: opened.client, prefix: prefix(), dimensions: 8, now }),
      LIMITS,
    )
    testResponseStore(`redisResponseStore with ${name}`, async () =>
      redisResponseStore({ client: opened.client, prefix: prefix() }),
    )
    describe(`redisVectorIndex with ${name}`, () => {
      let shared = ''
      beforeEach(() => {
        shared = prefix()
      })
      testShared(async (limits) =>
        redisVectorIndex({ client: opened.client, prefix: shared, dimensions: 8, ...limits }),
      )
    })
  })
}

const openPgliteWithVectors = (): Promise<OpenPostgres> => openPglite({ extensions: { vector } })

async function run({ client }: OpenPostgres, statement: string): Promise<void> {
  await ('unsafe' in client ? client.unsafe(statement, []) : client.query(statement, []))
}

const postgresSetups = [
  { name: 'PGlite', isSkipped: false, open: openPgliteWithVectors },
  { name: 'pg', isSkipped: postgres === undefined, open: async () => openPool((await postgres?.start()) ?? '') },
  {
    name: 'postgres.js',
    isSkipped: postgres === undefined,
    open: async () => openPostgresJs((await postgres?.start()) ?? ''),
  },
]

describe.each(postgresSetups)('the cache in PostgreSQL with $name', ({ name, isSkipped, open }) => {
  describe.skipIf(isSkipped)(name, () => {
    const schema = `cache_${randomUUID().replaceAll('-', '')}`.slice(0, 30)
    let opened: OpenPostgres

    beforeAll(async () => {
      opened = await open()
      await postgresVectorIndex({ client: opened.client, schema, dimensions: 8 }).migrate()
      await postgresResponseStore({ client: opened.client, schema }).migrate()
    }, 60_000)
    afterAll(async () => {
      await run(opened, `DROP SCHEMA ${schema} CASCADE`)
      await opened.close()
    })

    testVectorIndex(
      `postgresVectorIndex with ${name}`,
      async ({ now }) => {
        const index = postgresVectorIndex({ client: opened.client, schema, dimensions: 8, now })
        await index.clear()
        return index
      },
      LIMITS,
    )
    describe(`postgresVectorIndex with ${name}`, () => {
      beforeEach(() => postgresVectorIndex({ client: opened.client, schema, dimensions: 8 }).clear())
      testShared(async (limits) => postgresVectorIndex({ client: opened.client, schema, dimensions: 8, ...limits }))

      it('finds the nearest vectors of a large scope next to a larger one', async () => {
        const index = postgresVectorIndex({ client: opened.client, schema, dimensions: 8 })
        await run(
          opened,
          `INSERT INTO ${schema}.vectors_8 (scope, id, owner, ends_at, vector)
          SELECT scope, n || ' in ' || scope, 'k', ${IN_AN_HOUR},
            ('[' || cosd(n * 0.3) || ',' || sind(n * 0.3) || ',0,0,0,0,0,0]')::vector
          FROM generate_series(0, 1099) n, unnest(ARRAY['s', 't', 'u', 'v']) scope`,
        )
        // PostgreSQL would sort so few rows. The settings of the one session of PGlite prevent that.
        const isSearched = name === 'PGlite'
        for (const way of ['seqscan', 'bitmapscan', 'sort']) {
          if (isSearched) await run(opened, `SET enable_${way} TO off`)
        }
        for (const entry of [0, 17, 500, 1_099]) {
          const [nearest, next] = await index.nearest('s', at(entry * 0.3), { minSimilarity: 0.9, limit: 2 })
          expect(nearest?.id).toBe(`${entry} in s`)
          expect(next?.id).toMatch(/ in s$/)
        }
        if (isSearched) await run(opened, 'RESET ALL')
      })
    })
    testResponseStore(`postgresResponseStore with ${name}`, async () => {
      const responses = postgresResponseStore({ client: opened.client, schema })
      await responses.clear()
      return responses
    })
  })
})

describe('the cache in Redis', () => {
  const setups = [
    { name: 'Redis 7', server: redis7 },
    { name: 'Redis 8', server: redis8 },
  ]
  const clients: Redis[] = []
  const connect = async (server: TestServer | undefined): Promise<Redis> => {
    const client = new Redis((await server?.start()) ?? '')
    clients.push(client)
    return client
  }
  afterAll(() => {
    for (const client of clients) client.disconnect()
  })

  it.skipIf(redis7 === undefined || redis8 === undefined)('warns about a server without vector sets', async () => {
    const warningsOf = async (server: TestServer | undefined): Promise<readonly string[]> =>
      (await redisVectorIndex({ client: await connect(server) }).warnings?.()) ?? []
    expect(await warningsOf(redis7)).toEqual([expect.stringContaining('at most 256 questions per scope')])
    expect(await warningsOf(redis8)).toEqual([])
  })

  for (const { name, server } of setups) {
    it.skipIf(server === undefined)(`every key of the index and of its answers expires, on ${name}`, async () => {
      const client = await connect(server)
      const prefix = `test-${randomUUID()}`
      const index = redisVectorIndex({ client, prefix, dimensions: 8 })
      await add(index, { id: 'a' })
      await add(index, { id: 'b' })
      const keys = await client.keys(`{${prefix}}:*`)
      const lifetimes = await Promise.all(keys.map((key) => client.pttl(key)))
      expect(keys.length).toBeGreaterThanOrEqual(5)
      expect(lifetimes.filter((ms) => ms <= 0 || ms > HOUR_MS)).toEqual([])
    })

    it.skipIf(server === undefined)(`an index works after its data was flushed, on ${name}`, async () => {
      const client = await connect(server)
      const prefix = `test-${randomUUID()}`
      const [one, other] = [0, 1].map(() => redisVectorIndex({ client, prefix, dimensions: 8 }))
      if (one === undefined || other === undefined) throw new Error('two were made')
      for (const id of ['a', 'b', 'c']) await add(one, { id })
      expect(await idsIn(other)).toEqual(['a', 'b', 'c'])
      await client.del(...(await client.keys(`{${prefix}}:*`)))
      for (const id of ['d', 'e']) await add(one, { id })
      expect(await idsIn(other)).toEqual(['d', 'e'])
    })
  }
})
