import { describe, expect, it } from 'vitest'
import { estimateTokens } from '../../src/tokens/estimate.ts'
import { createExactCounter } from '../../src/tokens/exact.ts'
import { fc } from '../support/properties.ts'

const count = await createExactCounter('o200k')
const bytesOf = (text: string): number => new TextEncoder().encode(text).length

const prose =
  'The gateway reads each request once, decides which part of the conversation the question needs, and sends only that. ' +
  'When nothing can be saved it changes nothing; the caller sees in a header what was done and what it cost.\n'
const code =
  "export function readRange(text: string, start = 0): number[] {\n  return text.split(',').map((part) => Number(part.trim()) + start)\n}\n"
const json = JSON.stringify({
  id: 'call_81',
  status: 'done',
  items: [
    { name: 'alpha', size: 1024 },
    { name: 'beta', size: 77 },
  ],
})

describe('estimateTokens', () => {
  it.each([
    ['prose', prose],
    ['code', code],
    ['json', json],
  ])('is near the exact count of %s', async (_, text) => {
    const exact = await count(text.repeat(20))
    expect(estimateTokens(text.repeat(20)) / exact).toBeGreaterThan(0.8)
    expect(estimateTokens(text.repeat(20)) / exact).toBeLessThan(1.2)
  })

  it('stays between an eighth of the bytes and the bytes', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 500 }), (raw) => {
        const text = raw.replace(/\p{Surrogate}/gu, '')
        const estimate = estimateTokens(text)
        expect(estimate).toBeLessThanOrEqual(bytesOf(text))
        expect(estimate).toBeGreaterThanOrEqual(Math.round(bytesOf(text) / 8))
      }),
    )
  })
})
