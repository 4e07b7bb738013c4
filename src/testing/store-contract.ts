import type { LogQuery } from '../core/store.ts'
import { testQuotas, testReservations } from './reservation-and-quota-contracts.ts'
import { testSettlements } from './settlement-contract.ts'
import {
  createStoreSuite,
  type MakeStore,
  EDGE_CASE_STRINGS,
  START_TIME,
  type StoreSuite,
  type TestApi,
} from './test-api.ts'

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
  const { describe, expect, it } = api
  describe(`${name} fulfills the store contract`, () => {
    const suite = createStoreSuite(make, api)
    testValues(suite, api)
    testQuotas(suite, api)
    testReservations(suite, api)
    testSettlements(suite, api)
    testLogs(suite, api)

    it('resolves ping()', async () => {
      await expect(suite.store.ping()).resolves.toBeUndefined()
    })
  })
}

function testValues(suite: StoreSuite, { describe, expect, it }: TestApi): void {
  const { clock } = suite

  describe('values', () => {
    it('returns undefined for an absent key', async () => {
      expect(await suite.store.get('nothing')).toBeUndefined()
      expect(await suite.store.delete('nothing')).toBe(false)
    })

    it('returns the last written value until it is deleted', async () => {
      await suite.store.set('a', 'one')
      await suite.store.set('a', 'two')
      expect(await suite.store.get('a')).toBe('two')
      expect(await suite.store.delete('a')).toBe(true)
      expect(await suite.store.delete('a')).toBe(false)
      expect(await suite.store.get('a')).toBeUndefined()
    })

    for (const text of EDGE_CASE_STRINGS) {
      it(`stores the text ${JSON.stringify(text)} as a value and as the end of a key`, async () => {
        await suite.store.set(`key:${text}`, text)
        expect(await suite.store.get(`key:${text}`)).toBe(text)
        expect(await suite.store.list('key:', { limit: 10 })).toEqual([`key:${text}`])
        expect(await suite.store.swap(`key:${text}`, text, `${text}!`)).toBe(true)
        expect(await suite.store.get(`key:${text}`)).toBe(`${text}!`)
        expect(await suite.store.delete(`key:${text}`)).toBe(true)
      })
    }

    it('returns a value of a million UTF-16 code units unchanged', async () => {
      const long = 'ab漢😀'.repeat(200_000)
      await suite.store.set('long', long)
      expect(await suite.store.get('long')).toBe(long)
    })

    it('expires a value exactly at the end of its time to live', async () => {
      await suite.store.set('a', 'x', { ttlMs: 1000 })
      clock.advance(999)
      expect(await suite.store.get('a')).toBe('x')
      expect(await suite.store.list('a', { limit: 10 })).toEqual(['a'])
      clock.advance(1)
      expect(await suite.store.get('a')).toBeUndefined()
      expect(await suite.store.list('a', { limit: 10 })).toEqual([])
      expect(await suite.store.delete('a')).toBe(false)
    })

    it('replaces the time to live when a value is written again', async () => {
      await suite.store.set('a', 'x', { ttlMs: 1000 })
      await suite.store.set('a', 'y')
      await suite.store.set('b', 'x')
      await suite.store.set('b', 'y', { ttlMs: 1000 })
      clock.advance(1000)
      expect(await suite.store.get('a')).toBe('y')
      expect(await suite.store.get('b')).toBeUndefined()
    })

    it('swaps only the expected value', async () => {
      expect(await suite.store.swap('a', 'x', 'y')).toBe(false)
      expect(await suite.store.swap('a', undefined, 'one')).toBe(true)
      expect(await suite.store.swap('a', undefined, 'two')).toBe(false)
      expect(await suite.store.swap('a', 'two', 'three')).toBe(false)
      expect(await suite.store.swap('a', 'one', 'two')).toBe(true)
      expect(await suite.store.swap('a', 'one', undefined)).toBe(false)
      expect(await suite.store.swap('a', 'two', undefined)).toBe(true)
      expect(await suite.store.swap('a', undefined, undefined)).toBe(true)
      expect(await suite.store.get('a')).toBeUndefined()
    })

    it('treats an expired value as absent in a swap, and applies the time to live of the swap', async () => {
      await suite.store.set('a', 'x', { ttlMs: 10 })
      clock.advance(10)
      expect(await suite.store.swap('a', 'x', 'y')).toBe(false)
      expect(await suite.store.swap('a', undefined, 'y', { ttlMs: 10 })).toBe(true)
      clock.advance(10)
      expect(await suite.store.get('a')).toBeUndefined()
    })

    it('removes the expiry of a value in a swap without a time to live', async () => {
      await suite.store.set('a', 'x', { ttlMs: 10 })
      expect(await suite.store.swap('a', 'x', 'y')).toBe(true)
      clock.advance(10)
      expect(await suite.store.get('a')).toBe('y')
    })

    it('lets exactly one of many concurrent swaps of one value succeed', async () => {
      await suite.store.set('a', 'start')
      const swapped = await Promise.all(
        Array.from({ length: 50 }, (_, n) => suite.store.swap('a', 'start', `winner ${n}`)),
      )
      expect(swapped.filter(Boolean)).toHaveLength(1)
      expect(await suite.store.get('a')).toBe(`winner ${swapped.indexOf(true)}`)
    })

    it('lists keys by prefix in ascending order, page by page, each once', async () => {
      const names = Array.from({ length: 1_203 }, (_, n) => `list:${String((n * 7919) % 1_203).padStart(4, '0')}`)
      await Promise.all(names.map((key) => suite.store.set(key, '1')))
      await suite.store.set('lisu', '1')
      await suite.store.set('lis', '1')
      const keys: string[] = []
      for (;;) {
        const after = keys.at(-1)
        const page = await suite.store.list('list:', after === undefined ? { limit: 100 } : { after, limit: 100 })
        expect(page.length).toBeLessThanOrEqual(100)
        if (page.length === 0) break
        keys.push(...page)
      }
      expect(keys).toEqual(names.toSorted())
    })

    it('continues a listing after a key that was deleted between two pages', async () => {
      for (const key of ['k:a', 'k:b', 'k:c']) await suite.store.set(key, '1')
      await suite.store.delete('k:b')
      expect(await suite.store.list('k:', { after: 'k:b', limit: 10 })).toEqual(['k:c'])
      expect(await suite.store.list('k:', { after: 'a', limit: 10 })).toEqual(['k:a', 'k:c'])
      expect(await suite.store.list('k:', { after: 'z', limit: 10 })).toEqual([])
      expect(await suite.store.list('k:', { limit: 0 })).toEqual([])
    })
  })
}

