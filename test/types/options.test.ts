import { describe, expect, it } from 'vitest'
import {
  anthropic,
  createGateway,
  GatewayError,
  memoryStore,
  openai,
  openaiCompatible,
  openaiEmbedder,
} from '../../src/index.ts'
import { extractive } from '../../src/testing.ts'
import { bedrock } from '../../src/bedrock.ts'
import { serve } from '../../src/node.ts'
import { postgresResponseStore, postgresStore, postgresVectorIndex } from '../../src/postgres.ts'
import { azureOpenai, gemini, groq, priceList, vertex } from '../../src/providers.ts'
import { redisResponseStore, redisStore, redisVectorIndex } from '../../src/redis.ts'
import { sqliteStore } from '../../src/sqlite.ts'

/** Calls a factory as an untyped program does. */
function call(factory: (...given: never[]) => unknown, ...given: readonly unknown[]): unknown {
  return Reflect.apply(factory, undefined, given)
}

async function messageOf(factory: (...given: never[]) => unknown, ...given: readonly unknown[]): Promise<string> {
  try {
    await call(factory, ...given)
  } catch (error) {
    if (error instanceof GatewayError && error.kind === 'invalid-request') return error.message
    throw error
  }
  throw new Error('The options were accepted.')
}

const client = (): void => {}
const database = { exec: client, prepare: client }
const provider = { providers: [extractive()] }

describe('an unknown option', () => {
  it.each([
    ['memoryStore', memoryStore, { tallie: 5 }, 'tallie', 'tallies'],
    ['redisStore', redisStore, { client, prefx: 'x' }, 'prefx', 'prefix'],
    ['redisResponseStore', redisResponseStore, { client, maxEntriesPerkey: 5 }, 'maxEntriesPerkey', 'maxEntriesPerKey'],
    ['redisVectorIndex', redisVectorIndex, { client, dimension: 5 }, 'dimension', 'dimensions'],
    ['postgresStore', postgresStore, { client, shema: 'x' }, 'shema', 'schema'],
    ['postgresResponseStore', postgresResponseStore, { client, maxBytesPerkey: 5 }, 'maxBytesPerkey', 'maxBytesPerKey'],
    ['postgresVectorIndex', postgresVectorIndex, { client, maxPerScop: 5 }, 'maxPerScop', 'maxPerScope'],
    ['sqliteStore', sqliteStore, { database, busyTimeout: 5 }, 'busyTimeout', 'busyTimeoutMs'],
    ['openai', openai, { baseURL: 'https://x.test' }, 'baseURL', 'baseUrl'],
    ['anthropic', anthropic, { api_key: 'k' }, 'api_key', 'apiKey'],
    ['openaiCompatible', openaiCompatible, { name: 'x', baseUrl: 'https://x.test', header: {} }, 'header', 'headers'],
    ['extractive', extractive, { prices: 1 }, 'prices', 'price'],
    ['openaiEmbedder', openaiEmbedder, { baseUrl: 'https://x.test', model: 'x', timeout: 5 }, 'timeout', 'timeoutMs'],
    ['gemini', gemini, { apikey: 'k' }, 'apikey', 'apiKey'],
    ['groq', groq, { apikey: 'k' }, 'apikey', 'apiKey'],
    ['vertex', vertex, { project: 'p', projct: 'q' }, 'projct', 'project'],
    ['bedrock', bedrock, { region: 'us-east-1', regions: 'x' }, 'regions', 'region'],
    ['azureOpenai', azureOpenai, { resource: 'r', apiVerson: 'x' }, 'apiVerson', 'apiVersion'],
    ['createGateway', createGateway, { ...provider, stores: memoryStore() }, 'stores', 'store'],
    ['createGateway', createGateway, { ...provider, limits: { bodyByte: 5 } }, 'limits.bodyByte', 'bodyBytes'],
    ['createGateway', createGateway, { ...provider, cache: { ttl: 5 } }, 'cache.ttl', 'ttlSeconds'],
    ['createGateway', createGateway, { ...provider, admin: { keys: 'x' } }, 'admin.keys', 'key'],
    ['createGateway', createGateway, { ...provider, savings: { slidr: 'auto' } }, 'savings.slidr', 'slider'],
    ['createGateway', createGateway, { ...provider, timeouts: { total: 5 } }, 'timeouts.total', 'totalMs'],
    ['createGateway', createGateway, { ...provider, timeouts: { firstByte: 5 } }, 'timeouts.firstByte', 'firstByteMs'],
    ['createGateway', createGateway, { ...provider, savings: { keeps: 1 } }, 'savings.keeps', 'keep'],
    ['createGateway', createGateway, { ...provider, savings: { shadow: 1 } }, 'savings.shadow', 'shadowShare'],
    [
      'createGateway',
      createGateway,
      { ...provider, savings: { threshold: {} } },
      'savings.threshold',
      'thresholdTokens',
    ],
    ['createGateway', createGateway, { ...provider, surcharge: 'allow' }, 'surcharge', 'surcharges'],
  ])('of %s is rejected with its path and the nearest name', async (who, factory, options, path, near) => {
    expect(await messageOf(factory, options)).toBe(`${who}: ${path}: there is no such option. Did you mean ${near}?`)
  })

  it('of priceList and serve is rejected', async () => {
    expect(await messageOf(priceList, {}, { pricedAt: '2026-01-01', priced: 1 })).toContain('Did you mean pricedAt?')
    expect(await messageOf(serve, createGateway(provider), { port: 0, host: 'x' })).toContain('Did you mean hostname?')
  })

  it('of a shared record in a list is rejected with the path of the record', async () => {
    const governance = { virtual_keys: [{ name: 'a', value: 'a-secret-of-a-test', budget_limit_cent: 5 }] }

    expect(await messageOfKey({ ...provider, governance })).toBe(
      'createGateway: governance.virtual_keys[0].budget_limit_cent: there is no such field. Did you mean budget_limit_cents?',
    )
  })
})

