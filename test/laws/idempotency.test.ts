import { afterEach, describe, expect, it } from 'vitest'
import { everyNth } from '../support/full.ts'
import { cases, fc } from '../support/properties.ts'
import { FORMAT_PAIRS, type Endpoint } from '../support/send-request.ts'
import { startStage, type Stage } from '../support/stage.ts'
import { post, readStream } from '../support/read-stream.ts'
import { CUT, buildEvents, gate, HANG, type Reply, type UpstreamRequest } from '../support/upstream.ts'
import { recordingStore, type RecordingStore } from '../support/recording-store.ts'

interface Watched extends Stage {
  readonly store: RecordingStore
}

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()))
})

async function watched(
  reply: (request: UpstreamRequest) => Reply | Promise<Reply>,
  options: Parameters<typeof startStage>[0] = {},
): Promise<Watched> {
  const store = recordingStore()
  const stage = await startStage({ store, reply, key: { name: 'law', budget_limit_cents: 100_000 }, ...options })
  stages.push(stage)
  return { ...stage, store }
}

async function expectSettledOnce({ store }: Watched, reservationCount?: number): Promise<void> {
  if (reservationCount !== undefined) expect(store.reservationIds).toHaveLength(reservationCount)
  await store.waitUntilSettled()
  await new Promise((resolve) => setImmediate(resolve))
  expect(store.settlements.map(({ reservationId }) => reservationId).toSorted()).toEqual(
    [...store.reservationIds].toSorted(),
  )
  expect(await store.maxHeld()).toBe(0)
}

const send = (
  stage: Stage,
  endpoint: Endpoint,
  {
    key = 'first',
    stream = false,
    more = {},
    signal,
  }: { key?: string; stream?: boolean; more?: object; signal?: AbortSignal } = {},
): Promise<Response> =>
  post(stage, endpoint.path, {
    body: { ...endpoint.body, stream, ...more },
    headers: { 'idempotency-key': key },
    ...(signal !== undefined && { signal }),
  })

/** Returns a response without the headers that differ between two responses with the same response. */
async function readReply(response: Response): Promise<unknown> {
  const own = ['x-request-id', 'request-id', 'idempotency-replayed', 'x-ratelimit-remaining', 'x-ratelimit-reset']
  const headers = [...response.headers].filter(([name]) => !own.includes(name))
  return { status: response.status, headers, body: await response.text() }
}

const RESPONSE = { text: ['One', ' two', ' three.'] }

