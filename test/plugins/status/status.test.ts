import { afterEach, describe, expect, it } from 'vitest'
import { memoryStore, type Store } from '../../../src/index.ts'
import { toFetch } from '../../../src/http/web-handler.ts'
import { health } from '../../../src/plugins/status/status.ts'
import { sendRequest, CHAT, type Reply } from '../../support/send-request.ts'
import { manualRuntime } from '../../support/manual-runtime.ts'
import { startStage, type Stage, type StageOptions } from '../../support/stage.ts'
import { noNetwork } from '../../support/no-network.ts'

const NOON = Date.UTC(2026, 0, 30, 12, 12, 12)

let stage: Stage | undefined
afterEach(() => stage?.close())

async function start(options: StageOptions = {}): Promise<Stage> {
  const store = memoryStore({ now: () => NOON })
  stage = await startStage({ store, runtime: { now: () => NOON, random: () => 0 }, ...options })
  return stage
}

function look(at: Stage, path: string, method = 'GET'): Promise<Reply> {
  return sendRequest(at, undefined, { method, path, secret: null })
}

/** A store with the given `ping`. */
function createStoreWithPing(ping: () => Promise<void>): Store {
  return { ...memoryStore({ now: () => NOON }), local: false, ping }
}

const failingPings: readonly (readonly [string, () => Promise<void>])[] = [
  ['rejects', () => Promise.reject(new Error('redis://user:secret@10.0.0.5:6379 refused'))],
  [
    'throws',
    () => {
      throw new Error('redis://user:secret@10.0.0.5:6379 refused')
    },
  ],
]

describe('GET /health', () => {
  it('reports the services of the specification as healthy', async () => {
    const { status, body, headers } = await look(await start(), '/health')
    expect(status).toBe(200)
    expect(body).toEqual({
      status: 'healthy',
      timestamp: '2026-01-30T12:12:12.000Z',
      services: { optimizer: 'healthy', bifrost: 'healthy', redis: 'healthy', mcp_tools: 'healthy' },
    })
    expect(headers['cache-control']).toBe('no-store')
    expect(headers['x-request-id']).toBe(headers['request-id'])
  })

  it.each(failingPings)('is 503 and unhealthy while the store %s, without details', async (_, ping) => {
    const reply = await look(await start({ store: createStoreWithPing(ping) }), '/health')
    expect(reply.status).toBe(503)
    expect(reply.body).toMatchObject({
      status: 'unhealthy',
      services: { optimizer: 'healthy', bifrost: 'healthy', redis: 'unhealthy', mcp_tools: 'unhealthy' },
    })
    expect(reply.text).not.toMatch(/secret|10\.0\.0\.5/)
  })

  it('is 503 after a second if the store does not answer', async () => {
    const runtime = manualRuntime(noNetwork)
    const response = health({
      store: createStoreWithPing(() => new Promise(() => {})),
      providers: () => ({}),
      runtime,
      servesWithoutStore: false,
    })
    const call = { id: 'req_1', startedAt: 0, query: new URLSearchParams(), variables: {}, context: undefined }
    const fetch = toFetch({ handle: (request, sink) => void response({ ...call, request, sink }) })
    const waiting = fetch('http://gateway/health')
    expect(runtime.delays()).toEqual([1_000])
    runtime.advance(1_000)
    expect((await waiting).status).toBe(503)
    expect(runtime.pending()).toBe(0)
  })

  it('is degraded, and still 200, while the circuit of a provider is open', async () => {
    const at = await start({ reply: () => ({ kind: 'failure', status: 500 }), circuitBreaker: { minRequests: 2 } })
    for (let count = 0; count < 2; count += 1) await sendRequest(at, CHAT.body)
    const { status, body } = await look(at, '/health')
    expect(status).toBe(200)
    expect(body).toMatchObject({ status: 'degraded', services: { bifrost: 'degraded', redis: 'healthy' } })
  })

  it('answers HEAD without a body', async () => {
    const { status, text } = await look(await start(), '/health', 'HEAD')
    expect([status, text]).toEqual([200, ''])
  })
})

describe('GET /ready', () => {
  it('reports the availability of each dependency', async () => {
    const { status, body } = await look(await start(), '/ready')
    expect(status).toBe(200)
    expect(body).toEqual({
      ready: true,
      dependencies: { bifrost: true, redis: true, providers: { chat: true, anthropic: true } },
    })
  })

  it.each(failingPings)('is 503 while the store %s', async (_, ping) => {
    const { status, body } = await look(await start({ store: createStoreWithPing(ping) }), '/ready')
    expect(status).toBe(503)
    expect(body).toMatchObject({ ready: false, dependencies: { bifrost: true, redis: false } })
  })

  it('is ready while at least one provider is available', async () => {
    const at = await start({ reply: () => ({ kind: 'failure', status: 500 }), circuitBreaker: { minRequests: 2 } })
    const other = (await at.gateway.keys.create({ name: 'other' })).value
    const failFor = async (model: string): Promise<void> => {
      for (const secret of [at.secret, other]) await sendRequest(at, { ...CHAT.body, model }, { secret })
    }
    await failFor('chat/large')
    const one = await look(at, '/ready')
    expect(one.status).toBe(200)
    expect(one.body['dependencies']).toEqual({
      bifrost: true,
      redis: true,
      providers: { chat: false, anthropic: true },
    })

    await failFor('anthropic/large')
    const none = await look(at, '/ready')
    expect(none.status).toBe(503)
    expect(none.body).toMatchObject({ ready: false, dependencies: { bifrost: false, providers: { anthropic: false } } })
  })

  it('stays ready while a provider fails for a single key', async () => {
    const at = await start({ reply: () => ({ kind: 'failure', status: 500 }), circuitBreaker: { minRequests: 2 } })
    for (const model of ['chat/large', 'anthropic/large']) {
      for (let count = 0; count < 3; count += 1) await sendRequest(at, { ...CHAT.body, model })
    }
    expect((await look(at, '/health')).body).toMatchObject({ status: 'degraded' })
    expect((await look(at, '/ready')).status).toBe(200)
  })
})
