import { describe, expect, it } from 'vitest'
import { loadEnglishLexicon } from '../../../src/plugins/cache/typos.ts'
import { isOneTypo, isSafeTypo, isUniqueCorrection } from '../../../src/plugins/cache/typos.ts'

describe('a typo', () => {
  it.each([
    ['capital', 'captial'],
    ['capital', 'capitl'],
    ['capital', 'cappital'],
    ['capital', 'capotal'],
    ['separate', 'seperate'],
    ['with', 'wiht'],
    ['capital', 'acpital'],
  ])('%s and %s differ by one typo, in both directions', (left, right) => {
    expect(isOneTypo(left, right)).toBe(true)
    expect(isOneTypo(right, left)).toBe(true)
  })

  it.each([
    ['cat', 'cta'],
    ['capital', 'captila'],
    ['capital', 'capital'],
    ['capital', 'capitals'],
    ['use', 'used'],
    ['lender', 'lended'],
    ['woman', 'women'],
    ['import', 'export'],
    ['a1234', 'a1243'],
    ['größe', 'gröse'],
  ])('%s and %s do not differ by one typo', (left, right) => {
    expect(isOneTypo(left, right)).toBe(false)
    expect(isOneTypo(right, left)).toBe(false)
  })

  it('is assumed only inside a word that is long enough', () => {
    expect(isSafeTypo('demo', 'deno')).toBe(false)
    expect(isSafeTypo('valley', 'valkey')).toBe(false)
    expect(isSafeTypo('linked', 'linkerd')).toBe(false)
    expect(isSafeTypo('system', 'systemd')).toBe(false)
    expect(isSafeTypo('xviii', 'xviiii')).toBe(false)
    expect(isSafeTypo('valley', 'vallley')).toBe(true)
    expect(isSafeTypo('house', 'huose')).toBe(true)
    expect(isSafeTypo('continent', 'contiment')).toBe(true)
  })

  it('is assumed only if one common word is meant', async () => {
    const lexicon = await loadEnglishLexicon()

    expect(isUniqueCorrection('continent', 'contnent', lexicon)).toBe(false)
    expect(isUniqueCorrection('capital', 'captial', lexicon)).toBe(true)
    expect(isUniqueCorrection('different', 'diffrent', lexicon)).toBe(true)
  })
})

describe('the lexicon', () => {
  it.each(['capital', 'walked', 'countries', 'happily', 'trial', 'trail', 'form', 'from', 'country', 'county'])(
    'classifies %s as a common word',
    async (word) => {
      expect((await loadEnglishLexicon())(word)).toBe('common')
    },
  )

  it.each(['deno', 'flickr', 'trino', 'brian', 'malta'])('classifies %s as a word or a name', async (word) => {
    expect((await loadEnglishLexicon())(word)).not.toBe('unknown')
  })

  it.each(['captial', 'definately', 'seperate', 'recieve', 'beleive'])('classifies %s as unknown', async (word) => {
    expect((await loadEnglishLexicon())(word)).toBe('unknown')
  })
})
