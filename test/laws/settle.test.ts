import { connect } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import type { SseEvent } from '../../src/core/completion.ts'
import { everyNth } from '../support/full.ts'
import { cases, fc } from '../support/properties.ts'
import {
  sendRequest,
  authorizationLine,
  FORMAT_PAIRS,
  RESPONSES_FORMAT_PAIRS,
  type Endpoint,
} from '../support/send-request.ts'
import { startStage, type Stage } from '../support/stage.ts'
import { CUT, buildEvents, gate, HANG, type Reply, type UpstreamRequest } from '../support/upstream.ts'
import { recordingStore, type RecordingStore } from '../support/recording-store.ts'
import { waitFor } from '../support/wait-until.ts'

const KEY = { budget_limit_cents: 100_000, rate_limit_requests: 10_000, rate_limit_tokens: 100_000_000 }

interface RecordedStage extends Stage {
  readonly store: RecordingStore
}

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()))
})

async function startRecordedStage(reply: (request: UpstreamRequest) => Reply | Promise<Reply>): Promise<RecordedStage> {
  const store = recordingStore()
  const stage = await startStage({ store, reply, key: { name: 'law', ...KEY }, runtime: { random: () => 0 } })
  stages.push(stage)
  return { ...stage, store }
}

/** Expects that each reservation is settled by one call, no amount is held, and the request is recorded once. */
async function expectSettledOnce({ store, gateway }: RecordedStage, reservationCount = 1): Promise<void> {
  expect(store.reservationIds).toHaveLength(reservationCount)
  await store.waitUntilSettled()
  // Let the work that follows the settlement finish.
  await new Promise((resolve) => setImmediate(resolve))
  expect(store.settlements.map((settlement) => settlement.reservationId).toSorted()).toEqual(
    [...store.reservationIds].toSorted(),
  )
  expect(await store.maxHeld()).toBe(0)
  await waitFor(async () => {
    const { records } = await gateway.audit.read({ limit: 1000 })
    expect(records.length).toBeGreaterThanOrEqual(reservationCount)
    expect(new Set(records.map((record) => record.requestId)).size).toBe(records.length)
  })
}

function fetchInProcess(stage: Stage, endpoint: Endpoint, more: object = {}, signal?: AbortSignal): Promise<Response> {
  const headers = { authorization: `Bearer ${stage.secret}`, 'content-type': 'application/json' }
  const init = { method: 'POST', headers, body: JSON.stringify({ ...endpoint.body, ...more }), signal: signal ?? null }
  return stage.gateway.fetch(new Request(`http://gateway${endpoint.path}`, init))
}

const RESPONSE = { text: ['One', ' two', ' three'], usage: null }
const MAX_EVENTS = 11

function createEvents(request: UpstreamRequest): readonly SseEvent[] {
  return buildEvents(request, { text: RESPONSE.text })
}

/** Yields events, calls `sent` after the last one, and then ends. */
async function* sendThenEnd(
  events: readonly SseEvent[],
  end: typeof CUT | typeof HANG,
  sent = (): void => {},
): AsyncGenerator<SseEvent | typeof CUT | typeof HANG> {
  yield* events
  sent()
  yield end
}

