import { join } from 'node:path'
import type { CacheOptions } from '../../../src/index.ts'
import { postgresResponseStore, postgresStore, postgresVectorIndex } from '../../../src/postgres.ts'
import { redisResponseStore, redisStore, redisVectorIndex } from '../../../src/redis.ts'
import { sqliteStore } from '../../../src/sqlite.ts'
import type { Store } from '../../../src/core/store.ts'
import { memoryStore } from '../../../src/stores/memory.ts'
import { openPglite, openPool } from '../postgres.ts'
import { openCluster, openIoredis } from '../redis.ts'

/** Location of a store that several processes can open. */
export interface StorePlace {
  readonly engine: 'memory' | 'sqlite' | 'redis' | 'cluster' | 'sharded cluster' | 'postgres' | 'pglite'
  /** Directory or URL. */
  readonly location: string
  /** File name, key prefix or table schema. */
  readonly name: string
}

export interface OpenedStore {
  readonly store: Store
  readonly close: () => Promise<void>
}

export async function openStore({ engine, location, name }: StorePlace): Promise<OpenedStore> {
  if (engine === 'memory') return { store: memoryStore(), close: async () => {} }
  if (engine === 'sqlite') {
    const { default: Database } = await import('libsql')
    const database = new Database(join(location, `${name}.db`))
    return { store: sqliteStore({ database, busyTimeoutMs: 20_000 }), close: async () => void database.close() }
  }
  if (engine === 'postgres' || engine === 'pglite') {
    const opened = engine === 'pglite' ? await openPglite() : await openPool(location)
    const store = postgresStore({ client: opened.client, schema: name })
    await store.migrate()
    return { store, close: opened.close }
  }
  const opened = engine === 'redis' ? await openIoredis(location) : await openCluster(location)
  const store = redisStore({ client: opened.client, prefix: name, shardByOwner: engine === 'sharded cluster' })
  return { store, close: opened.close }
}

export interface OpenedCache {
  readonly cache: CacheOptions & Required<Pick<CacheOptions, 'index' | 'responses'>>
  readonly close: () => Promise<void>
}

/** Opens a semantic cache in a database that several processes share. */
export async function openCache({ engine, location, name }: StorePlace): Promise<OpenedCache> {
  if (engine === 'postgres') {
    const { client, close } = await openPool(location)
    const index = postgresVectorIndex({ client, schema: name })
    const responses = postgresResponseStore({ client, schema: name })
    await index.migrate()
    await responses.migrate()
    return { cache: { index, responses }, close }
  }
  const { client, close } = await openIoredis(location)
  const given = { client, prefix: name }
  return { cache: { index: redisVectorIndex(given), responses: redisResponseStore(given) }, close }
}