function testLogs(suite: StoreSuite, { describe, expect, it }: TestApi): void {
  const { clock } = suite

  describe('logs', () => {
    it('returns no entries of an unknown log', async () => {
      expect(await suite.store.entries('none', { limit: 10 })).toEqual([])
    })

    it('returns the entries of each log in the order in which they were appended, with ascending cursors', async () => {
      for (let n = 0; n < 25; n += 1) {
        await suite.store.append('a', { at: START_TIME + n, value: `a${n}` })
        await suite.store.append('b', { at: START_TIME + n, value: `b${n}` })
      }
      const entries = await suite.store.entries('a', { limit: 100 })
      expect(entries.map((entry) => entry.value)).toEqual(Array.from({ length: 25 }, (_, n) => `a${n}`))
      expect(entries[3]).toMatchObject({ at: START_TIME + 3 })
      const cursors = entries.map((entry) => entry.cursor)
      expect(cursors.toSorted()).toEqual(cursors)
      expect(new Set(cursors).size).toBe(25)
    })

    it('returns each entry once to a reader that continues after a cursor, including new entries', async () => {
      for (let n = 0; n < 7; n += 1) await suite.store.append('a', { at: START_TIME, value: String(n) })
      const first = await suite.store.entries('a', { limit: 3 })
      await suite.store.append('a', { at: START_TIME, value: '7' })
      const further = await suite.store.entries('a', { after: first.at(-1)?.cursor ?? '', limit: 100 })
      expect([...first, ...further].map((entry) => entry.value)).toEqual(['0', '1', '2', '3', '4', '5', '6', '7'])
    })

    const valuesOf = async (log: string, query: LogQuery) =>
      (await suite.store.entries(log, query)).map((entry) => entry.value)

    it('includes the start of a time range and excludes its end, and applies the limit to matching entries', async () => {
      for (const at of [10, 20, 30, 25, 40]) await suite.store.append('a', { at: START_TIME + at, value: String(at) })
      const query = { from: START_TIME + 20, to: START_TIME + 40 }
      expect(await valuesOf('a', { ...query, limit: 10 })).toEqual(['20', '30', '25'])
      expect(await valuesOf('a', { ...query, limit: 2 })).toEqual(['20', '30'])
    })

    it('expires an entry exactly at its expiry', async () => {
      await suite.store.append('a', { at: START_TIME, value: 'short', ttlMs: 1000 })
      await suite.store.append('a', { at: START_TIME, value: 'long' })
      clock.advance(999)
      expect(await suite.store.entries('a', { limit: 10 })).toHaveLength(2)
      clock.advance(1)
      expect(await valuesOf('a', { limit: 10 })).toEqual(['long'])
    })

    for (const text of EDGE_CASE_STRINGS) {
      it(`stores the text ${JSON.stringify(text)} unchanged`, async () => {
        await suite.store.append(`log:${text}`, { at: START_TIME, value: text })
        expect(await valuesOf(`log:${text}`, { limit: 10 })).toEqual([text])
      })
    }
  })
}
