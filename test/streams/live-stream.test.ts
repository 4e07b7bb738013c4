import { describe, expect, it } from 'vitest'
import { quotaOf } from '../../src/core/store.ts'
import { memoryStore } from '../../src/index.ts'
import { EventBuffer, type EventSink } from '../../src/streams/event-buffer.ts'
import { createStreamSearch, publishStream, type LiveStream } from '../../src/streams/live-stream.ts'
import { manualRuntime } from '../support/manual-runtime.ts'

const SECOND = 1000

function createTestStreams() {
  const runtime = manualRuntime(() => {
    throw new Error('no upstream call is expected')
  })
  const store = memoryStore({ now: runtime.now })
  const location = { store, name: 'answer', quota: quotaOf('live-stream', 'key') }
  const buffer = new EventBuffer({ reserve: () => true, release: () => {} })
  const stream = {
    metadata: {},
    ended: buffer.ended,
    follow: (sink: EventSink) => buffer.follow(0, sink),
    summary: () => ({}),
  }
  /** Advances the clock in small steps, so that each waiting task runs in between. */
  const pass = async (ms: number): Promise<void> => {
    for (let passed = 0; passed < ms; passed += 50) {
      runtime.advance(50)
      await new Promise((resolve) => setImmediate(resolve))
    }
  }
  /** Duration of each of the follower's store reads. */
  const delay = { ms: 0 }
  const get: typeof store.get = async (key) => {
    const value = await store.get(key)
    if (delay.ms > 0) await new Promise<void>((resolve) => void runtime.after(delay.ms, resolve))
    return value
  }
  const search = createStreamSearch({ ...location, store: { ...store, get } }, { ...runtime, idleMs: 60 * SECOND })
  const published = publishStream(stream, location, runtime)
  const findStream = async (): Promise<LiveStream> => {
    await search()
    await pass(SECOND)
    const found = await search()
    if (found === undefined) throw new Error('the stream is not published')
    return found
  }
  return { store, buffer, published, pass, findStream, delay }
}

function createSink() {
  const received = { text: '', end: '', isBlocked: false, drain: () => {} }
  const sink: EventSink = {
    write: (chunk) => {
      received.text += String(chunk)
      return !received.isBlocked
    },
    onDrain: (listener) => {
      received.drain = () => {
        received.isBlocked = false
        listener()
      }
    },
    end: () => void (received.end = 'complete'),
    fail: (error) => void (received.end = String(error)),
    detach: () => {},
  }
  return { received, sink }
}

describe('a stream that another process follows', () => {
  it('is received completely', async () => {
    const { buffer, pass, findStream } = createTestStreams()
    const { received, sink } = createSink()
    const live = await findStream()
    live.follow(sink)
    buffer.push('one ')
    await pass(SECOND)
    expect(received.text).toBe('one ')
    buffer.finish('two', true)
    await pass(SECOND)
    expect(received).toMatchObject({ text: 'one two', end: 'complete' })
  })

  it('continues for a follower whose client reads nothing for 30 seconds', async () => {
    const { buffer, pass, findStream } = createTestStreams()
    const { received, sink } = createSink()
    received.isBlocked = true
    const live = await findStream()
    live.follow(sink)
    buffer.push('one ')
    for (let second = 0; second < 30; second += 1) {
      await pass(SECOND)
      buffer.push(`${second} `)
    }
    received.drain()
    buffer.finish('end', true)
    await pass(SECOND)
    const numbers = Array.from({ length: 30 }, (_, second) => second).join(' ')
    expect(received).toMatchObject({ text: `one ${numbers} end`, end: 'complete' })
  })

  it('is received completely by a follower whose store reads are slower than the stream', async () => {
    const { buffer, pass, findStream, delay } = createTestStreams()
    const { received, sink } = createSink()
    const live = await findStream()
    delay.ms = 100
    live.follow(sink)
    const numbers = Array.from({ length: 400 }, (_, at) => `${at} `)
    for (const number of numbers) {
      buffer.push(number)
      await pass(50)
    }
    buffer.finish('end', true)
    await pass(120 * SECOND)
    expect(received).toMatchObject({ text: `${numbers.join('')}end`, end: 'complete' })
  })

  it('fails for a follower of a lost stream, even if a later stream has as many parts as the follower read', async () => {
    const { store, buffer, pass, findStream } = createTestStreams()
    const { received, sink } = createSink()
    const live = await findStream()
    live.follow(sink)
    buffer.push('one ')
    await pass(SECOND)
    await store.set('live:answer', JSON.stringify({ token: 'later', parts: 1, summary: {} }))
    await pass(SECOND)
    expect(received).toMatchObject({ text: 'one ', end: expect.stringContaining('interrupted') })
  })

  it.each(Array.from({ length: 8 }, (_, at) => 10 + at / 2))(
    'is published as complete only with its last events, if it ends %s s after the last request of a follower',
    async (seconds) => {
      const { store, buffer, published, pass, findStream } = createTestStreams()
      await findStream()
      buffer.push('one ')
      await pass(seconds * SECOND)
      buffer.finish('two', true)
      await pass(5 * SECOND)
      await published
      const head = JSON.parse((await store.get('live:answer')) ?? '{}')
      if (head.parts === undefined) return
      const parts = Array.from({ length: head.parts }, (_, part) => store.get(`live:answer:${head.token}:${part}`))
      expect((await Promise.all(parts)).join('')).toBe('one two')
    },
  )
})
