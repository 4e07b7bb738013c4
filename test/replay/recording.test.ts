import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { countEvents, skipEvents } from '../../src/replay/events.ts'
import {
  createRecording,
  type LastText,
  type Recording,
  type TextReader,
  type TextSource,
} from '../../src/replay/recording.ts'
import { createRoom } from '../../src/replay/room.ts'

const FAREWELL = 'event: error\ndata: stopped\n\n'
const ROOMY = { entries: 10, bytes: 1_000_000, bytesOfOne: 1_000_000 }

const event = (id: number): string => `id: ${id}\ndata: ${'x'.repeat(id % 7)}\n\n`

interface Spool {
  readonly source: TextSource
  readonly drawn: () => number
  readonly finished: () => boolean
}

/** So many texts of one or two events; tells how many were drawn, and whether its `finally` has run. */
function spool(texts: readonly string[], last: LastText | undefined = { last: 'data: end\n\n', isWhole: true }): Spool {
  let drawn = 0
  let isFinished = false
  async function* source(): TextSource {
    try {
      for (const text of texts) {
        drawn += 1
        yield text
      }
      if (last !== undefined) yield last
    } finally {
      isFinished = true
    }
  }
  return { source: source(), drawn: () => drawn, finished: () => isFinished }
}

async function all(reader: TextReader): Promise<string> {
  let text = ''
  for (let next = await reader.next(); next.done !== true; next = await reader.next()) text += next.value
  return text
}

const record = (source: TextSource, bounds = ROOMY): Recording =>
  createRecording(source, { place: createRoom(bounds).enter('key'), farewell: () => FAREWELL })

describe('events', () => {
  it('are counted and skipped, whatever their texts', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(50)), fc.nat(60), (ids, after) => {
        const events = ids.map(event)
        expect(countEvents(events.join(''))).toBe(events.length)
        expect(skipEvents(events.join(''), after)).toBe(events.slice(after).join(''))
      }),
    )
  })
})

describe('a recording', () => {
  const pieces = fc.array(fc.array(fc.nat(20), { minLength: 1, maxLength: 3 }), { maxLength: 12 })

  it('gives every reader the same events from where it begins, however their reading is interleaved', async () => {
    await fc.assert(
      fc.asyncProperty(
        pieces,
        fc.array(fc.nat(40), { maxLength: 5 }),
        fc.scheduler(),
        async (texts, positions, scheduler) => {
          const events = [...texts.flat().map(event), 'data: end\n\n']
          const recording = record(spool(texts.map((ids) => ids.map(event).join(''))).source)
          const read = async (reader: TextReader): Promise<string> => {
            let text = ''
            for (;;) {
              const next = await scheduler.schedule(reader.next())
              if (next.done === true) return text
              text += next.value
            }
          }
          const readers = [recording.original, ...positions.map((after) => recording.follow(after))]
          const told = Promise.all(readers.map(read))
          await scheduler.waitFor(told)

          expect(await told).toEqual([0, ...positions].map((after) => events.slice(after).join('')))
          expect(await recording.ended).toEqual({ isWhole: true, text: events.join('') })
          expect(recording.count()).toBe(events.length)
        },
      ),
      { numRuns: 200 },
    )
  })

  it('is drawn as fast as the fastest reads, and no further', async () => {
    const { source, drawn } = spool([1, 2, 3, 4, 5].map(event))
    const recording = record(source)
    const fast = recording.follow(0)
    await recording.original.next()
    expect(drawn()).toBe(1)
    await fast.next()
    await fast.next()
    await fast.next()
    expect(drawn()).toBe(3)
    expect(await recording.original.next()).toEqual({ value: event(2), done: false })
    expect(drawn()).toBe(3)
  })

  it('lets a waiting reader go at once when it leaves, and disturbs no other', async () => {
    let open: () => void = () => {}
    const opened = new Promise<void>((resolve) => {
      open = resolve
    })
    const recording = record(
      (async function* () {
        yield event(1)
        await opened
        yield { last: event(2), isWhole: true }
      })(),
    )
    const leaver = recording.follow(1)
    const waiting = leaver.next()
    await leaver.return()
    expect(await waiting).toEqual({ value: undefined, done: true })
    open()
    expect(await all(recording.original)).toBe(event(1) + event(2))
  })

  it('that is stopped runs the source to its end once and says so, whether it had started or not', async () => {
    for (const reads of [0, 1, 2]) {
      const { source, finished } = spool([1, 2, 3].map(event))
      const recording = record(source)
      for (let count = 0; count < reads; count += 1) await recording.original.next()
      await Promise.all([recording.stop(), recording.stop()])

      expect(finished()).toBe(true)
      const text = [1, 2, 3].slice(0, Math.max(1, reads)).map(event).join('') + FAREWELL
      expect(await recording.ended).toEqual({ isWhole: false, text })
      expect(await all(recording.follow(0))).toBe(text)
    }
  })

  it('that has ended whole is not changed by being stopped', async () => {
    const { source } = spool([event(1)])
    const recording = record(source)
    const whole = await all(recording.original)
    await recording.stop()
    expect(await all(recording.follow(0))).toBe(whole)
  })

  it('that is drained goes on for nobody', async () => {
    const { source, finished } = spool([1, 2, 3].map(event))
    const recording = record(source)
    await recording.original.next()
    await recording.original.return()
    await recording.drain()
    expect(finished()).toBe(true)
    expect(await recording.ended).toMatchObject({ isWhole: true })
  })

  it('tells its readers what the source failed with', async () => {
    const recording = record(
      (async function* () {
        yield event(1)
        throw new Error('broken')
      })(),
    )
    await expect(all(recording.original)).rejects.toThrow('broken')
    await expect(all(recording.follow(1))).rejects.toThrow('broken')
    expect(await recording.ended).toMatchObject({ isWhole: false })
  })
})

