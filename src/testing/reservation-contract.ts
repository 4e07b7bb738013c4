import { EDGE_CASE_STRINGS, HOUR_MS, START_TIME, type StoreSuite, type TestApi } from './store-suite.ts'

const MAX_AMOUNT = Number.MAX_SAFE_INTEGER

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

export function testSettlements(suite: StoreSuite, { describe, expect, it }: TestApi): void {
  const { claim, clock, level, reserve, settle } = suite

  describe('settling', () => {
    it('replaces the held amount with a lower or higher used amount', async () => {
      await reserve('t', [claim('a', 10, 100), claim('b', 10, 10)])
      expect(await settle('t', { a: 4, b: 25 })).toBe(true)
      expect(await suite.store.levels(['a', 'b'])).toEqual([
        { spent: 4, held: 0 },
        { spent: 25, held: 0 },
      ])
      expect(await reserve('t2', [claim('b', 1, 10)])).toMatchObject({ accepted: false, levels: [25] })
    })

    it('releases the full amount when the usage is zero', async () => {
      await reserve('t', [claim('a', 10, 10)])
      expect(await settle('t')).toBe(true)
      expect(await level('a')).toEqual({ spent: 0, held: 0 })
    })

    it('takes effect only once if it is repeated, even concurrently', async () => {
      await reserve('t', [claim('a', 10, 100)])
      const results = await Promise.all(Array.from({ length: 20 }, () => settle('t', { a: 4 })))
      expect(results.filter(Boolean)).toHaveLength(1)
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
      const tallies = [{ name: 'r', amounts: { tokens: 5, __proto__x: 1 } }]
      await reserve('t1', [])
      await reserve('t2', [])
      await settle('t1', {}, { tallies })
      await settle('t1', {}, { tallies })
      await settle('t2', {}, { tallies: [{ name: 'r', amounts: { tokens: -2, money: 7 } }] })
      expect(await suite.store.tallies(['r', 'none'])).toEqual([{ tokens: 3, __proto__x: 1, money: 7 }, {}])
    })

    it('adds the amounts of further fields of a full tally to a field for the first word', async () => {
      const add = async (id: string, amounts: Readonly<Record<string, number>>): Promise<void> => {
        await reserve(id, [])
        await settle(id, {}, { tallies: [{ name: 'full', amounts }] })
      }
      await add('t1', Object.fromEntries(Array.from({ length: 4_095 }, (_, n) => [`n f${n}`, 1])))
      await add('t2', { 'requests a': 1 })
      await add('t3', { 'requests b': 2, 'requests c d': 3, 'cost c d': 5, alone: 7, 'requests a': 1 })
      await add('t4', { 'requests e': -1, 'requests (other)': 4, 'n f9': 1 })
      const [sums = {}] = await suite.store.tallies(['full'])
      const { 'requests a': first, 'requests (other)': requests, 'cost (other)': cost, alone } = sums
      expect({ first, requests, cost, alone }).toEqual({ first: 2, requests: 8, cost: 5, alone: undefined })
      expect(sums['n f9']).toBe(2)
      expect(Object.keys(sums)).toHaveLength(4_098)
    })

    it('omits the amounts of further fields where a tally has 64 fields for first words', async () => {
      await reserve('t1', [])
      await reserve('t2', [])
      const filled = Object.fromEntries(Array.from({ length: 4_096 }, (_, n) => [`n f${n}`, 1]))
      await settle('t1', {}, { tallies: [{ name: 'full', amounts: filled }] })
      const further = Object.fromEntries(Array.from({ length: 100 }, (_, n) => [`w${n} x`, 1]))
      await settle('t2', {}, { tallies: [{ name: 'full', amounts: further }] })
      const [sums = {}] = await suite.store.tallies(['full'])
      expect(Object.keys(sums)).toHaveLength(4_160)
    })

    it('appends its log entries in the same step, once', async () => {
      const quota = { name: 'log:one', maxEntries: 2, maxBytes: 10_000 }
      const entries = [1, 2, 3].map((n) => ({ log: 'audit', at: START_TIME + n, value: `e${n}`, ttlMs: 1000, quota }))
      await reserve('t', [])
      expect(await settle('t', {}, { entries })).toBe(true)
      expect(await settle('t', {}, { entries })).toBe(false)
      expect((await suite.store.entries('audit', { limit: 10 })).map(({ value }) => value)).toEqual(['e2', 'e3'])
      clock.advance(1000)
      expect(await suite.store.entries('audit', { limit: 10 })).toEqual([])
    })

    it('omits a log entry that is larger than its quota', async () => {
      const quota = { name: 'log:one', maxEntries: 2, maxBytes: 1_000 }
      const entry = { log: 'audit', at: START_TIME, quota }
      const entries = [
        { ...entry, value: 'x'.repeat(2_000) },
        { ...entry, value: 'small' },
      ]
      await reserve('t', [claim('a', 5, 10)])
      expect(await settle('t', { a: 4 }, { entries })).toBe(true)
      expect((await suite.store.entries('audit', { limit: 10 })).map(({ value }) => value)).toEqual(['small'])
      expect(await level('a')).toEqual({ spent: 4, held: 0 })
    })

    it('expires a tally exactly at its expiry', async () => {
      await reserve('t', [])
      const tally = { name: 'r', amounts: { n: 1 }, expiresAt: START_TIME + 1000 }
      await settle('t', {}, { tallies: [tally] })
      clock.advance(999)
      expect(await suite.store.tallies(['r'])).toEqual([{ n: 1 }])
      clock.advance(1)
      expect(await suite.store.tallies(['r'])).toEqual([{}])
    })
  })

  describe('counters', () => {
    it('expire exactly at their expiry', async () => {
      await reserve('t', [claim('a', 5, 10, { expiresAt: START_TIME + 1000 })])
      await settle('t', {}, { charges: [{ counter: 'a', amount: 5, expiresAt: START_TIME + 1000 }] })
      clock.advance(999)
      expect(await level('a')).toEqual({ spent: 5, held: 0 })
      clock.advance(1)
      expect(await level('a')).toEqual({ spent: 0, held: 0 })
    })

    it('expire at the latest expiry of their claims and charges', async () => {
      await reserve('t', [claim('a', 5, 10, { expiresAt: START_TIME + 1000 })])
      await settle('t', {}, { charges: [{ counter: 'a', amount: 5, expiresAt: START_TIME + 2000 }] })
      await reserve('t2', [claim('a', 1, 10, { expiresAt: START_TIME + 500 })])
      clock.advance(1999)
      expect(await level('a')).toMatchObject({ spent: 5 })
    })

    it('do not change when a reservation of an expired counter is released', async () => {
      await reserve('t', [claim('a', 5, 10, { expiresAt: START_TIME + 1000 })])
      clock.advance(1000)
      expect(await reserve('t2', [claim('a', 1, 10)])).toMatchObject({ accepted: true, levels: [1] })
      expect(await settle('t')).toBe(true)
      expect(await level('a')).toEqual({ spent: 0, held: 1 })
    })

    it('are exact up to the maximum safe integer and are clamped there', async () => {
      expect(await reserve('t1', [claim('a', MAX_AMOUNT - 1, MAX_AMOUNT)])).toMatchObject({ levels: [MAX_AMOUNT - 1] })
      expect(await reserve('t2', [claim('a', 2, MAX_AMOUNT)])).toMatchObject({ accepted: false })
      expect(await reserve('t3', [claim('a', 1, MAX_AMOUNT)])).toMatchObject({ accepted: true, levels: [MAX_AMOUNT] })
      expect(await settle('t1', { a: MAX_AMOUNT })).toBe(true)
      expect(await settle('t3', { a: 5 })).toBe(true)
      expect(await level('a')).toEqual({ spent: MAX_AMOUNT, held: 0 })
      for (const id of ['t4', 't5']) {
        await reserve(id, [])
        await settle(id, {}, { tallies: [{ name: 'r', amounts: { n: MAX_AMOUNT } }] })
      }
      expect(await suite.store.tallies(['r'])).toEqual([{ n: MAX_AMOUNT }])
    })

    for (const amount of [Number.NaN, -1, 0.5, Infinity, MAX_AMOUNT + 1]) {
      it(`do not change if the amount is ${amount}, which is rejected`, async () => {
        await expect(reserve('t', [claim('a', 1, 10), claim('b', amount, 10)])).rejects.toThrow()
        await reserve('t1', [claim('a', 1, 10)])
        await expect(settle('t1', { a: amount })).rejects.toThrow()
        expect(await level('a')).toEqual({ spent: 0, held: 1 })
        expect(await settle('t1', { a: 1 })).toBe(true)
      })
    }

    for (const text of EDGE_CASE_STRINGS) {
      it(`can be named ${JSON.stringify(text)}, as can a tally and a reservation`, async () => {
        expect(await reserve(text, [claim(`c:${text}`, 1, 1)])).toMatchObject({ accepted: true })
        expect(await level(`c:${text}`)).toEqual({ spent: 0, held: 1 })
        expect(await settle(text, {}, { tallies: [{ name: `r:${text}`, amounts: { n: 2 } }] })).toBe(true)
        expect(await suite.store.tallies([`r:${text}`])).toEqual([{ n: 2 }])
        expect(await level(`c:${text}`)).toEqual({ spent: 0, held: 0 })
      })
    }
  })
}
