import { randomUUID } from 'node:crypto'
import { Cluster, Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { redisStore, type RedisClient, type RedisStoreOptions } from '../../src/redis.ts'
import { testStore } from '../contract/store.ts'
import { resultOrError } from '../support/result-or-error.ts'
import {
  openCluster,
  openIoredis,
  openNodeRedis,
  openUpstash,
  type OpenClient,
  type OpenRedis,
} from '../support/redis.ts'
import { redisCluster, redisServer, type TestServer } from '../support/servers.ts'
import { dropsFromTheShareWithTheMostBytes } from './largest-share.ts'

const redis7 = redisServer()
const redis8 = redisServer('REDIS8_URL')
const valkey = redisServer('VALKEY_URL')
const cluster = redisCluster()

interface Setup {
  readonly name: string
  readonly server: TestServer | undefined
  readonly open: OpenRedis
  readonly options?: Partial<RedisStoreOptions>
}

const setups: readonly Setup[] = [
  { name: 'ioredis', server: redis7, open: openIoredis },
  { name: 'node-redis', server: redis7, open: openNodeRedis },
  { name: '@upstash/redis', server: redis7, open: openUpstash },
  { name: 'ioredis, owners in slots of their own', server: redis7, open: openIoredis, options: { shardByOwner: true } },
  { name: 'ioredis on Redis 8', server: redis8, open: openIoredis },
  { name: 'ioredis on Valkey', server: valkey, open: openIoredis },
  { name: 'a cluster', server: cluster, open: openCluster },
  {
    name: 'a cluster, owners in slots of their own',
    server: cluster,
    open: openCluster,
    options: { shardByOwner: true },
  },
]

const prefixes: string[] = []
function newPrefix(): string {
  const prefix = `test-${randomUUID()}`
  prefixes.push(prefix)
  return prefix
}

afterAll(async () => {
  for (const server of [redis7, redis8]) await server?.stop()
})

for (const { name, server, open, options } of setups) {
  describe.skipIf(server === undefined)(`redisStore with ${name}`, () => {
    let opened: OpenClient
    beforeAll(async () => {
      opened = await open((await server?.start()) ?? '')
    })
    afterAll(() => opened.close())

    testStore(`redisStore with ${name}`, async (clock) =>
      redisStore({ ...options, client: opened.client, prefix: newPrefix(), now: clock.now }),
    )

    it('uses the clock of the server by default', async () => {
      const store = redisStore({ ...options, client: opened.client, prefix: newPrefix() })
      const claim = { counter: 'c', amount: 1, max: 2, expiresAt: Date.now() + 60_000 }
      await store.set('a', 'x', { ttlMs: 60_000 })
      expect(await store.get('a')).toBe('x')
      expect(await store.reserve({ reservationId: 't', claims: [claim], expiresAfterMs: 60_000 })).toMatchObject({
        levels: [1],
      })
      expect(await store.settle({ reservationId: 't', charges: [], tallies: [] })).toBe(true)
    })
  })
}

describe.skipIf(redis7 === undefined)('redisStore', () => {
  let client: Redis
  beforeAll(async () => {
    client = new Redis((await redis7?.start()) ?? '')
  })
  afterAll(() => client.disconnect())

  it('reloads its scripts after SCRIPT FLUSH', async () => {
    const store = redisStore({ client, prefix: newPrefix() })
    await store.set('a', 'x')
    await client.script('FLUSH')
    expect(await store.get('a')).toBe('x')
  })

  it('sets an expiry on every key that a request writes', async () => {
    const prefix = newPrefix()
    const store = redisStore({ client, prefix })
    const ends = Date.now() + 60_000
    const quota = { name: 'audit:k', maxEntries: 10, maxBytes: 10_000 }
    for (const reservationId of ['settled', 'left']) {
      await store.reserve({
        reservationId,
        claims: [{ counter: 'c', amount: 1, max: 9, expiresAt: ends }],
        expiresAfterMs: 60_000,
      })
    }
    await store.settle({
      reservationId: 'settled',
      charges: [{ counter: 'd', amount: 1, expiresAt: ends }],
      tallies: [{ name: 'usage', amounts: { n: 1 }, expiresAt: ends }],
      entries: [{ log: 'audit', at: 1, value: 'x', ttlMs: 60_000, quota }],
    })
    const keys = await client.keys(`{${prefix}}:*`)
    const lasting: string[] = []
    for (const key of keys) if ((await client.pttl(key)) < 0) lasting.push(key.slice(prefix.length + 3))
    // Indexes, from which each write removes expired items.
    expect(lasting.toSorted()).toEqual([
      'bytes:logs',
      'ends',
      'log:audit',
      'meta',
      'pools',
      'sequence',
      'share:logs:quota:audit:k',
    ])
    expect(keys.map((key) => key.slice(prefix.length + 3))).toContain('t:left')
  })

  it.each([true, false])('stores 4,096 fields of a tally, expiring: %s', async (isExpiring) => {
    const store = redisStore({ client, prefix: newPrefix() })
    const amounts = Object.fromEntries(Array.from({ length: 4_097 }, (_, index) => [`f${index}`, 1]))
    const tally = { name: 'usage', amounts, ...(isExpiring && { expiresAt: Date.now() + 60_000 }) }
    for (const reservationId of ['one', 'two']) {
      await store.reserve({ reservationId, claims: [], expiresAfterMs: 60_000 })
      await store.settle({ reservationId, charges: [], tallies: [tally] })
      const [sums = {}] = await store.tallies(['usage'])
      expect(Object.keys(sums)).toHaveLength(4_096)
    }
  })

  it('takes one call for a reservation, and one for a settlement with tallies and audit', async () => {
    const calls: string[] = []
    const countingClient = {
      call: (command: string) => client.call(command),
      eval: (script: string, count: number, ...rest: string[]) => {
        calls.push('eval')
        return client.eval(script, count, ...rest)
      },
      evalsha: (sha: string, count: number, ...rest: string[]) => {
        calls.push('evalsha')
        return client.evalsha(sha, count, ...rest)
      },
    }
    const store = redisStore({ client: countingClient, prefix: newPrefix() })
    const governed = async (reservationId: string): Promise<void> => {
      const expiresAt = Date.now() + 60_000
      const claims = ['requests:key:k:1h:0', 'budget:shared:b:1M:0'].map((counter) => ({
        counter,
        amount: 1,
        max: 9,
        expiresAt,
      }))
      await store.reserve({ reservationId, claims, expiresAfterMs: 60_000 })
      await store.settle({
        reservationId,
        charges: claims.map(({ counter }) => ({ counter, amount: 1, expiresAt })),
        tallies: [{ name: 'usage:k:1d:0', amounts: { requests: 1 }, expiresAt }],
        entries: ['audit', 'audit:k'].map((log) => ({ log, at: 1, value: 'record', ttlMs: 60_000 })),
      })
    }
    await governed('first')
    calls.length = 0
    await governed('second')
    expect(calls).toEqual(['evalsha', 'evalsha'])
  })
})

describe.skipIf(redis7 === undefined)('redisStore with many items', () => {
  let client: Redis
  beforeAll(async () => {
    client = new Redis((await redis7?.start()) ?? '')
  })
  afterAll(() => client.disconnect())

  dropsFromTheShareWithTheMostBytes(() =>
    redisStore({ client, prefix: newPrefix(), limits: { expiring: { entries: 10, bytes: 1_000_000 } } }),
  )

  it('removes a bounded number of expired values per write, and does not return the others', async () => {
    let now = 0
    const prefix = newPrefix()
    const store = redisStore({ client, prefix, now: () => now })
    for (let n = 10; n < 60; n += 1) await store.set(`turn:${n}`, 'x', { ttlMs: 1_000 })
    await store.set('turn:99', 'x')
    now = 1_000
    await store.set('other', 'x')
    expect(await client.zcard(`{${prefix}}:ends`)).toBeGreaterThan(0)
    expect(await store.get('turn:58')).toBeUndefined()
    expect(await store.delete('turn:58')).toBe(false)
    expect(await store.swap('turn:59', 'x', 'y')).toBe(false)
    expect(await store.swap('turn:59', undefined, 'y')).toBe(true)
    for (let n = 0; n < 5; n += 1) await store.set('other', 'x')
    expect(await store.list('turn:', { limit: 5 })).toEqual(['turn:59', 'turn:99'])
    expect(await client.zcard(`{${prefix}}:ends`)).toBe(0)
  })

  it('removes the expired values that a list finds, a bounded number per call', async () => {
    let now = 0
    let calls = 0
    const prefix = newPrefix()
    const countingClient = countCalls(client, () => (calls += 1))
    const store = redisStore({ client: countingClient, prefix, now: () => now })
    const expired = Array.from({ length: 900 }, (_, index) => `turn:${1_000 + index}`)
    await Promise.all(expired.map((key) => store.set(key, 'x', { ttlMs: 1_000 })))
    await store.set('turn:1500x', 'x')
    await store.set('turn:9', 'x')
    now = 1_000
    calls = 0
    expect(await store.list('turn:', { limit: 5 })).toEqual(['turn:1500x', 'turn:9'])
    expect(calls).toBeGreaterThan(3)
    expect(await client.zcard(`{${prefix}}:ends`)).toBe(0)
    calls = 0
    expect(await store.list('turn:', { after: 'turn:1500x', limit: 1 })).toEqual(['turn:9'])
    expect(calls).toBe(1)
  })

  it('reads a bounded number of log entries per call', async () => {
    let calls = 0
    const store = redisStore({ client: countCalls(client, () => (calls += 1)), prefix: newPrefix() })
    const entries = Array.from({ length: 4_500 }, (_, at) => ({ log: 'audit', at, value: `{"at":"${at}"}` }))
    await store.reserve({ reservationId: 't', claims: [], expiresAfterMs: 60_000 })
    await store.settle({ reservationId: 't', charges: [], tallies: [], entries })
    calls = 0
    const found = await store.entries('audit', { from: 4_000, to: 4_400, limit: 1_000 })
    expect(calls).toBe(3)
    expect(found.map(({ at, value }) => ({ log: 'audit', at, value }))).toEqual(entries.slice(4_000, 4_400))
    const next = await store.entries('audit', { from: 4_000, after: found[9]?.cursor ?? '', limit: 2 })
    expect(next).toEqual(found.slice(10, 12))
  })
})

function countCalls(client: Redis, onCall: () => void): RedisClient {
  return {
    call: (command: string) => client.call(command),
    eval: (script: string, count: number, ...rest: string[]) => client.eval(script, count, ...rest),
    evalsha: (sha: string, count: number, ...rest: string[]) => {
      onCall()
      return client.evalsha(sha, count, ...rest)
    },
  }
}

describe.skipIf(redis7 === undefined)('redisStore with a slot per owner', () => {
  let client: Redis
  beforeAll(async () => {
    client = new Redis((await redis7?.start()) ?? '')
  })
  afterAll(() => client.disconnect())

  const expiresAt = Date.now() + 3_600_000
  const own = { counter: 'budget:key:k:1M:0', amount: 10, max: 100, expiresAt, elastic: true }
  const shared = { counter: 'budget:shared:b:1M:0', amount: 10, max: 100, expiresAt, elastic: true }
  const used = (amount: number) => [own, shared].map(({ counter }) => ({ counter, amount, expiresAt }))
  const tallies = [{ name: 'usage:k:1d:0', amounts: { requests: 1 }, expiresAt }]

  it('releases the amount of one owner when another rejects the request', async () => {
    const store = redisStore({ client, prefix: newPrefix(), shardByOwner: true })
    const result = await store.reserve({
      reservationId: 't',
      claims: [own, { ...shared, max: 5 }],
      expiresAfterMs: 60_000,
    })
    expect(result).toEqual({ accepted: false, rejectedIndex: 1, levels: [0, 0] })
    expect(await store.levels([own.counter, shared.counter])).toEqual([
      { spent: 0, held: 0 },
      { spent: 0, held: 0 },
    ])
  })

  it('grants each elastic claim the smallest remaining amount of all owners', async () => {
    const store = redisStore({ client, prefix: newPrefix(), shardByOwner: true })
    const request = { reservationId: 't', minGrant: 2, claims: [own, { ...shared, max: 4 }], expiresAfterMs: 60_000 }
    expect(await store.reserve(request)).toEqual({ accepted: true, granted: 4, levels: [4, 4] })
    expect(await store.levels([own.counter, shared.counter])).toEqual([
      { spent: 0, held: 4 },
      { spent: 0, held: 4 },
    ])
  })

  it('settles once, also from another process and after a partial failure', async () => {
    const prefix = newPrefix()
    let failures = 0
    const failing = {
      call: (command: string) => client.call(command),
      eval: (script: string, count: number, ...rest: string[]) => client.eval(script, count, ...rest),
      evalsha: (sha: string, count: number, ...rest: string[]) => {
        const isSettlement = rest.at(-1)?.includes('"charges":[{') === true
        if (isSettlement && rest[0]?.includes('shared') === true && (failures += 1) === 1) throw new Error('cut')
        return client.evalsha(sha, count, ...rest)
      },
    }
    const one = redisStore({ client: failing, prefix, shardByOwner: true })
    const two = redisStore({ client, prefix, shardByOwner: true })
    await one.reserve({ reservationId: 't', claims: [own, shared], expiresAfterMs: 60_000 })
    const entries = [{ log: 'audit', at: 1, value: 'record' }]
    const settlement = { reservationId: 't', charges: used(3), tallies, entries }
    await expect(one.settle(settlement)).rejects.toThrow('cut')
    expect(await two.settle(settlement)).toBe(false)
    expect(await one.settle(settlement)).toBe(false)
    expect(await two.levels([own.counter, shared.counter])).toEqual([
      { spent: 3, held: 0 },
      { spent: 3, held: 0 },
    ])
    expect(await two.tallies(['usage:k:1d:0'])).toEqual([{ requests: 1 }])
    expect(await two.entries('audit', { limit: 9 })).toMatchObject([{ value: 'record' }])
  })

  it('appends the entries once if a repeated settlement follows a failed append', async () => {
    let failures = 0
    const failing = {
      call: (command: string) => client.call(command),
      eval: (script: string, count: number, ...rest: string[]) => client.eval(script, count, ...rest),
      evalsha: (sha: string, count: number, ...rest: string[]) => {
        if (rest.at(-1)?.includes('"entries":[{') === true && (failures += 1) === 1) throw new Error('cut')
        return client.evalsha(sha, count, ...rest)
      },
    }
    const store = redisStore({ client: failing, prefix: newPrefix(), shardByOwner: true })
    await store.reserve({ reservationId: 't', claims: [own, shared], expiresAfterMs: 60_000 })
    const settlement = { reservationId: 't', charges: used(3), tallies, entries: [{ log: 'audit', at: 1, value: 'x' }] }
    await expect(store.settle(settlement)).rejects.toThrow('cut')
    expect(await store.settle(settlement)).toBe(false)
    expect(await store.settle(settlement)).toBe(false)
    expect(await store.entries('audit', { limit: 9 })).toMatchObject([{ value: 'x' }])
    expect(await store.levels([own.counter])).toEqual([{ spent: 3, held: 0 }])
  })
})

describe.skipIf(cluster === undefined)('redisStore while its slot moves to another node', () => {
  it('rejects requests during the move, and continues with the same levels afterwards', async () => {
    const client = new Cluster([(await cluster?.start()) ?? ''], { lazyConnect: true })
    await client.connect()
    const prefix = newPrefix()
    const store = redisStore({ client, prefix })
    const claim = { counter: 'c', amount: 1, max: 1, expiresAt: Date.now() + 3_600_000 }
    const slot = String(await client.cluster('KEYSLOT', `{${prefix}}`))
    const nodes = client.nodes('master')
    const ids = await Promise.all(nodes.map(async (node) => String(await node.cluster('MYID'))))
    const ranges = await Promise.all(nodes.map((node) => node.cluster('NODES')))
    const ownerOf = (text: unknown): boolean =>
      /myself\S* .* connected (.*)/
        .exec(String(text))?.[1]
        ?.split(' ')
        .some((range) => {
          const [first = '', last = first] = range.split('-')
          return Number(slot) >= Number(first) && Number(slot) <= Number(last)
        }) === true
    const from = ranges.findIndex(ownerOf)
    const to = (from + 1) % nodes.length
    expect(from).toBeGreaterThanOrEqual(0)
    try {
      expect(await store.reserve({ reservationId: 'first', claims: [claim], expiresAfterMs: 60_000 })).toMatchObject({
        accepted: true,
      })
      await nodes[to]?.call('CLUSTER', 'SETSLOT', slot, 'IMPORTING', ids[from] ?? '')
      await nodes[from]?.call('CLUSTER', 'SETSLOT', slot, 'MIGRATING', ids[to] ?? '')
      const during = await resultOrError(() =>
        store.reserve({ reservationId: 'second', claims: [claim], expiresAfterMs: 60_000 }),
      )
      expect(during).not.toMatchObject({ accepted: true })
    } finally {
      for (const index of [from, to]) await nodes[index]?.call('CLUSTER', 'SETSLOT', slot, 'STABLE')
    }
    expect(await store.levels(['c'])).toEqual([{ spent: 0, held: 1 }])
    expect(await store.reserve({ reservationId: 'third', claims: [claim], expiresAfterMs: 60_000 })).toMatchObject({
      accepted: false,
    })
    client.disconnect()
  }, 60_000)
})
