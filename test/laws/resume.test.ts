import { afterEach, describe, expect, it } from 'vitest'
import { CROSSINGS, type Front } from '../support/ask.ts'
import { startStage, type Stage } from '../support/stage.ts'
import { eventTexts, expectCounted, messageIdOf, post, reading } from '../support/streams.ts'
import { CUT, framesOf, gate, type Answer, type UpstreamRequest } from '../support/upstream.ts'
import { watchedStore, type WatchedStore } from '../support/watched-store.ts'

const ANSWERS: Readonly<Record<string, Answer>> = {
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

const MESSAGE_FRONTS = CROSSINGS.filter((front) => front.path === '/v1/messages')
const CASES = MESSAGE_FRONTS.flatMap((front) => Object.keys(ANSWERS).map((kind) => ({ ...front, kind })))

interface Watched extends Stage {
  readonly store: WatchedStore
}

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()))
})

async function watched(options: Parameters<typeof startStage>[0]): Promise<Watched> {
  const store = watchedStore()
  const stage = await startStage({ store, ...options })
  stages.push(stage)
  return { ...stage, store }
}

const stream = (stage: Stage, front: Front, headers: Readonly<Record<string, string>> = {}): Promise<Response> =>
  post(stage, front.path, { body: { ...front.body, stream: true }, headers })

const again = (stage: Stage, id: string, after: number): Promise<Response> =>
  post(stage, `/v1/messages/${id}/streams`, { headers: { 'last-event-id': String(after) } })

async function expectSettledOnce({ store }: Watched): Promise<void> {
  await store.allSettled()
  await new Promise((resolve) => setImmediate(resolve))
  expect(store.settlements.map(({ reservationId }) => reservationId).toSorted()).toEqual(
    [...store.reservationIds].toSorted(),
  )
  expect(await store.held()).toBe(0)
}

describe.each(CASES)('a stream of $kind on the $name', ({ kind, ...front }) => {
  const reply = (): Answer => ANSWERS[kind]!

  it('that has ended is the same from every event on, byte for byte', async () => {
    const stage = await watched({ reply })
    const whole = await reading(await stream(stage, front)).rest()
    const events = eventTexts(whole)
    expectCounted(whole)
    expect(events.join('')).toBe(whole)
    expect(whole).toMatch(/svc_metrics.*\n\n.*\n.*\n.*message_stop.*\n\n$/)

    for (let seen = 0; seen <= events.length; seen += 1) {
      const response = await again(stage, messageIdOf(whole), seen)
      expect(response.status).toBe(200)
      expect(events.slice(0, seen).join('') + (await response.text())).toBe(whole)
    }
    expect(stage.upstream.requests).toHaveLength(1)
    await expectSettledOnce(stage)
  })

  it('that is detached and disconnected after any event continues, and can be joined without a gap', async () => {
    const stage = await watched({ reply })
    const uncut = await reading(await stream(stage, front)).rest()
    const events = eventTexts(uncut)
    for (let seen = 1; seen <= events.length; seen += 1) {
      const first = reading(await stream(stage, front, { 'x-svc-detach': 'true' }))
      const before = eventTexts(await first.events(seen)).slice(0, seen)
      await first.leave()
      const id = messageIdOf(before.join(''))
      const rest = await reading(await again(stage, id, seen)).rest()

      const joined = before.join('') + rest
      expect(joined.replaceAll(id, 'ID')).toBe(uncut.replaceAll(messageIdOf(uncut), 'ID'))
      expect(await reading(await again(stage, id, 0)).rest()).toBe(joined)
    }
    await expectSettledOnce(stage)
    expect(
      new Set(stage.store.settlements.map(({ charges }) => JSON.stringify(charges.map((charge) => charge.amount))))
        .size,
    ).toBe(1)
  })

  it('that is disconnected while the upstream is generating is followed live', async () => {
    const frames = framesOf(
      { index: 0, text: '', body: { model: 'large', stream_options: { include_usage: true } }, dialect: 'anthropic' },
      reply(),
    ).length
    // The gateway answers as soon as the upstream has said something: from its fourth event on.
    for (let spoken = 4; spoken < frames; spoken += 1) {
      const opened = gate()
      const stage = await watched({
        reply: (request) => ({ kind: 'events', items: halting(request, reply(), spoken, opened.opened) }),
      })
      const first = reading(await stream(stage, front, { 'x-svc-detach': 'true' }))
      const before = eventTexts(await first.events(1)).slice(0, 1)
      await first.leave()
      const id = messageIdOf(before.join(''))
      const [early, late] = [reading(await again(stage, id, 1)), reading(await again(stage, id, 0))]
      opened.open()

      expect(before.join('') + (await early.rest())).toBe(await late.rest())
      expect(await reading(await again(stage, id, 0)).rest()).toBe(await late.rest())
      expect(stage.upstream.last.left).toBe(false)
      await expectSettledOnce(stage)
      await stages.pop()?.close()
    }
  })
})

