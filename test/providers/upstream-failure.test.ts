import { isTooDeep, parseObject, readNesting } from '../../src/core/json.ts'
import { describe, expect, it } from 'vitest'
import { readRetryAdvice } from '../../src/providers/retry.ts'
import { fc } from '../support/properties.ts'

/** Returns the nesting depth of a value by traversing it. */
function depthOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0
  return 1 + Math.max(0, ...Object.values(value).map(depthOf))
}

const nested = (depth: number, inside = ''): string =>
  '[{"a":'.repeat(depth / 2) + `"${inside}"` + '}]'.repeat(depth / 2)

describe("the depth of an upstream's JSON", () => {
  it.each([
    [128, false],
    [130, true],
    [200_000, true],
  ])('of %i exceeds the maximum: %s', (depth, expected) => {
    expect(isTooDeep(nested(depth))).toBe(expected)
    expect(isTooDeep(nested(depth, '\\\\\\"]]]]'))).toBe(expected)
  })

  it('ignores brackets within strings', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom('[', '{', '"', '\\', '}', 'x'), { maxLength: 2000 }), (signs) => {
        const text = JSON.stringify({ a: [signs.join(''), 'y'.repeat(300)], '[[{{"\\': 1 })
        expect(isTooDeep(text)).toBe(false)
      }),
    )
  })

  it('is the depth of the value', () => {
    fc.assert(
      fc.property(fc.json({ maxDepth: 3 }), fc.nat(140), (inner, depth) => {
        const text = '['.repeat(depth) + inner + ']'.repeat(depth)
        expect(isTooDeep(text.padEnd(300))).toBe(depthOf(JSON.parse(text)) > 128)
      }),
    )
  })

  it('is equal for a text that is read in chunks, one of them empty', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom('[', '{', '"', '\\', 'x'), { maxLength: 40 }), fc.nat(60), (signs, cut) => {
        const text = JSON.stringify([{ a: [signs.join('')], '[{"\\': 1 }])
        const nesting = { depth: 0, isInString: false, isEscaped: false }
        const depths = [text.slice(0, cut), '', text.slice(cut)].map((piece) => readNesting(nesting, piece))
        expect([Math.max(...depths), nesting.depth, nesting.isInString]).toEqual([3, 0, false])
      }),
    )
  })

  it.each(['', 'null', '[]', '1', '"x"', '{', '{"a":1}x', 'NaN', nested(400)])('returns undefined for %j', (text) => {
    expect(parseObject(text)).toBeUndefined()
  })
})

describe('Retry-After', () => {
  const now = Date.UTC(2026, 0, 1)
  it.each([
    [{}, {}],
    [{ 'retry-after': '3' }, { advice: { retryAfter: '3' }, retryAfterSeconds: 3 }],
    [{ 'retry-after': '1.2' }, { advice: { retryAfter: '1.2' }, retryAfterSeconds: 2 }],
    [
      { 'retry-after-ms': '100', 'retry-after': '9' },
      { advice: { retryAfter: '9', retryAfterMs: '100' }, retryAfterSeconds: 1 },
    ],
    [
      { 'retry-after': 'Thu, 01 Jan 2026 00:01:00 GMT' },
      { advice: { retryAfter: 'Thu, 01 Jan 2026 00:01:00 GMT' }, retryAfterSeconds: 60 },
    ],
    [
      { 'retry-after': 'Thu, 01 Jan 1970 00:00:00 GMT' },
      { advice: { retryAfter: 'Thu, 01 Jan 1970 00:00:00 GMT' }, retryAfterSeconds: 0 },
    ],
    [{ 'retry-after': 'soon' }, { advice: { retryAfter: 'soon' } }],
    [{ 'retry-after': '-5' }, { advice: { retryAfter: '-5' } }],
    [{ 'x-should-retry': 'false' }, { advice: { shouldRetry: 'false' } }],
  ] as const)('%j is read as %j', (headers, meaning) => {
    const header = (name: string): string | undefined => (headers as Record<string, string>)[name]
    expect(readRetryAdvice(header, now)).toEqual(meaning)
  })
})
