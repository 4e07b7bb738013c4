import { describe, expect, it } from 'vitest'
import { type SseEvent, Collector } from '../../../src/core/completion.ts'
import { GatewayError } from '../../../src/core/errors.ts'
import type { JsonObject } from '../../../src/core/json.ts'
import { responsesClient } from '../../../src/formats/responses/client.ts'
import { responsesUpstream } from '../../../src/formats/responses/upstream.ts'
import { failureOf, metrics, svcMetrics } from '../chat/support.ts'
import { isComplete } from '../../support/chunk-reader.ts'

const prompt = responsesClient.readPrompt({ model: 'a/b', input: 'Hi', stream: true })
const context = { prompt, createdSeconds: 1_700_000_000, requestId: 'req_77' }

/** A response as the vendor sends it. */
const response: JsonObject = {
  id: 'resp_vendor',
  object: 'response',
  status: 'completed',
  model: 'gpt',
  output: [
    {
      id: 'rs_1',
      type: 'reasoning',
      summary: [
        { type: 'summary_text', text: 'One.' },
        { type: 'summary_text', text: 'Two.' },
      ],
      encrypted_content: 'gAAAA',
    },
    { id: 'ws_1', type: 'web_search_call', status: 'completed' },
    {
      id: 'msg_1',
      type: 'message',
      role: 'assistant',
      status: 'completed',
      content: [{ type: 'output_text', text: 'Hello.', annotations: [{ type: 'url_citation' }] }],
    },
    { id: 'fc_1', type: 'function_call', call_id: 'call_1', name: 'look', arguments: '{"q":1}', status: 'completed' },
  ],
  usage: {
    input_tokens: 10,
    input_tokens_details: { cached_tokens: 4 },
    output_tokens: 7,
    output_tokens_details: { reasoning_tokens: 3 },
    total_tokens: 17,
  },
  later: 1,
}

/** Returns the SSE events of a stream, each named after the type of its data. */
function frames(...events: readonly (JsonObject & { readonly type: string })[]): readonly SseEvent[] {
  return events.map((event, index) => ({
    event: event.type,
    data: JSON.stringify({ sequence_number: index, ...event }),
  }))
}

const stream = frames(
  { type: 'response.created', response: { id: 'resp_vendor', model: 'gpt' } },
  { type: 'response.in_progress', response: { id: 'resp_vendor', model: 'gpt' } },
  { type: 'response.output_item.added', output_index: 0, item: { id: 'ws_1', type: 'web_search_call' } },
  { type: 'response.web_search_call.searching', output_index: 0, item_id: 'ws_1' },
  { type: 'response.output_item.done', output_index: 0, item: { id: 'ws_1', type: 'web_search_call', status: 'done' } },
  { type: 'response.output_item.added', output_index: 1, item: { id: 'msg_1', type: 'message', content: [] } },
  { type: 'response.content_part.added', output_index: 1, part: { type: 'output_text', text: '' } },
  { type: 'response.output_text.delta', output_index: 1, delta: 'Hel' },
  { type: 'response.output_text.delta', output_index: 1, delta: 'lo.' },
  {
    type: 'response.output_item.added',
    output_index: 2,
    item: { id: 'fc_1', type: 'function_call', call_id: 'call_1', name: 'look', arguments: '' },
  },
  {
    type: 'response.output_item.done',
    output_index: 2,
    item: { id: 'fc_1', type: 'function_call', call_id: 'call_1', name: 'look', arguments: '{}' },
  },
  { type: 'response.completed', response: { ...response, output: [] } },
)

