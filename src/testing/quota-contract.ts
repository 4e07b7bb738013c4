import type { Quota } from '../core/store.ts'
import { START, type StoreSuite, type TestApi } from './test-api.ts'

export function testQuotas(suite: StoreSuite, { describe, expect, it }: TestApi): void {
  const { claim, clock, reserve } = suite

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
        await suite.store.set(`${prefix}:${n}`, `${prefix}${n}`, options)
      }
    }
    const keysOf = (prefix: string) => suite.store.list(`${prefix}:`, { limit: 100 })

    it('refuse a further value without an expiry and change nothing', async () => {
      await fill('a', 'q:one')
      await expect(suite.store.set('a:3', 'x', { quota: quota('q:one') })).rejects.toMatchObject(full)
      await expect(suite.store.swap('a:3', undefined, 'x', { quota: quota('q:one') })).rejects.toMatchObject(full)
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
      await expect(suite.store.set('a:4', 'x', { quota: quota('q:one') })).rejects.toMatchObject(full)
    })

    it('limit bytes, and keep the old value when a replacement is refused', async () => {
      await suite.store.set('a:0', 'x'.repeat(1_000), { quota: quota('q:one') })
      for (const key of ['a:0', 'a:1']) {
        const tooLarge = suite.store.set(key, 'y'.repeat(10_000), { quota: quota('q:one') })
        await expect(tooLarge).rejects.toMatchObject(full)
      }
      expect(await suite.store.get('a:0')).toBe('x'.repeat(1_000))
      expect(await keysOf('a')).toEqual(['a:0'])
    })

    it('accept and count values with mustFit even when full', async () => {
      await fill('a', 'q:one')
      await suite.store.set('a:3', 'x', { quota: quota('q:one'), mustFit: true })
      expect(await suite.store.swap('a:4', undefined, 'x', { quota: quota('q:one'), mustFit: true })).toBe(true)
      await suite.store.delete('a:0')
      await expect(suite.store.set('a:5', 'x', { quota: quota('q:one') })).rejects.toMatchObject(full)
    })

    it('drop their least recently written value when a further expiring value is written', async () => {
      await fill('b', 'q:two', 10_000)
      await fill('a', 'q:one', 10_000)
      await suite.store.set('a:3', 'x', { ttlMs: 10_000, quota: quota('q:one') })
      expect(await suite.store.swap('a:4', undefined, 'x', { ttlMs: 10_000, quota: quota('q:one') })).toBe(true)
      expect(await keysOf('a')).toEqual(['a:2', 'a:3', 'a:4'])
      expect(await keysOf('b')).toEqual(['b:0', 'b:1', 'b:2'])
    })

    it('drop several values for a large value, and refuse a value larger than the quota', async () => {
      const bytes = { maxEntries: 100, maxBytes: 20_000 }
      for (let n = 0; n < 4; n += 1) {
        await suite.store.set(`a:${n}`, 'x'.repeat(1_500), { ttlMs: 10_000, quota: quota('q:one', bytes) })
      }
      await suite.store.set('a:big', 'x'.repeat(9_000), { ttlMs: 10_000, quota: quota('q:one', bytes) })
      const tooLarge = suite.store.set('a:giant', 'x'.repeat(30_000), { ttlMs: 10_000, quota: quota('q:one', bytes) })
      await expect(tooLarge).rejects.toMatchObject(full)
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
        await suite.store.append('audit', { at: START, value: 'x'.repeat(3_000), quota: log })
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

    it('of log entries drop their oldest entry in any log', async () => {
      for (let n = 0; n < 2; n += 1)
        await suite.store.append('own', { at: START, value: `b${n}`, quota: quota('log:two') })
      for (let n = 0; n < 5; n += 1) {
        await suite.store.append(n % 2 === 0 ? 'all' : 'own', { at: START, value: `a${n}`, quota: quota('log:one') })
      }
      await suite.store.append('all', { at: START, value: 'free' })
      const values = async (log: string) => (await suite.store.entries(log, { limit: 100 })).map(({ value }) => value)
      expect(await values('all')).toEqual(['a2', 'a4', 'free'])
      expect(await values('own')).toEqual(['b0', 'b1', 'a3'])
    })

    it('let a reader continue after a log entry that was dropped', async () => {
      for (let n = 0; n < 3; n += 1)
        await suite.store.append('all', { at: START, value: `a${n}`, quota: quota('log:one') })
      const [first] = await suite.store.entries('all', { limit: 1 })
      for (let n = 3; n < 5; n += 1)
        await suite.store.append('all', { at: START, value: `a${n}`, quota: quota('log:one') })
      const rest = await suite.store.entries('all', { after: first?.cursor ?? '', limit: 100 })
      expect(rest.map(({ value }) => value)).toEqual(['a2', 'a3', 'a4'])
    })
  })
}
