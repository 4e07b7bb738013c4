import { describe, expect, it } from 'vitest'
import type { Message, Part } from '../../../src/core/prompt.ts'
import { excerptSegment, type Snippet } from '../../../src/plugins/savings/excerpt.ts'
import { text } from './conversation.ts'

const reasoning = (id: string, dialect: 'responses' | 'messages' = 'responses'): Part => ({
  type: 'thinking',
  text: 'Hm.',
  native: { dialect, value: { type: 'reasoning', id } },
})
const call: Part = { type: 'tool-call', id: 'call_1', name: 'read_file', input: '{}' }
const snippetOf = (part: number): Snippet => ({
  location: { message: 0, part, piece: -1 },
  start: 0,
  end: 5,
  tokens: 2,
  fingerprint: part,
})

function excerptOf(parts: readonly Part[], snippets: readonly Snippet[] = []): readonly Part[] | undefined {
  const message: Message = { role: 'assistant', parts }
  return excerptSegment({ kind: 'tool-use', messages: [message], indexes: [0] }, snippets)[0]?.parts
}

describe('an excerpt of an answer in the responses format', () => {
  it('keeps an answer with reasoning whole, because the vendor checks the ids of its items', () => {
    const [first, second] = [reasoning('rs_1'), reasoning('rs_2')]
    const responses = [
      [first, text('Words.'), second, call],
      [second, call, first, text('Words.')],
      [first, second, call],
    ]

    for (const response of responses) {
      expect(excerptOf(response)).toEqual(response)
      expect(excerptOf(response, [snippetOf(1)])).toEqual(response)
    }
  })

  it('keeps all reasoning of another format, in which reasoning needs no text', () => {
    const [first, second] = [reasoning('1', 'messages'), reasoning('2', 'messages')]

    expect(excerptOf([first, text('Words.'), second, call])).toEqual([first, second, call])
  })
})
