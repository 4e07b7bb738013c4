/** @own-process: takes long, and starts many processes. */
import { afterAll, afterEach, describe, expect, it } from 'vitest'
import type { ChildProcess } from 'node:child_process'
import type { SseEvent } from '../../src/core/completion.ts'
import type { ResponseClaims, ResponseStore } from '../../src/core/cache.ts'
import { createGateway, memoryStore, type Gateway } from '../../src/index.ts'
import { createFleet, exitOf } from '../support/fleet/fleet.ts'
import { cachingOptions, questionOf, type FleetReport } from '../support/fleet/jobs.ts'
import { newName } from '../support/fleet/scenarios.ts'
import { openCache, openStore, type OpenedCache, type StorePlace } from '../support/fleet/open-store.ts'
import { postgresServer, redisServer } from '../support/servers.ts'
import { startTcpProxy } from '../support/tcp-proxy.ts'
import { buildEvents, gate, startUpstream, type Upstream, type UpstreamRequest } from '../support/upstream.ts'
import { waitUntil } from '../support/wait-until.ts'

const redis7 = redisServer()
const redis8 = redisServer('REDIS8_URL')
const postgres = postgresServer()

const engines = [
  { name: 'Redis 7', engine: 'redis', server: redis7 },
  { name: 'Redis 8', engine: 'redis', server: redis8 },
  { name: 'PostgreSQL', engine: 'postgres', server: postgres },
] as const

const QUESTION = 'What is the capital of France?'
const REWORDED = 'Could you tell me what the capital of France is?'

const closers: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close()
})
afterAll(async () => {
  for (const server of [redis7, redis8, postgres]) await server?.stop()
})

async function start(reply: Upstream['reply']): Promise<Upstream> {
  const upstream = await startUpstream({ reply })
  closers.push(() => upstream.close())
  return upstream
}

async function open(place: StorePlace): Promise<OpenedCache> {
  const opened = await openCache(place)
  closers.push(opened.close)
  return opened
}

/** Gateways that share keys and the cache. Each has separate connections, like a process. */
async function startGateways(
  place: StorePlace,
  upstream: Upstream,
  watch: (responses: ResponseStore) => ResponseStore = (responses) => responses,
): Promise<{ readonly gateways: readonly Gateway[]; readonly secret: string }> {
  const store = memoryStore()
  const gateways: Gateway[] = []
  for (let count = 0; count < 2; count += 1) {
    const { cache } = await open(place)
    const gateway = createGateway(
      cachingOptions(store, upstream.baseUrl, { ...cache, responses: watch(cache.responses), timeoutMs: 5_000 }),
    )
    closers.push(() => gateway.close())
    gateways.push(gateway)
  }
  const { value } = (await gateways[0]?.keys.create({ name: 'shared' })) ?? { value: '' }
  return { gateways, secret: value }
}

/** Processes that share keys and the cache. */
async function startProcesses(
  place: StorePlace,
  upstream: Upstream,
): Promise<{
  readonly secret: string
  readonly startProcess: (secret: string, onReport: (report: FleetReport) => void) => ChildProcess
  readonly kill: (child: ChildProcess) => Promise<void>
}> {
  const { store, close } = await openStore(place)
  closers.push(close)
  const { value } = await createGateway(cachingOptions(store, upstream.baseUrl, {})).keys.create({ name: 'own' })
  await (await open(place)).cache.responses.get('the tables exist')
  const fleet = await createFleet()
  closers.push(fleet.close)
  const job = { type: 'recall', place, upstream: upstream.baseUrl, question: QUESTION, stream: true } as const
  return {
    secret: value,
    startProcess: (secret, onReport) => fleet.start({ ...job, secret }, onReport),
    kill: fleet.kill,
  }
}

/** A stream that pauses in the middle of its text. */
function* halves(request: UpstreamRequest, opened: Promise<unknown>): Generator<SseEvent | Promise<unknown>> {
  for (const event of buildEvents(request, { text: ['Par', 'is.'] })) {
    if (event.data.includes('is.')) yield opened
    yield event
  }
}

