import { randomUUID } from 'node:crypto'
import { PGlite } from '@electric-sql/pglite'
import { vector } from '@electric-sql/pglite-pgvector'
import { afterAll, beforeAll, describe } from 'vitest'
import { postgresAnswerStore, postgresVectorIndex } from '../../src/postgres.ts'
import { redisAnswerStore, redisVectorIndex } from '../../src/redis.ts'
import { testAnswerStore } from '../contract/answer-store.ts'
import { testVectorIndex } from '../contract/vector-index.ts'
import { openPool, openPostgresJs, type OpenPostgres } from '../support/postgres.ts'
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
const cluster = redisCluster()
const postgres = postgresServer()

const LIMITS = { dimensions: 8, entries: 250 }

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
    testAnswerStore(`redisAnswerStore with ${name}`, async () =>
      redisAnswerStore({ client: opened.client, prefix: prefix() }),
    )
  })
}

const openPgliteWithVectors = async (): Promise<OpenPostgres> => {
  const client = await PGlite.create({ extensions: { vector } })
  return { client, close: () => client.close() }
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
      await postgresAnswerStore({ client: opened.client, schema }).migrate()
    }, 60_000)
    afterAll(async () => {
      const { client } = opened
      const drop = `DROP SCHEMA ${schema} CASCADE`
      await ('unsafe' in client ? client.unsafe(drop, []) : client.query(drop, []))
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
    testAnswerStore(`postgresAnswerStore with ${name}`, async () => {
      const answers = postgresAnswerStore({ client: opened.client, schema })
      await answers.clear()
      return answers
    })
  })
})
