import { afterAll, describe, expect, it } from 'vitest'
import { BatchRepository } from '../../../src/plugins/batches/batch-repository.ts'
import { newName } from '../../support/fleet/scenarios.ts'
import { openStore, type OpenedStore } from '../../support/fleet/open-store.ts'
import { postgresServer, redisCluster, redisServer } from '../../support/servers.ts'
import { temporaryDirectory } from '../../support/sqlite.ts'
import { callBatches, createCluster, createItems } from './cluster.ts'
import { IS_FULL } from '../../support/full.ts'

const MAX_BATCHES = 1_000
const NOW = Date.UTC(2026, 0, 2)
const CONNECTIONS = 3

const directory = temporaryDirectory()
const redis = redisServer()
const postgres = postgresServer()
const cluster = redisCluster()
const local = { start: async () => directory.path, stop: async () => {} }

const engines = [
  { engine: 'memory', server: local },
  { engine: 'sqlite', server: local },
  { engine: 'redis', server: redis },
  { engine: 'sharded cluster', server: cluster },
  { engine: 'postgres', server: postgres },
] as const

afterAll(async () => {
  directory.remove()
  await redis?.stop()
  await postgres?.stop()
})

async function openConnections(open: () => Promise<OpenedStore>, count: number): Promise<readonly OpenedStore[]> {
  const first = await open()
  // Each connection to a memory store would be another store.
  if (first.store.local === true) return Array.from({ length: count }, () => first)
  return [first, ...(await Promise.all(Array.from({ length: count - 1 }, open)))]
}

describe.each(engines)('the batches of a key on $engine', ({ engine, server }) => {
  it.skipIf(server === undefined)(
    'are limited to 1,000, even if several processes create 1,030 at once',
    async () => {
      const place = { engine, location: (await server?.start()) ?? '', name: newName() }
      const opened = await openConnections(() => openStore(place), CONNECTIONS)
      let ids = 0
      const uuid = (): string => (ids++).toString(16).padStart(20, '0')
      const repositories = opened.map(
        ({ store }) => new BatchRepository({ store, now: () => NOW, uuid, pause: async () => {} }),
      )
      const create = (n: number, scope: string): Promise<unknown> | undefined =>
        repositories[n % CONNECTIONS]?.create({ scope, keyId: scope, context: {}, headers: {} }, ['{}'])

      const created = await Promise.allSettled(Array.from({ length: 1_030 }, (_, n) => create(n, 'greedy')))

      const errors = created.flatMap((result) => (result.status === 'rejected' ? [String(result.reason)] : []))
      expect([...new Set(errors)]).toEqual([expect.stringContaining('1000 message batches')])
      expect(created.length - errors.length).toBe(MAX_BATCHES)
      const [repository] = repositories
      const { batches } = (await repository?.page('greedy', { limit: 2_000 })) ?? {}
      expect(batches).toHaveLength(MAX_BATCHES)
      await expect(create(0, 'other')).resolves.toMatchObject({ keyId: 'other' })
      await Promise.all(Array.from(new Set(opened), ({ close }) => close()))
    },
    120_000,
  )
})

// Takes 5 seconds.
it.runIf(IS_FULL)('a deleted batch makes room for another', async () => {
  const clock = createCluster()
  const gateway = clock.startGateway()
  const { value: secret } = await gateway.keys.create({ name: 'k' })
  const first = await callBatches(gateway, secret, 'POST', '', createItems(1))
  await gateway.batches.work()
  const create = (): Promise<{ status: number }> => callBatches(gateway, secret, 'POST', '', createItems(1))
  const statuses = (await Promise.all(Array.from({ length: MAX_BATCHES }, create))).map(({ status }) => status)
  await gateway.batches.work()
  await callBatches(gateway, secret, 'DELETE', `/${first.body.id}`)

  expect(statuses.filter((status) => status === 400)).toHaveLength(1)
  expect([(await create()).status, (await create()).status]).toEqual([200, 400])
})
