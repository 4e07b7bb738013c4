import { describe, expect, it } from 'vitest'
import { canonicalize } from '../../../src/plugins/cache/canonical.ts'
import { findDifference, type Difference } from '../../../src/plugins/cache/guard.ts'
import { loadEnglishLexicon, noLexicon } from '../../../src/plugins/cache/typos.ts'
import { REVERSALS, SAME } from './reversals.ts'
import { WITH_COURTESIES } from './with-courtesies.ts'

const lexicon = await loadEnglishLexicon()

function difference(left: string, right: string, typos = 2): Difference | undefined {
  return findDifference(canonicalize(left), canonicalize(right), { lexicon, maxTypos: typos })
}

describe('the guard', () => {
  it('has at least 200 tested reversals', () => {
    expect(REVERSALS.length).toBeGreaterThanOrEqual(200)
    expect(new Set(REVERSALS.map((pair) => pair.join('\n'))).size).toBe(REVERSALS.length)
  })

  it.each(REVERSALS)('%s | %s: differ in both directions', (left, right) => {
    expect(difference(left, right)).toBeDefined()
    expect(difference(right, left)).toBeDefined()
  })

  it.each(SAME)('%s | %s: agree in both directions', (left, right) => {
    expect(difference(left, right)).toBeUndefined()
    expect(difference(right, left)).toBeUndefined()
  })

  it.each(WITH_COURTESIES)('%s: %s | %s differ in both directions', (_, left, right) => {
    expect(difference(left, right)).toBeDefined()
    expect(difference(right, left)).toBeDefined()
  })

  it.each([
    ['What is the dog’s diet?', "What is the dog's diet?"],
    ['Who is Anna’s brother in the book?', "Who is Anna's brother in the book?"],
    ['What is a driver’s license?', "What is a driver's license?"],
    ['How do I bake bread??', 'How do I bake bread?'],
    ['Why is the sky blue???', 'Why is the sky blue?'],
    ['Who built the pyramids??', 'Who built the pyramids'],
    ['How can I install a printer?', 'How do I install a printer?'],
    ['How can I remove a wine stain?', 'What are the steps to remove a wine stain?'],
  ])('%s | %s agree in both directions', (left, right) => {
    expect(difference(left, right)).toBeUndefined()
    expect(difference(right, left)).toBeUndefined()
  })

  it.each<[string, string, Difference]>([
    ['Are 5 eggs enough?', 'Are 6 eggs enough?', 'number'],
    ['Is it safe to eat it?', 'Is it not safe to eat it?', 'negation'],
    ['Does she know Peter well?', 'Does she know Paul well?', 'name'],
    ['What does "a" mean?', 'What does "b" mean?', 'quotation-or-code'],
    ['Is C+ good?', 'Is C# good?', 'symbol'],
    ['When is it done?', 'Where is it done?', 'question-word'],
    ['Is Anna with Bob?', 'Is Bob with Anna?', 'order'],
    ['Is he from the US or not?', 'Is he from the us or not?', 'case'],
    ['How do I sell a house here?', 'How do I rent a house here?', 'word'],
  ])('%s | %s: returns the difference %s', (left, right, expected) => {
    expect(difference(left, right)).toBe(expected)
  })

  it.each([
    ['synonyms', 'Who invented the telephone?', 'Who invented the cellphone?'],
    ['a name after an article', 'Who wrote songs for Queen in 1977?', 'Who wrote songs for the Queen in 1977?'],
    ['a name after an article', 'How many people work in the Amazon today?', 'How many people work in Amazon today?'],
    ['a question and a request', 'Would you recommend a dog for a small flat?', 'Recommend a dog for a small flat.'],
    ['a question and a request', 'Would you describe Hamlet as a hero?', 'Describe Hamlet as a hero.'],
    ['a question and a request', 'Would you suggest surgery for this injury?', 'Suggest surgery for this injury.'],
    ['exactly', 'Which cities are exactly on the equator?', 'Which cities are on the equator?'],
    ['case', 'How fast is a jaguar?', 'How fast is a Jaguar?'],
    ['a French text with English hints', 'On dit quoi quand tu as un coussin ?', 'On dit quoi quand tu as un cousin ?'],
    ['a French text with an English word', 'Le coussin est-il dans le show ?', 'Le cousin est-il dans le show ?'],
    ['a Dutch text with English hints', 'Wie is in Gent bakker geworden?', 'Wie is in Gent banker geworden?'],
    [
      'a Dutch text with an English word',
      'Wat is de these van Marx over Macht?',
      'Wat is de these van Marx over macht?',
    ],
    ['a German text with an English word', 'Wie viele Arme hat die Show?', 'Wie viele arme hat die Show?'],
    ['a Norwegian text with an English word', 'Hvem er Are fra byen Berg?', 'Hvem er Are fra byen berg?'],
  ])('rejects texts that differ in %s: %s | %s', (_, left, right) => {
    expect(difference(left, right)).toBeDefined()
    expect(difference(right, left)).toBeDefined()
  })

  it.each([
    ['Describe the water cycle.', 'Would you please describe the water cycle?'],
    ['Why do cats purr?', 'Would you explain why cats purr?'],
    ['Suggest a name for my dog.', 'Could you suggest a name for my dog?'],
    ['Who is Robert de Niro?', 'who is Robert de Niro?'],
    ['How do I park a van?', 'how do i park a van'],
  ])('accepts %s | %s', (left, right) => {
    expect(difference(left, right)).toBeUndefined()
  })

  it('forgives at most as many typos as the option allows', () => {
    const clean = 'Which continents surround the cold ocean?'
    const one = 'Which contiennts surround the cold ocean?'
    const two = 'Which contiennts surruond the cold ocean?'

    expect(difference(clean, one, 1)).toBeUndefined()
    expect(difference(clean, two, 1)).toBe('word')
    expect(difference(clean, two, 2)).toBeUndefined()
    expect(difference(clean, one, 0)).toBe('word')
  })

  it('forgives no typo without a lexicon', () => {
    const [left, right] = [canonicalize('Is the weather fine?'), canonicalize('Is the waether fine?')]

    expect(findDifference(left, right, { lexicon: noLexicon, maxTypos: 1 })).toBe('word')
  })

  it('forgives no typo in an unknown language', () => {
    expect(difference('Wie ist das Wetter dort oben?', 'Wie ist das Wteter dort oben?')).toBeDefined()
  })

  it('forgives no typo in a name', () => {
    expect(difference('Is it true that Mitchell won?', 'Is it true that Mitchel won?')).toBe('name')
  })

  it('accepts any text as equal to itself', () => {
    for (const text of [
      '',
      '?',
      '```\n a\n```',
      'a'.repeat(3000),
      '«««',
      '"',
      "'",
      '😀😀',
      'in fact',
      'please',
      'hi',
    ]) {
      expect(difference(text, text)).toBeUndefined()
    }
  })

  it('forgives no typo in the word after a number, which may be a unit', () => {
    expect(
      difference(
        'How do I carry bottles to the village by bicycle?',
        'How do I carry bottels to the village by bicycle?',
      ),
    ).toBeUndefined()
    expect(
      difference(
        'How do I carry 5 bottles to the village by bicycle?',
        'How do I carry 5 bottels to the village by bicycle?',
      ),
    ).toBe('word')
  })

  it('forgives no typo when none is allowed', () => {
    expect(difference('How do I carry bottles to the village?', 'How do I carry bottels to the village?', 0)).toBe(
      'word',
    )
  })

  it('rejects a name in lower case and with other capitals', () => {
    const proper = 'How do I upload a video to YouTube from my phone?'
    const lazy = 'How do I upload a video to youtube from my phone?'

    expect([difference(proper, lazy), difference(lazy, proper)]).not.toContain(undefined)
    expect(difference(proper, proper.replace('YouTube', 'YouTUBE'))).toBeDefined()
  })

  it.each([
    ['Is iPhone spelled correctly?', 'Is iphone spelled correctly?'],
    ['Is recieve a word?', 'Is receive a word?'],
    ['Is seperate a real word in English?', 'Is separate a real word in English?'],
    ['Is The capitalized correctly?', 'Is hTe capitalized correctly?'],
  ])('%s | %s: differ, because every letter of a text about spelling is significant', (left, right) => {
    expect([difference(left, right), difference(right, left)]).not.toContain(undefined)
  })
})
