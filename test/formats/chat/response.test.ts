import { describe, expect, it } from 'vitest'
import type { Completion } from '../../../src/core/completion.ts'
import { NO_USAGE } from '../../../src/core/money.ts'
import type { Json, JsonObject } from '../../../src/core/json.ts'
import { chatClient } from '../../../src/formats/chat/client.ts'
import { chatUpstream } from '../../../src/formats/chat/upstream.ts'
import { chat, failureOf, metrics, promptOf } from './support.ts'

const response = (message: JsonObject, fields: JsonObject = {}, reason = 'stop'): JsonObject => ({
  id: 'chatcmpl-1',
  object: 'chat.completion',
  created: 1,
  model: 'gpt-4o-2024',
  choices: [{ index: 0, message: { role: 'assistant', ...message }, finish_reason: reason }],
  ...fields,
})
const context = { prompt: promptOf(chat()), createdSeconds: 1_700_000_000 }
const write = (completion: Completion): Record<string, Json> =>
  JSON.parse(chatClient.writeCompletion(completion, metrics, context)) as Record<string, Json>

describe('an answer of an upstream', () => {
  it('is forwarded byte for byte', () => {
    const text =
      '{ "id":"1","choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1.0} }'
    const completion = chatUpstream.readCompletion(JSON.parse(text) as JsonObject, text)
    expect(chatClient.writeCompletion(completion, metrics, context)).toBe(text)
  })

  it('keeps other choices and unknown fields when its text is not stored', () => {
    const body = response({ content: 'a' }, { system_fingerprint: 'f', new: [0, false] })
    expect(write(chatUpstream.readCompletion(body))).toEqual(body)
  })

  it('is read with reasoning, texts and tool calls', () => {
    const call = { id: 'c1', type: 'function', function: { name: 'f', arguments: '{"a":1}' } }
    const { parts, finish, id, model } = chatUpstream.readCompletion(
      response({ content: 'Hi', reasoning_content: 'Hm', tool_calls: [call] }, {}, 'tool_calls'),
    )
    expect({ finish, id, model }).toEqual({ finish: 'tool-call', id: 'chatcmpl-1', model: 'gpt-4o-2024' })
    expect(parts).toEqual([
      { type: 'thinking', text: 'Hm' },
      { type: 'text', text: 'Hi' },
      { type: 'tool-call', id: 'c1', name: 'f', input: '{"a":1}', native: { dialect: 'chat', value: call } },
    ])
  })

  it('is read with content in parts, a deprecated function call, or arguments that are not text', () => {
    const content = [
      {
        type: 'thinking',
        thinking: [
          { type: 'text', text: 'H' },
          { type: 'text', text: 'm' },
        ],
      },
      { type: 'text', text: 'Hi' },
    ]
    expect(chatUpstream.readCompletion(response({ content })).parts).toEqual([
      { type: 'thinking', text: 'Hm' },
      { type: 'text', text: 'Hi' },
    ])
    const old = chatUpstream.readCompletion(response({ content: null, function_call: { name: 'f', arguments: '{}' } }))
    expect(old.parts).toEqual([
      { type: 'tool-call', id: expect.stringMatching(/^call_[0-9a-f]{24}$/), name: 'f', input: '{}' },
    ])
    const odd = chatUpstream.readCompletion(
      response({ tool_calls: [{ function: { name: 'f', arguments: { a: 1 } } }] }),
    )
    expect(odd.parts).toMatchObject([
      { type: 'tool-call', id: expect.stringMatching(/^call_[0-9a-f]{24}$/), name: 'f', input: '{"a":1}' },
    ])
  })

  it.each([
    { function_call: { name: '' } },
    { function_call: { name: '', arguments: '' } },
    { tool_calls: [{ id: 'c', type: 'function', function: { name: '', arguments: '' } }] },
  ])('has no call without a name (%j)', (fields) => {
    const { parts, finish } = chatUpstream.readCompletion(response({ content: 'Hi', ...fields }, {}, 'stop'))

    expect(parts).toEqual([{ type: 'text', text: 'Hi' }])
    expect(finish).toBe('stop')
  })

  it.each(['content_filter: RECITATION', 'content_filter'])('is filtered with the reason %s', (reason) => {
    expect(chatUpstream.readCompletion(response({ content: '' }, {}, reason)).finish).toBe('filtered')
  })

  it('has the images of the vendor as parts', () => {
    const images = [
      { type: 'image_url', image_url: { url: 'data:image/png;base64,aGk=' } },
      { type: 'image_url', image_url: { url: 'https://example.com/a.png' } },
    ]
    expect(chatUpstream.readCompletion(response({ content: 'See:', images })).parts).toMatchObject([
      { type: 'text', text: 'See:' },
      { type: 'image', source: { type: 'base64', mediaType: 'image/png', data: 'aGk=' } },
      { type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } },
    ])
  })

  it('has an opaque part for citations, which the cache does not store', () => {
    const annotations = [{ type: 'url_citation', url_citation: { url: 'u' } }]
    expect(chatUpstream.readCompletion(response({ content: 'Hi', annotations, audio: null })).parts).toEqual([
      { type: 'text', text: 'Hi' },
      { type: 'opaque', native: { dialect: 'chat', value: { type: 'annotations', annotations } } },
    ])
  })

  it('has an empty id and model when the upstream sends neither', () => {
    const { id, model } = chatUpstream.readCompletion({ choices: [{ message: { content: 'x' } }] })
    expect([id, model]).toEqual(['', ''])
  })

  it('ignores calls without a name', () => {
    const calls = [
      null,
      {},
      { id: 'c', function: {} },
      { id: 'c', type: 'custom', custom: { name: 'g', input: 'raw' } },
    ]
    expect(chatUpstream.readCompletion(response({ tool_calls: calls })).parts).toMatchObject([
      { type: 'tool-call', id: 'c', name: 'g', input: 'raw' },
    ])
  })

  it.each([
    ['stop', {}, 'stop'],
    ['length', {}, 'length'],
    ['content_filter', {}, 'filtered'],
    ['function_call', {}, 'tool-call'],
    ['eos', {}, 'stop'],
    ['stop', { tool_calls: [{ id: 'c', function: { name: 'f', arguments: '' } }] }, 'tool-call'],
    ['stop', { content: null, refusal: 'No' }, 'filtered'],
  ] as const)('with finish reason %s and message %j has the finish %s', (reason, message, finish) => {
    expect(chatUpstream.readCompletion(response(message, {}, reason)).finish).toBe(finish)
  })

  it.each<[string, JsonObject]>([
    ['no choices', {}],
    ['empty choices', { choices: [] }],
    ['choices that are no array', { choices: 'x' }],
    ['a choice without a message', { choices: [{}] }],
    ['a choice that is null', { choices: [null] }],
    ['an error', { error: { message: 'no' } }],
  ])('throws upstream for a body with %s', (_name, body) => {
    expect(failureOf(() => chatUpstream.readCompletion(body)).kind).toBe('upstream')
  })

  it('throws the error of a body that contains one instead of choices', () => {
    const error = { message: 'too long', type: 'invalid_request_error', code: 'context_length_exceeded' }
    const failure = failureOf(() => chatUpstream.readCompletion({ error }))
    expect(failure).toMatchObject({
      kind: 'upstream-rejected',
      message: 'too long',
      details: { upstream: { status: 400 } },
    })
  })
})