const PAIRS = everyNth(5, [...RESPONSES_FORMAT_PAIRS, ...FORMAT_PAIRS])
describe.each(PAIRS)('on the $name, a request settles once', (endpoint) => {
  it('when its answer is whole', async () => {
    const stage = await startRecordedStage(() => ({ text: 'Hello.' }))
    expect((await sendRequest(stage, endpoint.body, { path: endpoint.path })).status).toBe(200)
    await expectSettledOnce(stage)
  })

  it('when its stream is whole, before its end is sent', async () => {
    const stage = await startRecordedStage(() => ({ text: 'Hello.' }))
    const reply = await sendRequest(stage, { ...endpoint.body, stream: true }, { path: endpoint.path })

    expect(reply.text).toMatch(/\[DONE\]|message_stop|response\.completed/)
    expect(stage.store.settlements).toHaveLength(1)
    await expectSettledOnce(stage)
  })

  it.each([400, 401, 404, 429, 500, 503])('when the upstream rejects it with %i', async (status) => {
    for (const stream of [false, true]) {
      const stage = await startRecordedStage(() => ({ kind: 'failure', status }))
      expect(
        (await sendRequest(stage, { ...endpoint.body, stream }, { path: endpoint.path })).status,
      ).toBeGreaterThanOrEqual(400)
      await expectSettledOnce(stage)
      expect(await stage.store.spent('budget')).toBe(0)
    }
  })

  it.each<[string, Reply]>([
    ['cuts the connection', { kind: 'cut' }],
    ['answers no JSON', { kind: 'body', body: '<html>' }],
    ['answers an empty object', { kind: 'json', value: {} }],
    ['answers JSON where a stream was asked for, and the other way round', { kind: 'events', items: ['data: {}\n\n'] }],
    ['sends a malformed event', { kind: 'events', items: ['data: {"id":\n\n'] }],
    ['ends its stream at once', { kind: 'events', items: [] }],
    ['speaks no HTTP', { kind: 'socket', bytes: 'nonsense\r\n\r\n' }],
  ])('when the upstream %s', async (_, reply) => {
    for (const stream of [false, true]) {
      const stage = await startRecordedStage(() => reply)
      expect(
        (await sendRequest(stage, { ...endpoint.body, stream }, { path: endpoint.path })).status,
      ).toBeGreaterThanOrEqual(400)
      await expectSettledOnce(stage)
    }
  })

  it('when the upstream breaks off after any event', async () => {
    for (let count = 0; count < MAX_EVENTS; count += 1) {
      const stage = await startRecordedStage((request) => ({
        kind: 'events',
        items: sendThenEnd(createEvents(request).slice(0, count), CUT),
      }))
      await sendRequest(stage, { ...endpoint.body, stream: true }, { path: endpoint.path })
      await expectSettledOnce(stage)
    }
  })

  it('when its caller disconnects from the port after any event', async () => {
    for (let count = 0; count < MAX_EVENTS; count += 1) {
      const sent = gate()
      const stage = await startRecordedStage((request) => ({
        kind: 'events',
        items: sendThenEnd(createEvents(request).slice(0, count), HANG, sent.open),
      }))
      const controller = new AbortController()
      const reply = sendRequest(
        stage,
        { ...endpoint.body, stream: true },
        { path: endpoint.path, signal: controller.signal },
      )
      await sent.opened
      controller.abort()

      await expect(reply).rejects.toThrow()
      await expectSettledOnce(stage)
    }
  })

  it('when its caller cancels the body after any piece', async () => {
    for (let count = 0; count < MAX_EVENTS; count += 1) {
      const stage = await startRecordedStage((request) => ({ kind: 'events', items: createEvents(request) }))
      const response = await fetchInProcess(stage, endpoint, { stream: true })
      const reader = response.body!.getReader()
      for (let read = 0; read < count; read += 1) await reader.read()
      await reader.cancel()

      await expectSettledOnce(stage)
    }
  })

  it('when its caller waits for the next piece and cancels', async () => {
    // No event follows, so only a cancellation ends the next read.
    const stage = await startRecordedStage((request) => {
      const events = createEvents(request)
      const said = events.findIndex((event) => event.data.includes('One'))
      return { kind: 'events', items: [...events.slice(0, said + 1), HANG] }
    })
    const response = await fetchInProcess(stage, endpoint, { stream: true })
    const reader = response.body!.getReader()
    let text = ''
    while (!text.includes('One')) text += new TextDecoder().decode((await reader.read()).value)
    const pending = reader.read()
    await reader.cancel()

    expect((await pending).done).toBe(true)
    await expectSettledOnce(stage)
    expect(await stage.store.spent('budget')).toBeGreaterThan(0)
  })

  it('when its caller aborts after any piece and never touches the body again', async () => {
    for (let count = 0; count < MAX_EVENTS; count += 1) {
      const stage = await startRecordedStage((request) => ({ kind: 'events', items: [...createEvents(request), HANG] }))
      const controller = new AbortController()
      const response = await fetchInProcess(stage, endpoint, { stream: true }, controller.signal)
      const reader = response.body!.getReader()
      for (let read = 0; read < count; read += 1) if ((await reader.read()).done) break
      // The remaining received pieces wait for a reader.
      await sendRequest(stage, undefined, { method: 'GET', path: '/health' })
      controller.abort()

      await expectSettledOnce(stage)
    }
  })

  it('when its caller never reads the body and cancels it', async () => {
    for (const stream of [false, true]) {
      const stage = await startRecordedStage(() => ({ text: 'Hello.' }))
      const response = await fetchInProcess(stage, endpoint, { stream })
      await response.body!.cancel()
      await expectSettledOnce(stage)
    }
  })

  it('when its caller aborts while the upstream hangs', async () => {
    for (const stream of [false, true]) {
      const stage = await startRecordedStage(() => ({ kind: 'hang' }))
      const controller = new AbortController()
      const response = fetchInProcess(stage, endpoint, { stream }, controller.signal)
      const request = await stage.upstream.waitForRequest(1)
      controller.abort()

      expect((await response).status).toBe(499)
      await request.aborted
      await expectSettledOnce(stage)
      // The prompt is billed, and no response: PRICE.input × the default margin, per token.
      const { prompt, completion, actual, billed } = stage.store.dailyTotals()
      expect(prompt).toBeGreaterThan(0)
      expect({ completion, actual, billed }).toEqual({ completion: 0, actual: prompt * 1000, billed: prompt * 1500 })
    }
  })

  it('when its caller disconnected before the upstream call', async () => {
    const stage = await startRecordedStage(() => ({ text: 'Hello.' }))
    const response = await fetchInProcess(stage, endpoint, {}, AbortSignal.abort())

    expect(response.status).toBe(499)
    expect(stage.upstream.requests).toHaveLength(0)
    await expectSettledOnce(stage, stage.store.reservationIds.length)
    expect(await stage.store.spent('budget')).toBe(0)
  })

  it('when its caller never reads from the port and disconnects', async () => {
    const sent = gate()
    const filler = `: ${'x'.repeat(60_000)}\n\n`
    const stage = await startRecordedStage((request) => ({
      kind: 'events',
      items: (async function* () {
        yield* createEvents(request).slice(0, 4)
        const content = 'x'.repeat(60_000)
        const [begun] = buildEvents(request, { text: [content] }).filter((event) => event.data.includes(content))
        for (let count = 0; count < 200; count += 1) {
          if (count === 20) sent.open()
          yield begun ?? filler
        }
        yield HANG
      })(),
    }))
    const { hostname, port } = new URL(stage.url)
    const body = JSON.stringify({ ...endpoint.body, stream: true })
    const socket = connect({ host: hostname, port: Number(port) }).pause()
    socket.write(
      `POST ${endpoint.path} HTTP/1.1\r\nhost: x\r\n${authorizationLine(stage)}content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    )
    await sent.opened
    socket.destroy()

    await stage.upstream.last.aborted
    await expectSettledOnce(stage)
  })
})

describe('concurrent requests settle once each', () => {
  const ending = fc.constantFrom('whole', 'stream', 'refused', 'cut', 'left', 'hung', 'cancelled', 'unread')
  type Ending = 'whole' | 'stream' | 'refused' | 'cut' | 'left' | 'hung' | 'cancelled' | 'unread'

  let ids = 0

  /** A caller can only disconnect without a race after its request has reached the upstream. */
  async function reachedUpstream(stage: Stage, id: string): Promise<void> {
    for (let count = 1; ; count += 1) {
      if ((await stage.upstream.waitForRequest(count)).text.includes(`"${id}"`)) return
    }
  }

  async function end(
    stage: Stage,
    endpoint: Endpoint,
    { kind, frames }: { readonly kind: Ending; readonly frames: number },
  ): Promise<void> {
    const id = `${kind} ${frames} ${(ids += 1)}`
    const callerFields = { user: id, metadata: { user_id: id } }
    if (kind === 'whole' || kind === 'refused') {
      await fetchInProcess(stage, endpoint, callerFields).then((response) => response.text())
    } else if (kind === 'stream' || kind === 'cut') {
      await fetchInProcess(stage, endpoint, { ...callerFields, stream: true }).then((response) => response.text())
    } else if (kind === 'hung') {
      const controller = new AbortController()
      const response = fetchInProcess(stage, endpoint, { ...callerFields, stream: frames % 2 === 0 }, controller.signal)
      setImmediate(() => controller.abort())
      await (await response).body?.cancel()
    } else if (kind === 'left') {
      const controller = new AbortController()
      const reply = sendRequest(
        stage,
        { ...endpoint.body, ...callerFields, stream: true },
        { path: endpoint.path, signal: controller.signal },
      )
      void reachedUpstream(stage, id).then(() => controller.abort())
      await reply.catch(() => undefined)
    } else {
      const reader = (await fetchInProcess(stage, endpoint, { ...callerFields, stream: true })).body!.getReader()
      for (let count = 0; kind === 'cancelled' && count < frames; count += 1) await reader.read()
      await reader.cancel()
    }
  }

  function replyTo(request: UpstreamRequest): Reply {
    const [kind, frames] = (/(\w+) (\d+) \d+"/.exec(request.text) ?? []).slice(1)
    if (kind === 'refused') return { kind: 'failure', status: 400 }
    if (kind === 'hung' || kind === 'left') return { kind: 'hang' }
    if (kind === 'cut') return { kind: 'events', items: [...createEvents(request).slice(0, Number(frames)), CUT] }
    return { text: RESPONSE.text }
  }

  it('with any endings, and the usage is the sum of the settlements', async () => {
    const one = fc.record({ kind: ending, frames: fc.nat(MAX_EVENTS), endpoint: fc.constantFrom(...FORMAT_PAIRS) })
    await fc.assert(
      fc.asyncProperty(fc.array(one, { minLength: 2, maxLength: 12 }), async (requests) => {
        const stage = await startRecordedStage(replyTo)
        await Promise.all(
          requests.map(({ endpoint, ...how }) => end(stage, endpoint, how as { kind: Ending; frames: number })),
        )
        await expectSettledOnce(stage, stage.store.reservationIds.length)
        const budget = stage.store.settlements.map(({ charges }) => {
          return Math.max(
            0,
            ...charges.filter(({ counter }) => counter.startsWith('budget:')).map(({ amount }) => amount),
          )
        })
        expect(await stage.store.spent('budget')).toBe(budget.reduce((sum, amount) => sum + amount, 0))
        expect(await stage.store.spent('requests')).toBe(stage.store.reservationIds.length)
        await stages.pop()?.close()
      }),
      { numRuns: cases(25) },
    )
  })
})

describe('a settlement that the store rejects', () => {
  it('does not affect the answer, and is sent again with the next one', async () => {
    const store = recordingStore()
    const { settle } = store
    let failing = true
    store.settle = async (settlement) => {
      if (failing) throw new Error('The store is away')
      return settle(settlement)
    }
    const stage = await startStage({ store, key: { name: 'law', ...KEY } })
    stages.push(stage)
    const [endpoint] = FORMAT_PAIRS
    const first = await sendRequest(stage, endpoint!.body)
    const second = await sendRequest(stage, { ...endpoint!.body, stream: true })
    failing = false
    const third = await sendRequest(stage, endpoint!.body)

    expect([first.status, second.status, third.status]).toEqual([200, 200, 200])
    expect(second.text).toContain('[DONE]')
    await expectSettledOnce({ ...stage, store }, 3)
  })
})
