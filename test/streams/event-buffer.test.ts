import { describe, expect, it } from 'vitest'
import {
  type EventChunk,
  countEvents,
  EventBuffer,
  type EventSink,
  skipEvents,
} from '../../src/streams/event-buffer.ts'
import { EventCapacity } from '../../src/streams/capacity.ts'
import { cases, fc } from '../support/properties.ts'

const ROOMY = { entries: 10, bytes: 1_000_000, maxBytesPerStream: 1_000_000 }
const END = 'data: end\n\n'

const event = (id: number): string => `id: ${id}\ndata: ${'x'.repeat(id % 7)}\n\n`
const encoder = new TextEncoder()
const decoder = new TextDecoder()

const textOf = (chunk: EventChunk): string => (typeof chunk === 'string' ? chunk : decoder.decode(chunk))

/** A reader that accepts `takes` writes and then blocks until it drains. */
class Reader implements EventSink {
  text = ''
  writes = 0
  ended = 0
  left = 0
  failures: unknown[] = []
  #takes: number
  #drained: () => void = () => {}

  constructor(takes = Infinity) {
    this.#takes = takes
  }

  write(chunk: EventChunk): boolean {
    if (this.isOver) throw new Error('written after its end')
    if (this.#takes <= 0) throw new Error('written although it is slow')
    this.text += textOf(chunk)
    this.writes += 1
    this.#takes -= 1
    return this.#takes > 0
  }

  /** Drains the reader, which then accepts this number of writes. */
  drain(takes = Infinity): void {
    this.#takes = takes
    this.#drained()
  }

  onDrain(listener: () => void): void {
    this.#drained = listener
  }

  end(): void {
    if (this.isOver) throw new Error('ended twice')
    this.ended += 1
  }

  fail(error: unknown): void {
    if (this.isOver) throw new Error('failed after its end')
    this.failures.push(error)
  }

  detach(): void {
    this.left += 1
  }

  get isOver(): boolean {
    return this.ended > 0 || this.failures.length > 0
  }
}

/** Creates a buffer and records the demand it reports: true for more events, false for a pause. */
function bufferOf(bounds = ROOMY): { readonly buffer: EventBuffer; readonly demands: boolean[] } {
  const buffer = new EventBuffer(new EventCapacity(bounds).reserve('key'))
  const demands: boolean[] = []
  buffer.onDemandChange = (isWanted) => demands.push(isWanted)
  return { buffer, demands }
}

describe('events', () => {
  it('are counted and skipped for any text', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(50)), fc.nat(60), (ids, after) => {
        const events = ids.map(event)
        expect(countEvents(events.join(''))).toBe(events.length)
        expect(skipEvents(events.join(''), after)).toBe(events.slice(after).join(''))
      }),
    )
  })
})

