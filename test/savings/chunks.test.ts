import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { chunkUnits } from '../../src/savings/chunks.ts'
import { tellUnit } from '../../src/savings/summary.ts'
import { splitTurns } from '../../src/savings/turns.ts'
import { meter } from './bench.ts'
import { conversation } from './conversation.ts'

const { estimate } = meter.tokenizer
const SIZE = 900
const bare = (text: string): string => text.replace(/\s/g, '')

describe('chunks', () => {
  it('hold every old word exactly once, in order, and never more than their size', () => {
    fc.assert(
      fc.property(conversation, ({ messages }) => {
        const { old } = splitTurns(messages)
        const { full } = chunkUnits(old, SIZE, estimate)
        const all = bare(old.map((unit) => tellUnit(unit, 'whole')).join(''))
        const chunked = bare(full.map((chunk) => chunk.text).join(''))
        expect(all.startsWith(chunked)).toBe(true)
        for (const chunk of full) expect(estimate(chunk.text)).toBeLessThanOrEqual(SIZE)
      }),
      { numRuns: 60 },
    )
  })

  it('are the same on the next turn', () => {
    fc.assert(
      fc.property(conversation, fc.nat(), ({ messages }, cut) => {
        const { old } = splitTurns(messages)
        const earlier = chunkUnits(old.slice(0, cut % (old.length + 1)), SIZE, estimate).full
        const later = chunkUnits(old, SIZE, estimate).full
        expect(later.slice(0, earlier.length).map((chunk) => chunk.text)).toEqual(earlier.map((chunk) => chunk.text))
      }),
      { numRuns: 60 },
    )
  })
})
