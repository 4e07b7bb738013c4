import { describe, expect, it } from 'vitest'
import { normalizeText } from '../../src/cache/cacheability.ts'

describe('normalizeText', () => {
  it.each([
    ['  What \t is\n\nit?  ', 'What is it?'],
    ['caf\u0065\u0301', 'caf\u00e9'],
    ['say "a  b"   now', 'say "a  b" now'],
    ['say `a  b`   now', 'say `a  b` now'],
    ['a\u00a0 b', 'a b'],
  ])('%j becomes %j', (text, folded) => {
    expect(normalizeText(text)).toBe(folded)
  })

  it('keeps case and punctuation', () => {
    expect(normalizeText('Is IT it?')).not.toBe(normalizeText('is it it'))
  })

  it('keeps the indentation of possible program text', () => {
    const inner = 'if x:\n    a()\n    b()'
    const outer = 'if x:\n    a()\nb()'

    expect(normalizeText(inner)).not.toBe(normalizeText(outer))
    expect(normalizeText(`\n\n${inner}  \r\n`)).toBe(inner)
  })

  it('keeps the levels of a nested list and the cells of a table', () => {
    expect(normalizeText('Count:\n- a\n  - b')).not.toBe(normalizeText('Count:\n- a\n- b'))
    expect(normalizeText('a\tb c')).not.toBe(normalizeText('a b\tc'))
  })

  it('is linear in the length of any text', () => {
    for (const sign of ['"', '«', '`', '\n', ' ', '“', '{\n ', 'a\n  ']) {
      expect(normalizeText(sign.repeat(300_000)).length).toBeGreaterThanOrEqual(0)
    }
  })
})