describe('a recording without room', () => {
  const long = Array.from({ length: 100 }, (_, id) => `id: ${id + 1}\ndata: ${'x'.repeat(100)}\n\n`)

  it('loses nothing for the original reader, at whatever moment it grew too large', async () => {
    await fc.assert(
      fc.asyncProperty(fc.nat(20_000), fc.nat(99), async (bytesOfOne, ahead) => {
        const recording = record(spool(long).source, { ...ROOMY, bytesOfOne })
        const fast = recording.follow(0)
        for (let count = 0; count < ahead; count += 1)
          if ((await fast.next().catch(() => undefined)) === undefined) break
        expect(await all(recording.original)).toBe(`${long.join('')}data: end\n\n`)
      }),
    )
  })

  it('tells followers, and lets them draw no more', async () => {
    const { source, drawn } = spool(long)
    const recording = record(source, { ...ROOMY, bytesOfOne: 1000 })
    await expect(all(recording.follow(0))).rejects.toMatchObject({ kind: 'too-large' })
    const reached = drawn()
    expect(reached).toBeLessThan(10)
    await expect(recording.follow(0).next()).rejects.toMatchObject({ kind: 'too-large' })
    expect(drawn()).toBe(reached)
    expect(await all(recording.original)).toContain('data: end')
    expect(await recording.ended).toEqual({ isWhole: true, text: undefined })
  })

  it('holds no more than its bounds, and gives everything back', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(fc.nat(60), fc.boolean()), { maxLength: 20 }), async (lengths) => {
        const bounds = { entries: 5, bytes: 20_000, bytesOfOne: 8000 }
        const room = createRoom(bounds)
        const recordings = lengths.map(([length, leaves]) => {
          const { source } = spool(long.slice(0, length))
          return { leaves, recording: createRecording(source, { place: room.enter('key'), farewell: () => FAREWELL }) }
        })
        await Promise.all(
          recordings.map(async ({ leaves, recording }) => {
            for (
              let next = await recording.original.next();
              next.done !== true;
              next = await recording.original.next()
            ) {
              expect(room.bytes).toBeLessThanOrEqual(bounds.bytes)
              expect(room.entries).toBeLessThanOrEqual(bounds.entries)
              if (leaves) await recording.stop()
            }
          }),
        )
        expect([room.bytes, room.entries]).toEqual([0, 0])
      }),
    )
  })
})
