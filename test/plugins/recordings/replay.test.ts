import { afterEach, describe, expect, it, vi } from 'vitest'
import { createGateway, memoryStore, type GatewayOptions, type MemoryStoreOptions } from '../../../src/index.ts'
import { extractive } from '../../../src/testing.ts'
import { MESSAGE } from '../../support/send-request.ts'
import { startStage, type Stage, type StageOptions } from '../../support/stage.ts'
import { splitEvents, messageIdOf, post, readStream } from '../../support/read-stream.ts'
import { buildEvents, gate, HANG, type UpstreamRequest } from '../../support/upstream.ts'
import { recordingStore, type RecordingStore } from '../../support/recording-store.ts'

interface Watched extends Stage {
  readonly store: RecordingStore
}

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()))
})

async function startStageWithStore(options: StageOptions = {}, now?: () => number): Promise<Watched> {
  const store = recordingStore(now)
  const stage = await startStage({ store, ...options })
  stages.push(stage)
  return { ...stage, store }
}

const RESPONSE = { text: ['A gate', ' for', ' water.'] }

const ask = (stage: Stage, stream = true, headers: Readonly<Record<string, string>> = {}): Promise<Response> =>
  post(stage, '/v1/messages', { body: { ...MESSAGE.body, stream }, headers })

const again = (stage: Stage, id: string, options: Parameters<typeof post>[2] = {}): Promise<Response> =>
  post(stage, `/v1/messages/${id}/streams`, options)

async function* createPausedStream(request: UpstreamRequest, opened: Promise<void>) {
  const events = buildEvents(request, RESPONSE)
  yield* events.slice(0, 5)
  await opened
  yield* events.slice(5)
}

const createHangingStream: NonNullable<StageOptions['reply']> = (request) => ({
  kind: 'events',
  items: [...buildEvents(request, RESPONSE).slice(0, 5), HANG],
})

async function expectSettledOnce({ store }: Watched): Promise<void> {
  await store.waitUntilSettled()
  expect(store.settlements.map(({ reservationId }) => reservationId).toSorted()).toEqual(
    [...store.reservationIds].toSorted(),
  )
  expect(await store.maxHeld()).toBe(0)
}

