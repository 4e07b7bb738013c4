import { describe, expect, it } from 'vitest'
import { type StreamPart, type Completion, Collector, toStreamChunks } from '../../src/core/completion.ts'
import { NO_USAGE } from '../../src/core/money.ts'
import { isComplete } from '../support/chunk-reader.ts'

function collect(parts: readonly StreamPart[]): Completion {
  const collected = new Collector()
  for (const part of parts) collected.add({ parts: [part] })
  return collected.completion()
}

describe('a collector', () => {
  it('joins texts, reasoning with signatures and interleaved tool calls in the order of their starts', () => {
    const { parts } = collect([
      { type: 'response-start', id: 'a1', model: 'm' },
      { type: 'thinking-start' },
      { type: 'thinking-delta', text: 'Let ' },
      { type: 'thinking-delta', text: 'me see' },
      { type: 'thinking-delta', signature: 'seal' },
      { type: 'thinking-start', redacted: 'cipher' },
      { type: 'text-start' },
      { type: 'text-delta', text: 'One' },
      { type: 'tool-call-start', index: 0, id: 'c0', name: 'first' },
      { type: 'tool-call-start', index: 1, id: 'c1', name: 'second' },
      { type: 'tool-call-delta', index: 1, input: '{"b"' },
      { type: 'tool-call-delta', index: 0, input: '{"a"' },
      { type: 'tool-call-delta', index: 1, input: ':2}' },
      { type: 'tool-call-delta', index: 0, input: ':1}' },
      { type: 'text-start' },
      { type: 'text-delta', text: 'Two' },
    ])
    expect(parts).toEqual([
      { type: 'thinking', text: 'Let me see', signature: 'seal' },
      { type: 'thinking', text: 'cipher', redacted: true },
      { type: 'text', text: 'One' },
      { type: 'tool-call', id: 'c0', name: 'first', input: '{"a":1}' },
      { type: 'tool-call', id: 'c1', name: 'second', input: '{"b":2}' },
      { type: 'text', text: 'Two' },
    ])
  })

  it('takes the last value of each usage field', () => {
    const { usage } = collect([
      { type: 'usage', usage: { inputTokens: 9, cacheReadTokens: 4, outputTokens: 1 } },
      { type: 'usage', usage: { outputTokens: 15 } },
      { type: 'usage', usage: { outputTokens: 16 } },
    ])
    expect(usage).toEqual({ ...NO_USAGE, inputTokens: 9, cacheReadTokens: 4, outputTokens: 16 })
  })

  it('reports no usage if the upstream reported none', () => {
    expect(collect([{ type: 'text-delta', text: 'hi' }])).toEqual({
      id: '',
      model: '',
      parts: [{ type: 'text', text: 'hi' }],
      finish: 'stop',
    })
  })

  it('has a finish reason after the end of the answer', () => {
    const collected = new Collector()
    collected.add({ parts: [{ type: 'text-delta', text: 'x' }] })
    expect(collected.hasFinishReason()).toBe(false)
    collected.add({ parts: [{ type: 'response-end', finish: 'stop-sequence', stopSequence: 'END' }] })
    expect(collected.hasFinishReason()).toBe(true)
    collected.add({ parts: [{ type: 'done' }] })
    expect(collected.completion()).toMatchObject({ finish: 'stop-sequence', stopSequence: 'END' })
  })

  it('joins 200,000 pieces', () => {
    const collected = new Collector()
    for (let piece = 0; piece < 200_000; piece++) collected.add({ parts: [{ type: 'text-delta', text: 'ab' }] })
    expect(collected.completion().parts).toEqual([{ type: 'text', text: 'ab'.repeat(200_000) }])
  })

  it('ignores deltas of a tool call that never started', () => {
    expect(collect([{ type: 'tool-call-delta', index: 3, input: '{}' }]).parts).toEqual([])
  })
})

describe('the steps of a stored answer', () => {
  it('contain opaque parts unchanged', () => {
    const native = { dialect: 'messages', value: { type: 'server_tool_use', id: 's1' } } as const
    const completion: Completion = { id: 'a', model: 'm', parts: [{ type: 'opaque', native }], finish: 'pause' }
    const collected = new Collector()
    const chunks = toStreamChunks(completion)
    for (const chunk of chunks) collected.add(chunk)
    expect(collected.completion()).toEqual(completion)
    expect(isComplete(chunks)).toBe(true)
  })

  it('contain images unchanged', () => {
    const source = { type: 'url', url: 'https://example.com/a.png' } as const
    const image = { type: 'image', source } as const
    const chunks = toStreamChunks({ id: 'a', model: 'm', parts: [image], finish: 'stop' })
    expect(chunks.flatMap((chunk) => chunk.parts)).toContainEqual(image)
  })

  it('contain documents as opaque parts, and omit those without a native block', () => {
    const native = { dialect: 'messages', value: { type: 'document' } } as const
    const source = { type: 'text', text: 'page' } as const
    const document = { type: 'document', source } as const
    const chunks = toStreamChunks({ id: 'a', model: 'm', parts: [{ ...document, native }, document], finish: 'stop' })
    expect(chunks.flatMap((chunk) => chunk.parts).filter((part) => part.type === 'opaque')).toEqual([
      { type: 'opaque', native },
    ])
  })

  it('contain no native frames', () => {
    const chunks = toStreamChunks({ id: 'a', model: 'm', parts: [{ type: 'text', text: 'x' }], finish: 'stop' })
    expect(chunks.every((chunk) => chunk.native === undefined)).toBe(true)
  })
})
