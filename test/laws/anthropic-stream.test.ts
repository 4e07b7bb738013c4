import { describe, expect, it } from 'vitest'
import {
  type StreamPart,
  type Completion,
  type SseEvent,
  type StreamChunk,
  Collector,
  toStreamChunks,
} from '../../src/core/completion.ts'
import { NO_USAGE } from '../../src/core/money.ts'
import type { JsonObject } from '../../src/core/json.ts'
import type { Part } from '../../src/core/prompt.ts'
import { messagesClient } from '../../src/formats/messages/client.ts'
import { messagesUpstream } from '../../src/formats/messages/upstream.ts'
import { context, dataOf, frame, metrics, readEvents, writeChunks } from '../formats/messages/samples.ts'
import { isComplete } from '../support/chunk-reader.ts'
import { cases, fc } from '../support/properties.ts'

const count = fc.nat({ max: 1_000_000 })
const usage = fc
  .tuple(count, count, count, count, count, count)
  .map(([inputTokens, cacheReadTokens, cacheWriteTokens, cacheWrite1hTokens, outputTokens, reasoningTokens]) => ({
    inputTokens,
    cacheReadTokens,
    cacheWriteTokens,
    cacheWrite1hTokens,
    outputTokens,
    reasoningTokens,
  }))
const word = fc.string({ minLength: 1, maxLength: 20 })
const toolInput = fc
  .dictionary(fc.string(), fc.jsonValue({ maxDepth: 2 }), { maxKeys: 3 })
  .map((value) => JSON.stringify(value))

const part: fc.Arbitrary<Part> = fc.oneof(
  word.map((text): Part => ({ type: 'text', text })),
  fc.tuple(word, word).map(([text, signature]): Part => ({ type: 'thinking', text, signature })),
  word.map((text): Part => ({ type: 'thinking', text, redacted: true })),
  fc.tuple(word, word, toolInput).map(([id, name, input]): Part => ({ type: 'tool-call', id, name, input })),
  fc.tuple(word, word).map(([id, query]): Part => ({
    type: 'opaque',
    native: { dialect: 'messages', value: { type: 'server_tool_use', id, name: 'web_search', input: { query } } },
  })),
)

const completion: fc.Arbitrary<Completion> = fc.record(
  {
    id: word.map((id) => `msg_${id}`),
    model: word,
    parts: fc.array(part, { maxLength: 8 }),
    finish: fc.constantFrom('stop', 'length', 'tool-call', 'stop-sequence', 'filtered', 'pause'),
    stopSequence: word,
    usage,
  },
  { requiredKeys: ['id', 'model', 'parts', 'finish', 'usage'] },
)

function collect(chunks: readonly StreamChunk[]): Completion {
  const all = new Collector()
  for (const chunk of chunks) all.add(chunk)
  expect(isComplete(chunks)).toBe(true)
  return all.completion()
}

/** Checks the event order that clients of the format require. */
function checkOrder(events: readonly SseEvent[]): void {
  const data = dataOf(events)
  const types = data.map((one) => one['type'])
  expect(events.map((one) => one.event)).toEqual(types)
  expect([types[0], ...types.slice(-2)]).toEqual(['message_start', 'message_delta', 'message_stop'])
  expect(types.filter((type) => type === 'message_delta')).toHaveLength(1)
  let next = 0
  let open = false
  for (const one of data.slice(1, -2)) {
    expect(one['index']).toBe(next)
    expect(one['type'] === 'content_block_start').toBe(!open)
    open = one['type'] !== 'content_block_stop'
    if (!open) next++
  }
  expect(open).toBe(false)
}

/** Interleaves the deltas of several tool calls, in order within each call. */
const interleaved = fc
  .array(fc.tuple(toolInput, fc.array(fc.nat({ max: 40 }), { maxLength: 4 })), { minLength: 1, maxLength: 4 })
  .chain((calls) => {
    const pieces = calls.map(([input, cuts]) => {
      const edges = [0, ...cuts.map((cut) => Math.min(cut, input.length)).toSorted((a, b) => a - b), input.length]
      return edges.slice(1).map((edge, at) => input.slice(edges[at], edge))
    })
    const order = pieces.flatMap((list, index) => list.map(() => index))
    return fc.record({
      inputs: fc.constant(calls.map(([input]) => input)),
      pieces: fc.constant(pieces),
      order: fc.shuffledSubarray(order, { minLength: order.length }),
    })
  })

