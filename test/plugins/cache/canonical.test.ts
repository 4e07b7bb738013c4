import { describe, expect, it } from 'vitest'
import { canonicalize, textToEmbed } from '../../../src/plugins/cache/canonical.ts'

const embedded = (text: string): string => textToEmbed(canonicalize(text))

describe('the canonical form', () => {
  it.each([
    ['What is the tallest tower on earth?', 'what is tallest tower on earth'],
    ["What's it?", 'what is it'],
    ["I don't know why", 'i do not know why'],
    ['Hi! Could you please tell me where the old tower is? Thanks a lot!', 'where is old tower'],
    ['How can I sing?', 'how can i sing'],
    ['How do I sing?', 'how to sing'],
    ['What colour is it?', 'what colour is it'],
    ['Why are you gonna weave?', 'why are you going to weave'],
    ['What is C++?', 'what is c + + ?'],
    ['What is 5kg - 3kg?', 'What is 5 kg - 3 kg ?'],
    ['Is 50% of ~7 fine? #3', 'Is 50 % of ~ 7 fine ? # 3'],
    ['Wo ist der Bahnhof?', 'Wo ist der Bahnhof ?'],
  ])('%s means %s', (text, expected) => {
    expect(embedded(text)).toBe(expected)
  })

  it('takes a text with a longer word than any of English for another language', () => {
    const word = 'a'.repeat(45)
    expect(canonicalize(`What is ${word}, please?`).language).toBe('english')
    expect(canonicalize(`What is ${word}a, please?`).language).toBe('none')
  })

  it('marks only the first token of a reworded question as the start of a sentence', () => {
    const { items } = canonicalize('What are the steps to reset it?')
    expect(items.map(({ key, startsSentence }) => [key, startsSentence])).toEqual([
      ['how', true],
      ['to', false],
      ['reset', false],
      ['it', false],
    ])
  })

  it('keeps each letter of a text about spelling', () => {
    expect(embedded("Is Don't spelled so?")).toBe("Is Don't spelled so ?")
  })

  it('keeps the case of code, addresses and identifiers', () => {
    expect(
      canonicalize('does getName call https://A.example/B and why')
        .items.map((item) => item.key)
        .join(' '),
    ).toBe('does getName call https://A.example/B and why')
  })

  it('keeps pleasantries that are the subject of a text', () => {
    expect(embedded('How do you say thank you?')).toBe('How do you say thank you ?')
    expect(embedded('Hello Kitty is what?')).toBe('hello kitty is what ?')
    expect(embedded('please')).toBe('please')
    expect(embedded('Thanks!')).toBe('Thanks !')
    expect(embedded('?')).toBe('?')
  })
})
