/** @own-process: PGlite takes 500 MB, which a shared process would keep. */
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { afterAll, describe, expect, it } from 'vitest'
import type { Store } from '../../src/core/store.ts'
import { createGateway, memoryStore, type CacheOptions, type LogRecord } from '../../src/index.ts'
import { postgresStore } from '../../src/postgres.ts'
import { redisStore, redisVectorIndex } from '../../src/redis.ts'
import { sqliteStore } from '../../src/sqlite.ts'
import { gatewayOptions } from '../support/fleet/jobs.ts'
import { newName } from '../support/fleet/scenarios.ts'
import { openPglite } from '../support/postgres.ts'
import { redisServer } from '../support/servers.ts'
import { sqliteDrivers, temporaryDirectory } from '../support/sqlite.ts'
import { waitUntil } from '../support/wait-until.ts'

const redis = redisServer()
const directory = temporaryDirectory()
afterAll(async () => {
  directory.remove()
  await redis?.stop()
})

interface Watched {
  readonly ask: () => Promise<void>
  readonly warnings: () => readonly unknown[]
  readonly close: () => Promise<void>
}

function watch(store: Store, cache: false | CacheOptions = false): Watched {
  const records: LogRecord[] = []
  const gateway = createGateway({ ...gatewayOptions(store), cache, log: (record) => void records.push(record) })
  return {
    ask: async () => void (await (await gateway.fetch(new Request('http://gateway/health'))).text()),
    warnings: () => records.flatMap((record) => (record.event === 'store warning' ? [record.warning] : [])),
    close: gateway.close,
  }
}

/** A client of a server that reports these settings. */
function clientOf(settings: object) {
  const reply = async (): Promise<string> => JSON.stringify(settings)
  return { evalsha: reply, eval: reply, call: async () => undefined }
}

describe('the log of a gateway', () => {
  it('warns once about a SQLite database in memory, and not about a file', async () => {
    for (const { open } of sqliteDrivers()) {
      const [memory, file] = [open(':memory:'), open(join(directory.path, newName()))]
      const inMemory = watch(sqliteStore({ database: memory }))
      const inFile = watch(sqliteStore({ database: file }))
      for (const { ask } of [inMemory, inMemory, inFile]) await ask()
      await waitUntil(() => inMemory.warnings().length > 0)
      expect(inMemory.warnings()).toEqual([expect.stringContaining('is in memory')])
      expect(inFile.warnings()).toEqual([])
      memory.close()
      file.close()
    }
  })

  it('warns about a Redis that may evict keys, and about one without an append-only file', async () => {
    const risky = redisStore({ client: clientOf({ appendOnly: '0', policy: 'allkeys-lru' }) })
    expect(await risky.warnings?.()).toEqual([
      expect.stringContaining('"appendonly yes"'),
      expect.stringContaining('Redis maxmemory-policy is allkeys-lru'),
    ])
    const safe = redisStore({ client: clientOf({ appendOnly: '1', policy: 'noeviction' }) })
    expect(await safe.warnings?.()).toEqual([])
    expect(await redisStore({ client: clientOf({}) }).warnings?.()).toEqual([])
  })

  it.skipIf(redis === undefined)(
    'warns about the settings that a Redis server reports, including its vector index',
    async () => {
      const client = new Redis((await redis?.start()) ?? '')
      const isAppended = (await client.info('persistence')).includes('aof_enabled:1')
      const hasSets = await client.call('VCARD', 'none').then(
        () => true,
        () => false,
      )
      const prefix = newName()
      const store = redisStore({ client, prefix })
      const { ask, warnings, close } = watch(store, { index: redisVectorIndex({ client, prefix }) })
      await ask()
      const expected = [
        ...(isAppended ? [] : [expect.stringContaining('append-only file')]),
        ...(hasSets ? [] : [expect.stringContaining('vector sets')]),
      ]
      await waitUntil(() => warnings().length === expected.length)
      expect(warnings()).toEqual(expected)
      await close()
      client.disconnect()
    },
  )

  it('warns about a PostgreSQL that may lose commits', async () => {
    const { client, close } = await openPglite()
    const store = postgresStore({ client })
    // PGlite never flushes to a disk.
    expect(await store.warnings?.()).toEqual([expect.stringContaining('PostgreSQL setting fsync is off')])
    if ('query' in client) await client.query('SET synchronous_commit TO off', [])
    expect(await store.warnings?.()).toHaveLength(2)
    await close()
  }, 60_000)

  it('warns once, with a later request, when the store failed during the first', async () => {
    let calls = 0
    const store: Store = {
      ...memoryStore(),
      warnings: async () => {
        calls += 1
        if (calls === 1) throw new Error('away')
        return ['a warning', 'a warning']
      },
    }
    const { ask, warnings, close } = watch({ ...store, local: false })
    await ask()
    await waitUntil(() => calls === 1)
    await waitUntil(async () => {
      await ask()
      return warnings().length > 0
    })
    for (let count = 0; count < 5; count += 1) await ask()
    expect(warnings()).toEqual(['a warning'])
    expect(calls).toBe(2)
    await close()
  })
})