describe('the usage of an answer', () => {
  const read = (usage: Json) => chatUpstream.readCompletion(response({ content: 'x' }, { usage })).usage

  it('has disjoint parts', () => {
    expect(
      read({
        prompt_tokens: 100,
        completion_tokens: 20,
        total_tokens: 120,
        prompt_tokens_details: { cached_tokens: 60, cache_write_tokens: 10 },
        completion_tokens_details: { reasoning_tokens: 5 },
      }),
    ).toEqual({
      ...NO_USAGE,
      inputTokens: 30,
      cacheReadTokens: 60,
      cacheWriteTokens: 10,
      outputTokens: 20,
      reasoningTokens: 5,
    })
  })

  it.each<[string, JsonObject, object]>([
    ['another name for cached tokens', { prompt_cache_hit_tokens: 4 }, { inputTokens: 6, cacheReadTokens: 4 }],
    [
      'more cached tokens than tokens',
      { prompt_tokens_details: { cached_tokens: 99 } },
      { inputTokens: 0, cacheReadTokens: 10 },
    ],
    ['details that are junk', { prompt_tokens_details: 'x', completion_tokens_details: [1] }, {}],
    ['negative details', { prompt_tokens_details: { cached_tokens: -5 } }, {}],
    [
      'reasoning within the completion',
      { total_tokens: 15, completion_tokens_details: { reasoning_tokens: 3 } },
      { reasoningTokens: 3 },
    ],
    [
      'reasoning beside the completion',
      { total_tokens: 18, completion_tokens_details: { reasoning_tokens: 3 } },
      { outputTokens: 8, reasoningTokens: 3 },
    ],
  ])('is read with %s', (_name, fields, expected) => {
    expect(read({ prompt_tokens: 10, completion_tokens: 5, ...fields })).toEqual({
      ...NO_USAGE,
      inputTokens: 10,
      outputTokens: 5,
      ...expected,
    })
  })

  it.each<[string, Json]>([
    ['null', null],
    ['array', [1, 2]],
    ['string', '7'],
    ['missing counts', {}],
    ['negative', { prompt_tokens: -1, completion_tokens: 2 }],
    ['strings', { prompt_tokens: '1', completion_tokens: '2' }],
    ['beyond any number', { prompt_tokens: 1, completion_tokens: Number.POSITIVE_INFINITY }],
    ['beyond any answer', { prompt_tokens: 1e300, completion_tokens: 1 }],
  ])('is treated as absent when it is %s', (_name, usage) => {
    expect(read(usage)).toBeUndefined()
  })
})