describe('a message streamed again', () => {
  it('costs nothing, does not count against the limit, and reports the rest of the limit', async () => {
    const stage = await startStageWithStore({ key: { name: 'two', rate_limit_requests: 2, budget_limit_cents: 100 } })
    const first = await ask(stage)
    const id = messageIdOf(await first.text())
    const spent = await stage.store.spent('budget')
    const responses = await Promise.all([1, 2, 3, 4, 5].map(() => again(stage, id)))

    for (const response of responses) {
      expect(response.status).toBe(200)
      expect(response.headers.get('x-ratelimit-limit')).toBe('2')
      expect(response.headers.get('x-ratelimit-remaining')).toBe('1')
      expect(response.headers.get('x-request-id')).toMatch(/^req_[0-9a-f]{32}$/)
      expect(response.headers.get('request-id')).not.toBe(first.headers.get('request-id'))
      expect(response.headers.get('cache-control')).toBe('no-cache, no-transform')
    }
    expect(await stage.store.spent('budget')).toBe(spent)
    expect(stage.store.reservationIds).toHaveLength(1)
    expect((await stage.gateway.audit.read({ keyId: stage.keyId })).records).toHaveLength(1)
  })

  it.each([
    ['Last-Event-ID that is no number', { headers: { 'last-event-id': 'abc' } }, 'Last-Event-ID'],
    ['negative Last-Event-ID', { headers: { 'last-event-id': '-1' } }, 'Last-Event-ID'],
    ['Last-Event-ID with a fraction', { headers: { 'last-event-id': '1.5' } }, 'Last-Event-ID'],
    ['starting_after that is a text', { body: { starting_after: '3' } }, 'starting_after'],
    ['negative starting_after', { body: { starting_after: -1 } }, 'starting_after'],
    ['event that has not come yet', { body: { starting_after: 1000 } }, '1000'],
    ['body that is no object', { body: [] }, 'object'],
  ])('is rejected for a %s', async (_, options, words) => {
    const stage = await startStageWithStore()
    const id = messageIdOf(await (await ask(stage)).text())
    const response = await again(stage, id, options)
    expect(response.status).toBe(400)
    expect(response.headers.get('x-ratelimit-limit')).toBe('9007199254740991')
    expect(await response.text()).toContain(words)
  })

  it('is found only with its key', async () => {
    const stage = await startStageWithStore()
    const id = messageIdOf(await (await ask(stage)).text())
    expect((await again(stage, id, { secret: 'sk-bf-nobody' })).status).toBe(401)
    for (const odd of [
      'msg_',
      'unknown',
      encodeURIComponent(`x:${id}`),
      '%F0%9F%98%80',
      'x'.repeat(5000),
      '__proto__',
    ]) {
      const response = await again(stage, odd)
      expect([response.status, (await response.json()).error.type]).toEqual([404, 'invalid_request_error'])
    }
    const got = await stage.gateway.fetch(
      new Request(`http://gateway/v1/messages/${id}/streams`, { headers: { 'x-api-key': stage.secret } }),
    )
    expect([got.status, got.headers.get('allow')]).toEqual([405, 'POST'])
  })

  it('is found for an hour', async () => {
    let now = Date.UTC(2026, 0, 1)
    const stage = await startStageWithStore({ runtime: { now: () => now, random: () => 0 } }, () => now)
    const streamed = messageIdOf(await (await ask(stage)).text())
    const whole = (await (await ask(stage, false)).json()).id as string
    now += 3_599_999
    expect([(await again(stage, streamed)).status, (await again(stage, whole)).status]).toEqual([200, 200])
    now += 1
    expect([(await again(stage, streamed)).status, (await again(stage, whole)).status]).toEqual([404, 404])
  })

  it.each<[string, StageOptions, Record<string, string>]>([
    ['where streams are off', { streams: false }, {}],
    ['where the request wants nothing stored', {}, { 'cache-control': 'no-store' }],
    ['where it is longer than one may be', { streams: { maxBytesPerStream: 500 } }, {}],
  ])('is not found %s, although it was answered', async (_, options, headers) => {
    const stage = await startStageWithStore(options)
    const streamed = await (await ask(stage, true, headers)).text()
    const whole = await (await ask(stage, false, headers)).json()
    expect(streamed).toContain('message_stop')
    expect((await again(stage, messageIdOf(streamed))).status).toBe(404)
    if (!('streams' in options && typeof options.streams === 'object')) {
      expect((await again(stage, whole.id)).status).toBe(404)
    }
  })

  it('is deleted when the store is full and it is the oldest', async () => {
    const options: MemoryStoreOptions = { expiring: { entries: 5, bytes: 1_000_000 } }
    const stage = await startStage({ store: memoryStore(options) })
    stages.push(stage)
    const ids: string[] = []
    for (let count = 0; count < 8; count += 1) ids.push(messageIdOf(await (await ask(stage)).text()))
    const statuses: number[] = []
    for (const id of ids) statuses.push((await again(stage, id)).status)
    expect(statuses).toEqual([404, 404, 404, 200, 200, 200, 200, 200])
  })
})