describe.each(everyNth(3, FORMAT_PAIRS))('on the $name, an Idempotency-Key', (endpoint) => {
  it.each([false, true])(
    'returns the same answer byte for byte without an upstream call and a bill (stream: %s)',
    async (stream) => {
      const stage = await watched(() => RESPONSE)
      const first = await send(stage, endpoint, { stream })
      expect(first.headers.get('idempotency-replayed')).toBeNull()
      const response = await readReply(first)

      for (const again of [await send(stage, endpoint, { stream }), await send(stage, endpoint, { stream })]) {
        expect(again.headers.get('idempotency-replayed')).toBe('true')
        expect(again.headers.get('x-svc-billed-amount')).toMatch(/^\$0\.\d{6}$/)
        expect(await readReply(again)).toEqual(response)
      }
      expect(stage.upstream.requests).toHaveLength(1)
      await expectSettledOnce(stage, 1)
    },
  )

  it.each([false, true])(
    'calls the upstream once for twenty concurrent requests, which all receive the same answer (stream: %s)',
    async (stream) => {
      const opened = gate()
      const stage = await watched(async () => (await opened.opened, RESPONSE))
      const asked = Array.from({ length: 20 }, () => send(stage, endpoint, { stream }))
      await stage.upstream.waitForRequest(1)
      opened.open()
      const responses = await Promise.all((await Promise.all(asked)).map(readReply))

      expect(new Set(responses.map((response) => JSON.stringify(response))).size).toBe(1)
      expect(JSON.stringify(responses[0])).toContain('200')
      expect(stage.upstream.requests).toHaveLength(1)
      await expectSettledOnce(stage, 1)
      const audit = await stage.gateway.audit.read({ keyId: stage.keyId })
      expect(audit.records).toHaveLength(20)
      expect(audit.records.filter((record) => record.costUsd > 0)).toHaveLength(1)
    },
  )

  it('is rejected with a different body, during the first request and after it', async () => {
    const opened = gate()
    const stage = await watched(async () => (await opened.opened, RESPONSE))
    const first = send(stage, endpoint)
    await stage.upstream.waitForRequest(1)
    const early = await send(stage, endpoint, { more: { max_tokens: 21 } })
    opened.open()
    await first
    const late = await send(stage, endpoint, { stream: true })

    for (const refused of [early, late]) {
      expect(refused.status).toBe(409)
      expect(refused.headers.get('x-should-retry')).toBe('false')
      expect(await refused.text()).toContain('invalid_request_error')
    }
    expect(stage.upstream.requests).toHaveLength(1)
    await expectSettledOnce(stage, 1)
  })

  it('of another virtual key is independent', async () => {
    const stage = await watched(() => RESPONSE)
    await send(stage, endpoint)
    const other = await stage.gateway.keys.create({ name: 'other' })
    const response = await send({ ...stage, secret: other.value }, endpoint)

    expect(response.headers.get('idempotency-replayed')).toBeNull()
    expect(stage.upstream.requests).toHaveLength(2)
  })

  it.each([400, 404, 422])('repeats a %i of the upstream', async (status) => {
    const stage = await watched(() => ({ kind: 'failure', status }))
    const first = await readReply(await send(stage, endpoint))
    const again = await send(stage, endpoint)

    expect(again.headers.get('idempotency-replayed')).toBe('true')
    expect(await readReply(again)).toEqual(first)
    expect(stage.upstream.requests).toHaveLength(1)
    await expectSettledOnce(stage, 1)
  })

  it.each<[string, Reply]>([
    ['the upstream refused with 401', { kind: 'failure', status: 401 }],
    ['the upstream refused with 409', { kind: 'failure', status: 409 }],
    ['the upstream refused with 429', { kind: 'failure', status: 429 }],
    ['the upstream refused with 500', { kind: 'failure', status: 500 }],
    ['the upstream cut the connection', { kind: 'cut' }],
  ])('can be used again when %s', async (_, reply) => {
    let failing = true
    const stage = await watched(() => (failing ? reply : RESPONSE))
    const first = await send(stage, endpoint)
    failing = false
    const second = await send(stage, endpoint)

    expect(first.status).toBeGreaterThanOrEqual(400)
    expect([second.status, second.headers.get('idempotency-replayed')]).toEqual([200, null])
    await expectSettledOnce(stage, 2)
  })

  it('can be used again after a broken stream', async () => {
    let failing = true
    const stage = await watched((request) =>
      failing ? { kind: 'events', items: [...buildEvents(request, RESPONSE).slice(0, 5), CUT] } : RESPONSE,
    )
    const first = await (await send(stage, endpoint, { stream: true })).text()
    failing = false
    const second = await send(stage, endpoint, { stream: true })

    expect(first).toContain('"error"')
    expect(second.headers.get('idempotency-replayed')).toBeNull()
    expect(await second.text()).not.toContain('"error"')
    await expectSettledOnce(stage, 2)
  })

  it('returns the same error to waiting requests', async () => {
    const opened = gate()
    const stage = await watched(async () => (await opened.opened, { kind: 'failure', status: 500 }))
    const asked = Array.from({ length: 5 }, () => send(stage, endpoint))
    await stage.upstream.waitForRequest(1)
    const calls = stage.upstream.requests.length
    opened.open()
    const responses = await Promise.all((await Promise.all(asked)).map(readReply))

    expect(calls).toBe(1)
    expect(new Set(responses.map((response) => JSON.stringify(response))).size).toBe(1)
    await expectSettledOnce(stage, 1)
  })

  it('is followed live by a second stream, which continues when the first caller disconnects', async () => {
    const opened = gate()
    const stage = await watched((request) => ({ kind: 'events', items: halting(request, opened.opened) }))
    const first = readStream(await send(stage, endpoint, { stream: true }))
    const second = readStream(await send(stage, endpoint, { stream: true }))
    expect(second.response.headers.get('idempotency-replayed')).toBe('true')
    await first.cancel()
    opened.open()
    const whole = await second.readToEnd()

    expect(whole).toMatch(/\[DONE\]|message_stop/)
    expect(await (await send(stage, endpoint, { stream: true })).text()).toBe(whole)
    expect(stage.upstream.requests).toHaveLength(1)
    await expectSettledOnce(stage, 1)
  })

  it('can be used again when all callers have disconnected', async () => {
    let hanging = true
    const stage = await watched((request) =>
      hanging ? { kind: 'events', items: [...buildEvents(request, RESPONSE).slice(0, 5), HANG] } : RESPONSE,
    )
    const [first, second] = [
      await send(stage, endpoint, { stream: true }),
      await send(stage, endpoint, { stream: true }),
    ]
    await first.body!.cancel()
    await second.body!.cancel()
    await stage.upstream.last.aborted
    hanging = false
    const third = await send(stage, endpoint, { stream: true })

    expect([third.status, third.headers.get('idempotency-replayed')]).toEqual([200, null])
    expect(await third.text()).toMatch(/\[DONE\]|message_stop/)
    await expectSettledOnce(stage, 2)
  })

  it('returns the answer of a detached request whose caller disconnected', async () => {
    for (const stream of [false, true]) {
      const opened = gate()
      const stage = await watched(async () => (await opened.opened, RESPONSE))
      const leaver = new AbortController()
      const body = { ...endpoint.body, stream }
      const headers = { 'idempotency-key': 'first', 'x-svc-detach': 'true' }
      const first = post(stage, endpoint.path, { body, headers, signal: leaver.signal })
      await stage.upstream.waitForRequest(1)
      leaver.abort()
      opened.open()
      // The body of a disconnected caller ends with an error.
      await (await first).body?.cancel().catch(() => {})
      const second = await send(stage, endpoint, { stream })

      expect([second.status, second.headers.get('idempotency-replayed')]).toEqual([200, 'true'])
      expect(await second.text()).toContain('three.')
      expect(stage.upstream.requests).toHaveLength(1)
      await expectSettledOnce(stage, 1)
    }
  })

  it.each(['', 'x'.repeat(256), 'käse'])('that is invalid is a 400: %s', async (key) => {
    const stage = await watched(() => RESPONSE)
    const response = await send(stage, endpoint, { key })
    expect(response.status).toBe(400)
    expect(stage.upstream.requests).toHaveLength(0)
    await expectSettledOnce(stage, 0)
  })
})

