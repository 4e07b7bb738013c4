import { describe, expect, it } from 'vitest'
import { type StreamPart, type SseEvent, Collector } from '../../../src/core/completion.ts'
import { NO_USAGE } from '../../../src/core/money.ts'
import type { JsonObject } from '../../../src/core/json.ts'
import { messagesClient } from '../../../src/formats/messages/client.ts'
import { bodyOf, context, dataOf, failureOf, frame, metrics, readEvents, svcMetrics, writeChunks } from './samples.ts'

const start = (usage: JsonObject = { input_tokens: 10, output_tokens: 1 }): SseEvent =>
  frame({
    type: 'message_start',
    message: { id: 'msg_1', type: 'message', role: 'assistant', model: 'm', content: [], usage },
  })
const block = (index: number, content_block: JsonObject): SseEvent =>
  frame({ type: 'content_block_start', index, content_block })
const delta = (index: number, value: JsonObject): SseEvent =>
  frame({ type: 'content_block_delta', index, delta: value })
const stop = (index: number): SseEvent => frame({ type: 'content_block_stop', index })
const end = (usage: JsonObject = { output_tokens: 9 }, reason = 'end_turn'): SseEvent =>
  frame({ type: 'message_delta', delta: { stop_reason: reason, stop_sequence: null }, usage })
const last = frame({ type: 'message_stop' })
const ping = frame({ type: 'ping' })
const text = [block(0, { type: 'text', text: '' }), delta(0, { type: 'text_delta', text: 'Hi' }), stop(0)]

const eventsOf = (events: readonly SseEvent[]) => readEvents(events).flatMap((chunk) => chunk.parts)
const collected = (events: readonly SseEvent[]) => {
  const all = new Collector()
  for (const chunk of readEvents(events)) all.add(chunk)
  return all.completion()
}

