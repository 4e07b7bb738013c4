import Database from 'libsql'
import { afterEach, describe, expect, it } from 'vitest'
import { createGateway, memoryStore, type Gateway } from '../../src/index.ts'
import { extractive } from '../../src/testing.ts'
import type { ResponseStore, Store } from '../../src/index.ts'
import { postgresResponseStore, postgresStore } from '../../src/postgres.ts'
import { redisResponseStore, redisStore, redisVectorIndex } from '../../src/redis.ts'
import { sqliteStore } from '../../src/sqlite.ts'

let gateway: Gateway | undefined

afterEach(async () => {
  await gateway?.close()
  gateway = undefined
})

const PAST = Date.UTC(2001, 0, 1)
const FUTURE = Date.UTC(2101, 0, 1)

const stores: readonly (readonly [string, () => Store])[] = [
  ['memoryStore()', () => memoryStore()],
  ['a copy of memoryStore()', () => ({ ...memoryStore() })],
  ['sqliteStore()', () => sqliteStore({ database: new Database(':memory:') })],
]

describe('a store without a clock of its own', () => {
  it.each(stores.flatMap(([name, open]) => [PAST, FUTURE].map((start) => [name, new Date(start), open] as const)))(
    '%s uses the clock of the gateway: %s',
    async (_name, start, open) => {
      let time = start.getTime()
      const store = open()
      gateway = createGateway({ providers: [extractive()], store, runtime: { now: () => time } })
      const { value } = await gateway.keys.create({ name: 'clock', rateLimitRequests: 1 })

      expect(await ask(value)).toBe(200)
      expect(await ask(value)).toBe(429)
      time += 3_600_000
      expect(await ask(value)).toBe(200)
    },
  )

  it('keeps its values when another gateway with a clock uses it', async () => {
    const store = memoryStore()
    const first = createGateway({ providers: [extractive()], store, runtime: { now: () => PAST } })
    const { value } = await first.keys.create({ name: 'clock' })
    gateway = createGateway({ providers: [extractive()], store, runtime: { now: () => PAST + 1 } })

    expect(await ask(value)).toBe(200)
  })

  it('of a server sends the time of the gateway, and no time without one', async () => {
    const sent: unknown[] = []
    const redis = {
      evalsha: async (_sha: string, _count: number, ...given: string[]) => (sent.push(given.at(-1)), '{}'),
      eval: async () => '{}',
      call: async () => '',
    }
    const postgres = { query: async (_text: string, [given]: unknown[]) => (sent.push(given), { rows: [] }) }
    const parts = [
      redisStore({ client: redis }),
      postgresStore({ client: postgres }),
      redisResponseStore({ client: redis }),
      postgresResponseStore({ client: postgres }),
    ]
    const read = async (part: Store | ResponseStore): Promise<unknown> => {
      sent.length = 0
      await part.get('x')
      return JSON.parse(String(sent[0]))
    }

    for (const part of parts) expect(await read(part)).not.toHaveProperty('now')
    for (const part of parts) {
      part.useClock?.(() => PAST)
      expect(await read(part)).toHaveProperty('now', PAST)
    }
  })

  it('of the cache uses the clock of the gateway', async () => {
    const clocks: unknown[] = []
    const client = { evalsha: async () => '{}', eval: async () => '{}', call: async () => '' }
    const useClock = (now: () => number): void => void clocks.push(now())
    const responses = { ...redisResponseStore({ client }), useClock }
    const index = { ...redisVectorIndex({ client }), useClock }

    gateway = createGateway({ providers: [extractive()], cache: { responses, index }, runtime: { now: () => PAST } })

    expect(clocks).toEqual([PAST, PAST])
  })
})

describe('a store with a clock of its own', () => {
  it.each([
    ['memoryStore()', () => memoryStore({ now: () => PAST })],
    ['sqliteStore()', () => sqliteStore({ database: new Database(':memory:'), now: () => PAST })],
  ] as const)('%s keeps it', async (_name, open) => {
    const store = open()
    store.useClock?.(() => FUTURE)
    await store.set('x', 'value', { ttlMs: 1 })

    expect(await store.get('x')).toBe('value')
  })
})

async function ask(key: string): Promise<number | undefined> {
  const response = await gateway?.fetch('http://gateway.test/v1/chat/completions', {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'extractive/extractive', messages: [{ role: 'user', content: 'Hello there.' }] }),
  })
  return response?.status
}
