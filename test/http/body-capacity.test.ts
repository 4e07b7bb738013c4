import { describe, expect, it } from 'vitest'
import { Cancellation } from '../../src/core/async.ts'
import { BodyCapacity, type OccupiedCapacity } from '../../src/http/body.ts'
import { manualRuntime } from '../support/manual-runtime.ts'
import { cases, fc } from '../support/properties.ts'

const MIB = 1024 * 1024
const noTransport = (): never => {
  throw new Error('Nothing is sent here.')
}

function createSubject(maxBytes = 10 * MIB) {
  const runtime = manualRuntime(noTransport)
  return { runtime, capacity: new BodyCapacity({ maxBytes, waitMs: 1000, after: runtime.after }) }
}

/** Tracks the state of a request. */
function follow(taken: OccupiedCapacity | Promise<OccupiedCapacity>) {
  const state: { held?: OccupiedCapacity; failure?: unknown } = {}
  void Promise.resolve(taken).then(
    (held) => (state.held = held),
    (failure: unknown) => (state.failure = failure),
  )
  return state
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))
const nextRequest = (): Cancellation => new Cancellation()

describe('the capacity for large bodies', () => {
  it('admits small bodies immediately', () => {
    const { capacity } = createSubject()
    capacity.acquire('key', 100 * MIB, nextRequest())
    expect(capacity.acquire('key', MIB, nextRequest())).not.toBeInstanceOf(Promise)
  })

  it('admits large bodies in the order of arrival', async () => {
    const { capacity } = createSubject()
    const first = await capacity.acquire('key', 8 * MIB, nextRequest())
    const second = follow(capacity.acquire('key', 8 * MIB, nextRequest()))
    const third = follow(capacity.acquire('key', 2 * MIB, nextRequest()))
    await turn()
    expect([second.held, third.held]).toEqual([undefined, undefined])
    first.release()
    await turn()
    expect(second.held).toBeDefined()
    expect(third.held).toBeDefined()
  })

  it('is separate for each key', async () => {
    const { capacity } = createSubject()
    await capacity.acquire('hostile', 10 * MIB, nextRequest())
    expect(capacity.acquire('other', 10 * MIB, nextRequest())).not.toBeInstanceOf(Promise)
  })

  it('releases the unneeded capacity of a body of unknown length', async () => {
    const { capacity } = createSubject()
    const unknown = await capacity.acquire('key', 10 * MIB, nextRequest())
    const waiting = follow(capacity.acquire('key', 9 * MIB, nextRequest()))
    unknown.resize(500)
    await turn()
    expect(waiting.held).toBeDefined()
  })

  it('rejects with rate-limited after the maximum wait', async () => {
    const { capacity, runtime } = createSubject()
    const first = await capacity.acquire('key', 8 * MIB, nextRequest())
    const second = follow(capacity.acquire('key', 8 * MIB, nextRequest()))
    runtime.advance(1000)
    await turn()
    expect(second.failure).toMatchObject({ kind: 'rate-limited', details: { retryAfterSeconds: 5 } })
    first.release()
    expect(capacity.acquire('key', 10 * MIB, nextRequest())).not.toBeInstanceOf(Promise)
  })

  it('rejects immediately when a hundred requests are waiting', async () => {
    const { capacity } = createSubject()
    await capacity.acquire('key', 10 * MIB, nextRequest())
    for (let at = 0; at < 100; at++) follow(capacity.acquire('key', 10 * MIB, nextRequest()))
    expect(() => capacity.acquire('key', 10 * MIB, nextRequest())).toThrow('Too many large requests')
  })

  it('removes a waiting request whose caller disconnects', async () => {
    const { capacity, runtime } = createSubject()
    const first = await capacity.acquire('key', 10 * MIB, nextRequest())
    const leaving = nextRequest()
    const gone = follow(capacity.acquire('key', 10 * MIB, leaving))
    const next = follow(capacity.acquire('key', 10 * MIB, nextRequest()))
    leaving.cancel(new Error('left'))
    first.release()
    await turn()
    expect(gone.failure).toMatchObject({ kind: 'cancelled' })
    expect(next.held).toBeDefined()
    expect(runtime.pending()).toBe(0)
  })

  it('rejects a request whose caller disconnected before it has to wait', async () => {
    const { capacity, runtime } = createSubject()
    await capacity.acquire('key', 10 * MIB, nextRequest())
    const gone = nextRequest()
    gone.cancel(new Error('left'))
    await expect(capacity.acquire('key', 10 * MIB, gone)).rejects.toMatchObject({ kind: 'cancelled' })
    expect(runtime.pending()).toBe(0)
  })

  it('never exceeds the maximum of a key, and finally admits every request', async () => {
    const step = fc.record({ bytes: fc.integer({ min: 0, max: 14 * MIB }), leaves: fc.nat(5) })
    const run = async (steps: readonly { readonly bytes: number; readonly leaves: number }[]): Promise<void> => {
      const { capacity } = createSubject()
      const inside = new Map<OccupiedCapacity, number>()
      let taken = 0
      for (const { bytes, leaves } of steps) {
        void Promise.resolve(capacity.acquire('key', bytes, nextRequest())).then((held) => {
          taken++
          inside.set(held, bytes > MIB ? bytes : 0)
        })
        await turn()
        const sizes = [...inside.values()].filter((size) => size > 0)
        expect(sizes.length <= 1 || sizes.reduce((sum, size) => sum + size, 0) <= 10 * MIB).toBe(true)
        for (const held of [...inside.keys()].slice(0, leaves)) {
          inside.delete(held)
          held.release()
          held.release()
        }
        await turn()
      }
      while (inside.size > 0) {
        for (const held of inside.keys()) {
          inside.delete(held)
          held.release()
        }
        await turn()
      }
      expect(taken).toBe(steps.length)
    }
    await fc.assert(fc.asyncProperty(fc.array(step, { maxLength: 20 }), run), { numRuns: cases(50) })
  })
})