describe('a response of the vendor', () => {
  it('is read with reasoning, text, calls and items of the vendor', () => {
    const { parts, finish, usage, id, model } = responsesUpstream.readCompletion(response)

    expect(parts.map(({ native: _native, ...part }) => part)).toEqual([
      { type: 'thinking', text: 'One.\nTwo.' },
      { type: 'opaque' },
      { type: 'text', text: 'Hello.' },
      { type: 'tool-call', id: 'call_1', name: 'look', input: '{"q":1}' },
    ])
    expect({ finish, id, model }).toEqual({ finish: 'tool-call', id: 'resp_vendor', model: 'gpt' })
    expect(usage).toEqual({
      inputTokens: 6,
      cacheReadTokens: 4,
      cacheWriteTokens: 0,
      cacheWrite1hTokens: 0,
      outputTokens: 7,
      reasoningTokens: 3,
    })
  })

  it('is sent with all its fields and the bill', () => {
    const written = responsesClient.writeCompletion(responsesUpstream.readCompletion(response), metrics, context)

    expect(JSON.parse(written)).toMatchObject({ ...response, svc_metrics: { strategy: svcMetrics['strategy'] } })
  })

  it.each<[JsonObject, string]>([
    [{ status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } }, 'length'],
    [{ status: 'incomplete', incomplete_details: { reason: 'content_filter' } }, 'filtered'],
    [{ output: [{ type: 'message', content: [{ type: 'refusal', refusal: 'No.' }] }] }, 'filtered'],
    [{ output: [] }, 'stop'],
  ])('with %j has the finish %s', (fields, finish) => {
    expect(responsesUpstream.readCompletion({ ...response, ...fields }).finish).toBe(finish)
  })

  it.each<[JsonObject, string]>([
    [{}, 'upstream'],
    [{ output: 'words' }, 'upstream'],
    [{ status: 'failed', output: [], error: { code: 'server_error', message: 'secret' } }, 'upstream'],
    [{ status: 'failed', output: [], error: { code: 'rate_limit_exceeded', message: 'm' } }, 'upstream-rate-limited'],
  ])('that is %j is the upstream’s failure', (body, kind) => {
    const failure = failureOf(() => responsesUpstream.readCompletion(body))

    expect(failure.kind).toBe(kind)
    expect(failure.message).not.toContain('secret')
  })
})

describe('a stream of the vendor', () => {
  it.each([
    ['summaries', 'response.reasoning_summary_part.added', 'response.reasoning_summary_text.delta', 'summary_index'],
    ['contents', 'response.content_part.added', 'response.reasoning_text.delta', 'content_index'],
  ])('separates the %s of reasoning like a response that is read at once', (_, added, delta, index) => {
    const part = { type: added.includes('summary') ? 'summary_text' : 'reasoning_text', text: '' }
    const item = { id: 'rs_1', type: 'reasoning', summary: [] }
    const events = frames(
      { type: 'response.output_item.added', output_index: 0, item },
      { type: added, output_index: 0, [index]: 0, part },
      { type: delta, output_index: 0, [index]: 0, delta: 'One.' },
      { type: added, output_index: 0, [index]: 1, part },
      { type: delta, output_index: 0, [index]: 1, delta: 'Two.' },
      { type: 'response.completed', response: { ...response, output: [] } },
    )
    const read = responsesUpstream.createReader()
    const collected = new Collector()
    for (const event of events) collected.add(read(event))

    expect(collected.completion().parts).toMatchObject([{ type: 'thinking', text: 'One.\nTwo.' }])
  })

  it('is read event by event, and is complete with its last event', () => {
    const read = responsesUpstream.createReader()
    const collected = new Collector()
    const chunks = stream.map(read)
    for (const chunk of chunks) collected.add(chunk)

    expect(isComplete(chunks.slice(0, -1))).toBe(false)
    expect(isComplete(chunks)).toBe(true)
    expect(collected.completion()).toMatchObject({
      id: 'resp_vendor',
      parts: [
        { type: 'opaque' },
        { type: 'text', text: 'Hello.' },
        { type: 'tool-call', id: 'call_1', name: 'look', input: '{}' },
      ],
      finish: 'tool-call',
      usage: { inputTokens: 6, outputTokens: 7 },
    })
  })

  it('is forwarded unchanged, with the bill in its last event', () => {
    const read = responsesUpstream.createReader()
    const writer = responsesClient.createStreamWriter(context)
    const written = stream.flatMap((event) => [...writer.write(read(event))])
    const [last, ...more] = writer.end(metrics)

    expect(written).toEqual(stream.slice(0, -1))
    expect(more).toEqual([])
    expect(last?.event).toBe('response.completed')
    expect(JSON.parse(last?.data ?? '')).toMatchObject({
      sequence_number: stream.length - 1,
      response: { id: 'resp_vendor', later: 1, svc_metrics: { strategy: svcMetrics['strategy'] } },
    })
  })

  it.each<[string, JsonObject & { readonly type: string }]>([
    ['upstream', { type: 'error', message: 'secret', code: 'server_error' }],
    ['upstream', { type: 'response.failed', response: { error: { code: 'server_error', message: 'secret' } } }],
    ['upstream-rejected', { type: 'error', message: 'm', code: 'context_length_exceeded' }],
    [
      'upstream-rejected',
      { type: 'response.failed', response: { error: { code: 'invalid_image_url', message: 'm' } } },
    ],
    ['upstream-rate-limited', { type: 'error', error: { code: 'rate_limit_exceeded', message: 'm' } }],
  ])('throws %s when it contains %j', (kind, event) => {
    const failure = failureOf(() => frames(event).map(responsesUpstream.createReader()))

    expect(failure.kind).toBe(kind)
    expect(failure.message).not.toContain('secret')
  })

  it.each(['{', '[]', '7', ''])('throws for the event %j', (data) => {
    expect(failureOf(() => responsesUpstream.createReader()({ data })).kind).toBe('upstream')
  })
})

