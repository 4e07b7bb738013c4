import { describe, expect, it } from 'vitest'
import {
  type StreamPart,
  type SseEvent,
  type StreamChunk,
  Collector,
  toStreamChunks,
} from '../../../src/core/completion.ts'
import { NO_USAGE } from '../../../src/core/money.ts'
import type { Json, JsonObject } from '../../../src/core/json.ts'
import { chatClient } from '../../../src/formats/chat/client.ts'
import { chatUpstream } from '../../../src/formats/chat/upstream.ts'
import { chat, failureOf, metrics, promptOf, svcMetrics } from './support.ts'

const chunk = (delta: JsonObject, fields: JsonObject = {}, reason: string | null = null): JsonObject => ({
  id: 'chatcmpl-1',
  object: 'chat.completion.chunk',
  created: 5,
  model: 'gpt-4o-2024',
  choices: [{ index: 0, delta, finish_reason: reason }],
  ...fields,
})
const frameOf = (value: JsonObject | string): SseEvent => ({
  data: typeof value === 'string' ? value : JSON.stringify(value),
})
const usageChunk = chunk({}, { choices: [], usage: { prompt_tokens: 9, completion_tokens: 3, total_tokens: 12 } })
const DONE = '[DONE]'

function read(values: readonly (JsonObject | string)[]): readonly StreamChunk[] {
  const reader = chatUpstream.createReader()
  return values.map((value) => reader(frameOf(value)))
}
const eventsOf = (values: readonly (JsonObject | string)[]): readonly StreamPart[] =>
  read(values).flatMap((chunk) => chunk.parts)

function write(chunks: readonly StreamChunk[], fields: JsonObject = {}): readonly string[] {
  const writer = chatClient.createStreamWriter({
    prompt: promptOf(chat({ stream: true, ...fields })),
    createdSeconds: 77,
  })
  const events = chunks.flatMap((chunk) => [...writer.write(chunk)])
  return [...events, ...writer.end(metrics)].map((event) => event.data)
}
const parsed = (data: string): JsonObject => JSON.parse(data) as JsonObject
const asking = { stream_options: { include_usage: true } }
const whole = [
  chunk({ role: 'assistant', content: '' }),
  chunk({ content: 'Hi' }),
  chunk({}, {}, 'stop'),
  usageChunk,
  DONE,
]