describe('a live message', () => {
  it('has several followers, each from its own event on, and heartbeats between the events', async () => {
    const opened = gate()
    const stage = await startStageWithStore({
      reply: (request) => ({ kind: 'events', items: createPausedStream(request, opened.opened) }),
      limits: { heartbeatMs: 1 },
    })
    const first = readStream(await ask(stage))
    const id = messageIdOf(await first.readEvents(3))
    const followers = await Promise.all(
      [0, 1, 2, 3].map(async (after) => readStream(await again(stage, id, { body: { starting_after: after } }))),
    )
    const reader = (await again(stage, id, { body: { starting_after: 3 } })).body!.getReader()
    let beaten = ''
    while (!beaten.includes('event: ping')) beaten += new TextDecoder().decode((await reader.read()).value)
    await reader.cancel()
    opened.open()

    const events = splitEvents(await first.readToEnd())
    const texts = await Promise.all(followers.map((follower) => follower.readToEnd()))
    expect(texts.map((text) => splitEvents(text).join(''))).toEqual(
      [0, 1, 2, 3].map((after) => events.slice(after).join('')),
    )
    await expectSettledOnce(stage)
  })

  it('is not slowed or buffered beyond the bounds by a follower that does not read', async () => {
    const text = Array.from({ length: 400 }, (_, index) => `${index} `.repeat(20))
    const stage = await startStageWithStore({ reply: () => ({ text }), streams: { maxBytesPerStream: 40_000 } })
    const first = readStream(await ask(stage))
    const id = messageIdOf(await first.readEvents(1))
    const slow = await again(stage, id)
    const whole = await first.readToEnd()

    expect(splitEvents(whole).length).toBeGreaterThan(400)
    expect(whole).toContain('message_stop')
    const slowText = await slow.text()
    expect(slowText.length).toBeLessThan(40_000)
    expect(splitEvents(slowText).length).toBeLessThan(100)
    expect(slowText).toMatch(/event: error\ndata: .*cannot be followed.*\n\n$/)
    await expectSettledOnce(stage)
  })

  it('reports a recording that is too large instead of an invalid position', async () => {
    const opened = gate()
    const stage = await startStageWithStore({
      reply: (request) => ({ kind: 'events', items: createPausedStream(request, opened.opened) }),
      streams: { maxBytesPerStream: 500 },
    })
    const first = readStream(await ask(stage))
    const id = messageIdOf(await first.readEvents(4))
    const late = await again(stage, id, { body: { starting_after: 3 } })
    opened.open()

    expect(await late.text()).toMatch(/^event: error\ndata: .*cannot be followed/)
    await first.readToEnd()
    await expectSettledOnce(stage)
  })

  it.each([
    ['repeated', (stage: Stage) => ask(stage, true, { 'idempotency-key': 'one' })],
    ['resumed', (stage: Stage, id: string) => again(stage, id)],
  ])('is canceled when its caller leaves, although it was %s above the limits', async (_, follow) => {
    const opened = gate()
    const stage = await startStageWithStore({
      reply: (request) => {
        const events = buildEvents(request, { text: Array.from({ length: 40 }, (__, index) => `${index} `) })
        return { kind: 'events', items: [...events.slice(0, 5), opened.opened, ...events.slice(5, 30), HANG] }
      },
      streams: { maxBytesPerStream: 2000 },
    })
    const first = readStream(await ask(stage, true, { 'idempotency-key': 'one' }))
    const id = messageIdOf(await first.readEvents(2))
    const follower = await follow(stage, id)
    opened.open()
    expect(await follower.text()).toMatch(/cannot be followed/)
    await first.cancel()

    await stage.upstream.requests[0]?.aborted
    await expectSettledOnce(stage)
  })

  it('is canceled when its caller leaves after that of a repeated request, which left before it was answered', async () => {
    const stage = await startStageWithStore({
      reply: createHangingStream,
      key: { name: 'one', rate_limit_requests: 9 },
    })
    const headers = { 'idempotency-key': 'one' }
    const first = readStream(await ask(stage, true, headers))
    await first.readEvents(2)
    const leaver = new AbortController()
    const { levels } = stage.store
    stage.store.levels = (counters) => {
      leaver.abort()
      return levels(counters)
    }
    const body = { ...MESSAGE.body, stream: true }
    await post(stage, '/v1/messages', { body, headers, signal: leaver.signal }).catch(() => {})
    expect(leaver.signal.aborted).toBe(true)
    await first.cancel()

    await stage.upstream.requests[0]?.aborted
    await expectSettledOnce(stage)
  })

  it('of another process is followed if it is detached, and is unknown until complete if not', async () => {
    const opened = gate()
    const stage = await startStageWithStore({
      reply: (request) => ({ kind: 'events', items: createPausedStream(request, opened.opened) }),
    })
    const other = await startStage({ store: stage.store })
    stages.push(other)
    const elsewhere = { gateway: other.gateway, secret: stage.secret }
    const detached = readStream(await ask(stage, true, { 'x-svc-detach': 'true' }))
    const attached = readStream(await ask(stage))
    const [one, two] = [messageIdOf(await detached.readEvents(1)), messageIdOf(await attached.readEvents(1))]
    // The claim on the name of the recording reaches the store after the first event.
    const waiting = await vi.waitUntil(
      async () => {
        const found = await again({ ...stage, ...elsewhere }, one, { body: { starting_after: 2 } })
        return found.status === 200 && found
      },
      { timeout: 50_000 },
    )
    expect((await again({ ...stage, ...elsewhere }, two)).status).toBe(404)
    const followed = readStream(waiting)
    // The upstream goes on only when the other process has sent an event.
    expect(splitEvents(await followed.readEvents(1)).length).toBeGreaterThan(0)
    opened.open()
    const [whole, other_] = [await detached.readToEnd(), await attached.readToEnd()]

    expect(waiting.status).toBe(200)
    expect(splitEvents(await followed.readToEnd())).toEqual(splitEvents(whole).slice(2))
    expect(await (await again({ ...stage, ...elsewhere }, two)).text()).toBe(other_)
  })
})

