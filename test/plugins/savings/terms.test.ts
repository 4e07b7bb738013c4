import { describe, expect, it } from 'vitest'
import { termsOf } from '../../../src/plugins/savings/keywords.ts'

describe('the terms of a text', () => {
  const TEXTS = [
    'The cats jumped over cat and CAT.',
    'getUserName in src/plugins/savings/keywords.ts and user_name',
    'Größe, naïve, 東京都庁 and 1,024.5',
    'a-b-c re-entry x'.repeat(3),
    'longerThanTwelveCharacters andAlsoLonger_than_that',
  ]

  it('do not depend on the texts that were read before', () => {
    const first = TEXTS.map(termsOf)
    for (let word = 0; word < 40_000; word++) termsOf(`w${word.toString(36)}`)
    expect(TEXTS.map(termsOf)).toEqual(first)
    expect(TEXTS.map(termsOf)).toEqual(first)
  })

  it('are the same in another text, in the same order', () => {
    const [cats = []] = TEXTS.map(termsOf)
    expect(termsOf(`Before. ${TEXTS[0]} After`)).toEqual(cats)
    expect(new Set(termsOf('cats cat CATS')).size).toBe(1)
  })
})
