import { describe, expect, it } from 'vitest'
import type { Json, JsonObject } from '../../../src/core/json.ts'
import { chat, failureOf, promptOf } from './support.ts'

const user = (content: Json): JsonObject => ({ role: 'user', content })
const messages = (...items: Json[]): JsonObject => chat({ messages: items })

describe('a request that is rejected', () => {
  it('has no call for an empty function_call, which some vendors return', () => {
    const message = { role: 'assistant', content: 'Hi', function_call: { name: '', arguments: '' } }
    expect(promptOf(chat({ messages: [message] })).messages[0]?.parts).toMatchObject([{ type: 'text', text: 'Hi' }])
  })

  it.each<[string, string, JsonObject]>([
    ['no model', 'model', { messages: [user('Hi')] }],
    ['model null', 'model', chat({ model: null })],
    ['model object', 'model', chat({ model: {} })],
    ['model array', 'model', chat({ model: ['a/b'] })],
    ['model empty', 'model', chat({ model: '' })],
    ['model with a line break', 'model', chat({ model: 'a/b\r\nx-admin: 1' })],
    ['model with NUL', 'model', chat({ model: 'a/b\u0000' })],
    ['model with U+2028', 'model', chat({ model: 'a/b\u2028' })],
    ['model with CJK', 'model', chat({ model: 'openai/漢' })],
    ['model with a lone surrogate', 'model', chat({ model: 'openai/\ud800' })],
    ['model of 100,000 characters', 'model', chat({ model: 'a/'.padEnd(100_000, 'b') })],
    ['model that climbs', 'model', chat({ model: 'a/../b' })],
    ['model with an encoded slash', 'model', chat({ model: 'a/%2fb' })],
    ['model with a query', 'model', chat({ model: 'a/b?c#d' })],
    ['no messages', 'messages', { model: 'a/b' }],
    ['messages empty', 'messages', chat({ messages: [] })],
    ['messages string', 'messages', chat({ messages: 'Hi' })],
    ['messages like an array', 'messages', chat({ messages: { length: 1, 0: user('Hi') } })],
    ['10,001 messages', 'messages', chat({ messages: Array.from({ length: 10_001 }, () => user('x')) })],
    ['message null', 'messages[0]', messages(null)],
    ['message number', 'messages[1]', messages(user('Hi'), 1)],
    ['message string', 'messages[0]', messages('Hi')],
    ['message array', 'messages[0]', messages([])],
    ['role missing', 'messages[0].role', messages({ content: 'Hi' })],
    ['role unknown', 'messages[0].role', messages({ role: 'boss', content: 'Hi' })],
    ['role __proto__', 'messages[0].role', messages({ role: '__proto__', content: 'Hi' })],
    ['role constructor', 'messages[0].role', messages({ role: 'constructor', content: 'Hi' })],
    ['role number', 'messages[0].role', messages({ role: 1, content: 'Hi' })],
    ['content number', 'messages[0].content', messages(user(1))],
    ['content object', 'messages[0].content', messages(user({}))],
    ['content null', 'messages[0].content', messages(user(null))],
    ['content missing', 'messages[0].content', messages({ role: 'user' })],
    ['assistant without anything', 'messages[0].content', messages({ role: 'assistant' })],
    ['system without content', 'messages[0].content', messages({ role: 'system', content: null })],
    ['part string', 'messages[0].content[0]', messages(user(['Hi']))],
    ['part without a type', 'messages[0].content[0].type', messages(user([{ text: 'Hi' }]))],
    ['text part without a text', 'messages[0].content[0].text', messages(user([{ type: 'text' }]))],
    [
      'image without an object',
      'messages[0].content[1].image_url',
      messages(user([{ type: 'text', text: 'x' }, { type: 'image_url' }])),
    ],
    [
      'image without an address',
      'messages[0].content[0].image_url.url',
      messages(user([{ type: 'image_url', image_url: {} }])),
    ],
    [
      '1,001 parts',
      'messages[0].content',
      messages(user(Array.from({ length: 1001 }, () => ({ type: 'text', text: 'x' })))),
    ],
    ['a result without an id', 'messages[0].tool_call_id', messages({ role: 'tool', content: 'x' })],
    [
      'a call without an id',
      'messages[0].tool_calls[0].id',
      messages({ role: 'assistant', tool_calls: [{ type: 'function', function: { name: 'f', arguments: '{}' } }] }),
    ],
    [
      'a call without a name',
      'messages[0].tool_calls[0].function.name',
      messages({ role: 'assistant', tool_calls: [{ id: 'c', type: 'function', function: { arguments: '{}' } }] }),
    ],
    [
      'arguments that are an object',
      'messages[0].tool_calls[0].function.arguments',
      messages({
        role: 'assistant',
        tool_calls: [{ id: 'c', type: 'function', function: { name: 'f', arguments: {} } }],
      }),
    ],
    ['stream "true"', 'stream', chat({ stream: 'true' })],
    ['stream 1', 'stream', chat({ stream: 1 })],
    ['stream_options string', 'stream_options', chat({ stream: true, stream_options: 'usage' })],
    ['stop object', 'stop', chat({ stop: {} })],
    ['stop of 10,000 strings', 'stop', chat({ stop: Array.from({ length: 10_000 }, () => 'x') })],
    ['stop with a number', 'stop[1]', chat({ stop: ['a', 1] })],
    ['n 0', 'n', chat({ n: 0 })],
    ['n 129', 'n', chat({ n: 129 })],
    ['tools object', 'tools', chat({ tools: {} })],
    [
      '129 tools',
      'tools',
      chat({ tools: Array.from({ length: 129 }, () => ({ type: 'function', function: { name: 'f' } })) }),
    ],
    ['tool null', 'tools[0]', chat({ tools: [null] })],
    ['tool without a name', 'tools[0].function.name', chat({ tools: [{ type: 'function', function: {} }] })],
    [
      'parameters string',
      'tools[0].function.parameters',
      chat({ tools: [{ type: 'function', function: { name: 'f', parameters: '{}' } }] }),
    ],
    ['tool_choice number', 'tool_choice', chat({ tool_choice: 1 })],
    ['function_call number', 'function_call', chat({ function_call: 1 })],
    ['response_format string', 'response_format', chat({ response_format: 'json' })],
    ['parallel_tool_calls "no"', 'parallel_tool_calls', chat({ parallel_tool_calls: 'no' })],
  ])('throws an error for %s with param %s', (_name, param, body) => {
    const failure = failureOf(() => promptOf(body))
    expect(failure.kind).toBe('invalid-request')
    expect(failure.details.param).toBe(param)
    expect(failure.message.length).toBeLessThan(400)
  })

  it.each<[JsonObject, string]>([
    [chat({ model: null }), 'model is null; expected the name of a model.'],
    [{ messages: [] }, 'model is missing; expected the name of a model.'],
    [chat({ messages: [] }), 'messages is an empty array; expected at least one message.'],
    [chat({ messages: {} }), 'messages is an object; expected an array of at most 10000 elements.'],
    [chat({ max_tokens: 0 }), 'max_tokens is 0; expected an integer from 1 to 2147483647.'],
    [chat({ temperature: 'hot' }), 'temperature is "hot"; expected a number of 0 or more.'],
    [chat({ stream: 'x'.repeat(101) }), 'stream is a string of 101 characters; expected true or false.'],
    [chat({ stop: Array.from({ length: 17 }, () => 'x') }), 'stop has 17 elements; expected at most 16. Send fewer.'],
  ])('states the actual and the expected value', (body, message) => {
    expect(failureOf(() => promptOf(body)).message).toBe(message)
  })

  const wrong: readonly [string, Json][] = [
    ['max_tokens', -1],
    ['max_tokens', 0],
    ['max_tokens', 1.5],
    ['max_tokens', '10'],
    ['max_tokens', true],
    ['max_tokens', []],
    ['max_tokens', {}],
    ['max_tokens', 1e308],
    ['max_tokens', 2 ** 53],
    ['max_completion_tokens', 0],
    ['temperature', -0.1],
    ['temperature', 'hot'],
    ['temperature', []],
    ['temperature', {}],
    ['top_p', 'x'],
    ['top_p', -1],
    ['top_p', 1.1],
  ]
  it.each(wrong)('throws an error with param %s for the value %j', (field, value) => {
    expect(failureOf(() => promptOf(chat({ [field]: value }))).details.param).toBe(field)
  })

  it('contains a number that is too large', () => {
    const text = '{"model":"a/b","messages":[{"role":"user","content":"x"}],"max_tokens":1e400}'
    expect(failureOf(() => promptOf(text)).details.param).toBe('max_tokens')
  })
})

