import { describe, expect, it } from 'vitest'
import type { Store } from '../../src/core/store.ts'
import { guardStore } from '../../src/stores/store-rules.ts'
import { memoryStore } from '../../src/stores/memory.ts'
import { testStore } from '../contract/store.ts'
import { resultOrError, settled } from '../support/result-or-error.ts'

const never = (): (() => void) => () => {}
const timeoutMs = 500

testStore('a guarded store', async (clock) => guardStore(memoryStore({ now: clock.now }), { after: never, timeoutMs }))

const request = { reservationId: 't', claims: [], expiresAfterMs: 1 }
const settlement = { reservationId: 't', charges: [], tallies: [] }
const calls: readonly (readonly [string, (store: Store) => unknown])[] = [
  ['get', (store) => store.get('a')],
  ['set', (store) => store.set('a', 'b')],
  ['swap', (store) => store.swap('a', undefined, 'b')],
  ['delete', (store) => store.delete('a')],
  ['list', (store) => store.list('a', { limit: 1 })],
  ['reserve', (store) => store.reserve(request)],
  ['settle', (store) => store.settle(settlement)],
  ['levels', (store) => store.levels(['a'])],
  ['tallies', (store) => store.tallies(['a'])],
  ['append', (store) => store.append('a', { at: 0, value: 'x' })],
  ['entries', (store) => store.entries('a', { limit: 1 })],
  ['ping', (store) => store.ping()],
]

/** Creates a store whose methods all have the same implementation. */
const every = (method: () => Promise<never>): Store =>
  Object.fromEntries(calls.map(([name]) => [name, method])) as Record<Exclude<keyof Store, 'local'>, typeof method>

it('returns a store of the same process unchanged', () => {
  const store = memoryStore()

  expect(guardStore(store, { after: never, timeoutMs })).toBe(store)
})

describe.each(calls)('%s', (_name, call) => {
  it.each<[string, () => Promise<never>]>([
    ['rejects', () => Promise.reject(new Error('redis://secret@host refused'))],
    [
      'throws',
      () => {
        throw new Error('redis://secret@host refused')
      },
    ],
  ])('of a store that %s is overloaded, without the words of the store', async (_label, method) => {
    const error: unknown = await resultOrError(() => call(guardStore(every(method), { after: never, timeoutMs })))
    expect(error).toMatchObject({ kind: 'overloaded' })
    expect((error as Error).message).not.toContain('secret')
  })

  it('of a store that hangs rejects with overloaded after its timeout', async () => {
    const timers: { readonly ms: number; readonly fire: () => void }[] = []
    const after = (ms: number, fire: () => void): (() => void) => {
      timers.push({ ms, fire })
      return () => {}
    }
    const waiting = call(
      guardStore(
        every(() => new Promise(() => {})),
        { after, timeoutMs },
      ),
    )
    expect(timers.map((timer) => timer.ms)).toEqual([500])
    timers[0]?.fire()
    await expect(settled(() => waiting)).rejects.toMatchObject({
      kind: 'overloaded',
      message: expect.stringContaining('500 ms') as string,
    })
  })

  it('of a store that answers cancels its timer', async () => {
    let open = 0
    const after = (): (() => void) => {
      open += 1
      return () => void (open -= 1)
    }
    await call(guardStore(memoryStore(), { after, timeoutMs }))
    expect(open).toBe(0)
  })
})

it('rethrows rejections of the store and range errors unchanged', async () => {
  const full = guardStore(memoryStore({ durable: { entries: 0, bytes: 0 } }), { after: never, timeoutMs })
  await expect(settled(() => full.set('a', 'b'))).rejects.toThrow('The in-memory store has no capacity for more values')
  await expect(settled(() => full.reserve({ ...request, expiresAfterMs: 0 }))).rejects.toBeInstanceOf(RangeError)
})
