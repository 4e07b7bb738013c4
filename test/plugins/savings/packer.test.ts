import { expect, it } from 'vitest'
import { textOfMessage } from '../../../src/core/messages.ts'
import { type Message } from '../../../src/core/prompt.ts'
import type { Snippet } from '../../../src/plugins/savings/excerpt.ts'
import { Packer, type PackerEntry } from '../../../src/plugins/savings/packer.ts'
import { countTerms } from '../../../src/plugins/savings/term-counts.ts'
import type { meter } from './bench.ts'

const WORDS = 'The harbour opens at nine.'
const message: Message = { role: 'assistant', parts: [{ type: 'text', text: WORDS }] }
const TERMS = {
  counts: countTerms([]),
  termSnippets: { offsets: new Int32Array(1), parts: new Int32Array() },
}
const snippet: Snippet = {
  location: { message: 0, part: 0, piece: -1 },
  start: 0,
  end: WORDS.length,
  tokens: 6,
  fingerprint: 1,
}

it('packs a snippet once after its segment was removed because it did not fit', async () => {
  const entry: PackerEntry = {
    segment: { kind: 'assistant', messages: [message], indexes: [0] },
    tokens: 500,
    analysis: { ...TERMS, snippets: [snippet], skeletonTokens: 0, hasStandingInstruction: false },
    value: 1,
    relativeScore: 1,
    state: 'out',
    messages: [],
    pickedSnippets: [],
    usedTokens: 0,
  }
  const tooLarge = { countMessage: () => Promise.resolve(1000) }
  const { signal } = new AbortController()
  const packer = new Packer(100, { meter: tooLarge, pause: () => undefined, signal })

  for (let round = 0; round < 2; round++) {
    await packer.packBestSnippets([entry], Float64Array.of(1))
    expect(entry.pickedSnippets).toEqual([snippet])
    await packer.measureAndTrim([entry])
    expect(entry.state).toBe('out')
  }
})

it('shrinks an excerpt of 1,000 snippets to the largest that fits, with few measurements', async () => {
  const lines = Array.from({ length: 1000 }, (_, at) => `The harbour opens at ${1000 + at}.\n`)
  const { length } = lines[0] ?? ''
  const long: Message = { role: 'assistant', parts: [{ type: 'text', text: lines.join('') }] }
  const snippets = lines.map((_, at) => ({ ...snippet, start: at * length, end: (at + 1) * length, fingerprint: at }))
  const entry: PackerEntry = {
    segment: { kind: 'assistant', messages: [long], indexes: [0] },
    tokens: 20_000,
    analysis: { ...TERMS, snippets, skeletonTokens: 0, hasStandingInstruction: false },
    value: 1,
    relativeScore: 1,
    state: 'out',
    messages: [],
    pickedSnippets: [],
    usedTokens: 0,
  }
  let measurements = 0
  const countMessage: typeof meter.countMessage = async (item) => {
    measurements += 1
    return 20 * (textOfMessage(item).split('harbour').length - 1)
  }
  const { signal } = new AbortController()
  const packer = new Packer(5010, { meter: { countMessage }, pause: () => undefined, signal })

  await packer.packBestSnippets([entry], new Float64Array(1000))
  expect(entry.pickedSnippets.length).toBeGreaterThan(500)
  await packer.measureAndTrim([entry])
  expect({ snippets: entry.pickedSnippets.length, tokens: packer.usedTokens }).toEqual({ snippets: 250, tokens: 5000 })
  expect(measurements).toBeLessThan(30)
})
