import { describe, expect, it } from 'vitest'
import { createSegmentAnalyzer } from '../../../src/plugins/savings/excerpt.ts'
import { meter } from './bench.ts'
import { prose, text } from './conversation.ts'

const segment = (words: string) =>
  ({ kind: 'assistant', indexes: [0], messages: [{ role: 'assistant', parts: [text(words)] }] }) as const

describe('the analysis of a segment', () => {
  it.each([
    ['prose', prose(1, 60_000)],
    ['one letter', 'a'.repeat(500_000)],
    ['ideographs', '我们正在构建一个网关'.repeat(50_000)],
    ['emoji', '😀'.repeat(250_000)],
  ])('yields to the event loop in half a megabyte of %s', async (_, words) => {
    let turns = 0
    const read = createSegmentAnalyzer(meter, async () => {
      turns++
    })
    const { snippets } = await read(segment(words), 'owner')
    expect(turns).toBeGreaterThanOrEqual(Math.floor(words.length / 60_000) - 1)
    for (const { start, end } of snippets) expect(words.slice(start, end)).not.toMatch(/\p{Surrogate}/u)
  })

  it('divides a text into snippets without gaps', async () => {
    const words = prose(2, 3000)
    const { snippets } = await createSegmentAnalyzer(meter, async () => undefined)(segment(words), 'owner')
    expect(snippets.map(({ start, end }) => words.slice(start, end)).join('')).toBe(words)
  })

  it('makes each text of a long message with many texts one snippet', async () => {
    const parts = Array.from({ length: 20 }, (_, at) => text(`Document ${at}: ${prose(at, 600).slice(0, 600)}`))
    const pile = { kind: 'user', indexes: [0], messages: [{ role: 'user', parts }] } as const
    const { snippets } = await createSegmentAnalyzer(meter, async () => undefined)(pile, 'owner')
    expect(snippets.map((snippet) => snippet.location.part)).toEqual(parts.map((_, at) => at))
  })

  it('does not divide a short user message, regardless of its number of parts', async () => {
    const parts = Array.from({ length: 5 }, (_, at) => text(`Please mind point ${at}.`))
    const words = { kind: 'user', indexes: [0], messages: [{ role: 'user', parts }] } as const
    const { snippets } = await createSegmentAnalyzer(meter, async () => undefined)(words, 'owner')
    expect(snippets).toEqual([])
  })
})
