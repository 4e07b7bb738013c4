import { describe, expect, it } from 'vitest'
import { canonicalize } from '../../src/plugins/cache/canonical.ts'
import { normalizeText } from '../../src/plugins/cache/cacheability.ts'
import { findDifference, type Difference } from '../../src/plugins/cache/guard.ts'
import { loadEnglishLexicon } from '../../src/plugins/cache/typos.ts'
import { cases, fc } from '../support/properties.ts'

const lexicon = await loadEnglishLexicon()
const difference = (left: string, right: string): Difference | undefined =>
  findDifference(canonicalize(left), canonicalize(right), { lexicon, maxTypos: 2 })

const noun = fc.constantFrom(
  'river',
  'engine',
  'garden',
  'doctor',
  'Peter',
  'Berlin',
  'mg',
  'x_1',
  '"so"',
  'Wasser',
  '水',
)
const verb = fc.constantFrom('find', 'break', 'open', 'kaufen', 'comer')
const small = fc.constantFrom(
  'is',
  'the',
  'a',
  'of',
  'to',
  'in',
  'how',
  'what',
  'and',
  'can',
  'I',
  'ist',
  'el',
  'really',
  'please',
)
const word = fc.oneof(noun, verb, small)
const words = fc.array(word, { minLength: 2, maxLength: 10 })
const anyText = fc.oneof(
  words.map((list) => list.join(' ')),
  fc.string({ unit: 'grapheme', maxLength: 60 }),
)

describe('the laws of the guard', () => {
  it('a text is equal to itself', () => {
    fc.assert(fc.property(anyText, (text) => difference(text, text) === undefined))
  })

  it('the order of the two texts makes no difference', () => {
    fc.assert(
      fc.property(anyText, anyText, (left, right) => {
        expect(difference(left, right) === undefined).toBe(difference(right, left) === undefined)
      }),
    )
  })

  it('a different number is a different question', () => {
    fc.assert(
      fc.property(words, fc.nat(9999), fc.nat(9999), fc.nat(10), (list, one, other, index) => {
        fc.pre(one !== other)
        const withNumber = (number: number): string =>
          [...list.slice(0, index), String(number), ...list.slice(index)].join(' ')

        expect(difference(withNumber(one), withNumber(other))).toBeDefined()
      }),
    )
  })

  it('an added content word, negation or preposition makes a different question', () => {
    const more = fc.oneof(
      noun,
      verb,
      fc.constantFrom('not', 'no', 'never', 'before', 'after', 'without', 'only', 'nicht'),
    )
    fc.assert(
      fc.property(words, more, fc.nat(10), (list, added, index) => {
        const longer = [...list.slice(0, index), added, ...list.slice(index)].join(' ')

        expect(difference(list.join(' '), longer)).toBeDefined()
      }),
    )
  })

  it('two swapped content words make a different question', () => {
    fc.assert(
      fc.property(words, noun, noun, (between, one, other) => {
        fc.pre(one.toLowerCase() !== other.toLowerCase())
        const swapped = (first: string, second: string): string => `${first} ${between.join(' ')} ${second} now`

        expect(difference(swapped(one, other), swapped(other, one))).toBeDefined()
      }),
    )
  })

  it('normalizeText changes only white space', () => {
    const blanks = fc.string({ unit: fc.constantFrom('a', ' ', '\n', '"', '`', '{', '\t', '\r', '«', '»') })
    const bare = (text: string): string => text.normalize('NFC').replace(/\s/gu, '')
    fc.assert(
      fc.property(fc.oneof(anyText, blanks), (text) => {
        expect(bare(normalizeText(text))).toBe(bare(text))
      }),
      { numRuns: cases(1000) },
    )
  })
})