describe('reading a stream of the message format', () => {
  it('reads the parts of each event and keeps the event', () => {
    const events = [start(), ping, ...text, end(), last]
    const chunks = readEvents(events)
    expect(chunks.map((chunk) => chunk.native?.event)).toEqual(events)
    expect(chunks.flatMap((chunk) => chunk.parts)).toEqual([
      { type: 'response-start', id: 'msg_1', model: 'm' },
      { type: 'usage', usage: { inputTokens: 10 } },
      { type: 'text-start' },
      { type: 'text-delta', text: 'Hi' },
      { type: 'usage', usage: { inputTokens: 10, outputTokens: 9 } },
      { type: 'response-end', finish: 'stop' },
      { type: 'done' },
    ])
  })

  it('reads signed and redacted thinking', () => {
    expect(
      eventsOf([
        start(),
        block(0, { type: 'thinking', thinking: '', signature: '' }),
        delta(0, { type: 'thinking_delta', thinking: 'hm' }),
        delta(0, { type: 'signature_delta', signature: 's' }),
        block(1, { type: 'redacted_thinking', data: 'cipher' }),
      ]).slice(2),
    ).toEqual([
      { type: 'thinking-start' },
      { type: 'thinking-delta', text: 'hm' },
      { type: 'thinking-delta', signature: 's' },
      { type: 'thinking-start', redacted: 'cipher' },
    ])
  })

  it('numbers tool calls separately from blocks, and reads missing arguments as an empty object', () => {
    const events = [
      start(),
      ...text,
      block(1, { type: 'tool_use', id: 'a', name: 'one', input: {} }),
      delta(1, { type: 'input_json_delta', partial_json: '' }),
      delta(1, { type: 'input_json_delta', partial_json: '{"q"' }),
      delta(1, { type: 'input_json_delta', partial_json: ':1}' }),
      stop(1),
      block(2, { type: 'tool_use', id: 'b', name: 'two', input: {} }),
      stop(2),
      block(3, { type: 'tool_use', id: 'c', name: 'three', input: { at: 'once' } }),
      stop(3),
    ]
    expect(collected(events).parts.slice(1)).toEqual([
      { type: 'tool-call', id: 'a', name: 'one', input: '{"q":1}' },
      { type: 'tool-call', id: 'b', name: 'two', input: '{}' },
      { type: 'tool-call', id: 'c', name: 'three', input: '{"at":"once"}' },
    ])
  })

  it('emits unknown blocks when they are complete', () => {
    const server = { type: 'server_tool_use', id: 's', name: 'web_search', input: {} }
    const found = { type: 'web_search_tool_result', tool_use_id: 's', content: [{ type: 'web_search_result' }] }
    const events = [
      start(),
      block(0, server),
      delta(0, { type: 'input_json_delta', partial_json: '{"query":' }),
      delta(0, { type: 'input_json_delta', partial_json: '"tea"}' }),
      stop(0),
      block(1, found),
      stop(1),
      block(2, { type: 'compaction', content: null }),
      delta(2, { type: 'compaction_delta', content: 'Until ' }),
      delta(2, { type: 'compaction_delta', content: 'now' }),
      stop(2),
      end(),
      last,
    ]
    expect(collected(events).parts).toEqual(
      [{ ...server, input: { query: 'tea' } }, found, { type: 'compaction', content: 'Until now' }].map((value) => ({
        type: 'opaque',
        native: { dialect: 'messages', value },
      })),
    )
  })

  it('uses the last usage, including cache counts that are sent only at the end', () => {
    const atStart = {
      input_tokens: 10,
      cache_creation_input_tokens: 7,
      cache_creation: { ephemeral_5m_input_tokens: 4, ephemeral_1h_input_tokens: 3 },
      output_tokens: 1,
    }
    const atEnd = {
      input_tokens: null,
      cache_creation: null,
      cache_creation_input_tokens: 7,
      cache_read_input_tokens: 5,
      output_tokens: 16,
    }
    expect(collected([start(atStart), end(atEnd), last]).usage).toEqual({
      inputTokens: 10,
      cacheReadTokens: 5,
      cacheWriteTokens: 4,
      cacheWrite1hTokens: 3,
      outputTokens: 16,
      reasoningTokens: 0,
    })
    expect(
      collected([start({}), end({ output_tokens: 15 }), end({ output_tokens: 16 }), last]).usage?.outputTokens,
    ).toBe(16)
  })

  it('drops events after the end', () => {
    const chunks = readEvents([start(), ...text, end(), last, ping, { data: '[DONE]' }, start()])
    expect(chunks.slice(-3)).toEqual([{ parts: [] }, { parts: [] }, { parts: [] }])
  })

  it('uses the type in the data as the event name when the name is missing', () => {
    const [chunk] = readEvents([{ data: start().data, id: '7' }])
    expect(chunk?.native?.event).toEqual({ event: 'message_start', data: start().data, id: '7' })
  })

  it('ends an answer without a stop reason', () => {
    expect(eventsOf([start(), last]).slice(2)).toEqual([{ type: 'response-end', finish: 'stop' }, { type: 'done' }])
  })

  it.each([
    ['overloaded_error', 'overloaded'],
    ['rate_limit_error', 'upstream-rate-limited'],
    ['timeout_error', 'upstream-timeout'],
    ['invalid_request_error', 'upstream-rejected'],
    ['request_too_large', 'upstream-rejected'],
    ['api_error', 'upstream'],
    ['__proto__', 'upstream'],
  ] as const)('throws for an event with the error %s', (type, kind) => {
    const error = frame({ type: 'error', error: { type, message: 'at 10.0.0.1' } })
    const failure = failureOf(() => readEvents([start(), error]))
    expect(failure.kind).toBe(kind)
    expect(failure.message).not.toContain('10.0.0.1')
  })

  it.each<[string, SseEvent]>([
    ['cut JSON', { event: 'message_delta', data: '{"type":"mess' }],
    ['HTML', { data: '<html>' }],
    ['the end of the other format', { data: '[DONE]' }],
    ['null', { data: 'null' }],
    ['an array', { data: '[]' }],
    ['no type', { event: 'message_start', data: '{}' }],
    ['a start without message', frame({ type: 'message_start' })],
    ['an end before the start', frame({ type: 'message_stop' })],
    ['a block that is no object', frame({ type: 'content_block_start', index: 0, content_block: 'text' })],
    ['a block without type', block(0, {})],
    ['a tool call without name', block(0, { type: 'tool_use', id: 'a', input: {} })],
    ['a delta that is missing', frame({ type: 'content_block_delta', index: 0 })],
    ['a text that is none', delta(0, { type: 'text_delta', text: 7 })],
    ['an error without type of event', { data: '{"error":{"message":"x"}}' }],
  ])('throws for %s', (_, bad) => {
    expect(failureOf(() => readEvents([bad])).kind).toBe('upstream')
  })
})