describe('reading a chat request', () => {
  it.each([
    '<|endoftext|><|im_start|>',
    '\u0000\u202e\u001b[31m',
    '\ud800',
    `e${'\u0301'.repeat(2000)}`,
    'data: [DONE]\n\n',
  ])('accepts any text: %j', (text) => {
    expect(promptOf(messages(user(text))).messages[0]?.parts).toEqual([{ type: 'text', text }])
  })

  it('reads only the settings that the caller sent', () => {
    expect(
      promptOf(chat({ max_tokens: null, temperature: null, stop: null, stream: null, tools: null })).settings,
    ).toEqual({})
    const { settings, stream } = promptOf(
      chat({
        max_completion_tokens: 50,
        temperature: 0,
        top_p: 1,
        stop: 'END',
        n: 2,
        stream: true,
        tool_choice: { type: 'function', function: { name: 'f' } },
        parallel_tool_calls: false,
        response_format: { type: 'json_schema', json_schema: { name: 's', schema: { type: 'object' }, strict: true } },
      }),
    )
    expect(stream).toBe(true)
    expect(settings).toEqual({
      maxTokens: 50,
      temperature: 0,
      topP: 1,
      stop: ['END'],
      choices: 2,
      toolChoice: { type: 'tool', name: 'f' },
      parallelToolCalls: false,
      shape: { type: 'schema', name: 's', schema: { type: 'object' }, strict: true },
    })
  })

  it('reserves the higher of two limits, because an upstream may apply either', () => {
    expect(promptOf(chat({ max_tokens: 10, max_completion_tokens: 90 })).settings.maxTokens).toBe(90)
  })

  it('reads every role and part', () => {
    const prompt = promptOf(
      messages(
        { role: 'developer', content: 'Be brief' },
        user([
          { type: 'text', text: 'Look' },
          { type: 'image_url', image_url: { url: 'data:image/png;base64,QUJD', detail: 'low' } },
          { type: 'image_url', image_url: { url: 'https://example.com/a.png' } },
          { type: 'file', file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,UERG' } },
          { type: 'file', file: { file_id: 'file-1' } },
          { type: 'input_audio', input_audio: { data: 'QUJD', format: 'wav' } },
        ]),
        {
          role: 'assistant',
          content: null,
          reasoning_content: 'Hm',
          tool_calls: [
            { id: 'c1', type: 'function', function: { name: 'f', arguments: '{"a":1}' } },
            { id: 'c2', type: 'custom', custom: { name: 'g', input: 'raw' } },
          ],
        },
        { role: 'tool', tool_call_id: 'c1', content: 'one' },
        { role: 'tool', tool_call_id: 'c2', content: [{ type: 'text', text: 'two' }] },
        { role: 'assistant', content: null, refusal: 'No' },
        { role: 'assistant', content: null, function_call: { name: 'h', arguments: '{}' } },
        { role: 'function', name: 'h', content: null },
      ),
    )
    expect(prompt.messages.map((message) => message.role)).toEqual([
      'system',
      'user',
      'assistant',
      'tool',
      'tool',
      'assistant',
      'assistant',
      'tool',
    ])
    expect(prompt.messages[1]?.parts).toMatchObject([
      { type: 'text', text: 'Look' },
      { type: 'image', source: { type: 'base64', mediaType: 'image/png', data: 'QUJD' } },
      { type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } },
      { type: 'document', source: { type: 'base64', mediaType: 'application/pdf', data: 'UERG' }, title: 'a.pdf' },
      { type: 'document', source: { type: 'file', id: 'file-1' } },
      { type: 'opaque' },
    ])
    expect(prompt.messages[2]?.parts).toMatchObject([
      { type: 'tool-call', id: 'c1', name: 'f', input: '{"a":1}' },
      { type: 'tool-call', id: 'c2', name: 'g', input: '{"name":"g","input":"raw"}' },
    ])
    expect(prompt.messages[4]?.parts).toMatchObject([
      { type: 'tool-result', callId: 'c2', failed: false, content: [{ type: 'text', text: 'two' }] },
    ])
    expect(prompt.messages[5]?.parts).toEqual([{ type: 'text', text: 'No' }])
    expect(prompt.messages[6]?.parts).toEqual([{ type: 'tool-call', id: 'h', name: 'h', input: '{}' }])
    expect(prompt.messages[7]?.parts).toEqual([{ type: 'tool-result', callId: 'h', content: [], failed: false }])
  })

  it('reads deprecated functions and tools of the vendor as tools', () => {
    const { tools } = promptOf(
      chat({
        tools: [
          { type: 'function', function: { name: 'f', description: 'd', strict: true, parameters: { type: 'object' } } },
          { type: 'function', function: { name: 'bare' } },
          { type: 'web_search' },
        ],
        functions: [{ name: 'old' }],
      }),
    )
    expect(tools).toMatchObject([
      { name: 'f', description: 'd', strict: true, parameters: { type: 'object' } },
      { name: 'bare', parameters: { type: 'object', properties: {} } },
      { name: 'web_search' },
      { name: 'old' },
    ])
    expect(tools[2]?.parameters).toBeUndefined()
  })
})
