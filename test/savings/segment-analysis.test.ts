import { describe, expect, it } from 'vitest'
import { createSegmentAnalyzer } from '../../src/savings/segment-analysis.ts'
import { meter } from './bench.ts'
import { prose, text } from './conversation.ts'

const unit = (words: string) =>
  ({ kind: 'assistant', places: [0], messages: [{ role: 'assistant', parts: [text(words)] }] }) as const

describe('reading a unit', () => {
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
    const { passages } = await read(unit(words), 'owner')
    expect(turns).toBeGreaterThanOrEqual(Math.floor(words.length / 60_000) - 1)
    for (const { start, end } of passages) expect(words.slice(start, end)).not.toMatch(/\p{Surrogate}/u)
  })

  it('divides a text into passages that are all of it', async () => {
    const words = prose(2, 3000)
    const { passages } = await createSegmentAnalyzer(meter.tokenizer.estimate, async () => undefined)(
      unit(words),
      'owner',
    )
    expect(passages.map(({ start, end }) => words.slice(start, end)).join('')).toBe(words)
  })

  it('takes each text of a message that holds many for a passage, so that a pile of documents can be shortened', async () => {
    const parts = Array.from({ length: 20 }, (_, at) => text(`Document ${at}: ${prose(at, 600).slice(0, 600)}`))
    const pile = { kind: 'user', places: [0], messages: [{ role: 'user', parts }] } as const
    const { passages } = await createSegmentAnalyzer(meter.tokenizer.estimate, async () => undefined)(pile, 'owner')
    expect(passages.map((passage) => passage.spot.part)).toEqual(parts.map((_, at) => at))
  })

  it('leaves a few short words of a user undivided, in however many parts they came', async () => {
    const parts = Array.from({ length: 5 }, (_, at) => text(`Please mind point ${at}.`))
    const words = { kind: 'user', places: [0], messages: [{ role: 'user', parts }] } as const
    const { passages } = await createSegmentAnalyzer(meter.tokenizer.estimate, async () => undefined)(words, 'owner')
    expect(passages).toEqual([])
  })
})
