import { describe, expect, it } from 'vitest'
import { termsOf } from '../../../src/plugins/savings/keywords.ts'
import { countTerms } from '../../../src/plugins/savings/term-counts.ts'
import { scoreTopics } from '../../../src/plugins/savings/selection.ts'

const query = new Map(termsOf('remote control buttons').map((term) => [term, 1]))
const scoresOf = async (texts: readonly string[]): Promise<readonly number[]> =>
  Array.from(
    await scoreTopics(
      texts.map((text) => countTerms(termsOf(text))),
      query,
      () => undefined,
    ),
  )

/** Turns that share no term with the query. */
const asides = (count: number): string[] => Array.from({ length: count }, (_, at) => `Turn ${at} weighs marble.`)

describe('the score of the topic around a turn', () => {
  it('counts terms of the turns on both sides', async () => {
    const scores = await scoresOf([...asides(30), 'The remote.', 'Hm.', 'Fewer buttons.', ...asides(30)])
    expect(scores[31]).toBeGreaterThan(scores[0] ?? 0)
    expect(scores[31]).toBeGreaterThan(0)
    expect(scores[0]).toBe(0)
    expect(scores.at(-1)).toBe(0)
  })

  it('does not include the neighbors of a long document', async () => {
    const document = (words: string): string => `${words} ${'Granite and copper lie beside it. '.repeat(400)}`
    const scores = await scoresOf([document('Pebbles.'), document('The remote control.'), document('Sand.')])
    expect(scores.map((score) => score > 0)).toEqual([false, true, false])
  })
})