/** Wraps a response store and calls `onWait` when a request finds the claim of another process. */
function watchClaims(onWait: () => void): (responses: ResponseStore) => ResponseStore {
  return (responses) => {
    const { claims } = responses
    if (claims === undefined) throw new Error('the store has no claims')
    const watched: ResponseClaims = {
      ...claims,
      isHeld: (id) => {
        onWait()
        return claims.isHeld(id)
      },
    }
    return { ...responses, claims: watched }
  }
}

describe.each(engines)('gateways that share a cache in $name', ({ engine, server }) => {
  const place = async (): Promise<StorePlace> => ({ engine, location: (await server?.start()) ?? '', name: newName() })

  it.skipIf(server === undefined)(
    'answer a reworded question from the answer that another process stored, and never for another key',
    async () => {
      const upstream = await start(() => 'Paris.')
      const shared = await place()
      const { store, close } = await openStore(shared)
      closers.push(close)
      const governor = createGateway(cachingOptions(store, upstream.baseUrl, {}))
      const [own, other] = [await governor.keys.create({ name: 'own' }), await governor.keys.create({ name: 'other' })]
      await (await open(shared)).cache.responses.get('the tables exist')
      const fleet = await createFleet()
      closers.push(fleet.close)
      const askProcess = async (secret: string, question: string): Promise<FleetReport | undefined> => {
        let found: FleetReport | undefined
        const job = { type: 'recall', place: shared, upstream: upstream.baseUrl, secret, question } as const
        await exitOf(fleet.start(job, (report) => (found = report)))
        return found
      }

      expect(await askProcess(own.value, QUESTION)).toMatchObject({ status: 200, cache: 'MISS' })
      expect(await askProcess(own.value, REWORDED)).toMatchObject({
        status: 200,
        cache: 'HIT',
        body: expect.stringContaining('Paris.'),
      })
      expect(upstream.requests).toHaveLength(1)
      expect(await askProcess(other.value, QUESTION)).toMatchObject({ status: 200, cache: 'MISS' })
      expect(await askProcess(other.value, REWORDED)).toMatchObject({ status: 200, cache: 'HIT' })
      expect(upstream.requests).toHaveLength(2)
    },
    60_000,
  )

  it.skipIf(server === undefined).each([{ stream: false }, { stream: true }])(
    'make one upstream call for concurrent identical requests, with %o',
    async (more) => {
      const { open: go, opened } = gate()
      const upstream = await start(async () => {
        await opened
        return 'Paris.'
      })
      const { gateways, secret } = await startGateways(await place(), upstream, watchClaims(go))
      const responses = await Promise.all(gateways.map((gateway) => gateway.fetch(questionOf(secret, QUESTION, more))))

      for (const response of responses) expect(await response.text()).toContain('Paris.')
      expect(responses.map(({ headers }) => headers.get('x-svc-cache')).toSorted()).toEqual(['HIT', 'MISS'])
      expect(upstream.requests).toHaveLength(1)
    },
    30_000,
  )

  it.skipIf(server === undefined)(
    'follow the stream of another process as it is generated, with one upstream call',
    async () => {
      const { open: go, opened } = gate()
      const upstream = await start((request) => ({ kind: 'events', items: halves(request, opened) }))
      const { secret, startProcess } = await startProcesses(await place(), upstream)
      const began: string[] = []
      const reports: FleetReport[] = []
      const runs = [0, 1].map(() =>
        startProcess(secret, (report) => {
          if (report.type !== 'began') reports.push(report)
          // The upstream continues after both have read the first half.
          else if (began.push(report.body) === 2) go()
        }),
      )
      await Promise.all(runs.map(exitOf))

      expect(began.filter((body) => body.includes('is.'))).toEqual([])
      expect(reports).toHaveLength(2)
      for (const report of reports)
        expect(report).toMatchObject({ status: 200, body: expect.stringContaining('"is."') })
      for (const report of reports) expect(report).toMatchObject({ body: expect.stringContaining('[DONE]') })
      expect(reports.map((report) => 'cache' in report && report.cache).toSorted()).toEqual(['HIT', 'MISS'])
      expect(upstream.requests).toHaveLength(1)
    },
    60_000,
  )

  it.skipIf(server === undefined)(
    'end a followed stream with an error when the process that generates it is killed',
    async () => {
      const upstream = await start((request) => ({ kind: 'events', items: halves(request, new Promise(() => {})) }))
      const { secret, startProcess, kill } = await startProcesses(await place(), upstream)
      const leader = startProcess(secret, () => {})
      await upstream.waitForRequest(1)
      const reports: FleetReport[] = []
      const follower = startProcess(secret, (report) => {
        reports.push(report)
        if (report.type === 'began') void kill(leader)
      })
      await exitOf(follower)

      expect(reports.map(({ type }) => type)).toEqual(['began', 'recalled'])
      expect(reports[1]).toMatchObject({ cache: 'HIT', body: expect.stringContaining('"error"') })
      expect(upstream.requests).toHaveLength(1)
    },
    60_000,
  )

  it.skipIf(server === undefined)(
    'call the upstream themselves when the first request had no answer',
    async () => {
      const { open: go, opened } = gate()
      const upstream = await start(async ({ index }) => {
        await opened
        return index === 0 ? { kind: 'failure', status: 400 } : 'Paris.'
      })
      const { gateways, secret } = await startGateways(await place(), upstream, watchClaims(go))
      const responses = await Promise.all(gateways.map((gateway) => gateway.fetch(questionOf(secret, QUESTION))))

      expect(responses.map(({ status }) => status).toSorted()).toEqual([200, 400])
      expect(upstream.requests).toHaveLength(2)
    },
    30_000,
  )

  it.skipIf(server === undefined)('treat a corrupt answer as a miss', async () => {
    const upstream = await start(() => 'Paris.')
    const shared = await place()
    const { gateways, secret } = await startGateways(shared, upstream)
    const [one, two] = gateways
    await (await one?.fetch(questionOf(secret, QUESTION)))?.text()
    const { store, close } = await openStore(shared)
    closers.push(close)
    const key = await waitUntil(async () => (await store.list('answer:', { limit: 1 }))[0])
    // A request that finds the claim of another process takes none, so its end could not be seen below.
    const hasNoClaims = async () => (await store.list('answer-claim:', { limit: 1 })).length === 0
    await waitUntil(hasNoClaims)
    const text = (await store.get(key)) ?? ''
    for (const damaged of [text.replace('Paris', 'Rome!'), text.slice(0, -5), '', '{}', 'null']) {
      await store.set(key, damaged, { ttlMs: 60_000 })
      const response = await two?.fetch(questionOf(secret, QUESTION))
      expect([response?.status, response?.headers.get('x-svc-cache')]).toEqual([200, 'MISS'])
      expect(await response?.text()).toContain('Paris.')
      // A response is stored after it was sent, and its claim is released last.
      await waitUntil(async () => (await store.get(key)) !== damaged)
      await waitUntil(hasNoClaims)
    }
  })
})

