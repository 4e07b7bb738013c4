import { expect, it } from 'vitest'
import type { Message } from '../../src/core/prompt.ts'
import type { Snippet } from '../../src/savings/excerpt.ts'
import { Packer, type PackerEntry } from '../../src/savings/packer.ts'
import { meter } from './bench.ts'

const WORDS = 'The harbour opens at nine.'
const message: Message = { role: 'assistant', parts: [{ type: 'text', text: WORDS }] }
const COUNTS = { terms: new Int32Array(), counts: new Int32Array(), length: 0 }
const snippet: Snippet = {
  location: { message: 0, part: 0, piece: -1 },
  start: 0,
  end: WORDS.length,
  tokens: 6,
  terms: new Int32Array(),
  fingerprint: 1,
}

it('packs a snippet once after its segment was removed because it did not fit', async () => {
  const entry: PackerEntry = {
    segment: { kind: 'assistant', messages: [message], indexes: [0] },
    tokens: 500,
    analysis: { counts: COUNTS, snippets: [snippet], skeletonTokens: 0, hasStandingInstruction: false },
    value: 1,
    relativeScore: 1,
    state: 'out',
    messages: [],
    pickedSnippets: [],
    usedTokens: 0,
  }
  const tooLarge = { ...meter, countMessage: () => Promise.resolve(1000) }
  const { signal } = new AbortController()
  const packer = new Packer(100, { meter: tooLarge, pause: () => undefined, signal })

  for (let round = 0; round < 2; round++) {
    await packer.packBestSnippets([entry], new Map([[snippet, 1]]))
    expect(entry.pickedSnippets).toEqual([snippet])
    await packer.measureAndTrim([entry])
    expect(entry.state).toBe('out')
  }
})