describe('closing a gateway', () => {
  it('ends detached requests, settles them, and stores their events', async () => {
    const store = recordingStore()
    const { close } = store
    let isClosed = false
    store.close = async () => {
      isClosed = true
      await close()
    }
    const stage = await startStage({
      store,
      reply: createHangingStream,
      key: { name: 'closing', budget_limit_cents: 100 },
    })
    stages.push(stage)
    const left = readStream(await ask(stage, true, { 'x-svc-detach': 'true' }))
    const read = readStream(await ask(stage, true, { 'x-svc-detach': 'true' }))
    await left.readEvents(3)
    await left.cancel()
    const leaver = new AbortController()
    stage.upstream.reply = () => ({ kind: 'hang' })
    const headers = { 'x-svc-detach': 'true', 'idempotency-key': 'whole' }
    const whole = post(stage, '/v1/messages', { body: { ...MESSAGE.body }, headers, signal: leaver.signal })
    await stage.upstream.waitForRequest(3)
    leaver.abort()
    await stage.gateway.close()

    expect(isClosed).toBe(true)
    expect(store.settlements).toHaveLength(3)
    expect(await read.readToEnd()).toMatch(/id: \d+\nevent: error\ndata: .*X-Svc-Detach/)
    expect((await whole).status).toBe(499)
  })
})

it.each([
  [{ entries: 0 }, 'createGateway: streams.entries: expected an integer of at least 1, got 0.'],
  [
    { lifetime: 3 },
    'createGateway: streams.lifetime: there is no such option. The options are retentionSeconds, entries, bytes, maxBytesPerStream.',
  ],
  [true, 'createGateway: streams: expected false or an object with options, got true.'],
])('rejects invalid options of streams by name: %j', (streams, words) => {
  expect(() => createGateway({ providers: [extractive()], streams } as GatewayOptions)).toThrow(words)
})

it('every event of a message stream has an id; those of a chat stream have none', async () => {
  const stage = await startStageWithStore()
  const message = await (await ask(stage)).text()
  const chat = await (await post(stage, '/v1/chat/completions', { body: { ...MESSAGE.body, stream: true } })).text()
  expect(splitEvents(message)).toHaveLength(message.split('\n\n').length - 1)
  expect(chat).not.toContain('id: ')
})
