import type { Claim, Quota, ReserveRequest, Store } from '../core/store.ts'
import type { TestApi, TestClock } from './test-api.ts'

/** Creates an empty store that uses the clock. The suite closes it after each test. */
export type MakeStore = (clock: TestClock) => Promise<Store>

const HOUR = 3_600_000
const START = Date.UTC(2026, 0, 15, 12)
const GREATEST = Number.MAX_SAFE_INTEGER

/** Texts that storage often corrupts. */
const ODD_TEXTS: readonly string[] = [
  '',
  ' ',
  'a\u0000b',
  '\ud800',
  'x\udc00y',
  '😀👩‍👩‍👧',
  '__proto__',
  'constructor',
  "'; DROP TABLE keys; --",
  '%_\\*?[a]',
  '漢\u202e\u2028\r\n',
  '{"a":1}',
  '1',
  'null',
]

/**
 * Declares the tests that every `Store` must pass.
 *
 * ```ts
 * import { testStore } from 'sluice/testing'
 * import { afterEach, beforeEach, describe, expect, it } from 'vitest'
 *
 * testStore('myStore', async (clock) => myStore({ now: clock.now }), { afterEach, beforeEach, describe, expect, it })
 * ```
 */
export function testStore(name: string, make: MakeStore, api: TestApi): void {
  const { afterEach, beforeEach, describe, expect, it } = api
  describe(`${name} fulfills the store contract`, () => {
    let time = START
    const clock: TestClock = { now: () => time, advance: (ms) => void (time += ms) }
    let store: Store

    beforeEach(async () => {
      time = START
      store = await make(clock)
    })
    afterEach(async () => {
      await store.close()
    })

    const claim = (counter: string, amount: number, max: number, more: Partial<Claim> = {}): Claim => ({
      counter,
      amount,
      max,
      expiresAt: START + 24 * HOUR,
      ...more,
    })
    const reserve = (reservationId: string, claims: readonly Claim[], more: Partial<ReserveRequest> = {}) =>
      store.reserve({ reservationId, claims, expiresAfterMs: 600_000, ...more })
    const settle = (reservationId: string, charges: Readonly<Record<string, number>> = {}) =>
      store.settle({
        reservationId,
        charges: Object.entries(charges).map(([counter, amount]) => ({
          counter,
          amount,
          expiresAt: START + 24 * HOUR,
        })),
        tallies: [],
      })
    const level = async (counter: string) => (await store.levels([counter]))[0]

    describe('values', () => {
      it('returns undefined for an absent key', async () => {
        expect(await store.get('nothing')).toBeUndefined()
        expect(await store.delete('nothing')).toBe(false)
      })

      it('returns the last written value until it is deleted', async () => {
        await store.set('a', 'one')
        await store.set('a', 'two')
        expect(await store.get('a')).toBe('two')
        expect(await store.delete('a')).toBe(true)
        expect(await store.delete('a')).toBe(false)
        expect(await store.get('a')).toBeUndefined()
      })

      for (const text of ODD_TEXTS) {
        it(`the text ${JSON.stringify(text)} is stored as a value and as the end of a key`, async () => {
          await store.set(`key:${text}`, text)
          expect(await store.get(`key:${text}`)).toBe(text)
          expect(await store.list('key:', { limit: 10 })).toEqual([`key:${text}`])
          expect(await store.swap(`key:${text}`, text, `${text}!`)).toBe(true)
          expect(await store.get(`key:${text}`)).toBe(`${text}!`)
          expect(await store.delete(`key:${text}`)).toBe(true)
        })
      }

      it('returns a value of a megabyte unchanged', async () => {
        const long = 'ab漢😀'.repeat(200_000)
        await store.set('long', long)
        expect(await store.get('long')).toBe(long)
      })

      it('expires a value exactly at the end of its time to live', async () => {
        await store.set('a', 'x', { ttlMs: 1000 })
        clock.advance(999)
        expect(await store.get('a')).toBe('x')
        expect(await store.list('a', { limit: 10 })).toEqual(['a'])
        clock.advance(1)
        expect(await store.get('a')).toBeUndefined()
        expect(await store.list('a', { limit: 10 })).toEqual([])
        expect(await store.delete('a')).toBe(false)
      })

      it('replaces the time to live when a value is written again', async () => {
        await store.set('a', 'x', { ttlMs: 1000 })
        await store.set('a', 'y')
        await store.set('b', 'x')
        await store.set('b', 'y', { ttlMs: 1000 })
        clock.advance(1000)
        expect(await store.get('a')).toBe('y')
        expect(await store.get('b')).toBeUndefined()
      })

      it('swaps only the expected value', async () => {
        expect(await store.swap('a', 'x', 'y')).toBe(false)
        expect(await store.swap('a', undefined, 'one')).toBe(true)
        expect(await store.swap('a', undefined, 'two')).toBe(false)
        expect(await store.swap('a', 'two', 'three')).toBe(false)
        expect(await store.swap('a', 'one', 'two')).toBe(true)
        expect(await store.swap('a', 'one', undefined)).toBe(false)
        expect(await store.swap('a', 'two', undefined)).toBe(true)
        expect(await store.swap('a', undefined, undefined)).toBe(true)
        expect(await store.get('a')).toBeUndefined()
      })

      it('treats an expired value as absent in a swap, and applies the time to live of the swap', async () => {
        await store.set('a', 'x', { ttlMs: 10 })
        clock.advance(10)
        expect(await store.swap('a', 'x', 'y')).toBe(false)
        expect(await store.swap('a', undefined, 'y', { ttlMs: 10 })).toBe(true)
        clock.advance(10)
        expect(await store.get('a')).toBeUndefined()
      })

      it('makes an expiring value permanent by a swap without a time to live', async () => {
        await store.set('a', 'x', { ttlMs: 10 })
        expect(await store.swap('a', 'x', 'y')).toBe(true)
        clock.advance(10)
        expect(await store.get('a')).toBe('y')
      })

      it('lets exactly one of many concurrent swaps of one value succeed', async () => {
        await store.set('a', 'start')
        const done = await Promise.all(Array.from({ length: 50 }, (_, n) => store.swap('a', 'start', `winner ${n}`)))
        expect(done.filter(Boolean)).toHaveLength(1)
        expect(await store.get('a')).toBe(`winner ${done.indexOf(true)}`)
      })

      it('lists keys by prefix in ascending order, page by page, each once', async () => {
        const names = Array.from({ length: 1_203 }, (_, n) => `list:${String((n * 7919) % 1_203).padStart(4, '0')}`)
        await Promise.all(names.map((key) => store.set(key, '1')))
        await store.set('lisu', '1')
        await store.set('lis', '1')
        const found: string[] = []
        for (;;) {
          const after = found.at(-1)
          const page = await store.list('list:', after === undefined ? { limit: 100 } : { after, limit: 100 })
          expect(page.length).toBeLessThanOrEqual(100)
          if (page.length === 0) break
          found.push(...page)
        }
        expect(found).toEqual(names.toSorted())
      })

      it('continues a listing after a key that was deleted between two pages', async () => {
        for (const key of ['k:a', 'k:b', 'k:c']) await store.set(key, '1')
        await store.delete('k:b')
        expect(await store.list('k:', { after: 'k:b', limit: 10 })).toEqual(['k:c'])
        expect(await store.list('k:', { after: 'a', limit: 10 })).toEqual(['k:a', 'k:c'])
        expect(await store.list('k:', { after: 'z', limit: 10 })).toEqual([])
        expect(await store.list('k:', { limit: 0 })).toEqual([])
      })
    })

    describe('quotas', () => {
      const full = { kind: 'quota-exceeded' }
      const quota = (name: string, more: Partial<Quota> = {}): Quota => ({
        name,
        maxEntries: 3,
        maxBytes: 10_000,
        ...more,
      })
      const fill = async (prefix: string, quotaName: string, ttlMs?: number) => {
        for (let n = 0; n < 3; n += 1) {
          const options = { quota: quota(quotaName), ...(ttlMs !== undefined && { ttlMs }) }
          await store.set(`${prefix}:${n}`, `${prefix}${n}`, options)
        }
      }
      const keysOf = (prefix: string) => store.list(`${prefix}:`, { limit: 100 })

      it('refuse a further durable value and change nothing', async () => {
        await fill('a', 'q:one')
        await expect(settled(() => store.set('a:3', 'x', { quota: quota('q:one') }))).rejects.toMatchObject(full)
        await expect(settled(() => store.swap('a:3', undefined, 'x', { quota: quota('q:one') }))).rejects.toMatchObject(
          full,
        )
        expect(await keysOf('a')).toEqual(['a:0', 'a:1', 'a:2'])
        expect(await store.get('a:3')).toBeUndefined()
      })

      it('do not count values of other quotas or values without a quota', async () => {
        await fill('a', 'q:one')
        await fill('b', 'q:two')
        await store.set('a:free', 'x')
        expect(await keysOf('b')).toHaveLength(3)
        expect(await store.get('a:free')).toBe('x')
      })

      it('accept values again after a value is deleted, by delete or by swap', async () => {
        await fill('a', 'q:one')
        await store.delete('a:0')
        await store.set('a:3', 'x', { quota: quota('q:one') })
        await store.swap('a:1', 'a1', undefined)
        await store.set('a:4', 'x', { quota: quota('q:one') })
        expect(await keysOf('a')).toEqual(['a:2', 'a:3', 'a:4'])
      })

      it('count a value once when it is written repeatedly, and not at all once it is written without a quota', async () => {
        await fill('a', 'q:one')
        await fill('a', 'q:one')
        expect(await store.swap('a:0', 'a0', 'again', { quota: quota('q:one') })).toBe(true)
        await store.set('a:1', 'free')
        await store.set('a:3', 'x', { quota: quota('q:one') })
        await expect(settled(() => store.set('a:4', 'x', { quota: quota('q:one') }))).rejects.toMatchObject(full)
      })

      it('bound bytes, and keep the old value when a replacement is refused', async () => {
        await store.set('a:0', 'x'.repeat(1_000), { quota: quota('q:one') })
        await expect(
          settled(() => store.set('a:0', 'y'.repeat(10_000), { quota: quota('q:one') })),
        ).rejects.toMatchObject(full)
        await expect(
          settled(() => store.set('a:1', 'y'.repeat(10_000), { quota: quota('q:one') })),
        ).rejects.toMatchObject(full)
        expect(await store.get('a:0')).toBe('x'.repeat(1_000))
        expect(await keysOf('a')).toEqual(['a:0'])
      })

      it('accept and count values with mustFit even when full', async () => {
        await fill('a', 'q:one')
        await store.set('a:3', 'x', { quota: quota('q:one'), mustFit: true })
        expect(await store.swap('a:4', undefined, 'x', { quota: quota('q:one'), mustFit: true })).toBe(true)
        await store.delete('a:0')
        await expect(settled(() => store.set('a:5', 'x', { quota: quota('q:one') }))).rejects.toMatchObject(full)
      })

      it('drop their least recently written value when an expiring value is written', async () => {
        await fill('b', 'q:two', 10_000)
        await fill('a', 'q:one', 10_000)
        await store.set('a:3', 'x', { ttlMs: 10_000, quota: quota('q:one') })
        expect(await store.swap('a:4', undefined, 'x', { ttlMs: 10_000, quota: quota('q:one') })).toBe(true)
        expect(await keysOf('a')).toEqual(['a:2', 'a:3', 'a:4'])
        expect(await keysOf('b')).toEqual(['b:0', 'b:1', 'b:2'])
      })

      it('drop as many values as a large value needs, and refuse a value larger than the quota', async () => {
        const bytes = { maxEntries: 100, maxBytes: 20_000 }
        for (let n = 0; n < 4; n += 1) {
          await store.set(`a:${n}`, 'x'.repeat(1_500), { ttlMs: 10_000, quota: quota('q:one', bytes) })
        }
        await store.set('a:big', 'x'.repeat(9_000), { ttlMs: 10_000, quota: quota('q:one', bytes) })
        const tooLarge = store.set('a:giant', 'x'.repeat(30_000), { ttlMs: 10_000, quota: quota('q:one', bytes) })
        await expect(tooLarge).rejects.toMatchObject(full)
        expect(await store.get('a:big')).toBe('x'.repeat(9_000))
        expect(await store.get('a:giant')).toBeUndefined()
        expect(await store.get('a:0')).toBeUndefined()
      })

      it('that expiring data and logs fill never evict or block keys, budgets and batches', async () => {
        const expiring = quota('recording:one', { maxBytes: 20_000 })
        const log = quota('audit:one', { maxBytes: 20_000 })
        await store.set('key:1', 'key')
        await store.set('budget:1', 'budget')
        await fill('batch', 'batch:one')
        await reserve('open', [claim('spent', 60, 100)])
        for (let n = 0; n < 20; n += 1) {
          await store.set(`recording:${n}`, 'x'.repeat(3_000), { ttlMs: 10_000, quota: expiring })
          await store.append('audit', { at: START, value: 'x'.repeat(3_000), quota: log })
        }
        expect((await keysOf('recording')).length).toBeLessThanOrEqual(3)
        expect([await store.get('key:1'), await store.get('budget:1')]).toEqual(['key', 'budget'])
        expect(await keysOf('batch')).toEqual(['batch:0', 'batch:1', 'batch:2'])
        await store.set('key:2', 'x'.repeat(30_000))
        expect(await store.swap('key:1', 'key', 'changed')).toBe(true)
        expect(await reserve('next', [claim('spent', 41, 100)])).toMatchObject({ accepted: false })
        expect(await reserve('last', [claim('spent', 40, 100)])).toMatchObject({ accepted: true })
        expect(await store.list('key:', { limit: 10 })).toEqual(['key:1', 'key:2'])
      })

      it('do not count values that have expired', async () => {
        await fill('a', 'q:one', 1_000)
        clock.advance(1_000)
        await fill('b', 'q:one', 1_000)
        expect(await keysOf('b')).toEqual(['b:0', 'b:1', 'b:2'])
      })

      it('are not exceeded by concurrent writes', async () => {
        const written = await Promise.allSettled(
          Array.from({ length: 20 }, (_, n) => store.set(`a:${n}`, 'x', { quota: quota('q:one') })),
        )
        expect(written.filter(({ status }) => status === 'fulfilled')).toHaveLength(3)
        expect(await keysOf('a')).toHaveLength(3)
      })

      it('of log entries drop their oldest entry in any log', async () => {
        for (let n = 0; n < 2; n += 1) await store.append('own', { at: START, value: `b${n}`, quota: quota('log:two') })
        for (let n = 0; n < 5; n += 1) {
          await store.append(n % 2 === 0 ? 'all' : 'own', { at: START, value: `a${n}`, quota: quota('log:one') })
        }
        await store.append('all', { at: START, value: 'free' })
        const values = async (log: string) => (await store.entries(log, { limit: 100 })).map(({ value }) => value)
        expect(await values('all')).toEqual(['a2', 'a4', 'free'])
        expect(await values('own')).toEqual(['b0', 'b1', 'a3'])
      })

      it('let a reader continue after a log entry that was dropped', async () => {
        for (let n = 0; n < 3; n += 1) await store.append('all', { at: START, value: `a${n}`, quota: quota('log:one') })
        const [first] = await store.entries('all', { limit: 1 })
        for (let n = 3; n < 5; n += 1) await store.append('all', { at: START, value: `a${n}`, quota: quota('log:one') })
        const rest = await store.entries('all', { after: first?.cursor ?? '', limit: 100 })
        expect(rest.map(({ value }) => value)).toEqual(['a2', 'a3', 'a4'])
      })
    })

    describe('reservations', () => {
      it('holds the amounts of an accepted reservation and returns the levels after the step', async () => {
        expect(await reserve('t', [claim('a', 3, 10), claim('b', 5, 5)])).toMatchObject({
          accepted: true,
          levels: [3, 5],
        })
        expect(await store.levels(['a', 'b', 'c'])).toEqual([
          { spent: 0, held: 3 },
          { spent: 0, held: 5 },
          { spent: 0, held: 0 },
        ])
      })

      it('accepts a claim that reaches the limit exactly and refuses one above it', async () => {
        expect(await reserve('t1', [claim('a', 9, 10)])).toMatchObject({ accepted: true })
        expect(await reserve('t2', [claim('a', 2, 10)])).toEqual({ accepted: false, refused: 0, levels: [9] })
        expect(await reserve('t3', [claim('a', 1, 10)])).toMatchObject({ accepted: true, levels: [10] })
        expect(await reserve('t4', [claim('a', 0, 10)])).toMatchObject({ accepted: true, levels: [10] })
      })

      it('names the first claim that does not fit and holds nothing', async () => {
        await reserve('t1', [claim('b', 4, 5)])
        expect(await reserve('t2', [claim('a', 1, 5), claim('b', 2, 5), claim('c', 9, 5)])).toEqual({
          accepted: false,
          refused: 1,
          levels: [0, 4, 0],
        })
        expect(await store.levels(['a', 'b', 'c'])).toEqual([
          { spent: 0, held: 0 },
          { spent: 0, held: 4 },
          { spent: 0, held: 0 },
        ])
        expect(await settle('t2', { a: 1 })).toBe(false)
      })

      it('refuses every amount above zero for a limit of zero', async () => {
        expect(await reserve('t', [claim('a', 1, 0)])).toMatchObject({ accepted: false })
      })

      it('accepts a reservation without claims, which can be settled once', async () => {
        expect(await reserve('t', [])).toMatchObject({ accepted: true, levels: [] })
        expect(await settle('t')).toBe(true)
        expect(await settle('t')).toBe(false)
      })

      it('accepts exactly as many of 1,000 concurrent reservations as fit', async () => {
        const results = await Promise.all(
          Array.from({ length: 1_000 }, (_, n) => reserve(`t${n}`, [claim('places', 1, 100), claim('money', 7, 500)])),
        )
        expect(results.filter((result) => result.accepted)).toHaveLength(71)
        expect(await store.levels(['places', 'money'])).toEqual([
          { spent: 0, held: 71 },
          { spent: 0, held: 497 },
        ])
      })

      it('grants exactly the limit to 1,000 concurrent elastic reservations', async () => {
        const results = await Promise.all(
          Array.from({ length: 1_000 }, (_, n) =>
            reserve(`t${n}`, [claim('a', 30, 1_000, { elastic: true })], { least: 1 }),
          ),
        )
        const granted = results.map((result) => (result.accepted ? result.granted : 0))
        expect(granted.reduce((sum, amount) => sum + amount, 0)).toBe(1_000)
        expect(await level('a')).toEqual({ spent: 0, held: 1_000 })
      })

      it('loses no amount in concurrent reservations and settlements', async () => {
        const worked = await Promise.all(
          Array.from({ length: 500 }, async (_, n) => {
            const result = await reserve(`t${n}`, [claim('a', 10, 2_000)])
            return result.accepted && (await settle(`t${n}`, { a: 3 }))
          }),
        )
        const settled = worked.filter(Boolean).length
        expect(settled).toBeGreaterThan(0)
        expect(await level('a')).toEqual({ spent: 3 * settled, held: 0 })
      })
    })

    describe('elastic claims', () => {
      const elastic = { elastic: true } as const

      it('all get the smallest remaining amount of their counters', async () => {
        await reserve('t1', [claim('a', 60, 100), claim('b', 10, 100)])
        expect(
          await reserve('t2', [claim('n', 1, 5), claim('a', 80, 100, elastic), claim('b', 80, 100, elastic)], {
            least: 5,
          }),
        ).toEqual({ accepted: true, granted: 40, levels: [1, 100, 50] })
      })

      it('are granted whole when they fit', async () => {
        expect(await reserve('t', [claim('a', 80, 100, elastic)], { least: 5 })).toMatchObject({ granted: 80 })
      })

      it('are refused below the minimum grant, and granted at it', async () => {
        await reserve('t1', [claim('a', 90, 100)])
        expect(await reserve('t2', [claim('a', 50, 100, elastic)], { least: 11 })).toEqual({
          accepted: false,
          refused: 0,
          levels: [90],
        })
        expect(await reserve('t3', [claim('a', 50, 100, elastic)], { least: 10 })).toMatchObject({ granted: 10 })
      })

      it('are granted whole or refused without a minimum grant', async () => {
        expect(await reserve('t', [claim('a', 101, 100, elastic)])).toMatchObject({ accepted: false })
      })

      it('do not make other claims elastic', async () => {
        expect(await reserve('t', [claim('a', 50, 100, elastic), claim('b', 50, 20)], { least: 1 })).toMatchObject({
          accepted: false,
          refused: 1,
        })
        expect(await level('a')).toEqual({ spent: 0, held: 0 })
      })

      it('release the granted amount, not the claimed one, when they are settled', async () => {
        await reserve('t', [claim('a', 150, 100, elastic)], { least: 1 })
        expect(await settle('t', { a: 20 })).toBe(true)
        expect(await level('a')).toEqual({ spent: 20, held: 0 })
      })
    })

    describe('settling', () => {
      it('replaces the held amount by the used amount, lower or higher', async () => {
        await reserve('t', [claim('a', 10, 100), claim('b', 10, 10)])
        expect(await settle('t', { a: 4, b: 25 })).toBe(true)
        expect(await store.levels(['a', 'b'])).toEqual([
          { spent: 4, held: 0 },
          { spent: 25, held: 0 },
        ])
        expect(await reserve('t2', [claim('b', 1, 10)])).toMatchObject({ accepted: false, levels: [25] })
      })

      it('releases the whole amount when nothing was used', async () => {
        await reserve('t', [claim('a', 10, 10)])
        expect(await settle('t')).toBe(true)
        expect(await level('a')).toEqual({ spent: 0, held: 0 })
      })

      it('happens once when it is called repeatedly and concurrently', async () => {
        await reserve('t', [claim('a', 10, 100)])
        const answers = await Promise.all(Array.from({ length: 20 }, () => settle('t', { a: 4 })))
        expect(answers.filter(Boolean)).toHaveLength(1)
        expect(await level('a')).toEqual({ spent: 4, held: 0 })
        clock.advance(601_000)
        expect(await settle('t', { a: 4 })).toBe(false)
        expect(await level('a')).toEqual({ spent: 4, held: 0 })
      })

      it('has no effect for an unknown reservation', async () => {
        expect(await settle('unknown', { a: 4 })).toBe(false)
        expect(await level('a')).toEqual({ spent: 0, held: 0 })
      })

      it('can charge a counter that was not claimed', async () => {
        await reserve('t', [])
        expect(await settle('t', { a: 4 })).toBe(true)
        expect(await level('a')).toEqual({ spent: 4, held: 0 })
      })

      it('adds tallies field by field in the same step', async () => {
        const settlement = { charges: [], tallies: [{ name: 'r', amounts: { tokens: 5, __proto__x: 1 } }] }
        await reserve('t1', [])
        await reserve('t2', [])
        await store.settle({ reservationId: 't1', ...settlement })
        await store.settle({ reservationId: 't1', ...settlement })
        await store.settle({
          reservationId: 't2',
          charges: [],
          tallies: [{ name: 'r', amounts: { tokens: -2, money: 7 } }],
        })
        expect(await store.tallies(['r', 'none'])).toEqual([{ tokens: 3, __proto__x: 1, money: 7 }, {}])
      })

      it('appends its log entries in the same step, once', async () => {
        const quota = { name: 'log:one', maxEntries: 2, maxBytes: 10_000 }
        const entries = [1, 2, 3].map((n) => ({ log: 'audit', at: START + n, value: `e${n}`, ttlMs: 1000, quota }))
        await reserve('t', [])
        expect(await store.settle({ reservationId: 't', charges: [], tallies: [], entries })).toBe(true)
        expect(await store.settle({ reservationId: 't', charges: [], tallies: [], entries })).toBe(false)
        expect((await store.entries('audit', { limit: 10 })).map(({ value }) => value)).toEqual(['e2', 'e3'])
        clock.advance(1000)
        expect(await store.entries('audit', { limit: 10 })).toEqual([])
      })

      it('omits a log entry that is larger than its quota', async () => {
        const quota = { name: 'log:one', maxEntries: 2, maxBytes: 1_000 }
        const entry = { log: 'audit', at: START, quota }
        const entries = [
          { ...entry, value: 'x'.repeat(2_000) },
          { ...entry, value: 'small' },
        ]
        await reserve('t', [claim('a', 5, 10)])
        const charges = [{ counter: 'a', amount: 4, expiresAt: START + HOUR }]
        expect(await store.settle({ reservationId: 't', charges, tallies: [], entries })).toBe(true)
        expect((await store.entries('audit', { limit: 10 })).map(({ value }) => value)).toEqual(['small'])
        expect(await level('a')).toEqual({ spent: 4, held: 0 })
      })

      it('expires a tally at its end', async () => {
        await reserve('t', [])
        const tally = { name: 'r', amounts: { n: 1 }, expiresAt: START + 1000 }
        await store.settle({ reservationId: 't', charges: [], tallies: [tally] })
        clock.advance(999)
        expect(await store.tallies(['r'])).toEqual([{ n: 1 }])
        clock.advance(1)
        expect(await store.tallies(['r'])).toEqual([{}])
      })
    })

    describe('unsettled reservations', () => {
      it('are released exactly when they expire', async () => {
        await reserve('t', [claim('a', 10, 10)])
        clock.advance(599_999)
        expect(await level('a')).toEqual({ spent: 0, held: 10 })
        expect(await reserve('t2', [claim('a', 1, 10)])).toMatchObject({ accepted: false })
        clock.advance(1)
        expect(await level('a')).toEqual({ spent: 0, held: 0 })
        expect(await reserve('t3', [claim('a', 10, 10)])).toMatchObject({ accepted: true })
      })

      it('expire independently of each other', async () => {
        await reserve('long', [claim('a', 1, 10)], { expiresAfterMs: 3000 })
        await reserve('short', [claim('a', 2, 10)], { expiresAfterMs: 1000 })
        clock.advance(1000)
        expect(await level('a')).toEqual({ spent: 0, held: 1 })
        clock.advance(2000)
        expect(await level('a')).toEqual({ spent: 0, held: 0 })
      })

      it('can be settled once within an hour after they expired, and are not released twice', async () => {
        await reserve('t', [claim('a', 10, 10)])
        clock.advance(600_000)
        await reserve('t2', [claim('a', 9, 10)])
        clock.advance(HOUR - 1)
        await reserve('t3', [claim('a', 5, 10)])
        expect(await settle('t', { a: 3 })).toBe(true)
        expect(await settle('t', { a: 3 })).toBe(false)
        expect(await level('a')).toEqual({ spent: 3, held: 5 })
      })
    })

    describe('counters', () => {
      it('expire exactly at their end', async () => {
        await reserve('t', [claim('a', 5, 10, { expiresAt: START + 1000 })])
        await store.settle({
          reservationId: 't',
          charges: [{ counter: 'a', amount: 5, expiresAt: START + 1000 }],
          tallies: [],
        })
        clock.advance(999)
        expect(await level('a')).toEqual({ spent: 5, held: 0 })
        clock.advance(1)
        expect(await level('a')).toEqual({ spent: 0, held: 0 })
      })

      it('live until the latest end of their claims and charges', async () => {
        await reserve('t', [claim('a', 5, 10, { expiresAt: START + 1000 })])
        await store.settle({
          reservationId: 't',
          charges: [{ counter: 'a', amount: 5, expiresAt: START + 2000 }],
          tallies: [],
        })
        await reserve('t2', [claim('a', 1, 10, { expiresAt: START + 500 })])
        clock.advance(1999)
        expect(await level('a')).toMatchObject({ spent: 5 })
      })

      it('do not change when a reservation of an expired counter is released', async () => {
        await reserve('t', [claim('a', 5, 10, { expiresAt: START + 1000 })])
        clock.advance(1000)
        expect(await reserve('t2', [claim('a', 1, 10)])).toMatchObject({ accepted: true, levels: [1] })
        expect(await settle('t')).toBe(true)
        expect(await level('a')).toEqual({ spent: 0, held: 1 })
      })

      it('are exact up to the greatest safe integer and are clamped there', async () => {
        expect(await reserve('t1', [claim('a', GREATEST - 1, GREATEST)])).toMatchObject({ levels: [GREATEST - 1] })
        expect(await reserve('t2', [claim('a', 2, GREATEST)])).toMatchObject({ accepted: false })
        expect(await reserve('t3', [claim('a', 1, GREATEST)])).toMatchObject({ accepted: true, levels: [GREATEST] })
        expect(await settle('t1', { a: GREATEST })).toBe(true)
        expect(await settle('t3', { a: 5 })).toBe(true)
        expect(await level('a')).toEqual({ spent: GREATEST, held: 0 })
        await reserve('t4', [])
        await store.settle({ reservationId: 't4', charges: [], tallies: [{ name: 'r', amounts: { n: GREATEST } }] })
        await reserve('t5', [])
        await store.settle({ reservationId: 't5', charges: [], tallies: [{ name: 'r', amounts: { n: GREATEST } }] })
        expect(await store.tallies(['r'])).toEqual([{ n: GREATEST }])
      })

      for (const amount of [Number.NaN, -1, 0.5, Infinity, GREATEST + 1]) {
        it(`refuses the amount ${amount} and changes nothing`, async () => {
          await expect(settled(() => reserve('t', [claim('a', 1, 10), claim('b', amount, 10)]))).rejects.toThrow()
          await reserve('t1', [claim('a', 1, 10)])
          await expect(settled(() => settle('t1', { a: amount }))).rejects.toThrow()
          expect(await level('a')).toEqual({ spent: 0, held: 1 })
          expect(await settle('t1', { a: 1 })).toBe(true)
        })
      }

      for (const text of ODD_TEXTS) {
        it(`the text ${JSON.stringify(text)} can be the name of a counter, a tally and a reservation`, async () => {
          expect(await reserve(text, [claim(`c:${text}`, 1, 1)])).toMatchObject({ accepted: true })
          expect(await level(`c:${text}`)).toEqual({ spent: 0, held: 1 })
          const tallies = [{ name: `r:${text}`, amounts: { n: 2 } }]
          expect(await store.settle({ reservationId: text, charges: [], tallies })).toBe(true)
          expect(await store.tallies([`r:${text}`])).toEqual([{ n: 2 }])
          expect(await level(`c:${text}`)).toEqual({ spent: 0, held: 0 })
        })
      }
    })

    describe('logs', () => {
      it('an unknown log is empty', async () => {
        expect(await store.entries('none', { limit: 10 })).toEqual([])
      })

      it('returns entries of each log in the order of appending, with ascending cursors', async () => {
        for (let n = 0; n < 25; n += 1) {
          await store.append('a', { at: START + n, value: `a${n}` })
          await store.append('b', { at: START + n, value: `b${n}` })
        }
        const found = await store.entries('a', { limit: 100 })
        expect(found.map((entry) => entry.value)).toEqual(Array.from({ length: 25 }, (_, n) => `a${n}`))
        expect(found[3]).toMatchObject({ at: START + 3 })
        const cursors = found.map((entry) => entry.cursor)
        expect(cursors.toSorted()).toEqual(cursors)
        expect(new Set(cursors).size).toBe(25)
      })

      it('returns each entry once to a reader that continues after a cursor, including new entries', async () => {
        for (let n = 0; n < 7; n += 1) await store.append('a', { at: START, value: String(n) })
        const first = await store.entries('a', { limit: 3 })
        await store.append('a', { at: START, value: '7' })
        const rest = await store.entries('a', { after: first.at(-1)?.cursor ?? '', limit: 100 })
        expect([...first, ...rest].map((entry) => entry.value)).toEqual(['0', '1', '2', '3', '4', '5', '6', '7'])
      })

      it('includes the first moment of a time range and excludes the last, and applies the limit to matching entries', async () => {
        for (const at of [10, 20, 30, 25, 40]) await store.append('a', { at: START + at, value: String(at) })
        const query = { from: START + 20, to: START + 40 }
        expect((await store.entries('a', { ...query, limit: 10 })).map((entry) => entry.value)).toEqual([
          '20',
          '30',
          '25',
        ])
        expect((await store.entries('a', { ...query, limit: 2 })).map((entry) => entry.value)).toEqual(['20', '30'])
      })

      it('expires an entry at its end', async () => {
        await store.append('a', { at: START, value: 'short', ttlMs: 1000 })
        await store.append('a', { at: START, value: 'long' })
        clock.advance(999)
        expect(await store.entries('a', { limit: 10 })).toHaveLength(2)
        clock.advance(1)
        expect((await store.entries('a', { limit: 10 })).map((entry) => entry.value)).toEqual(['long'])
      })

      for (const text of ODD_TEXTS) {
        it(`the text ${JSON.stringify(text)} is stored unchanged`, async () => {
          await store.append(`log:${text}`, { at: START, value: text })
          expect((await store.entries(`log:${text}`, { limit: 10 })).map((entry) => entry.value)).toEqual([text])
        })
      }
    })

    it('a ping resolves', async () => {
      await expect(store.ping()).resolves.toBeUndefined()
    })
  })
}

/** Returns a promise for the value or exception of a method that may be synchronous. */
async function settled<result>(work: () => result | Promise<result>): Promise<result> {
  return work()
}
