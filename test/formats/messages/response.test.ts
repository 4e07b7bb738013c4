import { describe, expect, it } from 'vitest'
import type { Completion } from '../../../src/core/completion.ts'
import { NO_USAGE } from '../../../src/core/money.ts'
import type { Json, JsonObject } from '../../../src/core/json.ts'
import { messagesClient } from '../../../src/formats/messages/client.ts'
import { bodyOf, context, failureOf, metrics, svcMetrics } from './samples.ts'
import { messagesFormat } from '../../support/two-way-formats.ts'

const { readCompletion } = messagesFormat
const write = (completion: Completion) => bodyOf(messagesClient.writeCompletion(completion, metrics, context))

const message: JsonObject = {
  id: 'msg_1',
  type: 'message',
  role: 'assistant',
  model: 'sonnet',
  content: [
    { type: 'thinking', thinking: 'hm', signature: 's' },
    { type: 'text', text: 'Hi', citations: null },
    { type: 'server_tool_use', id: 'srv_1', name: 'web_search', input: { query: 'tea' } },
    { type: 'tool_use', id: 'toolu_1', name: 'search', input: { q: [1] }, caller: { type: 'direct' } },
  ],
  stop_reason: 'tool_use',
  stop_sequence: null,
  container: null,
  usage: {
    input_tokens: 10,
    cache_creation_input_tokens: 7,
    cache_read_input_tokens: 5,
    cache_creation: { ephemeral_5m_input_tokens: 4, ephemeral_1h_input_tokens: 3 },
    output_tokens: 20,
    output_tokens_details: { thinking_tokens: 8 },
    service_tier: 'standard',
  },
}

describe('reading a message', () => {
  it('reads the parts, the finish and the usage without overlap', () => {
    const completion = readCompletion(message)
    expect(completion).toMatchObject({ id: 'msg_1', model: 'sonnet', finish: 'tool-call' })
    expect(completion.parts.map((part) => part.type)).toEqual(['thinking', 'text', 'opaque', 'tool-call'])
    expect(completion.usage).toEqual({
      inputTokens: 10,
      cacheReadTokens: 5,
      cacheWriteTokens: 4,
      cacheWrite1hTokens: 3,
      outputTokens: 20,
      reasoningTokens: 8,
      tiers: { service_tier: '' },
    })
  })

  it.each([
    ['end_turn', 'stop'],
    ['max_tokens', 'length'],
    ['model_context_window_exceeded', 'length'],
    ['stop_sequence', 'stop-sequence'],
    ['tool_use', 'tool-call'],
    ['pause_turn', 'pause'],
    ['refusal', 'filtered'],
    ['reason_of_tomorrow', 'stop'],
    [null, 'stop'],
    [7, 'stop'],
  ] as const)('reads the stop reason %j as %s', (reason, finish) => {
    expect(readCompletion({ ...message, stop_reason: reason }).finish).toBe(finish)
  })

  it('reads the stop sequence', () => {
    const stopped = { ...message, stop_reason: 'stop_sequence', stop_sequence: 'END' }
    expect(readCompletion(stopped)).toMatchObject({ finish: 'stop-sequence', stopSequence: 'END' })
  })

  it('counts cache writes as 5-minute writes when their division is missing', () => {
    const usage = { input_tokens: 1, output_tokens: 1, cache_creation_input_tokens: 9 }
    expect(readCompletion({ ...message, usage }).usage).toEqual({
      ...NO_USAGE,
      inputTokens: 1,
      outputTokens: 1,
      cacheWriteTokens: 9,
    })
  })

  it.each<[string, Json | undefined]>([
    ['negative', -1],
    ['infinite', Number.POSITIVE_INFINITY],
    ['a string', '12'],
    ['null', null],
    ['more than any answer has', 1e10],
    ['an array', [1]],
    ['missing', undefined],
  ])('reads 0 tokens from a count that is %s', (_, count) => {
    const usage = {
      input_tokens: count,
      output_tokens: count,
      cache_read_input_tokens: count,
      cache_creation_input_tokens: count,
      cache_creation: { ephemeral_5m_input_tokens: count, ephemeral_1h_input_tokens: count },
    }
    expect(readCompletion({ ...message, usage }).usage).toEqual(NO_USAGE)
  })

  it('adds work that is counted separately, but no work that the totals include', () => {
    const iterations = [
      { type: 'compaction', input_tokens: 100, output_tokens: 10, cache_read_input_tokens: 3 },
      { type: 'advisor_message', input_tokens: 200, output_tokens: 20 },
      { type: 'message', input_tokens: 1, output_tokens: 1 },
      null,
    ]
    const usage = { input_tokens: 1, output_tokens: 1, iterations }
    expect(readCompletion({ ...message, usage }).usage).toEqual({
      ...NO_USAGE,
      inputTokens: 301,
      outputTokens: 31,
      cacheReadTokens: 3,
    })
  })

  it('has no usage when the upstream sends no usage', () => {
    expect(readCompletion({ ...message, usage: null })).not.toHaveProperty('usage')
  })

  it.each<JsonObject>([
    {},
    { choices: [] },
    { ...message, content: null },
    { ...message, content: 'Hi' },
    { ...message, content: [null] },
    { ...message, content: [{ text: 'Hi' }] },
    { ...message, content: [{ type: 'text', text: 1 }] },
    { ...message, content: [{ type: 'tool_use', id: 'a', name: 'b', input: '{}' }] },
    { type: 'error', error: { type: 'api_error', message: 'x' } },
  ])('throws upstream for %j', (body) => {
    expect(failureOf(() => readCompletion(body)).kind).toBe('upstream')
  })

  it('reads an error with status 200', () => {
    const body = { type: 'error', error: { type: 'overloaded_error', message: 'x' } }
    expect(failureOf(() => readCompletion(body)).kind).toBe('overloaded')
  })
})