describe('reading a chat stream', () => {
  it('reads the start, the texts, the end, the usage and the last event', () => {
    expect(eventsOf(whole)).toEqual([
      { type: 'response-start', id: 'chatcmpl-1', model: 'gpt-4o-2024' },
      { type: 'text-start' },
      { type: 'text-delta', text: 'Hi' },
      { type: 'response-end', finish: 'stop' },
      { type: 'usage', usage: { ...NO_USAGE, inputTokens: 9, outputTokens: 3 } },
      { type: 'done' },
    ])
  })

  it("numbers tool calls from 0, regardless of the upstream's indexes", () => {
    const call = (index: Json | undefined, id: string | undefined, name: string | undefined, args: string) => ({
      ...(index === undefined ? {} : { index }),
      ...(id === undefined ? {} : { id, type: 'function' }),
      function: { ...(name === undefined ? {} : { name }), arguments: args },
    })
    const calls = (...items: JsonObject[]) => chunk({ tool_calls: items })
    const expected = [
      { type: 'tool-call', id: 'a', name: 'f', input: '{"x":1}' },
      { type: 'tool-call', id: 'b', name: 'g', input: '{"y":2}' },
    ]
    const collect = (values: readonly JsonObject[]) => {
      const collected = new Collector()
      for (const chunk of read(values)) collected.add(chunk)
      return collected.completion().parts
    }
    const interleaved = [
      calls(call(0, 'a', 'f', ''), call(1, 'b', 'g', '{"y"')),
      calls(call(0, undefined, undefined, '{"x"')),
      calls(call(1, undefined, undefined, ':2}'), call(0, undefined, undefined, ':1}')),
    ]
    const fromOne = [calls(call(1, 'a', 'f', '{"x":1}')), calls(call(2, 'b', 'g', '{"y":2}'))]
    const unnumbered = [
      calls(call(undefined, 'a', 'f', '{"x"')),
      calls(call(undefined, undefined, undefined, ':1}')),
      calls(call(undefined, 'b', 'g', '{"y":2}')),
    ]
    const allZero = [calls(call(0, 'a', 'f', '{"x":1}')), calls(call(0, 'b', 'g', '{"y":2}'))]
    const repeating = [
      calls(call(0, 'a', 'f', '{"x"')),
      calls(call(0, 'a', 'f', ':1}')),
      calls(call(1, 'b', 'g', '{"y":2}')),
    ]
    const nameLater = [
      calls(call(0, 'a', undefined, '{"x"')),
      calls(call(0, undefined, 'f', ':1}')),
      calls(call(1, 'b', 'g', '{"y":2}')),
    ]
    for (const values of [interleaved, fromOne, unnumbered, allZero, repeating, nameLater]) {
      expect(collect(values)).toEqual(expected)
    }
  })

  it('begins with the first chunk that has a choice', () => {
    const filters = chunk({}, { id: '', model: '', choices: [], prompt_filter_results: [] })
    expect(eventsOf([filters, chunk({ content: '' })])).toEqual([
      { type: 'response-start', id: 'chatcmpl-1', model: 'gpt-4o-2024' },
    ])
  })

  it('starts a call once when its arguments or its id are missing', () => {
    const values = [
      chunk({ tool_calls: [{ index: 0, function: { name: 'f' } }] }),
      chunk({ tool_calls: [{ index: 0 }, null, 'x'] }),
      chunk({ function_call: { name: 'g', arguments: '{}' } }),
    ]
    expect(eventsOf(values).slice(1)).toEqual([
      { type: 'tool-call-start', index: 0, id: expect.stringMatching(/^call_[0-9a-f]{24}$/), name: 'f' },
      { type: 'tool-call-start', index: 1, id: expect.stringMatching(/^call_[0-9a-f]{24}$/), name: 'g' },
      { type: 'tool-call-delta', index: 1, input: '{}' },
    ])
  })

  it.each([{ function_call: { name: '', arguments: '' } }, { tool_calls: [{ index: 0, function: { name: '' } }] }])(
    'starts no call without a name (%j)',
    (fields) => {
      const values = [chunk({ content: 'Hi', ...fields }), chunk(fields), chunk({}, {}, 'stop')]
      expect(eventsOf(values).slice(1)).toEqual([
        { type: 'text-start' },
        { type: 'text-delta', text: 'Hi' },
        { type: 'response-end', finish: 'stop' },
      ])
    },
  )

  it('numbers the calls in the order of their names', () => {
    const values = [
      chunk({ function_call: { name: '' } }),
      chunk({ tool_calls: [{ index: 0, id: 'c', function: { name: 'f', arguments: '{}' } }] }),
    ]
    expect(eventsOf(values).slice(1)).toEqual([
      { type: 'tool-call-start', index: 0, id: 'c', name: 'f' },
      { type: 'tool-call-delta', index: 0, input: '{}' },
    ])
  })

  it('reads the usage that Groq adds to its last chunk', () => {
    const usage = { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 }
    const values = [chunk({ content: 'Hi' }), chunk({}, { x_groq: { id: 'req_1', usage } }, 'stop')]
    expect(eventsOf(values).slice(-2)).toMatchObject([
      { type: 'usage', usage: { inputTokens: 7, outputTokens: 3 } },
      { type: 'response-end' },
    ])
  })

  it('starts a new text after a tool call, and separates reasoning from text', () => {
    const values = [
      chunk({ reasoning_content: 'H' }),
      chunk({ reasoning: 'm' }),
      chunk({ content: 'One' }),
      chunk({ tool_calls: [{ index: 0, id: 'c', function: { name: 'f', arguments: '{}' } }] }),
      chunk({ content: 'Two' }),
      chunk({}, {}, 'stop'),
    ]
    const collected = new Collector()
    for (const step of read(values)) collected.add(step)
    expect(collected.completion()).toMatchObject({
      finish: 'tool-call',
      parts: [
        { type: 'thinking', text: 'Hm' },
        { type: 'text', text: 'One' },
        { type: 'tool-call', id: 'c', name: 'f', input: '{}' },
        { type: 'text', text: 'Two' },
      ],
    })
  })

  it('reads usage in the chunk with the finish reason', () => {
    const values = [chunk({ content: 'x' }), chunk({}, { usage: { prompt_tokens: 2, completion_tokens: 1 } }, 'length')]
    expect(eventsOf(values).slice(-2)).toEqual([
      { type: 'usage', usage: { ...NO_USAGE, inputTokens: 2, outputTokens: 1 } },
      { type: 'response-end', finish: 'length' },
    ])
  })

  it('ends with the finish filtered for a refusal', () => {
    expect(eventsOf([chunk({ refusal: 'No' }), chunk({}, {}, 'stop')]).at(-1)).toEqual({
      type: 'response-end',
      finish: 'filtered',
    })
  })

  it('reads no events from further choices', () => {
    const second = chunk({}, { choices: [{ index: 1, delta: { content: 'B' }, finish_reason: 'stop' }] })
    expect(eventsOf([chunk({ content: 'A' }), second])).toEqual([
      { type: 'response-start', id: 'chatcmpl-1', model: 'gpt-4o-2024' },
      { type: 'text-start' },
      { type: 'text-delta', text: 'A' },
    ])
  })

  it.each([
    ['malformed JSON', '{"choices":[', 'upstream'],
    ['an array', '[]', 'upstream'],
    ['an error', '{"error":{"message":"key sk-secret-123456"}}', 'upstream'],
    ['an error with its status', '{"error":{"message":"too long","code":400}}', 'upstream-rejected'],
    [
      'an error with its code',
      '{"error":{"message":"too long","code":"context_length_exceeded"}}',
      'upstream-rejected',
    ],
    ['an error with its type', '{"error":{"message":"no","type":"invalid_request_error"}}', 'upstream-rejected'],
    ['a rate limit', '{"error":{"message":"slow","code":"rate_limit_exceeded"}}', 'upstream-rate-limited'],
    [
      'a rejected API key',
      '{"error":{"message":"key sk-secret","code":"invalid_api_key","type":"invalid_request_error"}}',
      'upstream',
    ],
    ['an error of being overloaded', '{"error":{"message":"busy","code":503}}', 'overloaded'],
    [
      'an error of Groq',
      JSON.stringify(chunk({}, { x_groq: { id: 'req_1', error: 'over capacity' } }, 'stop')),
      'upstream',
    ],
  ])('throws for %s', (_name, data, kind) => {
    const failure = failureOf(() => read([data]))
    expect(failure.kind).toBe(kind)
    expect(failure.message).not.toMatch(/secret/)
  })

  it('does not forward events that are not chunks', () => {
    expect(read(['{"type":"ping"}'])).toEqual([{ parts: [] }])
  })

  it('is complete without its last event after every choice has ended', () => {
    const other = (reason: string | null) => chunk({}, { choices: [{ index: 1, delta: {}, finish_reason: reason }] })
    const verdict = (...values: JsonObject[]) => {
      const reader = chatUpstream.createReader()
      for (const value of values) reader(frameOf(value))
      return reader.isComplete?.()
    }
    expect(verdict()).toBe(false)
    expect(verdict(chunk({ content: 'x' }))).toBe(false)
    expect(verdict(chunk({ content: 'x' }), chunk({}, {}, 'stop'))).toBe(true)
    expect(verdict(chunk({}, {}, 'stop'), other(null))).toBe(false)
    expect(verdict(chunk({}, {}, 'stop'), other(null), other('stop'))).toBe(true)
  })
})