describe('a wrong value', () => {
  it.each([
    [
      createGateway,
      { providers: [] },
      'createGateway: providers: expected a list of at least one provider, such as [openai()], got an empty list.',
    ],
    [
      createGateway,
      { providers: [{}] },
      'createGateway: providers[0]: expected a provider, such as openai(), got an object.',
    ],
    [
      createGateway,
      {},
      'createGateway: providers: expected a list of at least one provider, such as [openai()], got undefined.',
    ],
    [
      createGateway,
      { ...provider, margin: -1 },
      'createGateway: margin: expected a number from 0 to 10, or a function that returns one, got -1.',
    ],
    [
      createGateway,
      { ...provider, margin: 50 },
      'createGateway: margin: expected a number from 0 to 10, or a function that returns one, got 50. Did you mean 1.5?',
    ],
    [
      createGateway,
      { ...provider, margin: 150 },
      'createGateway: margin: expected a number from 0 to 10, or a function that returns one, got 150. Did you mean 1.5?',
    ],
    [
      createGateway,
      { ...provider, margin: '1.5' },
      'createGateway: margin: expected a number from 0 to 10, or a function that returns one, got "1.5".',
    ],
    [
      createGateway,
      { ...provider, cache: { similarityThreshold: 95 } },
      'createGateway: cache.similarityThreshold: expected a number from 0.85 to 1, got 95. Did you mean 0.95?',
    ],
    [
      createGateway,
      { ...provider, cache: { similarityThreshold: 50 } },
      'createGateway: cache.similarityThreshold: expected a number from 0.85 to 1, got 50.',
    ],
    [
      createGateway,
      { ...provider, circuitBreaker: { failureShare: 50 } },
      'createGateway: circuitBreaker.failureShare: expected a number from 0.01 to 1, got 50. Did you mean 0.5?',
    ],
    [
      createGateway,
      { ...provider, savings: { shadowShare: 10 } },
      'createGateway: savings.shadowShare: expected a number from 0 to 1, got 10. Did you mean 0.1?',
    ],
    [
      createGateway,
      { ...provider, cache: { freshTtlSeconds: 60_000_000 } },
      'createGateway: cache.freshTtlSeconds: expected a number of seconds above 0, at most 31622400, got 60000000.',
    ],
    [
      createGateway,
      { ...provider, streams: { retentionSeconds: 60_000_000 } },
      'createGateway: streams.retentionSeconds: expected an integer from 1 to 31622400 seconds, got 60000000.',
    ],
    [
      createGateway,
      { ...provider, timeouts: { totalMs: 0 } },
      'createGateway: timeouts.totalMs: expected an integer from 1 to 86400000 milliseconds, got 0.',
    ],
    [
      createGateway,
      { ...provider, admin: { key: 'short' } },
      'createGateway: admin.key: expected a string of at least 16 characters, got a string of 5 characters.',
    ],
    [
      createGateway,
      { ...provider, vendorTools: 'deny' },
      'createGateway: vendorTools: expected "reserve" or "refuse" or "allow", got "deny".',
    ],
    [
      createGateway,
      { ...provider, onStoreFailure: false },
      'createGateway: onStoreFailure: expected "refuse" or "allow", got false.',
    ],
    [memoryStore, { counters: -1 }, 'memoryStore: counters: expected an integer of at least 0, got -1.'],
    [
      memoryStore,
      { durable: { entries: 5 } },
      'memoryStore: durable.bytes: expected an integer of at least 0, got undefined.',
    ],
    [redisStore, {}, 'redisStore: client: expected a connected Redis client, got undefined.'],
    [redisStore, { client: null }, 'redisStore: client: expected a connected Redis client, got null.'],
    [postgresStore, { client: null }, 'postgresStore: client: expected a client, such as a Pool of pg, got null.'],
    [
      sqliteStore,
      { database, synchronous: 'off' },
      'sqliteStore: synchronous: expected "normal" or "full", got "off".',
    ],
    [
      postgresStore,
      { client, schema: 'My Schema' },
      'postgresStore: schema: expected a name of at most 41 lowercase letters, digits and underscores that does not begin with a digit, got "My Schema".',
    ],
  ] as [(...given: never[]) => unknown, object, string][])(
    '%# is rejected with its path, the expected value and the received value',
    async (factory, options, text) => {
      expect(await messageOf(factory, options)).toBe(text)
    },
  )
})

