import type { Quota } from '../core/store.ts'
import { testReservations, testSettlements } from './reservation-contract.ts'
import {
  createStoreSuite,
  EDGE_CASE_STRINGS,
  type MakeStore,
  START_TIME,
  type StoreSuite,
  type TestApi,
  testLogs,
} from './store-suite.ts'

/**
 * Declares the tests that every `Store` must pass.
 *
 * @example
 * testStore('myStore', async (clock) => myStore({ now: clock.now }), { afterEach, beforeEach, describe, expect, it })
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

function testQuotas(suite: StoreSuite, { describe, expect, it }: TestApi): void {
  const { claim, clock, reserve } = suite

  describe('quotas', () => {
    const quotaError = { kind: 'quota-exceeded' }
    const quota = (name: string, overrides: Partial<Quota> = {}): Quota => ({
      name,
      maxEntries: 3,
      maxBytes: 10_000,
      ...overrides,
    })
    const fill = async (prefix: string, quotaName: string, ttlMs?: number) => {
      for (let n = 0; n < 3; n += 1) {
        const options = { quota: quota(quotaName), ...(ttlMs !== undefined && { ttlMs }) }
        await suite.store.set(`${prefix}:${n}`, `${prefix}${n}`, options)
      }
    }
    const keysOf = (prefix: string) => suite.store.list(`${prefix}:`, { limit: 100 })

    it('reject a further value without an expiry and change nothing', async () => {
      await fill('a', 'q:one')
      await expect(suite.store.set('a:3', 'x', { quota: quota('q:one') })).rejects.toMatchObject(quotaError)
      await expect(suite.store.swap('a:3', undefined, 'x', { quota: quota('q:one') })).rejects.toMatchObject(quotaError)
      expect(await keysOf('a')).toEqual(['a:0', 'a:1', 'a:2'])
      expect(await suite.store.get('a:3')).toBeUndefined()
    })

    it('do not count values of other quotas or values without a quota', async () => {
      await fill('a', 'q:one')
      await fill('b', 'q:two')
      await suite.store.set('a:free', 'x')
      expect(await keysOf('b')).toHaveLength(3)
      expect(await suite.store.get('a:free')).toBe('x')
    })

    it('accept a value after another is deleted, by delete or by swap', async () => {
      await fill('a', 'q:one')
      await suite.store.delete('a:0')
      await suite.store.set('a:3', 'x', { quota: quota('q:one') })
      await suite.store.swap('a:1', 'a1', undefined)
      await suite.store.set('a:4', 'x', { quota: quota('q:one') })
      expect(await keysOf('a')).toEqual(['a:2', 'a:3', 'a:4'])
    })

    it('count a value once when it is written repeatedly, and not after it is written without a quota', async () => {
      await fill('a', 'q:one')
      await fill('a', 'q:one')
      expect(await suite.store.swap('a:0', 'a0', 'again', { quota: quota('q:one') })).toBe(true)
      await suite.store.set('a:1', 'free')
      await suite.store.set('a:3', 'x', { quota: quota('q:one') })
      await expect(suite.store.set('a:4', 'x', { quota: quota('q:one') })).rejects.toMatchObject(quotaError)
    })

    it('limit bytes, and keep the old value when a replacement is rejected', async () => {
      await suite.store.set('a:0', 'x'.repeat(1_000), { quota: quota('q:one') })
      for (const key of ['a:0', 'a:1']) {
        const tooLarge = suite.store.set(key, 'y'.repeat(10_000), { quota: quota('q:one') })
        await expect(tooLarge).rejects.toMatchObject(quotaError)
      }
      expect(await suite.store.get('a:0')).toBe('x'.repeat(1_000))
      expect(await keysOf('a')).toEqual(['a:0'])
    })

    it('accept and count values with mayExceedQuota even when full', async () => {
      await fill('a', 'q:one')
      await suite.store.set('a:3', 'x', { quota: quota('q:one'), mayExceedQuota: true })
      expect(await suite.store.swap('a:4', undefined, 'x', { quota: quota('q:one'), mayExceedQuota: true })).toBe(true)
      await suite.store.delete('a:0')
      await expect(suite.store.set('a:5', 'x', { quota: quota('q:one') })).rejects.toMatchObject(quotaError)
    })

    it('drop their least recently written value when a further expiring value is written', async () => {
      await fill('b', 'q:two', 10_000)
      await fill('a', 'q:one', 10_000)
      await suite.store.set('a:3', 'x', { ttlMs: 10_000, quota: quota('q:one') })
      expect(await suite.store.swap('a:4', undefined, 'x', { ttlMs: 10_000, quota: quota('q:one') })).toBe(true)
      expect(await keysOf('a')).toEqual(['a:2', 'a:3', 'a:4'])
      expect(await keysOf('b')).toEqual(['b:0', 'b:1', 'b:2'])
    })

    it('drop several values for a large value, and reject a value larger than the quota', async () => {
      const limits = { maxEntries: 100, maxBytes: 20_000 }
      for (let n = 0; n < 4; n += 1) {
        await suite.store.set(`a:${n}`, 'x'.repeat(1_500), { ttlMs: 10_000, quota: quota('q:one', limits) })
      }
      await suite.store.set('a:big', 'x'.repeat(9_000), { ttlMs: 10_000, quota: quota('q:one', limits) })
      const tooLarge = suite.store.set('a:giant', 'x'.repeat(30_000), { ttlMs: 10_000, quota: quota('q:one', limits) })
      await expect(tooLarge).rejects.toMatchObject(quotaError)
      expect(await suite.store.get('a:big')).toBe('x'.repeat(9_000))
      expect(await suite.store.get('a:giant')).toBeUndefined()
      expect(await suite.store.get('a:0')).toBeUndefined()
    })

    it('of expiring values and logs never evict or block keys, budgets and batches when they are full', async () => {
      const expiring = quota('recording:one', { maxBytes: 20_000 })
      const log = quota('audit:one', { maxBytes: 20_000 })
      await suite.store.set('key:1', 'key')
      await suite.store.set('budget:1', 'budget')
      await fill('batch', 'batch:one')
      await reserve('open', [claim('spent', 60, 100)])
      for (let n = 0; n < 20; n += 1) {
        await suite.store.set(`recording:${n}`, 'x'.repeat(3_000), { ttlMs: 10_000, quota: expiring })
        await suite.store.append('audit', { at: START_TIME, value: 'x'.repeat(3_000), quota: log })
      }
      expect((await keysOf('recording')).length).toBeLessThanOrEqual(3)
      expect([await suite.store.get('key:1'), await suite.store.get('budget:1')]).toEqual(['key', 'budget'])
      expect(await keysOf('batch')).toEqual(['batch:0', 'batch:1', 'batch:2'])
      await suite.store.set('key:2', 'x'.repeat(30_000))
      expect(await suite.store.swap('key:1', 'key', 'changed')).toBe(true)
      expect(await reserve('next', [claim('spent', 41, 100)])).toMatchObject({ accepted: false })
      expect(await reserve('last', [claim('spent', 40, 100)])).toMatchObject({ accepted: true })
      expect(await suite.store.list('key:', { limit: 10 })).toEqual(['key:1', 'key:2'])
    })

    it('do not count values that have expired', async () => {
      await fill('a', 'q:one', 1_000)
      clock.advance(1_000)
      await fill('b', 'q:one', 1_000)
      expect(await keysOf('b')).toEqual(['b:0', 'b:1', 'b:2'])
    })

    it('are not exceeded by concurrent writes', async () => {
      const written = await Promise.allSettled(
        Array.from({ length: 20 }, (_, n) => suite.store.set(`a:${n}`, 'x', { quota: quota('q:one') })),
      )
      expect(written.filter(({ status }) => status === 'fulfilled')).toHaveLength(3)
      expect(await keysOf('a')).toHaveLength(3)
    })
  })
}