describe('forwarding a chat stream', () => {
  it('sends chunks unchanged, adds the bill to the last one, and omits usage that was not requested', () => {
    const texts = whole.map((value) => frameOf(value).data)
    const out = write(read(whole))
    expect(out.slice(0, 2)).toEqual(texts.slice(0, 2))
    expect(out[2]).toBe(`${texts[2]?.slice(0, -1)},"svc_metrics":${JSON.stringify(svcMetrics)}}`)
    expect(out.slice(3)).toEqual([DONE])
  })

  it('ends with the usage chunk of the upstream when the caller requests usage', () => {
    const out = write(read(whole), asking)
    expect(out.slice(3)).toEqual([JSON.stringify(usageChunk), DONE])
  })

  it('omits a usage chunk with invalid counts', () => {
    const odd = chunk({}, { choices: [], usage: { prompt_tokens: '9' } })
    const values = [chunk({ content: 'Hi' }), chunk({}, {}, 'stop'), odd, DONE]
    expect(write(read(values))).toHaveLength(3)
    expect(write(read(values), asking).at(-2)).toBe(JSON.stringify(odd))
  })

  it('removes usage from the last chunk when the caller does not request usage', () => {
    const last = chunk({}, { usage: { prompt_tokens: 2, completion_tokens: 1 } }, 'stop')
    const { usage: _usage, ...hidden } = last
    const values = [chunk({ content: 'x' }), last, DONE]
    expect(parsed(write(read(values))[1] ?? '')).toEqual({ ...hidden, svc_metrics: svcMetrics })
    expect(parsed(write(read(values), asking)[1] ?? '')).toEqual({ ...last, svc_metrics: svcMetrics })
    expect(write(read(values), asking)).toHaveLength(3)
  })

  it('delays only the end of the last choice', () => {
    const other = (delta: JsonObject, reason: string | null = null) =>
      chunk({}, { choices: [{ index: 1, delta, finish_reason: reason }] })
    const values = [
      chunk({ content: 'A' }),
      chunk({}, {}, 'stop'),
      other({ content: 'B' }),
      other({}, 'length'),
      usageChunk,
      DONE,
    ]
    const out = write(read(values), { n: 2 })
    expect(out.slice(0, 3)).toEqual(values.slice(0, 3).map((value) => frameOf(value).data))
    expect(parsed(out[3] ?? '')).toEqual({ ...other({}, 'length'), svc_metrics: svcMetrics })
    expect(out.slice(4)).toEqual([DONE])
  })

  it('sends the bill when the upstream sends fewer choices than requested', () => {
    const out = write(read([chunk({ content: 'A' }), chunk({}, {}, 'stop'), DONE]), { n: 3 })
    expect(parsed(out[1] ?? '')['svc_metrics']).toEqual(svcMetrics)
    expect(out).toHaveLength(3)
  })

  it('sends one bill when the upstream sends two finish reasons, and removes usage from chunks with choices', () => {
    const again = chunk({}, { usage: { prompt_tokens: 2, completion_tokens: 1 } }, 'stop')
    const beside = chunk({ content: '' }, { usage: { prompt_tokens: 2, completion_tokens: 1 } })
    const out = write(read([chunk({ content: 'A' }), chunk({}, {}, 'stop'), again, beside, DONE]))
    expect(out).toHaveLength(5)
    expect(out[1]).toBe(JSON.stringify(chunk({}, {}, 'stop')))
    expect(parsed(out[2] ?? '')['svc_metrics']).toEqual(svcMetrics)
    expect(out.join('')).not.toMatch(/prompt_tokens/)
  })

  it('forwards at most 64 chunks after the end', () => {
    const late = Array.from({ length: 100 }, () => chunk({ content: 'x' }))
    expect(write(read([chunk({}, {}, 'stop'), ...late, DONE]))).toHaveLength(1 + 64 + 1)
  })

  it('keeps the order of chunks after the end', () => {
    const late = chunk({ content: '' }, { note: 'late' })
    const out = write(read([chunk({ content: 'A' }), chunk({}, {}, 'stop'), late, DONE]))
    expect(parsed(out[1] ?? '')['svc_metrics']).toEqual(svcMetrics)
    expect(out.slice(2)).toEqual([JSON.stringify(late), DONE])
  })

  it('replaces the bill of an upstream gateway', () => {
    const last = chunk({}, { svc_metrics: { strategy: 'theirs' } }, 'stop')
    const out = write(read([last, DONE]))
    expect(parsed(out[0] ?? '')['svc_metrics']).toEqual(svcMetrics)
    expect(out[0]?.match(/svc_metrics/g)).toHaveLength(1)
  })

  it('ends with [DONE] when the upstream omits its last event', () => {
    const chunks = [...read([chunk({ content: 'A' }), chunk({}, {}, 'stop')]), { parts: [{ type: 'done' } as const] }]
    expect(write(chunks).at(-1)).toBe(DONE)
    expect(write(chunks)).toHaveLength(3)
  })
})

