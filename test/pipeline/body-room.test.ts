import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Cancellation } from '../../src/core/cancellation.ts'
import { BodyRoom, type HeldRoom } from '../../src/pipeline/body-room.ts'
import { manualRuntime } from '../support/manual-runtime.ts'

const MIB = 1024 * 1024
const noTransport = (): never => {
  throw new Error('Nothing is sent here.')
}

function createRoom(maxBytes = 10 * MIB) {
  const runtime = manualRuntime(noTransport)
  return { runtime, room: new BodyRoom({ maxBytes, waitMs: 1000, after: runtime.after }) }
}

/** What became of a request so far. */
function follow(entered: HeldRoom | Promise<HeldRoom>) {
  const state: { held?: HeldRoom; failure?: unknown } = {}
  void Promise.resolve(entered).then(
    (held) => (state.held = held),
    (failure: unknown) => (state.failure = failure),
  )
  return state
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))
const caller = (): Cancellation => new Cancellation()

describe('the room of large bodies', () => {
  it('lets small bodies in whatever else is in progress', () => {
    const { room } = createRoom()
    room.enter('key', 100 * MIB, caller())
    expect(room.enter('key', MIB, caller())).not.toBeInstanceOf(Promise)
  })

  it('makes a large body wait for those before it, in the order of arrival', async () => {
    const { room } = createRoom()
    const first = await room.enter('key', 8 * MIB, caller())
    const second = follow(room.enter('key', 8 * MIB, caller()))
    const third = follow(room.enter('key', 2 * MIB, caller()))
    await turn()
    expect([second.held, third.held]).toEqual([undefined, undefined])
    first.leave()
    await turn()
    expect(second.held).toBeDefined()
    expect(third.held).toBeDefined()
  })

  it('does not make one key wait for another', async () => {
    const { room } = createRoom()
    await room.enter('hostile', 10 * MIB, caller())
    expect(room.enter('other', 10 * MIB, caller())).not.toBeInstanceOf(Promise)
  })

  it('gives back what a body of unknown length did not need', async () => {
    const { room } = createRoom()
    const unknown = await room.enter('key', 10 * MIB, caller())
    const waiting = follow(room.enter('key', 9 * MIB, caller()))
    unknown.resize(500)
    await turn()
    expect(waiting.held).toBeDefined()
  })

  it('refuses with rate-limited after the wait, and forgets who waited', async () => {
    const { room, runtime } = createRoom()
    const first = await room.enter('key', 8 * MIB, caller())
    const second = follow(room.enter('key', 8 * MIB, caller()))
    runtime.advance(1000)
    await turn()
    expect(second.failure).toMatchObject({ kind: 'rate-limited', details: { retryAfterSeconds: 5 } })
    first.leave()
    expect(room.enter('key', 10 * MIB, caller())).not.toBeInstanceOf(Promise)
  })

  it('refuses at once when a hundred wait', async () => {
    const { room } = createRoom()
    await room.enter('key', 10 * MIB, caller())
    for (let at = 0; at < 100; at++) follow(room.enter('key', 10 * MIB, caller()))
    expect(() => room.enter('key', 10 * MIB, caller())).toThrow('Too many large requests')
  })

  it('forgets a caller who leaves while waiting', async () => {
    const { room, runtime } = createRoom()
    const first = await room.enter('key', 10 * MIB, caller())
    const leaving = caller()
    const gone = follow(room.enter('key', 10 * MIB, leaving))
    const next = follow(room.enter('key', 10 * MIB, caller()))
    leaving.cancel(new Error('left'))
    first.leave()
    await turn()
    expect(gone.failure).toMatchObject({ kind: 'cancelled' })
    expect(next.held).toBeDefined()
    expect(runtime.pending()).toBe(0)
  })

  it('never holds more than its bytes for one key, and lets everyone in at the end, in any order', async () => {
    const step = fc.record({ bytes: fc.integer({ min: 0, max: 14 * MIB }), leaves: fc.nat(5) })
    const run = async (steps: readonly { readonly bytes: number; readonly leaves: number }[]): Promise<void> => {
      const { room } = createRoom()
      const inside = new Map<HeldRoom, number>()
      let entered = 0
      for (const { bytes, leaves } of steps) {
        void Promise.resolve(room.enter('key', bytes, caller())).then((held) => {
          entered++
          inside.set(held, bytes > MIB ? bytes : 0)
        })
        await turn()
        const sizes = [...inside.values()].filter((size) => size > 0)
        expect(sizes.length <= 1 || sizes.reduce((sum, size) => sum + size, 0) <= 10 * MIB).toBe(true)
        for (const held of [...inside.keys()].slice(0, leaves)) {
          inside.delete(held)
          held.leave()
          held.leave()
        }
        await turn()
      }
      while (inside.size > 0) {
        for (const held of inside.keys()) {
          inside.delete(held)
          held.leave()
        }
        await turn()
      }
      expect(entered).toBe(steps.length)
    }
    await fc.assert(fc.asyncProperty(fc.array(step, { maxLength: 20 }), run), { numRuns: 50 })
  })
})