describe('an event buffer', () => {
  const pieces = fc.array(fc.array(fc.nat(20), { minLength: 1, maxLength: 3 }), { maxLength: 12 })
  const reads = fc.record({ after: fc.nat(40), from: fc.nat(12), takes: fc.integer({ min: 1, max: 4 }) })

  it('sends each reader the same events from its start, at any speed and time', () => {
    fc.assert(
      fc.property(pieces, fc.array(reads, { maxLength: 5 }), fc.boolean(), (texts, followers, asBytes) => {
        const chunks = texts.map((ids) => ids.map(event).join(''))
        const { buffer } = bufferOf()
        const original = new Reader()
        buffer.attachOriginal(original)
        const readers = followers.map(({ takes }) => new Reader(takes))
        const join = (at: number, isLast = false): void => {
          for (const [index, { after, from }] of followers.entries()) {
            const reader = readers[index]
            if (reader !== undefined && (isLast ? from >= at : from === at)) buffer.follow(after, reader)
          }
        }
        for (const [at, chunk] of chunks.entries()) {
          join(at)
          buffer.push(asBytes ? encoder.encode(chunk) : chunk)
          for (const [index, { takes }] of followers.entries()) if ((at + index) % 2 === 0) readers[index]?.drain(takes)
        }
        buffer.finish(END, true)
        join(chunks.length, true)
        for (const [index, { takes }] of followers.entries()) {
          const reader = readers[index]
          while (reader !== undefined && !reader.isOver) reader.drain(takes)
        }

        const all = [...texts.flat().map(event), END]
        expect(original.text).toBe(all.join(''))
        expect(readers.map((reader) => reader.text)).toEqual(followers.map(({ after }) => all.slice(after).join('')))
        expect([original, ...readers].every((reader) => reader.ended === 1)).toBe(true)
        expect(buffer.count()).toBe(all.length)
      }),
      { numRuns: cases(300) },
    )
  })

  it('fails a follower as soon as the capacity is exceeded, although the original reader has left', () => {
    const { buffer, demands } = bufferOf({ ...ROOMY, maxBytesPerStream: 100 })
    const leave = buffer.attachOriginal(new Reader())
    const followers = [new Reader(), new Reader(1)]
    for (const follower of followers) buffer.follow(0, follower)
    buffer.push(event(1))
    leave()

    buffer.push('data: '.padEnd(100, 'x'))

    for (const { failures } of followers) expect(failures).toEqual([expect.objectContaining({ kind: 'too-large' })])
    expect(demands).toEqual([false])
  })

  it('ends a reader once that drains during a write', () => {
    const { buffer } = bufferOf()
    const reader = new Reader(Infinity)
    let drained = (): void => {}
    let ends = 0
    buffer.attachOriginal({
      write: (chunk) => {
        reader.write(chunk)
        // Blocks after the first chunk, and later drains immediately.
        if (reader.writes > 1) drained()
        return reader.writes > 1
      },
      onDrain: (listener) => {
        drained = listener
      },
      end: () => void (ends += 1),
      fail: () => {},
      detach: () => {},
    })
    buffer.push(event(1))
    buffer.finish(END, true)
    drained()
    expect([reader.text, ends]).toEqual([`${event(1)}${END}`, 1])
  })

  it('resolves its end once, with all events', async () => {
    const { buffer } = bufferOf()
    buffer.push(event(1))
    buffer.finish(END, true)
    buffer.finish('data: again\n\n', false)
    buffer.push(event(2))
    expect(await buffer.ended).toEqual({ isComplete: true, text: event(1) + END })
    const late = new Reader()
    buffer.follow(1, late)
    expect([late.text, late.ended]).toEqual([END, 1])
  })

  it('pauses the producer only while all readers are blocked', () => {
    const { buffer, demands } = bufferOf()
    const [original, fast] = [new Reader(1), new Reader(2)]
    buffer.attachOriginal(original)
    buffer.follow(0, fast)
    buffer.push(event(1))
    expect(demands).toEqual([])
    buffer.push(event(2))
    expect(demands).toEqual([false])
    fast.drain(1)
    expect(demands).toEqual([false, true])
    buffer.push(event(3))
    expect(demands).toEqual([false, true, false])
    expect([original.text, fast.text]).toEqual([event(1), event(1) + event(2) + event(3)])
    original.drain()
    expect(demands).toEqual([false, true, false, true])
    expect(original.text).toBe(event(1) + event(2) + event(3))
  })

  it('pauses the producer when the only unblocked reader leaves, and resumes it for a new reader', () => {
    const { buffer, demands } = bufferOf()
    buffer.attachOriginal(new Reader(1))
    const leave = buffer.follow(0, new Reader())
    buffer.push(event(1))
    leave()
    expect(demands).toEqual([false])
    buffer.follow(0, new Reader())
    expect(demands).toEqual([false, true])
  })

  it('writes no events to a reader that has left, and all events to the others', () => {
    const { buffer } = bufferOf()
    const [original, leaver] = [new Reader(), new Reader(1)]
    buffer.attachOriginal(original)
    const leave = buffer.follow(0, leaver)
    buffer.push(event(1))
    leave()
    buffer.push(event(2))
    leaver.drain()
    buffer.finish(END, true)
    expect([leaver.text, leaver.left, leaver.ended]).toEqual([event(1), 1, 0])
    expect([original.text, original.ended]).toEqual([event(1) + event(2) + END, 1])
  })

  it('runs its producer without readers when it is drained', async () => {
    const { buffer, demands } = bufferOf()
    const leave = buffer.attachOriginal(new Reader(1))
    buffer.drain()
    buffer.push(event(1))
    buffer.push(event(2))
    leave()
    buffer.push(event(3))
    buffer.finish(END, true)
    expect(demands).toEqual([])
    expect(await buffer.ended).toEqual({ isComplete: true, text: event(1) + event(2) + event(3) + END })
  })

  it('resumes its producer when it is drained after a pause', () => {
    const { buffer, demands } = bufferOf()
    buffer.attachOriginal(new Reader(1))
    buffer.push(event(1))
    buffer.drain()
    expect(demands).toEqual([false, true])
  })

  it('ends a slow reader after it has read all events', () => {
    const { buffer } = bufferOf()
    const slow = new Reader(1)
    buffer.attachOriginal(slow)
    buffer.push(event(1))
    buffer.push(event(2))
    buffer.finish(END, true)
    expect([slow.text, slow.ended]).toEqual([event(1), 0])
    slow.drain(1)
    slow.drain(1)
    expect([slow.text, slow.ended]).toEqual([event(1) + event(2) + END, 1])
  })

  it('without capacity keeps only the events that its reader has not read', async () => {
    const buffer = new EventBuffer(undefined)
    const original = new Reader()
    buffer.attachOriginal(original)
    buffer.push(event(1))
    const follower = new Reader()
    buffer.follow(0, follower)
    buffer.push(event(2))
    buffer.finish(END, true)
    expect(original.text).toBe(event(1) + event(2) + END)
    expect(follower.failures).toMatchObject([{ kind: 'too-large' }])
    expect([follower.text, buffer.count()]).toEqual(['', 0])
    expect(await buffer.ended).toEqual({ isComplete: true, text: undefined })
  })
})