describe('writing an answer as chat chunks', () => {
  const steps = toStreamChunks({
    id: 'msg_1',
    model: 'claude',
    parts: [
      { type: 'thinking', text: 'Hm', signature: 's' },
      { type: 'text', text: 'Hi' },
      { type: 'tool-call', id: 't0', name: 'f', input: '{"a":1}' },
      { type: 'tool-call', id: 't1', name: 'g', input: '' },
    ],
    finish: 'tool-call',
    usage: { ...NO_USAGE, inputTokens: 4, cacheReadTokens: 2, outputTokens: 3 },
  })

  it('begins with the role and has one id, time and model', () => {
    const chunks = write(steps).slice(0, -1).map(parsed)
    expect(
      chunks.every((value) => value['id'] === 'msg_1' && value['model'] === 'claude' && value['created'] === 77),
    ).toBe(true)
    const choices = chunks.map((value) => (value['choices'] as readonly JsonObject[])[0])
    expect(choices.map((choice) => choice?.['delta'])).toEqual([
      { role: 'assistant', content: '' },
      { reasoning_content: 'Hm' },
      { content: 'Hi' },
      { tool_calls: [{ index: 0, id: 't0', type: 'function', function: { name: 'f', arguments: '' } }] },
      { tool_calls: [{ index: 0, function: { arguments: '{"a":1}' } }] },
      { tool_calls: [{ index: 1, id: 't1', type: 'function', function: { name: 'g', arguments: '' } }] },
      { tool_calls: [{ index: 1, function: { arguments: '{}' } }] },
      {},
    ])
    expect(choices.map((choice) => choice?.['finish_reason'])).toEqual([...Array<null>(7).fill(null), 'tool_calls'])
    expect(chunks.at(-1)?.['svc_metrics']).toEqual(svcMetrics)
  })

  it('ends with a usage chunk only when the caller requests usage', () => {
    expect(write(steps).slice(-1)).toEqual([DONE])
    const [usage, last] = write(steps, asking).slice(-2)
    expect(last).toBe(DONE)
    expect(parsed(usage ?? '')).toEqual({
      id: 'msg_1',
      object: 'chat.completion.chunk',
      created: 77,
      model: 'claude',
      choices: [],
      usage: {
        prompt_tokens: 6,
        completion_tokens: 3,
        total_tokens: 9,
        prompt_tokens_details: { cached_tokens: 2 },
        completion_tokens_details: { reasoning_tokens: 0 },
      },
    })
  })
})
