import { describe, expect, it } from 'vitest'
import { canonicalize, type Canonical } from '../../../src/plugins/cache/canonical.ts'
import { findDifference } from '../../../src/plugins/cache/guard.ts'
import { loadEnglishLexicon } from '../../../src/plugins/cache/typos.ts'
import { createWordingSearch } from '../../../src/plugins/cache/wording-search.ts'
import { lookupOf } from './fixture.ts'

const lexicon = await loadEnglishLexicon()

/** Questions with a gap, and the words that fill it. Each filling makes a different question. */
const GAPS: readonly (readonly [string, string, readonly string[]])[] = [
  ['numbers', 'How do I divide @ apples among my friends?', ['12', '21', '2', '112', '1.2', '12,5', '-12']],
  ['units', 'What is the price of 5 @ of flour today?', ['kg', 'g', 'mg', 'lb', 'tons', 'tonnes']],
  ['years', 'Which teams won the cup in @ abroad?', ['1998', '1989', '1999', '98']],
  ['names', 'Did @ ever play chess with the director?', ['Brian', 'Brain', 'Bryan', 'Ryan', 'Marion', 'Marian']],
  ['places', 'How do I travel to @ in winter by train?', ['Austria', 'Australia', 'Iran', 'Iraq', 'Niger', 'Nigeria']],
  ['negation', 'Which plants @ grow in the shade?', ['do', "don't", 'never', 'hardly', 'can', "can't", 'cannot ever']],
  ['with and without', 'Should I drink coffee @ milk in the morning?', ['with', 'without', 'before', 'after']],
  ['modifiers', 'Is she @ teacher at the school?', ['a', 'a good', 'a bad', 'the only', 'the best', 'a former']],
  ['tense', 'What @ the manager think about the plan?', ['did', 'does', 'will', 'would', 'should']],
  ['words', 'How do I prepare for the @ next summer?', ['trial', 'trail', 'train', 'trails', 'rail']],
  [
    'roles',
    'Why did @ at the office party?',
    ['Anna thank Paul', 'Paul thank Anna', 'Anna blame Paul', 'Paul blame Anna'],
  ],
  ['quantity', 'May I take @ books home from the library?', ['all', 'some', 'most', 'many', 'no', 'few', 'a few']],
  ['order', 'Is the market @ the bridge in spring?', ['above', 'below', 'behind', 'beyond', 'under', 'over']],
]

/** Variations that keep the meaning of a question. */
const VARIATIONS: readonly ((text: string) => string)[] = [
  (text) => text,
  (text) => text.toLowerCase().replace(/[?]$/, ''),
  (text) => `Hi, ${text} Thanks!`,
  (text) => `${text.slice(0, -1)}, please?`,
  (text) => text.replace(/\bthe\b/, 'teh'),
  (text) => text.replace(/\bHow do I\b/, 'Can you tell me how I can'),
  (text) => text.replace(/\bHow do I\b/, 'What are the steps to'),
  (text) =>
    text.replace(/\b(pla)(nts?)\b/, (_, head: string, tail: string) => `${head}${tail.slice(1, 2)}n${tail.slice(2)}`),
  (text) => `${text.charAt(0).toLowerCase()}${text.charAt(1).toUpperCase()}${text.slice(2)}`,
]

interface Written {
  readonly text: string
  readonly form: Canonical
}

const written = (text: string): Written => ({ text, form: canonicalize(text) })

function hits(left: Written, right: Written): boolean {
  return findDifference(left.form, right.form, { lexicon, maxTypos: 2 }) === undefined
}

describe.each(GAPS)('%s in "%s"', (_, question, fillings) => {
  const questions = fillings.map((filling) => question.replace('@', filling))

  it('questions that differ never agree, in any combination of variations', () => {
    const forms = questions.map((text) => VARIATIONS.map((vary) => written(vary(text))))
    const wrong = forms.flatMap((lefts, at) =>
      forms
        .flatMap((rights, other) => (at === other ? [] : rights))
        .flatMap((right) => lefts.flatMap((left) => (hits(left, right) ? [`${left.text} | ${right.text}`] : []))),
    )

    expect(wrong).toEqual([])
  })

  it('a question agrees with a variation of itself', () => {
    for (const text of questions) {
      expect(hits(written(text), written(`Hi, ${text} Thanks!`))).toBe(true)
      expect(hits(written(text), written(text.replace(/\bthe\b/, 'teh')))).toBe(true)
    }
  })
})

describe('a misspelling with two swapped letters', () => {
  it.each(['weather', 'kitchen', 'garden', 'minister'])(
    'in %s is found by the search at any position',
    async (word) => {
      const question = `Where did people build the ${word} in the old town?`
      for (let at = 0; at < word.length - 1; at += 1) {
        const swapped = word.slice(0, at) + word.charAt(at + 1) + word.charAt(at) + word.slice(at + 2)
        const search = createWordingSearch()
        await search.add(lookupOf('stored', question), 1)
        const found = await search.find(lookupOf('asked', question.replace(word, swapped)), 1)

        expect(found.map(({ id }) => id)).toEqual(['stored'])
      }
    },
  )
})