async function* halting(request: UpstreamRequest, answer: Answer, spoken: number, opened: Promise<void>) {
  const events = framesOf(request, answer)
  yield* events.slice(0, spoken)
  await opened
  yield* events.slice(spoken)
}

describe.each(MESSAGE_FRONTS)('on the $name', (front) => {
  it('a follower of a broken stream receives its error event', async () => {
    const stage = await watched({
      reply: (request) => ({ kind: 'events', items: [...framesOf(request, ANSWERS['text']!).slice(0, 4), CUT] }),
    })
    const broken = await reading(await stream(stage, front)).rest()
    expect(eventTexts(broken).at(-1)).toMatch(/^id: \d+\nevent: error\ndata: .*upstream_error/)
    expectCounted(broken)

    expect(await reading(await again(stage, messageIdOf(broken), 0)).rest()).toBe(broken)
    expect(await reading(await again(stage, messageIdOf(broken), 2)).rest()).toBe(eventTexts(broken).slice(2).join(''))
    await expectSettledOnce(stage)
  })

  it('a caller who disconnects without X-Svc-Detach ends the generation, and can read the events up to its end', async () => {
    const stage = await watched({
      reply: (request) => ({ kind: 'events', items: halting(request, ANSWERS['text']!, 4, new Promise(() => {})) }),
    })
    const first = reading(await stream(stage, front))
    const seen = await first.events(2)
    await first.leave()
    await stage.upstream.last.leaving
    await expectSettledOnce(stage)

    const rest = await reading(await again(stage, messageIdOf(seen), 0)).rest()
    expect(rest.startsWith(eventTexts(seen).join(''))).toBe(true)
    expect(eventTexts(rest).at(-1)).toContain('X-Svc-Detach: true')
    expectCounted(rest)
  })

  it('a follower continues the generation when its caller disconnects', async () => {
    const opened = gate()
    const stage = await watched({
      reply: (request) => ({ kind: 'events', items: halting(request, ANSWERS['text']!, 4, opened.opened) }),
    })
    const first = reading(await stream(stage, front))
    const seen = await first.events(2)
    const follower = reading(await again(stage, messageIdOf(seen), 0))
    await first.leave()
    opened.open()

    expect(await follower.rest()).toContain('message_stop')
    expect(stage.upstream.last.left).toBe(false)
    await expectSettledOnce(stage)
  })

  it('the upstream call ends when the last follower disconnects, and the request settles once', async () => {
    const stage = await watched({
      reply: (request) => ({ kind: 'events', items: halting(request, ANSWERS['text']!, 4, new Promise(() => {})) }),
    })
    const first = reading(await stream(stage, front))
    const id = messageIdOf(await first.events(1))
    const followers = [reading(await again(stage, id, 0)), reading(await again(stage, id, 1))]
    await first.leave()
    await followers[0]!.leave()
    expect(stage.upstream.last.left).toBe(false)
    await followers[1]!.leave()

    await stage.upstream.last.leaving
    await expectSettledOnce(stage)
  })
})