describe('streams of the message format', () => {
  it('reads the parts, usage and finish of every written answer', () => {
    fc.assert(
      fc.property(completion, (response) => {
        const events = writeChunks(toStreamChunks(response))
        checkOrder(events)
        // The input of an opaque block is unmapped text, too.
        const { unmappedText: _, ...read } = collect(readEvents(events))
        expect(read).toEqual(response)
      }),
      { numRuns: cases(300) },
    )
  })

  it('reads the same answer from a whole body', () => {
    fc.assert(
      fc.property(completion, (response) => {
        const body = JSON.parse(messagesClient.writeCompletion(response, metrics, context)) as JsonObject
        const read = messagesUpstream.readCompletion(body)
        expect(collect(toStreamChunks(read))).toEqual(response)
      }),
      { numRuns: cases(300) },
    )
  })

  it('joins the interleaved pieces of parallel tool calls, one block open at a time', () => {
    fc.assert(
      fc.property(interleaved, ({ inputs, pieces, order }) => {
        const left = pieces.map((list) => [...list])
        const started = new Set<number>()
        const events: StreamPart[] = [{ type: 'response-start', id: 'msg_1', model: 'm' }]
        for (const index of order) {
          if (!started.has(index)) events.push({ type: 'tool-call-start', index, id: `c${index}`, name: 'n' })
          started.add(index)
          events.push({ type: 'tool-call-delta', index, input: left[index]?.shift() ?? '' })
        }
        const frames = writeChunks([...events, { type: 'done' } as const].map((part) => ({ parts: [part] })))
        checkOrder(frames)
        const parts = [...started].map((index) => ({
          type: 'tool-call',
          id: `c${index}`,
          name: 'n',
          input: inputs[index],
        }))
        expect(collect(readEvents(frames)).parts).toEqual(parts)
      }),
      { numRuns: cases(300) },
    )
  })

  it('forwards the frames of an upstream unchanged, except for the one with the bill', () => {
    const noise = fc.oneof(
      fc.constant({ type: 'ping' }),
      fc.record({ type: fc.stringMatching(/^x_[a-z]{1,8}$/), value: fc.jsonValue() }),
      fc.record({
        type: fc.constant('content_block_delta'),
        index: fc.nat(3),
        delta: fc.record({ type: fc.stringMatching(/^x_[a-z]{1,8}$/) }),
      }),
    ) as fc.Arbitrary<JsonObject>
    fc.assert(
      fc.property(completion, fc.array(fc.tuple(fc.nat(), noise)), fc.nat(2), (response, additions, spaces) => {
        const frames = writeChunks(toStreamChunks(response)).map((one) => ({
          ...one,
          data: JSON.stringify(JSON.parse(one.data), null, spaces),
        }))
        for (const [at, data] of additions)
          frames.splice(1 + (at % Math.max(1, frames.length - 2)), 0, frame(data) as (typeof frames)[number])
        const out = writeChunks(readEvents(frames))
        const bill = frames.length - 2
        expect(out.toSpliced(bill, 1)).toEqual(frames.toSpliced(bill, 1))
        expect(JSON.parse(out[bill]?.data ?? '')).toEqual(JSON.parse(frames[bill]?.data ?? ''))
      }),
      { numRuns: cases(200) },
    )
  })

  it('reads valid counts from any usage object', () => {
    const odd = fc.oneof(fc.jsonValue(), fc.constantFrom(Number.POSITIVE_INFINITY, -1, 1.5, '7', null))
    const anyUsage = fc.record(
      {
        input_tokens: odd,
        output_tokens: odd,
        cache_read_input_tokens: odd,
        cache_creation_input_tokens: odd,
        cache_creation: fc.oneof(odd, fc.record({ ephemeral_5m_input_tokens: odd, ephemeral_1h_input_tokens: odd })),
        output_tokens_details: fc.oneof(odd, fc.record({ thinking_tokens: odd })),
      },
      { requiredKeys: [] },
    ) as fc.Arbitrary<JsonObject>
    fc.assert(
      fc.property(anyUsage, (given) => {
        const read = messagesUpstream.readCompletion({ type: 'message', content: [], usage: given }).usage ?? NO_USAGE
        for (const tokens of Object.values(read)) {
          expect(Number.isInteger(tokens)).toBe(true)
          expect(tokens).toBeGreaterThanOrEqual(0)
        }
      }),
    )
  })
})
