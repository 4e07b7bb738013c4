/** @own-process: PGlite takes 500 MB, which a shared process would keep. */
import { randomUUID } from 'node:crypto'
import { Redis } from 'ioredis'
import { afterAll, afterEach, describe, expect, it } from 'vitest'
import type { CallerContext, Gateway, GatewayOptions, Store } from '../../../src/index.ts'
import { createGateway, memoryStore } from '../../../src/index.ts'
import { postgresResponseStore, postgresStore } from '../../../src/postgres.ts'
import { redisResponseStore, redisStore } from '../../../src/redis.ts'
import { EchoProvider } from '../../../src/testing/echo-provider.ts'
import { IS_FULL } from '../../support/full.ts'
import { openPglite, type OpenPostgres } from '../../support/postgres.ts'
import { redisServer } from '../../support/servers.ts'
import { waitUntil } from '../../support/wait-until.ts'
import { type Stage, startStage } from '../../support/stage.ts'

const stages: Stage[] = []
const redis = redisServer()
const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()))
  await Promise.all(closing.splice(0).map((close) => close()))
})
let pglite: Promise<OpenPostgres> | undefined
afterAll(async () => {
  await (await pglite)?.close()
  await redis?.stop()
})

interface TestedStore {
  readonly store: Store
  readonly cache?: GatewayOptions['cache']
  /** Each value in the storage, with its key. */
  readonly dump: () => Promise<readonly string[]>
}

const STORES: readonly { readonly name: string; readonly open: (() => Promise<TestedStore>) | undefined }[] = [
  {
    name: 'memoryStore',
    open: async () => {
      const store = memoryStore()
      return { store, cache: {}, dump: () => valuesOf(store) }
    },
  },
  {
    name: 'postgresStore',
    open: !IS_FULL
      ? undefined
      : async () => {
          const { client } = await (pglite ??= openPglite())
          const schema = `purge_${randomUUID().replaceAll('-', '')}`.slice(0, 30)
          const store = postgresStore({ client, schema })
          await store.migrate()
          const run = async (text: string): Promise<readonly Record<string, unknown>[]> => {
            const result: unknown = await (client as { query: (text: string) => Promise<unknown> }).query(text)
            return (result as { rows: readonly Record<string, unknown>[] }).rows
          }
          const dump = async (): Promise<readonly string[]> => {
            const tables = await run(`SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition
          AND relnamespace = '${schema}'::regnamespace`)
            const rows = await Promise.all(
              tables.map(async ({ relname }) => {
                const found = await run(`SELECT to_jsonb(t)::text AS row FROM ${schema}.${String(relname)} t`)
                return found.map(({ row }) => `${String(relname)} ${String(row)}`)
              }),
            )
            return rows.flat()
          }
          return { store, cache: { responses: postgresResponseStore({ client, schema }) }, dump }
        },
  },
  {
    name: 'redisStore',
    open:
      redis &&
      (async () => {
        const client = new Redis(await redis.start())
        closing.push(async () => client.disconnect())
        await client.flushall()
        const store = redisStore({ client })
        const dump = async (): Promise<readonly string[]> =>
          Promise.all(
            (await client.keys('*')).map(async (key) => `${key} ${JSON.stringify(await readRedis(client, key))}`),
          )
        return { store, cache: { responses: redisResponseStore({ client }) }, dump }
      }),
  },
]

async function readRedis(client: Redis, key: string): Promise<unknown> {
  const type = await client.type(key)
  if (type === 'string') return client.get(key)
  if (type === 'hash') return client.hgetall(key)
  if (type === 'zset') return client.zrange(key, '0', '-1')
  if (type === 'set') return client.smembers(key)
  if (type === 'list') return client.lrange(key, 0, -1)
  return client.xrange(key, '-', '+')
}

async function valuesOf(store: Store): Promise<readonly string[]> {
  const keys = await store.list('', { limit: 100_000 })
  return Promise.all(keys.map(async (key) => `${key} ${(await store.get(key)) ?? ''}`))
}

/** Lets the gateway add markers for the vendor's cache, and remember them. */
const CACHE_PRICE = { input: 1, output: 2, cacheRead: 0.1, cacheWrite: 1.25 }

async function start({ store, cache }: Pick<TestedStore, 'store' | 'cache'>, options: Partial<GatewayOptions> = {}) {
  let files = 0
  const stage = await startStage({
    store,
    ...(cache !== undefined && { cache }),
    passthrough: { files: { provider: 'chat', free: true } },
    smallPrice: CACHE_PRICE,
    customers: { defaultPlan: 'pro' },
    plans: {
      pro: {
        budgets: [{ limitUsd: 100, window: '1M' }],
        perSession: { requests: 100 },
        perUser: [{ requests: 100, window: '1h' }],
      },
    },
    admin: { key: 'an-admin-key-of-this-test' },
    reply: ({ path }) =>
      path.includes('/files') ? { kind: 'json', value: { id: `file-${++files}`, object: 'file' } } : `A reply.`,
    ...options,
  })
  stages.push(stage)
  return stage
}

