import { describe, expect, it } from 'vitest'
import { createSegmentAnalyzer } from '../../src/savings/segment-analysis.ts'
import { meter } from './bench.ts'
import { prose, text } from './conversation.ts'

const segment = (words: string) =>
  ({ kind: 'assistant', places: [0], messages: [{ role: 'assistant', parts: [text(words)] }] }) as const

describe('reading a segment', () => {
  it.each([
    ['prose', prose(1, 60_000)],
    ['one letter', 'a'.repeat(500_000)],
    ['ideographs', '我们正在构建一个网关'.repeat(50_000)],
    ['emoji', '😀'.repeat(250_000)],
  ])('gives the rest of the process its turns in half a megabyte of %s', async (_, words) => {
    let turns = 0
    const read = createSegmentAnalyzer(meter.tokenizer.estimate, async () => {
      turns++
    })
    const { snippets } = await read(segment(words), 'owner')
    expect(turns).toBeGreaterThanOrEqual(Math.floor(words.length / 60_000) - 1)
    for (const { start, end } of snippets) expect(words.slice(start, end)).not.toMatch(/\p{Surrogate}/u)
  })

  it('divides a text into snippets that are all of it', async () => {
    const words = prose(2, 3000)
    const { snippets } = await createSegmentAnalyzer(meter.tokenizer.estimate, async () => undefined)(
      segment(words),
      'owner',
    )
    expect(snippets.map(({ start, end }) => words.slice(start, end)).join('')).toBe(words)
  })

  it('takes each text of a message that holds many for a snippet, so that a pile of documents can be shortened', async () => {
    const parts = Array.from({ length: 20 }, (_, at) => text(`Document ${at}: ${prose(at, 600).slice(0, 600)}`))
    const pile = { kind: 'user', places: [0], messages: [{ role: 'user', parts }] } as const
    const { snippets } = await createSegmentAnalyzer(meter.tokenizer.estimate, async () => undefined)(pile, 'owner')
    expect(snippets.map((snippet) => snippet.spot.part)).toEqual(parts.map((_, at) => at))
  })

  it('leaves a few short words of a user undivided, in however many parts they came', async () => {
    const parts = Array.from({ length: 5 }, (_, at) => text(`Please mind point ${at}.`))
    const words = { kind: 'user', places: [0], messages: [{ role: 'user', parts }] } as const
    const { snippets } = await createSegmentAnalyzer(meter.tokenizer.estimate, async () => undefined)(words, 'owner')
    expect(snippets).toEqual([])
  })
})
