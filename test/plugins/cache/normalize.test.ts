import { describe, expect, it } from 'vitest'
import { canonicalize } from '../../../src/plugins/cache/canonical.ts'
import { cacheKeyOf, normalizeText } from '../../../src/plugins/cache/cacheability.ts'
import type { Part, Prompt } from '../../../src/core/prompt.ts'

describe('normalizeText', () => {
  it.each([
    ['  What \t is\u00a0it?\r\n ', 'What \t is\u00a0it?'],
    ['caf\u0065\u0301', 'caf\u00e9'],
    [' \n\t\n  a\n b \n', '  a\n b'],
    ['a  b\n\nc', 'a  b\n\nc'],
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

  it('does not compose a text with more than 30 consecutive combining marks', () => {
    const marks = '\u0301\u0316'.repeat(15)
    expect(normalizeText(`a${marks}`)).toBe(`a${marks}`.normalize('NFC'))
    for (const text of [`a${marks}\u0301`, `${marks}\u0301`]) {
      expect(normalizeText(text)).toBe(text)
      expect(
        canonicalize(text)
          .items.map(({ raw }) => raw)
          .join(''),
      ).toBe(text)
    }
  })
})

it('the cache key leaves the texts beside an image unchanged if together they are longer than 4,000 characters', () => {
  const image: Part = { type: 'image', source: { type: 'base64', mediaType: 'image/png', data: 'abcd' } }
  const scopeOf = (texts: readonly string[]): string | undefined => {
    const parts: readonly Part[] = [image, ...texts.map((text): Part => ({ type: 'text', text }))]
    const prompt: Prompt = {
      native: { dialect: 'chat', value: {} },
      model: 'a/b',
      messages: [{ role: 'user', parts }],
      settings: {},
      tools: [],
      stream: false,
    }
    return cacheKeyOf(prompt, { owner: 'key', modelName: 'a/b' })?.scope
  }
  const long = 'tree '.repeat(500)
  expect(scopeOf([`${long}a `])).toBe(scopeOf([`${long}a`]))
  expect(scopeOf([`${long}a `, long])).not.toBe(scopeOf([`${long}a`, long]))
})