describe('forwarding a stream of the message format', () => {
  it('sends frames unchanged, and adds the bill to the last message_delta', () => {
    const odd = { event: 'message_start', data: start().data.replace('{', '{ ').replace('"m"', '"\\u006d"'), id: '1' }
    const events = [odd, ping, ...text, end({ output_tokens: 9, later: 1 }), last]
    const out = writeChunks(readEvents(events))
    expect(out.slice(0, 5)).toEqual(events.slice(0, 5))
    expect(out[6]).toEqual(last)
    expect(bodyOf(out[5]?.data ?? '')).toEqual({
      ...bodyOf(end().data),
      usage: { output_tokens: 9, later: 1, total_tokens: 19 },
      svc_metrics: svcMetrics,
    })
  })

  it('delays only the last of several message_deltas, and forwards pings', () => {
    const writer = messagesClient.createStreamWriter(context)
    const early = end({ output_tokens: 5 })
    const out = readEvents([start(), early, end(), ping, last]).map((chunk) => writer.write(chunk))
    expect(out).toEqual([[start()], [], [early], [ping], []])
    expect(dataOf(writer.end(metrics))).toMatchObject([
      { usage: { output_tokens: 9, total_tokens: 19 } },
      { type: 'message_stop' },
    ])
  })

  it('keeps the order when another event follows a message_delta', () => {
    const events = [start(), end(), ...text]
    expect(writeChunks(readEvents(events)).slice(0, 5)).toEqual(events)
  })

  it('sends the bill when the upstream sends no message_delta', () => {
    expect(dataOf(writeChunks(readEvents([start(), ...text, last])).slice(-2))).toEqual([
      {
        type: 'message_delta',
        delta: { stop_reason: 'end_turn', stop_sequence: null },
        usage: expect.objectContaining({ input_tokens: 10, total_tokens: 10 }),
        svc_metrics: svcMetrics,
      },
      { type: 'message_stop' },
    ])
  })
})