it('an undefined option has its default', async () => {
  const gateway = Reflect.apply(createGateway, undefined, [
    {
      ...provider,
      limits: { bodyBytes: undefined },
      timeouts: { totalMs: undefined },
      surcharges: undefined,
    },
  ])
  const { value } = await gateway.keys.create({ name: 'app' })
  const response = await gateway.fetch('http://gateway/v1/chat/completions', {
    method: 'POST',
    headers: { authorization: `Bearer ${value}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'extractive/extractive', messages: [{ role: 'user', content: 'Hello.' }] }),
  })
  await gateway.close()

  expect(response.status).toBe(200)
})

it('createGateway without options returns an error with an example', async () => {
  expect(await messageOf(createGateway)).toBe(
    'createGateway: expected an object with at least one provider: createGateway({ providers: [openai()] }), got undefined.',
  )
})

it('a missing API key names the environment variable', async () => {
  const before = process.env['GROQ_API_KEY']
  delete process.env['GROQ_API_KEY']
  const gateway = createGateway({ providers: [groq()] })
  const { value } = await gateway.keys.create({ name: 'app' })
  const response = await gateway.fetch('http://gateway/v1/chat/completions', {
    method: 'POST',
    headers: { authorization: `Bearer ${value}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'groq/llama-3.3-70b-versatile', messages: [{ role: 'user', content: 'Hello.' }] }),
  })
  const text = await response.text()
  await gateway.close()
  if (before !== undefined) process.env['GROQ_API_KEY'] = before

  expect(response.status).toBe(503)
  expect(text).toContain('GROQ_API_KEY')
})

async function messageOfKey(options: object): Promise<string> {
  try {
    await call(createGateway, options)
  } catch (error) {
    if (error instanceof GatewayError) return error.message
  }
  throw new Error('The options were accepted.')
}
