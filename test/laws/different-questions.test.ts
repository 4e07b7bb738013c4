import { describe, expect, it } from 'vitest'
import { seeded } from '../../bench/cache/variations.ts'
import type { SemanticCacheOptions } from '../../src/plugins/cache/cache-options.ts'
import type { Prompt } from '../../src/core/prompt.ts'
import { KINDS, type Difference, type Pick } from '../plugins/cache/different-questions.ts'
import { chat, createFixture } from '../plugins/cache/fixture.ts'
import { IS_FULL } from '../support/full.ts'

/** CACHE_PAIRS=100 runs more pairs of each kind, CACHE_SEED another sequence. */
const PAIRS = Number(process.env['CACHE_PAIRS'] ?? (IS_FULL ? 6 : 2))
const SEED = Number(process.env['CACHE_SEED'] ?? 27)

function promptOf(text: string, { system, earlier }: Difference): Prompt {
  return chat({
    messages: [
      ...(system === undefined ? [] : [{ role: 'system', content: system }]),
      ...(earlier === undefined
        ? []
        : [
            { role: 'user', content: earlier },
            { role: 'assistant', content: 'OK.' },
          ]),
      { role: 'user', content: text },
    ],
  })
}

async function wrongHits(kind: string, options: Partial<SemanticCacheOptions>): Promise<readonly string[]> {
  const random = seeded([...kind].reduce((sum, letter) => (sum * 31 + letter.charCodeAt(0)) >>> 0, SEED))
  const pick: Pick = (list) => {
    const [picked] = list.slice(Math.floor(random() * list.length))
    if (picked === undefined) throw new Error('The list is empty.')
    return picked
  }
  const makePair = KINDS[kind]
  const wrong: string[] = []
  for (let count = 0; count < PAIRS; count += 1) {
    const pair = makePair?.(pick)
    if (pair === undefined) continue
    const { recall, teach } = createFixture(options, {})
    await teach(promptOf(pair.left, pair), 'stored')
    if ((await recall(promptOf(pair.right, pair))) !== undefined) wrong.push(`${pair.left} | ${pair.right}`)
  }
  return wrong
}

describe.each(Object.keys(KINDS))('another question is never a hit: %s', (kind) => {
  it.each<[string, Partial<SemanticCacheOptions>]>([
    ['by default', {}],
    ['with similar: true', { similar: true }],
    ['with the lowest threshold', { similarityThreshold: 0.85 }],
  ])('%s', async (_, options) => {
    expect(await wrongHits(kind, options)).toEqual([])
  })
})
