import { join } from 'node:path'
import { afterAll, beforeEach, describe, expect, it } from 'vitest'
import { sqliteStore } from '../../src/sqlite.ts'
import { testStore } from '../contract/store.ts'
import { sqliteDrivers, temporaryDirectory } from '../support/sqlite.ts'
import { dropsFromTheShareWithTheMostBytes } from './largest-share.ts'

const directory = temporaryDirectory()
let files = 0
const newFile = (): string => join(directory.path, `${(files += 1)}.db`)

afterAll(() => directory.remove())

describe.each(sqliteDrivers())('sqliteStore with $name', ({ name, open }) => {
  testStore(`sqliteStore with ${name}`, async (clock) => {
    const database = open(newFile())
    const store = sqliteStore({ database, now: clock.now })
    return { ...store, close: async () => void database.close() }
  })

  describe('a file', () => {
    let file: string
    beforeEach(() => {
      file = newFile()
    })

    it('keeps values, counters, open reservations, tallies and logs over a restart', async () => {
      const now = Date.now()
      const claim = { counter: 'c', amount: 5, max: 10, expiresAt: now + 60_000 }
      const before = open(file)
      const store = sqliteStore({ database: before })
      await store.set('key', 'value')
      await store.reserve({ reservationId: 't1', claims: [claim], expiresAfterMs: 60_000 })
      await store.reserve({ reservationId: 't2', claims: [{ ...claim, amount: 3 }], expiresAfterMs: 60_000 })
      await store.settle({
        reservationId: 't1',
        charges: [{ counter: 'c', amount: 4, expiresAt: now + 60_000 }],
        tallies: [{ name: 'usage', amounts: { n: 1 } }],
        entries: [{ log: 'audit', at: now, value: 'record' }],
      })
      before.close()

      const reopened = sqliteStore({ database: open(file) })

      expect(await reopened.get('key')).toBe('value')
      expect(await reopened.levels(['c'])).toEqual([{ spent: 4, held: 3 }])
      expect(await reopened.settle({ reservationId: 't1', charges: [], tallies: [] })).toBe(false)
      expect(await reopened.settle({ reservationId: 't2', charges: [], tallies: [] })).toBe(true)
      expect(await reopened.levels(['c'])).toEqual([{ spent: 4, held: 0 }])
      expect(await reopened.tallies(['usage'])).toEqual([{ n: 1 }])
      expect(await reopened.entries('audit', { limit: 10 })).toMatchObject([{ value: 'record' }])
    })

    it('uses write-ahead logging', () => {
      const database = open(file)
      sqliteStore({ database })
      expect(database.prepare('PRAGMA journal_mode').get()).toMatchObject({ journal_mode: 'wal' })
    })

    it('of a newer schema is rejected with an error that names both versions', () => {
      const database = open(file)
      database.exec('PRAGMA user_version = 99')
      expect(() => sqliteStore({ database })).toThrow(
        /schema version 99, and this version of sluice supports at most version 2/,
      )
    })

    it('is shared by two connections', async () => {
      const [one, two] = [sqliteStore({ database: open(file) }), sqliteStore({ database: open(file) })]
      const claim = { counter: 'c', amount: 1, max: 10, expiresAt: Date.now() + 60_000 }
      const results = await Promise.all(
        Array.from({ length: 40 }, (_, n) =>
          (n % 2 === 0 ? one : two).reserve({ reservationId: `t${n}`, claims: [claim], expiresAfterMs: 60_000 }),
        ),
      )
      expect(results.filter(({ accepted }) => accepted)).toHaveLength(10)
      expect(await two.levels(['c'])).toEqual([{ spent: 0, held: 10 }])
    })
  })

  describe('full pools', () => {
    const small = { entries: 10, bytes: 1_000_000 }

    dropsFromTheShareWithTheMostBytes(() => sqliteStore({ database: open(newFile()), limits: { expiring: small } }))

    it('of expiring values drop the oldest value of the largest share, and never a key', async () => {
      const store = sqliteStore({ database: open(newFile()), limits: { expiring: small } })
      await store.set('vk:1', 'record')
      for (let n = 0; n < 3; n += 1) await store.set(`turn:${n}`, 'x', { ttlMs: 60_000 })
      for (let n = 0; n < 50; n += 1) await store.set(`flood:${n}`, 'x'.repeat(100), { ttlMs: 60_000 })
      expect(await store.get('vk:1')).toBe('record')
      expect(await store.list('turn:', { limit: 100 })).toHaveLength(3)
      expect(await store.list('flood:', { limit: 100 })).toHaveLength(7)
    })

    it('of owned values allow one key at most what remains free, and always allow writes of keys', async () => {
      const store = sqliteStore({ database: open(newFile()), limits: { owned: small } })
      const write = (key: string, quota: string) =>
        store.set(key, 'x', { quota: { name: quota, maxEntries: 100, maxBytes: 100_000 } })
      for (let n = 0; n < 5; n += 1) await write(`a:${n}`, 'one')
      await expect(write('a:5', 'one')).rejects.toMatchObject({ kind: 'quota-exceeded' })
      await write('b:0', 'two')
      await store.set('vk:1', 'record')
      expect(await store.get('vk:1')).toBe('record')
    })

    it('have the default limit if it is undefined', async () => {
      const limits: object = { expiring: undefined }
      const store = sqliteStore({ database: open(newFile()), limits })
      await store.set('turn:1', 'x', { ttlMs: 60_000 })
      expect(await store.get('turn:1')).toBe('x')
    })

    it('of log entries drop the oldest entry of the largest share', async () => {
      const store = sqliteStore({ database: open(newFile()), limits: { logs: small } })
      const quota = { name: 'audit:small', maxEntries: 100, maxBytes: 100_000 }
      await store.append('audit', { at: 1, value: 'small', quota })
      for (let n = 0; n < 50; n += 1) await store.append('flood', { at: 1, value: 'x'.repeat(100) })
      expect(await store.entries('audit', { limit: 100 })).toHaveLength(1)
      expect(await store.entries('flood', { limit: 100 })).toHaveLength(9)
    })
  })
})
