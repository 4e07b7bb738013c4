import { describe, expect, it } from 'vitest'
import { DURATION_CODES, periodOf, type DurationCode } from '../../src/core/store.ts'
import { fc } from '../support/properties.ts'

const code = fc.constantFrom(...DURATION_CODES)
const moment = fc.integer({ min: Date.UTC(1960, 0, 1), max: Date.UTC(2200, 0, 1) })
const iso = (at: number): string => new Date(at).toISOString()

describe('calendar windows', () => {
  it('contain the time they were computed from, and are the same for every time in them', () => {
    fc.assert(
      fc.property(moment, code, fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }), (at, every, share) => {
        const period = periodOf(at, every)
        expect(period.start).toBeLessThanOrEqual(at)
        expect(period.end).toBeGreaterThan(at)
        const other = Math.min(period.end - 1, Math.floor(period.start + share * (period.end - period.start)))
        expect(periodOf(other, every)).toEqual(period)
      }),
    )
  })

  it('follow each other without gap or overlap', () => {
    fc.assert(
      fc.property(moment, code, (at, every) => {
        const period = periodOf(at, every)
        expect(periodOf(period.end, every).start).toBe(period.end)
        expect(periodOf(period.start - 1, every).end).toBe(period.start)
      }),
    )
  })

  it('begin where days begin, weeks on Monday, months on the first, all in UTC', () => {
    fc.assert(
      fc.property(moment, (at) => {
        expect(iso(periodOf(at, '1d').start)).toMatch(/T00:00:00\.000Z$/)
        expect(new Date(periodOf(at, '1w').start).getUTCDay()).toBe(1)
        expect(iso(periodOf(at, '1M').start)).toMatch(/-01T00:00:00\.000Z$/)
        expect(iso(periodOf(at, '1h').start)).toMatch(/:00:00\.000Z$/)
        expect(iso(periodOf(at, '1m').start)).toMatch(/:00\.000Z$/)
      }),
    )
  })

  it.each<[string, DurationCode, string, string]>([
    ['2026-01-31T23:59:59.999Z', '1M', '2026-01-01', '2026-02-01'],
    ['2026-02-28T23:59:59.999Z', '1M', '2026-02-01', '2026-03-01'],
    ['2028-02-28T12:00:00.000Z', '1d', '2028-02-28', '2028-02-29'],
    ['2028-02-29T12:00:00.000Z', '1M', '2028-02-01', '2028-03-01'],
    ['2028-02-29T12:00:00.000Z', '1w', '2028-02-28', '2028-03-06'],
    ['2100-02-28T12:00:00.000Z', '1d', '2100-02-28', '2100-03-01'],
    ['2026-12-31T23:59:59.999Z', '1M', '2026-12-01', '2027-01-01'],
    ['2027-01-01T00:00:00.000Z', '1w', '2026-12-28', '2027-01-04'],
    ['2026-03-29T01:30:00.000Z', '1d', '2026-03-29', '2026-03-30'],
    ['1969-12-31T23:59:59.999Z', '1w', '1969-12-29', '1970-01-05'],
  ])('%s lies in the window %s from %s to %s', (at, every, start, end) => {
    expect(periodOf(Date.parse(at), every)).toEqual({ start: Date.parse(start), end: Date.parse(end) })
  })
})
