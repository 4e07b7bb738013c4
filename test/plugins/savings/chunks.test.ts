import { describe, expect, it } from 'vitest'
import { chunkSegments, serializeSegment } from '../../../src/plugins/savings/summary.ts'
import { splitConversation } from '../../../src/plugins/savings/segments.ts'
import { cases, fc } from '../../support/properties.ts'
import { meter } from './bench.ts'
import { conversation } from './conversation.ts'

const { estimate } = meter.tokenizer
const tools = { meter, pause: () => undefined }
const MAX_TOKENS = 900
const bare = (text: string): string => text.replace(/\s/g, '')

describe('chunks', () => {
  it('contain each old word once and in order, and never exceed the maximum size', async () => {
    await fc.assert(
      fc.asyncProperty(conversation, async ({ messages }) => {
        const { old } = splitConversation(messages)
        const { chunks } = await chunkSegments(old, MAX_TOKENS, tools)
        const all = bare(old.map((segment) => serializeSegment(segment, 'full')).join(''))
        const chunked = bare(chunks.join(''))
        expect(all.startsWith(chunked)).toBe(true)
        for (const chunk of chunks) expect(estimate(chunk)).toBeLessThanOrEqual(MAX_TOKENS)
      }),
      { numRuns: cases(60) },
    )
  })

  it('are the same on the next turn', async () => {
    await fc.assert(
      fc.asyncProperty(conversation, fc.nat(), async ({ messages }, cut) => {
        const { old } = splitConversation(messages)
        const earlier = (await chunkSegments(old.slice(0, cut % (old.length + 1)), MAX_TOKENS, tools)).chunks
        const later = (await chunkSegments(old, MAX_TOKENS, tools)).chunks
        expect(later.slice(0, earlier.length)).toEqual(earlier)
      }),
      { numRuns: cases(60) },
    )
  })
})