/** Makes the gateway store something of every kind, in which `secretOf` the caller occurs. */
async function use(gateway: Gateway, context: CallerContext, key: string | undefined, secret: string) {
  const { fetch } = gateway.with(context)
  const send = async (path: string, body: object, headers: Readonly<Record<string, string>> = {}): Promise<unknown> => {
    const authorization = key === undefined ? {} : { authorization: `Bearer ${key}` }
    const response = await fetch(`http://gateway/v1${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...authorization, ...headers },
      body: JSON.stringify(body),
    })
    const text = await response.text()
    expect(response.status, text).toBe(200)
    return text
  }
  const messages = [{ role: 'user', content: `What is ${secret}?` }]
  await send('/chat/completions', { model: 'chat/large', messages }, { 'idempotency-key': randomUUID() })
  await send('/responses', { model: 'chat/large', input: secret })
  await send('/messages', { model: 'anthropic/large', max_tokens: 10, messages })
  const params = { model: 'anthropic/large', max_tokens: 10, messages }
  await send('/messages/batches', { requests: [{ custom_id: 'one', params }] })
  const turns = Array.from({ length: 40 }, (_, index) => ({
    role: index % 2 === 0 ? 'user' : 'assistant',
    content: `${secret} turn ${index}: ${'the quick brown fox jumps over the lazy dog '.repeat(10)}`,
  }))
  const talk = [...turns, { role: 'user', content: `What is ${secret} about?` }]
  await send('/messages', { model: 'anthropic/small', max_tokens: 10, messages: talk })
  await send('/files', { purpose: secret })
}

const KINDS = [
  'turn:',
  'recording:',
  'idempotency:',
  'batch-head:',
  'batch-request:',
  'batch-open:',
  'savings:',
  'file:',
]
const ID = 'acme-7f3'
const SECRET = 'zanzibar'

/**
 * Usage and audit records remain for invoices, and the amounts of limits until their windows end, so that a customer
 * cannot renew its budget by its deletion.
 */
const REMAINING: readonly RegExp[] = [
  /usage-rows:customer:/,
  /usage-by-model:/,
  // An audit record.
  /timestamp\\*":.*request_id\\*":.*outcome\\*":/,
  /billed:(?:customer|user):/,
  /usage-owner(?:-end:\d+)?:customer:/,
  /(?:budget|requests|tokens):(?:customer|user|session):/,
  // PostgreSQL keeps the names of empty quotas.
  /^shares .*"bytes": 0,.*"entries": 0/,
]

describe.each(STORES)('the deletion of a customer with purge on $name', ({ open }) => {
  it.skipIf(open === undefined)('leaves nothing of its requests, and all of others', async () => {
    if (open === undefined) return
    const tested = await open()
    const { store, dump } = tested
    const stage = await start(tested, { batches: { concurrency: 0 } })
    const { gateway, secret: key, upstream } = stage
    await use(gateway, { customer: ID, user: 'alice', session: 's1' }, undefined, SECRET)
    await use(gateway, { customer: ID, user: 'bob' }, key, SECRET)
    await use(gateway, { customer: `${ID}2` }, undefined, 'other-customer')
    await use(gateway, {}, key, 'without-customer')
    const isOf = (value: string): boolean => value.includes(SECRET) || new RegExp(`${ID}(?!2)`).test(value)
    // Some values are written after the response.
    await waitUntil(async () => {
      const values = (await valuesOf(store)).filter(isOf)
      return KINDS.every((kind) => values.some((value) => value.startsWith(kind)))
    }, 500)
    const before = await valuesOf(store)
    const others = (values: readonly string[]): readonly string[] =>
      values.filter((value) => /other-customer|without-customer/.test(value)).toSorted()
    expect(others(before).length).toBeGreaterThan(0)

    expect(await gateway.customers.delete(ID, { purge: true })).toEqual({ id: ID, object: 'customer', deleted: true })

    const after = await valuesOf(store)
    expect(after.filter((value) => isOf(value) && !/^usage-owner(?:-end:\d+)?:customer:/.test(value))).toEqual([])
    expect(others(after)).toEqual(others(before))
    const left = (await dump()).filter(isOf)
    expect(left.filter((value) => value.includes(SECRET))).toEqual([])
    expect(left.filter((value) => !REMAINING.some((pattern) => pattern.test(value)))).toEqual([])
    await expect(gateway.customers.get(ID)).rejects.toMatchObject({ kind: 'not-found' })
    await expect(gateway.customers.delete(ID, { purge: true })).rejects.toMatchObject({ kind: 'not-found' })
    const deletedFiles = upstream.requests.filter(({ method }) => method === 'DELETE')
    expect(deletedFiles.map(({ path }) => path).toSorted()).toEqual(['/v1/files/file-1', '/v1/files/file-2'])
  })
})

describe('a deletion with purge', () => {
  interface Counted {
    readonly store: Store
    readonly written: string[]
    /** Deletions that succeed before one fails. */
    deletions: number
  }

  function countingStore(): Counted {
    const inner = memoryStore()
    const counted: Counted = {
      written: [],
      deletions: Infinity,
      store: {
        ...inner,
        set: (key, ...rest) => {
          counted.written.push(key)
          return inner.set(key, ...rest)
        },
        delete: async (key) => {
          if (counted.deletions <= 0) throw new Error('The store is not reachable.')
          counted.deletions -= 1
          return inner.delete(key)
        },
      },
    }
    return counted
  }

  const open = (store: Store) => {
    const gateway = createGateway({
      providers: [new EchoProvider()],
      store,
      admin: { key: 'an-admin-key-of-this-test' },
      runtime: { stderr: () => {} },
    })
    closing.push(() => gateway.close())
    return gateway
  }

  const ask = async (gateway: Gateway, text = 'Hello') => {
    const { fetch } = gateway.with({ customer: ID })
    const response = await fetch('http://gateway/v1/responses', {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'idempotency-key': randomUUID() },
      body: JSON.stringify({ model: 'contract/echo', max_output_tokens: 20, input: text }),
    })
    await response.text()
    return { status: response.status, cache: response.headers.get('x-svc-cache') }
  }

  const leftIn = async (store: Store): Promise<readonly string[]> =>
    (await store.list('', { limit: 1000 })).filter((key) => key.includes(ID) && !key.startsWith('usage-owner'))

  it('can be repeated after each interruption, and refuses requests until it has ended', async () => {
    const counted = countingStore()
    const gateway = open(counted.store)
    for (let index = 0; index < 5; index++) expect((await ask(gateway, `Question ${index}`)).status).toBe(200)
    let interruptions = 0
    for (let isDone = false; !isDone; interruptions++) {
      counted.deletions = 3
      isDone = await gateway.customers.delete(ID, { purge: true }).then(
        () => true,
        () => false,
      )
      if (!isDone) expect((await ask(gateway)).status).toBe(403)
    }
    expect(interruptions).toBeGreaterThan(3)
    expect(await leftIn(counted.store)).toEqual([])
  })

  it('finds what was stored after an earlier deletion, and what a deletion without purge left', async () => {
    const { store } = countingStore()
    const [gateway, other] = [open(store), open(store)]
    for (let round = 0; round < 2; round++) {
      expect(await ask(gateway)).toEqual({ status: 200, cache: 'MISS' })
      expect((await ask(other)).status).toBe(200)
      await gateway.customers.delete(ID, { purge: true })
      expect(await leftIn(store)).toEqual([])
    }
    expect((await ask(gateway)).status).toBe(200)
    await gateway.customers.delete(ID)
    expect(await leftIn(store)).not.toEqual([])
    await gateway.customers.delete(ID, { purge: true })
    expect(await leftIn(store)).toEqual([])
  })

  it('costs a request one entry per customer and key', async () => {
    const counted = countingStore()
    const [gateway, other] = [open(counted.store), open(counted.store)]
    for (const each of [gateway, gateway, other]) await ask(each)
    expect(counted.written.filter((key) => key.startsWith('customer-key:'))).toEqual([`customer-key:${ID}:application`])
  })

  it('is refused while the customer has children, and then changes nothing', async () => {
    const { store } = countingStore()
    const gateway = open(store)
    await gateway.customers.create({ id: ID })
    await gateway.customers.create({ id: 'child', parentId: ID })
    await expect(gateway.customers.delete(ID, { purge: true })).rejects.toMatchObject({ kind: 'conflict' })
    expect((await ask(gateway)).status).toBe(200)
  })

  it('lets other work run between its steps', async () => {
    const { store } = countingStore()
    const gateway = open(store)
    await ask(gateway)
    for (let index = 0; index < 3_000; index++) await store.set(`turn:application~${ID}:${index}:input`, 'x')
    let turns = 0
    const count = (): void => {
      turns += 1
      timer = setImmediate(count)
    }
    let timer = setImmediate(count)
    await gateway.customers.delete(ID, { purge: true })
    clearImmediate(timer)
    expect(turns).toBeGreaterThan(20)
  })

  it('is asked for by name', async () => {
    const { store } = countingStore()
    const gateway = open(store)
    await ask(gateway)
    const wrong = gateway.customers.delete(ID, { purged: true } as object)
    await expect(wrong).rejects.toMatchObject({ kind: 'invalid-admin-request', details: { param: 'purged' } })
    const call = async (query: string): Promise<number> => {
      const url = `http://gateway/api/governance/customers/${ID}${query}`
      const headers = { 'x-admin-key': 'an-admin-key-of-this-test' }
      return (await gateway.fetch(url, { method: 'DELETE', headers })).status
    }
    expect(await call('?purge=yes')).toBe(400)
    expect(await call('?prge=true')).toBe(400)
    expect(await call('?purge=true')).toBe(200)
    expect(await leftIn(store)).toEqual([])
    expect(await call('?purge=true')).toBe(404)
  })
})
