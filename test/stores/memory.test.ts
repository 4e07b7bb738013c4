import { describe, expect, it } from 'vitest'
import { memoryStore } from '../../src/stores/memory.ts'
import { testStore } from '../contract/store.ts'
import { settled } from '../support/result-or-error.ts'
import { dropsFromTheShareWithTheMostBytes } from './largest-share.ts'

testStore('memoryStore', async (clock) => memoryStore({ now: clock.now }))

describe('the limits of memoryStore', () => {
  const claim = (counter: string, expiresAt = 10_000) => ({ counter, amount: 1, max: 10, expiresAt })
  const reserve = (reservationId: string, counter: string) => ({
    reservationId,
    claims: [claim(counter)],
    expiresAfterMs: 1000,
  })

  it('drop the least recently used expiring value, and never a key or a counter', async () => {
    const store = memoryStore({ now: () => 0, expiring: { entries: 10, bytes: 1_000_000 } })
    await store.set('record', 'kept')
    await store.reserve(reserve('t', 'counter'))
    await store.set('used', 'x', { ttlMs: 1000 })
    for (let n = 0; n < 100; n += 1) {
      await store.set(`cache:${n}`, 'x', { ttlMs: 1000 })
      await store.get('used')
    }
    expect(await store.get('record')).toBe('kept')
    expect(await store.levels(['counter'])).toEqual([{ spent: 0, held: 1 }])
    expect(await store.get('used')).toBe('x')
    expect(await store.list('cache:', { limit: 100 })).toHaveLength(9)
    expect(await store.get('cache:99')).toBe('x')
  })

  it('limit the bytes of expiring values, and reject a value larger than the pool', async () => {
    const store = memoryStore({ now: () => 0, expiring: { entries: 1000, bytes: 10_000 } })
    for (let n = 0; n < 100; n += 1) await store.set(`c:${n}`, 'x'.repeat(500), { ttlMs: 1000 })
    expect((await store.list('c:', { limit: 100 })).length).toBe(8)
    await expect(settled(() => store.set('c:big', 'x'.repeat(6_000), { ttlMs: 1000 }))).rejects.toMatchObject({
      kind: 'overloaded',
    })
  })

  it('do not drop expiring values of one kind for values of another', async () => {
    for (const expiring of [
      { entries: 1000, bytes: 20_000 },
      { entries: 20, bytes: 1_000_000 },
    ]) {
      const store = memoryStore({ now: () => 0, expiring })
      for (let n = 0; n < 5; n += 1) await store.set(`remembered:${n}`, 'x'.repeat(50), { ttlMs: 1000 })
      for (let n = 0; n < 500; n += 1) await store.set(`flood:${n}`, 'x'.repeat(500), { ttlMs: 1000 })
      expect(await store.list('remembered:', { limit: 100 })).toHaveLength(5)
      expect((await store.list('flood:', { limit: 100 })).length).toBeGreaterThan(10)
      expect(await store.get('flood:499')).toBeDefined()
      for (let n = 0; n < 500; n += 1) await store.set(`second:${n}`, 'x'.repeat(500), { ttlMs: 1000 })
      expect((await store.list('flood:', { limit: 100 })).length).toBeGreaterThan(5)
      expect(await store.list('remembered:', { limit: 100 })).toHaveLength(5)
    }
  })

  it('reject new values without an expiry in a full pool, and allow replacing and deleting', async () => {
    const store = memoryStore({ now: () => 0, durable: { entries: 2, bytes: 1_000_000 } })
    await store.set('a', '1')
    await store.set('b', '1')
    await expect(settled(() => store.set('c', '1'))).rejects.toMatchObject({ kind: 'overloaded' })
    await expect(settled(() => store.swap('c', undefined, '1'))).rejects.toMatchObject({ kind: 'overloaded' })
    await store.set('a', '2')
    await store.delete('b')
    await store.set('c', '1')
    expect(await store.list('', { limit: 10 })).toEqual(['a', 'c'])
    expect(await store.get('a')).toBe('2')
  })

  it('reject new counters in a full pool until others expire', async () => {
    let now = 0
    const store = memoryStore({ now: () => now, counters: 2 })
    await store.reserve(reserve('t1', 'a'))
    await store.reserve(reserve('t2', 'b'))
    await expect(settled(() => store.reserve(reserve('t3', 'c')))).rejects.toMatchObject({ kind: 'overloaded' })
    expect(await store.reserve(reserve('t4', 'a'))).toMatchObject({ accepted: true, levels: [2] })
    const charges = [{ counter: 'c', amount: 1, expiresAt: 10_000 }]
    await expect(settled(() => store.settle({ reservationId: 't4', charges, tallies: [] }))).rejects.toMatchObject({
      kind: 'overloaded',
    })
    expect(await store.settle({ reservationId: 't4', charges: [], tallies: [] })).toBe(true)
    now = 10_000
    expect(await store.reserve({ ...reserve('t5', 'c'), claims: [claim('c', 20_000)] })).toMatchObject({
      accepted: true,
    })
  })

  it('reject further open reservations until one is settled', async () => {
    const store = memoryStore({ now: () => 0, reservations: 2 })
    await store.reserve(reserve('t1', 'a'))
    await store.reserve(reserve('t2', 'a'))
    await expect(settled(() => store.reserve(reserve('t3', 'a')))).rejects.toMatchObject({ kind: 'overloaded' })
    expect(await store.levels(['a'])).toEqual([{ spent: 0, held: 2 }])
    await store.settle({ reservationId: 't1', charges: [], tallies: [] })
    expect(await store.reserve(reserve('t3', 'a'))).toMatchObject({ accepted: true })
  })

  it('are not reached by thousands of expired windows and settled reservations', async () => {
    let now = 0
    const store = memoryStore({ now: () => now, counters: 20, reservations: 2, tallies: 20 })
    for (let n = 0; n < 5_000; n += 1) {
      now += 1000
      const expiresAt = now + 10_000
      const counter = `window:${n}`
      await store.reserve({ reservationId: `t${n}`, claims: [claim(counter, expiresAt)], expiresAfterMs: 600_000 })
      const charges = [{ counter, amount: 1, expiresAt }]
      const tallies = [{ name: counter, amounts: { n: 1 }, expiresAt }]
      expect(await store.settle({ reservationId: `t${n}`, charges, tallies })).toBe(true)
    }
    expect(await store.tallies(['window:4999', 'window:4991', 'window:4000'])).toEqual([{ n: 1 }, { n: 1 }, {}])
  })

  it('rejects an open reservation id, and two claims on one counter', async () => {
    const store = memoryStore({ now: () => 0 })
    await store.reserve(reserve('t1', 'a'))
    await expect(settled(() => store.reserve(reserve('t1', 'a')))).rejects.toThrow(/unique/)
    await expect(
      settled(() => store.reserve({ ...reserve('t2', 'a'), claims: [claim('a'), claim('a')] })),
    ).rejects.toThrow(/same/)
  })

  it('rejects a claim on a counter that has expired', async () => {
    const store = memoryStore({ now: () => 10_000 })
    await expect(settled(() => store.reserve(reserve('t1', 'a')))).rejects.toThrow(/clock/)
  })

  it('drop the least recently updated tally', async () => {
    const store = memoryStore({ now: () => 0, tallies: 4 })
    for (const [index, name] of ['a', 'b', 'a', 'c'].entries()) {
      await store.reserve({ reservationId: `t${index}`, claims: [], expiresAfterMs: 1000 })
      await store.settle({ reservationId: `t${index}`, charges: [], tallies: [{ name, amounts: { n: 1 } }] })
    }
    expect(await store.tallies(['a', 'b', 'c'])).toEqual([{ n: 2 }, {}, { n: 1 }])
  })

  it('count the fields of tallies', async () => {
    const store = memoryStore({ now: () => 0, tallies: 100 })
    for (let n = 0; n < 20; n += 1) {
      await store.reserve({ reservationId: `t${n}`, claims: [], expiresAfterMs: 1000 })
      const amounts = Object.fromEntries(Array.from({ length: 24 }, (_, field) => [`field ${field}`, 1]))
      await store.settle({ reservationId: `t${n}`, charges: [], tallies: [{ name: `r${n}`, amounts }] })
    }
    const found = await store.tallies(Array.from({ length: 20 }, (_, n) => `r${n}`))
    expect(found.filter((tally) => Object.keys(tally).length === 24)).toHaveLength(4)
    expect(found.filter((tally) => Object.keys(tally).length === 0)).toHaveLength(16)
  })

  dropsFromTheShareWithTheMostBytes(() => memoryStore({ now: () => 0, expiring: { entries: 10, bytes: 1_000_000 } }))

  it('drop the oldest entry of the largest log, and the oldest entry of a full log', async () => {
    const logs = { entries: 6, bytes: 1_000_000, maxEntriesPerLog: 4 }
    const store = memoryStore({ now: () => 0, logs })
    for (let n = 0; n < 3; n += 1) await store.append('quiet', { at: n, value: `q${n}` })
    for (let n = 0; n < 50; n += 1) await store.append('loud', { at: n, value: `l${n}` })
    const values = async (log: string) => (await store.entries(log, { limit: 100 })).map((entry) => entry.value)
    expect(await values('loud')).toEqual(['l47', 'l48', 'l49'])
    expect(await values('quiet')).toEqual(['q0', 'q1', 'q2'])
    await store.append('other', { at: 0, value: 'o0' })
    await store.append('other', { at: 0, value: 'o1' })
    expect((await values('loud')).concat(await values('quiet'))).toHaveLength(4)
    expect(await values('other')).toEqual(['o0', 'o1'])
    for (let n = 0; n < 20; n += 1) await store.append('loud', { at: n, value: `m${n}` })
    expect(await values('other')).toEqual(['o0', 'o1'])
    expect(await values('loud')).toContain('m19')
  })

  it('limit the bytes of logs', async () => {
    const store = memoryStore({ now: () => 0, logs: { entries: 1000, bytes: 10_000, maxEntriesPerLog: 1000 } })
    for (let n = 0; n < 100; n += 1) await store.append('a', { at: n, value: 'x'.repeat(500) })
    expect(await store.entries('a', { limit: 100 })).toHaveLength(8)
  })

  const quota = (name: string, maxEntries = 1_000, maxBytes = 1_000_000) => ({ name, maxEntries, maxBytes })

  it('allow one key at most what remains free, so that further keys can store values', async () => {
    const store = memoryStore({ now: () => 0, owned: { entries: 1_000, bytes: 100_000 } })
    const fill = async (owner: string): Promise<number> => {
      for (let n = 0; n < 100; n += 1) {
        const written = store.set(`batch:${owner}:${n}`, 'x'.repeat(1_000), { quota: quota(`batch:${owner}`) })
        const failure: unknown = await written.then(
          () => undefined,
          (error: unknown) => error,
        )
        if (failure === undefined) continue
        expect(failure).toMatchObject({ kind: 'quota-exceeded' })
        return n
      }
      return Infinity
    }
    const held = [await fill('a'), await fill('b'), await fill('c')]

    expect(held).toEqual([23, 11, 6])
    await store.set('key:new', 'a record of the operator')
    await store.set('batch:a:0', 'a smaller one', { quota: quota('batch:a') })
  })

  it('drop values of the key that uses most when many keys fill the expiring values', async () => {
    const store = memoryStore({ now: () => 0, expiring: { entries: 1_000, bytes: 100_000 } })
    const write = (owner: string, n: number) =>
      store.set(`turn:${owner}:${n}`, 'x'.repeat(500), { ttlMs: 1000, quota: quota(`turn:${owner}`, 1_000, 60_000) })
    for (let n = 0; n < 5; n += 1) await write('small', n)
    for (let n = 0; n < 500; n += 1) await Promise.all(['a', 'b', 'c'].map((owner) => write(owner, n)))

    expect(await store.list('turn:small:', { limit: 10 })).toHaveLength(5)
    const held = await Promise.all(['a', 'b', 'c'].map((owner) => store.list(`turn:${owner}:`, { limit: 1_000 })))
    for (const { length } of held) expect(length).toBeGreaterThan(20)
  })

  it('reject an entry that is too large for one of its logs before it is appended to another', async () => {
    const store = memoryStore({ now: () => 0 })
    const entry = { at: 0, value: 'x', quota: quota('audit:a', 10, 1_000) }
    await store.append(['all', 'own'], entry)
    await expect(settled(() => store.append(['all', 'own'.repeat(1_000)], entry))).rejects.toMatchObject({
      kind: 'quota-exceeded',
    })
    expect(await store.entries('all', { limit: 10 })).toHaveLength(1)
  })

  it('have their defaults if they are undefined', async () => {
    const options: object = { expiring: undefined, counters: undefined }
    const store = memoryStore(options)
    await store.set('a', 'x', { ttlMs: 1000 })
    expect(await store.get('a')).toBe('x')
  })

  it('returns no data after the store is closed', async () => {
    const store = memoryStore({ now: () => 0 })
    await store.set('a', '1')
    await store.append('l', { at: 0, value: 'x' })
    await store.close()
    expect(await store.list('', { limit: 10 })).toEqual([])
    expect(await store.entries('l', { limit: 10 })).toEqual([])
  })
})
