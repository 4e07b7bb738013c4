import { afterEach, describe, expect, it } from 'vitest'
import { FORMAT_PAIRS, type Endpoint } from '../support/send-request.ts'
import { startStage, type Stage } from '../support/stage.ts'
import { splitEvents, expectConsecutiveIds, messageIdOf, post, readStream } from '../support/read-stream.ts'
import { CUT, buildEvents, gate, type ModelResponse, type UpstreamRequest } from '../support/upstream.ts'
import { recordingStore, type RecordingStore } from '../support/recording-store.ts'

const RESPONSES: Readonly<Record<string, ModelResponse>> = {
  text: { text: ['A gate', ' for', ' water.'] },
  tools: {
    text: 'Let me look.',
    toolCalls: [
      { name: 'weather', input: '{"city":"Paris","unit":"c"}' },
      { name: 'time', input: '{"zone":"CET"}' },
    ],
  },
  thinking: { thinking: 'Rivers have gates.', text: 'A sluice.' },
}

const MESSAGE_ENDPOINTS = FORMAT_PAIRS.filter((endpoint) => endpoint.path === '/v1/messages')
const CASES = MESSAGE_ENDPOINTS.flatMap((endpoint) => Object.keys(RESPONSES).map((kind) => ({ ...endpoint, kind })))

interface RecordedStage extends Stage {
  readonly store: RecordingStore
}

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()))
})

async function startRecordedStage(options: Parameters<typeof startStage>[0]): Promise<RecordedStage> {
  const store = recordingStore()
  const stage = await startStage({ store, ...options })
  stages.push(stage)
  return { ...stage, store }
}

const stream = (stage: Stage, endpoint: Endpoint, headers: Readonly<Record<string, string>> = {}): Promise<Response> =>
  post(stage, endpoint.path, { body: { ...endpoint.body, stream: true }, headers })

const replay = (stage: Stage, id: string, after: number): Promise<Response> =>
  post(stage, `/v1/messages/${id}/streams`, { headers: { 'last-event-id': String(after) } })

async function expectSettledOnce({ store }: RecordedStage): Promise<void> {
  await store.waitUntilSettled()
  await new Promise((resolve) => setImmediate(resolve))
  expect(store.settlements.map(({ reservationId }) => reservationId).toSorted()).toEqual(
    [...store.reservationIds].toSorted(),
  )
  expect(await store.maxHeld()).toBe(0)
}

describe.each(CASES)('a stream of $kind on the $name', ({ kind, ...endpoint }) => {
  const reply = (): ModelResponse => RESPONSES[kind]!

  it('that has ended is the same from every event on, byte for byte', async () => {
    const stage = await startRecordedStage({ reply })
    const whole = await readStream(await stream(stage, endpoint)).readToEnd()
    const events = splitEvents(whole)
    expectConsecutiveIds(whole)
    expect(events.join('')).toBe(whole)
    expect(whole).toMatch(/svc_metrics.*\n\n.*\n.*\n.*message_stop.*\n\n$/)

    for (let seen = 0; seen <= events.length; seen += 1) {
      const response = await replay(stage, messageIdOf(whole), seen)
      expect(response.status).toBe(200)
      expect(events.slice(0, seen).join('') + (await response.text())).toBe(whole)
    }
    expect(stage.upstream.requests).toHaveLength(1)
    await expectSettledOnce(stage)
  })

  it('that is detached and disconnected after any event continues, and can be joined without a gap', async () => {
    const stage = await startRecordedStage({ reply })
    const uncut = await readStream(await stream(stage, endpoint)).readToEnd()
    const events = splitEvents(uncut)
    for (let seen = 1; seen <= events.length; seen += 1) {
      const first = readStream(await stream(stage, endpoint, { 'x-svc-detach': 'true' }))
      const before = splitEvents(await first.readEvents(seen)).slice(0, seen)
      await first.cancel()
      const id = messageIdOf(before.join(''))
      const rest = await readStream(await replay(stage, id, seen)).readToEnd()

      const joined = before.join('') + rest
      expect(joined.replaceAll(id, 'ID')).toBe(uncut.replaceAll(messageIdOf(uncut), 'ID'))
      expect(await readStream(await replay(stage, id, 0)).readToEnd()).toBe(joined)
    }
    await expectSettledOnce(stage)
    expect(
      new Set(stage.store.settlements.map(({ charges }) => JSON.stringify(charges.map((charge) => charge.amount))))
        .size,
    ).toBe(1)
  })

  it('that is disconnected while the upstream is generating is followed live', async () => {
    const frames = buildEvents(
      { index: 0, text: '', body: { model: 'large', stream_options: { include_usage: true } }, dialect: 'messages' },
      reply(),
    ).length
    // The gateway answers when the upstream sends content, which is in its fourth event.
    for (let spoken = 4; spoken < frames; spoken += 1) {
      const opened = gate()
      const stage = await startRecordedStage({
        reply: (request) => ({ kind: 'events', items: pauseAfter(request, reply(), spoken, opened.opened) }),
      })
      const first = readStream(await stream(stage, endpoint, { 'x-svc-detach': 'true' }))
      const before = splitEvents(await first.readEvents(1)).slice(0, 1)
      await first.cancel()
      const id = messageIdOf(before.join(''))
      const [early, late] = [readStream(await replay(stage, id, 1)), readStream(await replay(stage, id, 0))]
      opened.open()

      expect(before.join('') + (await early.readToEnd())).toBe(await late.readToEnd())
      expect(await readStream(await replay(stage, id, 0)).readToEnd()).toBe(await late.readToEnd())
      expect(stage.upstream.last.isAborted).toBe(false)
      await expectSettledOnce(stage)
      await stages.pop()?.close()
    }
  })
})

