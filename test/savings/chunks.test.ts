import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { chunkSegments } from '../../src/savings/recursive.ts'
import { serializeSegment } from '../../src/savings/summary.ts'
import { splitConversation } from '../../src/savings/conversation.ts'
import { meter } from './bench.ts'
import { conversation } from './conversation.ts'

const { estimate } = meter.tokenizer
const tools = { meter, pause: () => undefined }
const SIZE = 900
const bare = (text: string): string => text.replace(/\s/g, '')

describe('chunks', () => {
  it('hold every old word exactly once, in order, and never more than their size', async () => {
    await fc.assert(
      fc.asyncProperty(conversation, async ({ messages }) => {
        const { old } = splitConversation(messages)
        const { full } = await chunkSegments(old, { size: SIZE }, tools)
        const all = bare(old.map((segment) => serializeSegment(segment, 'whole')).join(''))
        const chunked = bare(full.map((chunk) => chunk.text).join(''))
        expect(all.startsWith(chunked)).toBe(true)
        for (const chunk of full) expect(estimate(chunk.text)).toBeLessThanOrEqual(SIZE)
      }),
      { numRuns: 60 },
    )
  })

  it('are the same on the next turn', async () => {
    await fc.assert(
      fc.asyncProperty(conversation, fc.nat(), async ({ messages }, cut) => {
        const { old } = splitConversation(messages)
        const earlier = (await chunkSegments(old.slice(0, cut % (old.length + 1)), { size: SIZE }, tools)).full
        const later = (await chunkSegments(old, { size: SIZE }, tools)).full
        expect(later.slice(0, earlier.length).map((chunk) => chunk.text)).toEqual(earlier.map((chunk) => chunk.text))
      }),
      { numRuns: 60 },
    )
  })
})
