import { describe, expect, it } from 'vitest'
import { seeded } from '../../bench/cache/variations.ts'
import type { SemanticCacheOptions } from '../../src/plugins/cache/cache-options.ts'
import type { Prompt } from '../../src/core/prompt.ts'
import { IS_FULL } from '../support/full.ts'
import { chat, createFixture } from '../plugins/cache/fixture.ts'
import { NEAR_CONTEXTS } from '../plugins/cache/near-contexts.ts'
import { MIN_PAIRS, NEAR_QUESTIONS, type NearPair, type NearRequest } from '../plugins/cache/near-questions.ts'

/** All pairs of each kind with FULL_TESTS=1, as in CI, or as many as NEAR_PAIRS says. */
const PAIRS = Number(process.env['NEAR_PAIRS'] ?? (IS_FULL ? 1000 : 1))

/** The lowest threshold accepts all that the other options accept, so many pairs are sent with two options only. */
const FEW_PAIRS = Math.min(PAIRS, 3)
const OPTIONS: readonly (readonly [Partial<SemanticCacheOptions>, number])[] = [
  [{}, PAIRS],
  [{ similarityThreshold: 0.85 }, PAIRS],
  [{ similarityThreshold: 0.9 }, FEW_PAIRS],
  [{ similarityThreshold: 0.95 }, FEW_PAIRS],
  [{ similar: true }, FEW_PAIRS],
  [{ similar: true, scope: 'global' }, FEW_PAIRS],
]

function promptOf({ system, turns = [], earlier, fields, text }: NearRequest): Prompt {
  return chat({
    ...fields,
    messages: [
      ...(system === undefined ? [] : [{ role: 'system', content: system }]),
      ...(earlier === undefined
        ? []
        : [
            { role: 'user', content: earlier },
            { role: 'assistant', content: 'OK.' },
          ]),
      ...turns.map((content, index) => ({ role: index % 2 === 0 ? 'user' : 'assistant', content })),
      { role: 'user', content: text },
    ],
  })
}

/** Returns the same random pairs of a kind in each run. */
function sample(pairs: readonly NearPair[], count: number): readonly NearPair[] {
  const random = seeded(pairs.length)
  return pairs
    .map((pair) => ({ pair, place: random() }))
    .toSorted((a, b) => a.place - b.place)
    .slice(0, count)
    .map(({ pair }) => pair)
}

async function wrongHits(
  pairs: readonly NearPair[],
  options: Partial<SemanticCacheOptions>,
  count: number,
): Promise<readonly string[]> {
  const wrong: string[] = []
  for (const pair of sample(pairs, count)) {
    for (const [stored, asked] of [pair, [pair[1], pair[0]] as const]) {
      const { recall, teach } = createFixture(options, {})
      await teach(promptOf(stored), 'stored')
      if ((await recall(promptOf(asked))) !== undefined) wrong.push(`${stored.text} | ${asked.text}`)
    }
  }
  return wrong
}

describe.each(Object.entries({ ...NEAR_QUESTIONS, ...NEAR_CONTEXTS }))(
  'a question with another answer is never a hit: %s',
  (_, pairs) => {
    it.each(OPTIONS)('with the options %j, in up to %i pairs', async (options, count) => {
      expect(await wrongHits(pairs, options, count)).toEqual([])
    })

    it('has enough different pairs', () => {
      const different = new Set(pairs.map((pair) => JSON.stringify(pair)))
      expect(different.size).toBeGreaterThanOrEqual(MIN_PAIRS)
      expect(pairs.filter(([one, other]) => JSON.stringify(one) === JSON.stringify(other))).toEqual([])
    })
  },
)
