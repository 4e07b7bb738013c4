import { HOUR_MS, START_TIME, type StoreSuite, type TestApi } from './test-api.ts'
import type { Quota } from '../core/store.ts'

export function testReservations(suite: StoreSuite, { describe, expect, it }: TestApi): void {
  const { claim, clock, level, reserve, settle } = suite

  describe('reservations', () => {
    const onlyHeld = (...amounts: readonly number[]) => amounts.map((held) => ({ spent: 0, held }))

    it('holds the amounts of an accepted reservation and returns the levels after the reservation', async () => {
      expect(await reserve('t', [claim('a', 3, 10), claim('b', 5, 5)])).toMatchObject({
        accepted: true,
        levels: [3, 5],
      })
      expect(await suite.store.levels(['a', 'b', 'c'])).toEqual(onlyHeld(3, 5, 0))
    })

    it('accepts a claim that reaches the limit exactly and rejects one above it', async () => {
      expect(await reserve('t1', [claim('a', 9, 10)])).toMatchObject({ accepted: true })
      expect(await reserve('t2', [claim('a', 2, 10)])).toEqual({ accepted: false, rejectedIndex: 0, levels: [9] })
      expect(await reserve('t3', [claim('a', 1, 10)])).toMatchObject({ accepted: true, levels: [10] })
      expect(await reserve('t4', [claim('a', 0, 10)])).toMatchObject({ accepted: true, levels: [10] })
    })

    it('returns the index of the first claim that does not fit, and holds no amount', async () => {
      await reserve('t1', [claim('b', 4, 5)])
      const result = await reserve('t2', [claim('a', 1, 5), claim('b', 2, 5), claim('c', 9, 5)])
      expect(result).toEqual({ accepted: false, rejectedIndex: 1, levels: [0, 4, 0] })
      expect(await suite.store.levels(['a', 'b', 'c'])).toEqual(onlyHeld(0, 4, 0))
      expect(await settle('t2', { a: 1 })).toBe(false)
    })

    it('rejects every amount above zero for a limit of zero', async () => {
      expect(await reserve('t', [claim('a', 1, 0)])).toMatchObject({ accepted: false })
    })

    it('accepts a reservation without claims, which can be settled once', async () => {
      expect(await reserve('t', [])).toMatchObject({ accepted: true, levels: [] })
      expect(await settle('t')).toBe(true)
      expect(await settle('t')).toBe(false)
    })

    it('accepts exactly as many of 1,000 concurrent reservations as fit', async () => {
      const results = await Promise.all(
        Array.from({ length: 1_000 }, (_, n) => reserve(`t${n}`, [claim('requests', 1, 100), claim('money', 7, 500)])),
      )
      expect(results.filter((result) => result.accepted)).toHaveLength(71)
      expect(await suite.store.levels(['requests', 'money'])).toEqual(onlyHeld(71, 497))
    })

    it('grants exactly the limit to 1,000 concurrent elastic reservations', async () => {
      const results = await Promise.all(
        Array.from({ length: 1_000 }, (_, n) =>
          reserve(`t${n}`, [claim('a', 30, 1_000, { elastic: true })], { minGrant: 1 }),
        ),
      )
      const granted = results.map((result) => (result.accepted ? result.granted : 0))
      expect(granted.reduce((sum, amount) => sum + amount, 0)).toBe(1_000)
      expect(await level('a')).toEqual({ spent: 0, held: 1_000 })
    })

    it('loses no amount in concurrent reservations and settlements', async () => {
      const outcomes = await Promise.all(
        Array.from({ length: 500 }, async (_, n) => {
          const result = await reserve(`t${n}`, [claim('a', 10, 2_000)])
          return result.accepted && (await settle(`t${n}`, { a: 3 }))
        }),
      )
      const settled = outcomes.filter(Boolean).length
      expect(settled).toBeGreaterThan(0)
      expect(await level('a')).toEqual({ spent: 3 * settled, held: 0 })
    })
  })

  describe('elastic claims', () => {
    const elastic = { elastic: true } as const

    it('all get the smallest remaining amount of their counters', async () => {
      await reserve('t1', [claim('a', 60, 100), claim('b', 10, 100)])
      const claims = [claim('n', 1, 5), claim('a', 80, 100, elastic), claim('b', 80, 100, elastic)]
      expect(await reserve('t2', claims, { minGrant: 5 })).toEqual({
        accepted: true,
        granted: 40,
        levels: [1, 100, 50],
      })
    })

    it('are granted in full when they fit', async () => {
      expect(await reserve('t', [claim('a', 80, 100, elastic)], { minGrant: 5 })).toMatchObject({ granted: 80 })
    })

    it('are rejected below the minimum grant, and granted at it', async () => {
      await reserve('t1', [claim('a', 90, 100)])
      const result = await reserve('t2', [claim('a', 50, 100, elastic)], { minGrant: 11 })
      expect(result).toEqual({ accepted: false, rejectedIndex: 0, levels: [90] })
      expect(await reserve('t3', [claim('a', 50, 100, elastic)], { minGrant: 10 })).toMatchObject({ granted: 10 })
    })

    it('are granted in full or rejected without a minimum grant', async () => {
      expect(await reserve('t', [claim('a', 101, 100, elastic)])).toMatchObject({ accepted: false })
    })

    it('do not make other claims elastic', async () => {
      expect(await reserve('t', [claim('a', 50, 100, elastic), claim('b', 50, 20)], { minGrant: 1 })).toMatchObject({
        accepted: false,
        rejectedIndex: 1,
      })
      expect(await level('a')).toEqual({ spent: 0, held: 0 })
    })

    it('release the granted amount, not the claimed one, when they are settled', async () => {
      await reserve('t', [claim('a', 150, 100, elastic)], { minGrant: 1 })
      expect(await settle('t', { a: 20 })).toBe(true)
      expect(await level('a')).toEqual({ spent: 20, held: 0 })
    })
  })

  describe('unsettled reservations', () => {
    it('are released exactly at their expiry', async () => {
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

    it('can be settled once within an hour after their expiry, and are not released twice', async () => {
      await reserve('t', [claim('a', 10, 10)])
      clock.advance(600_000)
      await reserve('t2', [claim('a', 9, 10)])
      clock.advance(HOUR_MS - 1)
      await reserve('t3', [claim('a', 5, 10)])
      expect(await settle('t', { a: 3 })).toBe(true)
      expect(await settle('t', { a: 3 })).toBe(false)
      expect(await level('a')).toEqual({ spent: 3, held: 5 })
    })
  })
}

export function testQuotas(suite: StoreSuite, { describe, expect, it }: TestApi): void {
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
    const append = (log: string, value: string, quotaName: string) =>
      suite.store.append(log, { at: START_TIME, value, quota: quota(quotaName) })
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
      const bytes = { maxEntries: 100, maxBytes: 20_000 }
      for (let n = 0; n < 4; n += 1) {
        await suite.store.set(`a:${n}`, 'x'.repeat(1_500), { ttlMs: 10_000, quota: quota('q:one', bytes) })
      }
      await suite.store.set('a:big', 'x'.repeat(9_000), { ttlMs: 10_000, quota: quota('q:one', bytes) })
      const tooLarge = suite.store.set('a:giant', 'x'.repeat(30_000), { ttlMs: 10_000, quota: quota('q:one', bytes) })
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

    it('of log entries drop their oldest entry, regardless of its log', async () => {
      for (let n = 0; n < 2; n += 1) await append('own', `b${n}`, 'log:two')
      for (let n = 0; n < 5; n += 1) await append(n % 2 === 0 ? 'all' : 'own', `a${n}`, 'log:one')
      await suite.store.append('all', { at: START_TIME, value: 'free' })
      const values = async (log: string) => (await suite.store.entries(log, { limit: 100 })).map(({ value }) => value)
      expect(await values('all')).toEqual(['a2', 'a4', 'free'])
      expect(await values('own')).toEqual(['b0', 'b1', 'a3'])
    })

    it('let a reader continue after a log entry that was dropped', async () => {
      for (let n = 0; n < 3; n += 1) await append('all', `a${n}`, 'log:one')
      const [first] = await suite.store.entries('all', { limit: 1 })
      for (let n = 3; n < 5; n += 1) await append('all', `a${n}`, 'log:one')
      const remaining = await suite.store.entries('all', { after: first?.cursor ?? '', limit: 100 })
      expect(remaining.map(({ value }) => value)).toEqual(['a2', 'a3', 'a4'])
    })
  })
}