describe.each([engines[1], engines[2]])('while the cache in $name', ({ engine, server }) => {
  it.skipIf(server === undefined).each(['hang', 'cut'] as const)(
    'is in the state %s, the upstream answers each request',
    async (mode) => {
      const url = (await server?.start()) ?? ''
      const proxy = await startTcpProxy(url)
      closers.push(() => proxy.close())
      const location = new URL(url)
      location.port = String(proxy.port)
      const upstream = await start(() => 'Paris.')
      const { cache } = await open({ engine, location: location.href, name: newName() })
      const gateway = createGateway(
        cachingOptions(memoryStore(), upstream.baseUrl, { ...cache, timeoutMs: 200, similarityThreshold: 1 }),
      )
      closers.push(() => gateway.close())
      const { value: secret } = await gateway.keys.create({ name: 'k' })
      const ask = async (): Promise<readonly unknown[]> => {
        const response = await gateway.fetch(questionOf(secret, QUESTION))
        return [response.status, response.headers.get('x-svc-cache'), (await response.text()).includes('Paris.')]
      }

      expect(await ask()).toEqual([200, 'MISS', true])
      proxy.set(mode)
      for (let count = 0; count < 8; count += 1) expect(await ask()).toEqual([200, 'MISS', true])
      expect(upstream.requests).toHaveLength(9)
      proxy.set('pass')
    },
    30_000,
  )
})
