import { describe, expect, it } from 'vitest'
import { RecentMap } from '../../src/core/recent-map.ts'
import { fc } from '../support/properties.ts'

describe('a RecentMap', () => {
  it('returns the last value of each key that is among the last used half of its size', () => {
    const steps = fc.array(fc.record({ key: fc.nat(15), writes: fc.boolean() }), { maxLength: 200 })
    fc.assert(
      fc.property(steps, fc.integer({ min: 1, max: 6 }), (sequence, half) => {
        const map = new RecentMap<number, { readonly step: number }>(half * 2)
        const written = new Map<number, { readonly step: number }>()
        const used: number[] = []
        for (const [step, { key, writes }] of sequence.entries()) {
          const isRecent = used.includes(key) && new Set(used.slice(used.lastIndexOf(key))).size <= half
          if (writes) {
            written.set(key, { step })
            map.set(key, { step })
          } else {
            const value = map.get(key)
            if (isRecent) expect(value).toEqual(written.get(key))
            else expect([undefined, written.get(key)]).toContainEqual(value)
            if (value === undefined) continue
          }
          used.push(key)
        }
      }),
    )
  })

  it('keeps at most its size', () => {
    const map = new RecentMap<number, { readonly key: number }>(10)
    for (let key = 0; key < 1000; key++) map.set(key, { key })

    const kept = Array.from({ length: 1000 }, (_, key) => key).filter((key) => key < 990 && map.get(key) !== undefined)
    expect(kept).toEqual([])
  })
})