async function* halting(request: UpstreamRequest, opened: Promise<void>) {
  const events = buildEvents(request, RESPONSE)
  yield* events.slice(0, 5)
  await opened
  yield* events.slice(5)
}

it('the same key on another path is a 409', async () => {
  const stage = await watched(() => RESPONSE)
  const [chat, , message] = FORMAT_PAIRS
  const body = { ...chat!.body, model: message!.body['model'] }
  const headers = { 'idempotency-key': 'first' }
  const first = await post(stage, chat!.path, { body, headers })
  const second = await post(stage, message!.path, { body, headers })
  expect([first.status, second.status]).toEqual([200, 409])
})

describe('with any callers disconnecting', () => {
  const caller = fc.record({
    key: fc.constantFrom('a', 'b'),
    leaves: fc.constantFrom('never', 'before', 'in the middle'),
    turns: fc.nat(3),
  })

  it('all others with one key receive the same whole answer, and every request settles once', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...FORMAT_PAIRS),
        fc.boolean(),
        fc.array(caller, { minLength: 2, maxLength: 8 }),
        async (endpoint, stream, callers) => {
          const stage = await watched((request) =>
            stream ? { kind: 'events', items: buildEvents(request, RESPONSE) } : RESPONSE,
          )
          const responses = await Promise.all(
            callers.map(async ({ key, leaves, turns }) => {
              const leaver = new AbortController()
              const response = send(stage, endpoint, {
                key,
                stream,
                signal: leaver.signal,
              })
              for (let turn = 0; turn < turns; turn += 1) await new Promise((resolve) => setImmediate(resolve))
              if (leaves === 'before') leaver.abort()
              const read = readStream(await response)
              if (leaves === 'in the middle') await read.cancel()
              return leaves === 'never'
                ? { key, text: await read.readToEnd(), status: read.response.status }
                : undefined
            }),
          )
          for (const key of ['a', 'b']) {
            const stayed = responses.filter((response) => response?.key === key)
            expect(new Set(stayed.map((response) => response!.text)).size).toBeLessThanOrEqual(1)
            expect(stayed.every((response) => response!.status === 200)).toBe(true)
          }
          await expectSettledOnce(stage)
          await stages.pop()?.close()
        },
      ),
      { numRuns: cases(40) },
    )
  })
})