describe('an answer of another dialect', () => {
  it('is written as a new completion', () => {
    const completion: Completion = {
      id: 'msg_1',
      model: 'claude',
      parts: [
        { type: 'thinking', text: 'Hm', signature: 's' },
        { type: 'thinking', text: 'cipher', redacted: true },
        { type: 'text', text: 'One ' },
        { type: 'text', text: 'two' },
      ],
      finish: 'stop-sequence',
      stopSequence: 'END',
      usage: {
        inputTokens: 5,
        cacheReadTokens: 3,
        cacheWriteTokens: 2,
        cacheWrite1hTokens: 1,
        outputTokens: 7,
        reasoningTokens: 4,
      },
    }
    expect(write(completion)).toEqual({
      id: 'msg_1',
      object: 'chat.completion',
      created: 1_700_000_000,
      model: 'claude',
      choices: [
        {
          index: 0,
          message: { role: 'assistant', content: 'One two', refusal: null, reasoning_content: 'Hm' },
          logprobs: null,
          finish_reason: 'stop',
        },
      ],
      usage: {
        prompt_tokens: 11,
        completion_tokens: 7,
        total_tokens: 18,
        prompt_tokens_details: { cached_tokens: 3, cache_write_tokens: 3 },
        completion_tokens_details: { reasoning_tokens: 4 },
      },
    })
  })

  it('has null content when it only calls tools, and JSON arguments', () => {
    const completion: Completion = {
      id: 'm',
      model: 'c',
      parts: [
        { type: 'tool-call', id: 't1', name: 'f', input: '' },
        { type: 'tool-call', id: 't2', name: 'g', input: '{"a":1}' },
      ],
      finish: 'tool-call',
    }
    expect(write(completion)['choices']).toEqual([
      {
        index: 0,
        message: {
          role: 'assistant',
          content: null,
          refusal: null,
          tool_calls: [
            { id: 't1', type: 'function', function: { name: 'f', arguments: '{}' } },
            { id: 't2', type: 'function', function: { name: 'g', arguments: '{"a":1}' } },
          ],
        },
        logprobs: null,
        finish_reason: 'tool_calls',
      },
    ])
  })
})
