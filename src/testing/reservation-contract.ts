import { HOUR_MS, type StoreSuite, type TestApi } from './test-api.ts'

export function testReservations(suite: StoreSuite, { describe, expect, it }: TestApi): void {
  const { claim, clock, level, reserve, settle } = suite

  describe('reservations', () => {
    it('holds the amounts of an accepted reservation and returns the levels after the step', async () => {
      expect(await reserve('t', [claim('a', 3, 10), claim('b', 5, 5)])).toMatchObject({
        accepted: true,
        levels: [3, 5],
      })
      expect(await suite.store.levels(['a', 'b', 'c'])).toEqual([
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

    it('returns the index of the first claim that does not fit, and holds no amount', async () => {
      await reserve('t1', [claim('b', 4, 5)])
      expect(await reserve('t2', [claim('a', 1, 5), claim('b', 2, 5), claim('c', 9, 5)])).toEqual({
        accepted: false,
        refused: 1,
        levels: [0, 4, 0],
      })
      expect(await suite.store.levels(['a', 'b', 'c'])).toEqual([
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
        Array.from({ length: 1_000 }, (_, n) => reserve(`t${n}`, [claim('requests', 1, 100), claim('money', 7, 500)])),
      )
      expect(results.filter((result) => result.accepted)).toHaveLength(71)
      expect(await suite.store.levels(['requests', 'money'])).toEqual([
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

    it('are granted in full when they fit', async () => {
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

    it('are granted in full or refused without a minimum grant', async () => {
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