describe('a broken stream', () => {
  it('ends in an error event with the next number, in both shapes that clients read', () => {
    const writer = responsesClient.createStreamWriter(context)
    writer.write({ parts: [{ type: 'response-start', id: 'x', model: 'm' }] })
    const [event, ...more] = writer.fail?.(new GatewayError('upstream', 'It broke.')) ?? []

    expect(more).toEqual([])
    expect(event?.event).toBe('error')
    expect(JSON.parse(event?.data ?? '')).toEqual({
      type: 'error',
      sequence_number: 2,
      code: 'upstream_error',
      message: 'It broke.',
      param: null,
      error: { type: 'upstream_error', code: 'upstream_error', message: 'It broke.', param: null },
    })
  })
})

describe('calls with alternating pieces', () => {
  it('are written in parallel with separate output indexes', () => {
    const writer = responsesClient.createStreamWriter(context)
    const written = writer.write({
      parts: [
        { type: 'response-start', id: 'x', model: 'm' },
        { type: 'tool-call-start', index: 0, id: 'a', name: 'one' },
        { type: 'tool-call-start', index: 1, id: 'b', name: 'two' },
        { type: 'tool-call-delta', index: 1, input: '{"b"' },
        { type: 'tool-call-delta', index: 0, input: '{}' },
        { type: 'tool-call-delta', index: 1, input: ':1}' },
        { type: 'response-end', finish: 'tool-call' },
      ],
    })
    const ending = writer.end(metrics)

    const deltas = written.map((event) => JSON.parse(event.data) as JsonObject).filter((data) => 'delta' in data)
    expect(deltas.map((data) => [data['output_index'], data['item_id'], data['delta']])).toEqual([
      [1, 'fc_77_1', '{"b"'],
      [0, 'fc_77_0', '{}'],
      [1, 'fc_77_1', ':1}'],
    ])
    const last = JSON.parse(ending.at(-1)?.data ?? '') as { response: { output: readonly JsonObject[] } }
    expect(last.response.output.map((item) => [item['call_id'], item['arguments']])).toEqual([
      ['a', '{}'],
      ['b', '{"b":1}'],
    ])
  })
})