async function* pauseAfter(request: UpstreamRequest, response: ModelResponse, spoken: number, opened: Promise<void>) {
  const events = buildEvents(request, response)
  yield* events.slice(0, spoken)
  await opened
  yield* events.slice(spoken)
}

describe.each(MESSAGE_ENDPOINTS)('on the $name', (endpoint) => {
  it('a follower of a broken stream receives its error event', async () => {
    const stage = await startRecordedStage({
      reply: (request) => ({ kind: 'events', items: [...buildEvents(request, RESPONSES['text']!).slice(0, 4), CUT] }),
    })
    const broken = await readStream(await stream(stage, endpoint)).readToEnd()
    expect(splitEvents(broken).at(-1)).toMatch(/^id: \d+\nevent: error\ndata: .*upstream_error/)
    expectConsecutiveIds(broken)

    expect(await readStream(await replay(stage, messageIdOf(broken), 0)).readToEnd()).toBe(broken)
    expect(await readStream(await replay(stage, messageIdOf(broken), 2)).readToEnd()).toBe(
      splitEvents(broken).slice(2).join(''),
    )
    await expectSettledOnce(stage)
  })

  it('a caller who disconnects without X-Svc-Detach ends the generation, and can read the events up to its end', async () => {
    const stage = await startRecordedStage({
      reply: (request) => ({
        kind: 'events',
        items: pauseAfter(request, RESPONSES['text']!, 4, new Promise(() => {})),
      }),
    })
    const first = readStream(await stream(stage, endpoint))
    const seen = await first.readEvents(2)
    await first.cancel()
    await stage.upstream.last.aborted
    await expectSettledOnce(stage)

    const rest = await readStream(await replay(stage, messageIdOf(seen), 0)).readToEnd()
    expect(rest.startsWith(splitEvents(seen).join(''))).toBe(true)
    expect(splitEvents(rest).at(-1)).toContain('X-Svc-Detach: true')
    expectConsecutiveIds(rest)
  })

  it('a follower continues the generation when its caller disconnects', async () => {
    const opened = gate()
    const stage = await startRecordedStage({
      reply: (request) => ({ kind: 'events', items: pauseAfter(request, RESPONSES['text']!, 4, opened.opened) }),
    })
    const first = readStream(await stream(stage, endpoint))
    const seen = await first.readEvents(2)
    const follower = readStream(await replay(stage, messageIdOf(seen), 0))
    await first.cancel()
    opened.open()

    expect(await follower.readToEnd()).toContain('message_stop')
    expect(stage.upstream.last.isAborted).toBe(false)
    await expectSettledOnce(stage)
  })

  it('the upstream call ends when the last follower disconnects, and the request settles once', async () => {
    const stage = await startRecordedStage({
      reply: (request) => ({
        kind: 'events',
        items: pauseAfter(request, RESPONSES['text']!, 4, new Promise(() => {})),
      }),
    })
    const first = readStream(await stream(stage, endpoint))
    const id = messageIdOf(await first.readEvents(1))
    const followers = [readStream(await replay(stage, id, 0)), readStream(await replay(stage, id, 1))]
    await first.cancel()
    await followers[0]!.cancel()
    expect(stage.upstream.last.isAborted).toBe(false)
    await followers[1]!.cancel()

    await stage.upstream.last.aborted
    await expectSettledOnce(stage)
  })
})