describe('writing a message', () => {
  it('keeps every field of an upstream of the format and adds the total and the bill', () => {
    expect(write(readCompletion(message))).toEqual({
      ...message,
      usage: { ...(message['usage'] as JsonObject), total_tokens: 42 },
      svc_metrics: svcMetrics,
    })
  })

  const foreign: Completion = {
    id: 'chatcmpl-9',
    model: 'gpt-5',
    parts: [
      { type: 'thinking', text: 'hm' },
      { type: 'text', text: 'Hi' },
      { type: 'text', text: '' },
      { type: 'tool-call', id: 'call_1', name: 'search', input: '{"q":1}' },
      { type: 'tool-call', id: 'call_2', name: 'search', input: '{"q":' },
      { type: 'opaque', native: { dialect: 'chat', value: { type: 'audio' } } },
    ],
    finish: 'tool-call',
    usage: { ...NO_USAGE, inputTokens: 10, cacheReadTokens: 5, outputTokens: 3 },
    native: { dialect: 'chat', value: { id: 'chatcmpl-9', choices: [] } },
  }

  it('writes the answer of another format as a new message', () => {
    expect(write(foreign)).toEqual({
      id: 'msg_9',
      type: 'message',
      role: 'assistant',
      model: 'gpt-5',
      content: [
        { type: 'thinking', thinking: 'hm', signature: '' },
        { type: 'text', text: 'Hi' },
        { type: 'tool_use', id: 'call_1', name: 'search', input: { q: 1 } },
        { type: 'tool_use', id: 'call_2', name: 'search', input: { raw: '{"q":' } },
      ],
      stop_reason: 'tool_use',
      stop_sequence: null,
      usage: {
        input_tokens: 10,
        cache_creation_input_tokens: 0,
        cache_read_input_tokens: 5,
        cache_creation: { ephemeral_5m_input_tokens: 0, ephemeral_1h_input_tokens: 0 },
        output_tokens: 3,
        total_tokens: 18,
      },
      svc_metrics: svcMetrics,
    })
  })

  it('writes zero tokens for an answer without usage', () => {
    const { usage: _, ...silent } = foreign
    expect(write(silent)['usage']).toMatchObject({ input_tokens: 0, output_tokens: 0, total_tokens: 0 })
  })

  it('adds citations from a stream to their text', () => {
    const cite = (at: number): JsonObject => ({ type: 'citations_delta', citation: { type: 'char_location', at } })
    const parts: Completion['parts'] = [
      { type: 'text', text: 'Hi' },
      { type: 'opaque', native: { dialect: 'messages', value: cite(1) } },
      { type: 'opaque', native: { dialect: 'messages', value: cite(2) } },
      { type: 'opaque', native: { dialect: 'messages', value: { type: 'other_delta' } } },
      { type: 'opaque', native: { dialect: 'messages', value: { type: 'web_search_tool_result', content: [] } } },
    ]
    const { native: _, ...collected } = foreign
    expect(write({ ...collected, parts })['content']).toEqual([
      {
        type: 'text',
        text: 'Hi',
        citations: [
          { type: 'char_location', at: 1 },
          { type: 'char_location', at: 2 },
        ],
      },
      { type: 'web_search_tool_result', content: [] },
    ])
  })
})