describe('writing a stream of another format', () => {
  const steps = (...parts: readonly StreamPart[]) => parts.map((part) => ({ parts: [part] }))
  const opening: StreamPart = { type: 'response-start', id: 'chatcmpl-1', model: 'gpt' }
  const closing: readonly StreamPart[] = [
    { type: 'response-end', finish: 'tool-call' },
    { type: 'usage', usage: { ...NO_USAGE, inputTokens: 10, cacheReadTokens: 2, outputTokens: 3 } },
    { type: 'done' },
  ]
  const callStart = (index: number): StreamPart => ({
    type: 'tool-call-start',
    index,
    id: `c${index}`,
    name: `n${index}`,
  })
  const callDelta = (index: number, input: string): StreamPart => ({ type: 'tool-call-delta', index, input })
  const blocks = (...parts: readonly StreamPart[]) =>
    dataOf(writeChunks(steps(opening, ...parts, ...closing))).slice(1, -2)

  it('starts with counts of zero and ends with the counts and the bill', () => {
    const events = writeChunks(steps(opening, { type: 'text-start' }, { type: 'text-delta', text: 'Hi' }, ...closing))
    expect(events.map((one) => one.event)).toEqual(dataOf(events).map((data) => data['type']))
    expect(dataOf(events)).toEqual([
      {
        type: 'message_start',
        message: {
          id: 'msg_1',
          type: 'message',
          role: 'assistant',
          model: 'gpt',
          content: [],
          stop_reason: null,
          stop_sequence: null,
          usage: { input_tokens: 0, output_tokens: 0 },
        },
      },
      { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
      { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'Hi' } },
      { type: 'content_block_stop', index: 0 },
      {
        type: 'message_delta',
        delta: { stop_reason: 'tool_use', stop_sequence: null },
        usage: {
          input_tokens: 10,
          cache_creation_input_tokens: 0,
          cache_read_input_tokens: 2,
          cache_creation: { ephemeral_5m_input_tokens: 0, ephemeral_1h_input_tokens: 0 },
          output_tokens: 3,
          total_tokens: 15,
        },
        svc_metrics: svcMetrics,
      },
      { type: 'message_stop' },
    ])
  })

  it('omits a thinking block without text and signature', () => {
    expect(
      blocks({ type: 'thinking-start' }, { type: 'thinking-delta', text: '' }, { type: 'thinking-delta' }),
    ).toEqual([])
  })

  it('sends text and the first tool call immediately', () => {
    const writer = messagesClient.createStreamWriter(context)
    const out = steps(opening, { type: 'text-delta', text: 'Hi' }, callStart(0), callDelta(0, '{"a"')).map((step) =>
      writer.write(step).map((one) => one.event),
    )
    expect(out).toEqual([
      ['message_start'],
      ['content_block_start', 'content_block_delta'],
      ['content_block_stop', 'content_block_start'],
      ['content_block_delta'],
    ])
  })

  it('delays the chunks of a second call until the first call is complete', () => {
    const out = blocks(
      callStart(0),
      callDelta(0, '{"a":'),
      callStart(1),
      callDelta(1, '{"}":'),
      callDelta(0, '"}"}'),
      callDelta(1, '2}'),
    )
    expect(
      out.map((data) => [data['type'], data['index'], (data['delta'] as JsonObject | undefined)?.['partial_json']]),
    ).toEqual([
      ['content_block_start', 0, undefined],
      ['content_block_delta', 0, '{"a":'],
      ['content_block_delta', 0, '"}"}'],
      ['content_block_stop', 0, undefined],
      ['content_block_start', 1, undefined],
      ['content_block_delta', 1, '{"}":'],
      ['content_block_delta', 1, '2}'],
      ['content_block_stop', 1, undefined],
    ])
  })

  it('starts a new text block after a tool call, and never an empty block', () => {
    const out = blocks({ type: 'text-start' }, { type: 'text-delta', text: '' }, callStart(0), {
      type: 'text-delta',
      text: 'so',
    })
    expect(out).toEqual([
      { type: 'content_block_start', index: 0, content_block: { type: 'tool_use', id: 'c0', name: 'n0', input: {} } },
      { type: 'content_block_delta', index: 0, delta: { type: 'input_json_delta', partial_json: '{}' } },
      { type: 'content_block_stop', index: 0 },
      { type: 'content_block_start', index: 1, content_block: { type: 'text', text: '' } },
      { type: 'content_block_delta', index: 1, delta: { type: 'text_delta', text: 'so' } },
      { type: 'content_block_stop', index: 1 },
    ])
  })

  it('writes thinking, blocks of the format, and text in several chunks', () => {
    const citation = { type: 'citations_delta', citation: { type: 'char_location' } }
    const opaque = (value: JsonObject): StreamPart => ({ type: 'opaque', native: { dialect: 'messages', value } })
    const out = blocks(
      { type: 'thinking-start' },
      { type: 'thinking-delta', text: 'hm' },
      { type: 'thinking-delta', signature: 's' },
      { type: 'thinking-start', redacted: 'cipher' },
      { type: 'text-delta', text: 'Hi' },
      opaque(citation),
      opaque({ type: 'server_tool_use', id: 's', name: 'web_search', input: { query: 'tea' } }),
      { type: 'opaque', native: { dialect: 'chat', value: { type: 'audio' } } },
    )
    expect(out.flatMap((data) => data['content_block'] ?? data['delta'] ?? [])).toEqual([
      { type: 'thinking', thinking: '', signature: '' },
      { type: 'thinking_delta', thinking: 'hm' },
      { type: 'signature_delta', signature: 's' },
      { type: 'redacted_thinking', data: 'cipher' },
      { type: 'text', text: '' },
      { type: 'text_delta', text: 'Hi' },
      citation,
      { type: 'server_tool_use', id: 's', name: 'web_search', input: {} },
      { type: 'input_json_delta', partial_json: '{"query":"tea"}' },
    ])
  })

  it('throws when an upstream continues a complete call, except with blanks', () => {
    const first = [callStart(0), callDelta(0, '{}'), callStart(1)]
    expect(blocks(...first, callDelta(0, ' \n'))).toHaveLength(6)
    expect(failureOf(() => blocks(...first, callDelta(0, '{}'))).kind).toBe('upstream')
  })

  it('writes a complete message for an empty stream', () => {
    expect(writeChunks([]).map((one) => one.event)).toEqual(['message_start', 'message_delta', 'message_stop'])
  })

  it('uses a ping as its heartbeat', () => {
    expect(messagesClient.heartbeat).toEqual({ event: 'ping', data: '{"type":"ping"}' })
  })
})