describe('an event buffer whose capacity is exhausted', () => {
  const long = Array.from({ length: 100 }, (_, id) => `id: ${id + 1}\ndata: ${'x'.repeat(100)}\n\n`)

  it('sends all events to the original reader, at any time of the overflow', () => {
    fc.assert(
      fc.property(fc.nat(20_000), fc.nat(99), fc.integer({ min: 1, max: 5 }), (maxBytesPerStream, stopsAt, takes) => {
        const { buffer } = bufferOf({ ...ROOMY, maxBytesPerStream })
        const original = new Reader(takes)
        buffer.attachOriginal(original)
        buffer.follow(0, new Reader())
        for (const [index, text] of long.entries()) {
          buffer.push(text)
          if (index === stopsAt) original.drain(takes)
        }
        buffer.finish(END, true)
        while (!original.isOver) original.drain(takes)
        expect(original.text).toBe(`${long.join('')}${END}`)
      }),
    )
  })

  it('ends its followers with an error, and accepts no others', async () => {
    const { buffer } = bufferOf({ ...ROOMY, maxBytesPerStream: 1000 })
    const [original, follower, late] = [new Reader(), new Reader(), new Reader()]
    buffer.attachOriginal(original)
    buffer.follow(0, follower)
    for (const text of long) buffer.push(text)
    buffer.follow(0, late)
    buffer.finish(END, true)
    expect(follower.failures).toMatchObject([{ kind: 'too-large' }])
    expect(late.failures).toMatchObject([
      { kind: 'too-large', message: expect.stringMatching(/Request a new answer\.$/) },
    ])
    expect([follower.writes < 10, late.writes]).toEqual([true, 0])
    expect(original.text).toBe(`${long.join('')}${END}`)
    expect(await buffer.ended).toEqual({ isComplete: true, text: undefined })
  })

  it('never exceeds its limits, and releases all capacity', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat(60), fc.constantFrom('stays', 'leaves', 'slow')), { maxLength: 20 }),
        (all) => {
          const bounds = { entries: 5, bytes: 20_000, maxBytesPerStream: 8000 }
          const room = new EventCapacity(bounds)
          const made = all.map(([length, kind]) => {
            const buffer = new EventBuffer(room.reserve('key'))
            const reader = new Reader(kind === 'slow' ? 1 : Infinity)
            return { buffer, reader, leave: buffer.attachOriginal(reader), length, kind }
          })
          for (let at = 0; at < 60; at += 1) {
            for (const { buffer, leave, length, kind } of made) {
              if (at < length) buffer.push(long[at] ?? '')
              if (at === 30 && kind === 'leaves') leave()
            }
            expect(room.bytes).toBeLessThanOrEqual(bounds.bytes)
            expect(room.entries).toBeLessThanOrEqual(bounds.entries)
          }
          for (const { buffer } of made) buffer.finish(END, true)
          for (const { reader, kind } of made) if (kind === 'slow') reader.drain()
          expect([room.bytes, room.entries]).toEqual([0, 0])
        },
      ),
    )
  })
})
