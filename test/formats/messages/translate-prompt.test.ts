import { describe, expect, it } from 'vitest'
import type { Json, JsonObject } from '../../../src/core/json.ts'
import { messagesUpstream } from '../../../src/formats/messages/upstream.ts'
import { readPrompt } from '../../../src/formats/chat/request-reader.ts'
import { bodyOf, failureOf } from './samples.ts'
import { bodyText } from '../../support/body-text.ts'

const hello = { role: 'user', content: 'Hello' }
const write = (fields: JsonObject) =>
  messagesUpstream.writePrompt(readPrompt({ model: 'x/y', messages: [hello], ...fields }), 'sonnet')
const translate = (fields: JsonObject) => bodyOf(bodyText(write(fields).body))
const messages = (...list: readonly JsonObject[]) => translate({ messages: list })['messages']
const text = (value: string) => ({ type: 'text', text: value })
const call = (id: string, args = '{"q":1}') => ({ id, type: 'function', function: { name: 'search', arguments: args } })
const search = {
  type: 'function',
  function: { name: 'search', description: 'Searches', parameters: { type: 'object' } },
}

describe('a chat request for a model of the message format', () => {
  it('contains all fields that both formats support', () => {
    const schema = { type: 'object', properties: { a: { type: 'string' } }, required: ['a'], $defs: { b: {} } }
    const { body, ignored } = write({
      max_completion_tokens: 77,
      temperature: 0.5,
      top_p: 0.9,
      stop: 'END',
      stream: true,
      stream_options: { include_usage: true },
      user: 'user-7',
      tools: [
        { type: 'function', function: { name: 'search', description: 'Searches', parameters: schema, strict: true } },
      ],
      tool_choice: { type: 'function', function: { name: 'search' } },
      parallel_tool_calls: false,
      response_format: { type: 'json_schema', json_schema: { name: 'answer', schema, strict: true } },
      n: 1,
      logprobs: false,
      modalities: ['text'],
      audio: null,
    })
    expect(bodyOf(bodyText(body))).toEqual({
      model: 'sonnet',
      max_tokens: 77,
      messages: [{ role: 'user', content: [text('Hello')] }],
      temperature: 0.5,
      top_p: 0.9,
      stop_sequences: ['END'],
      stream: true,
      tools: [{ name: 'search', description: 'Searches', input_schema: schema, strict: true }],
      tool_choice: { type: 'tool', name: 'search', disable_parallel_tool_use: true },
      output_config: { format: { type: 'json_schema', schema } },
      metadata: { user_id: 'user-7' },
    })
    expect(ignored).toEqual([])
  })

  it('always has an output limit', () => {
    expect(translate({})['max_tokens']).toBe(4096)
    expect(translate({ max_tokens: 5 })['max_tokens']).toBe(5)
  })

  it('moves all system and developer messages to the system prompt in order', () => {
    const list = [
      { role: 'system', content: 'One' },
      hello,
      { role: 'developer', content: [text('Two'), text('')] },
      { role: 'user', content: 'Bye' },
    ]
    expect(translate({ messages: list })).toMatchObject({
      system: [text('One'), text('Two')],
      messages: [{ role: 'user', content: [text('Hello'), text('Bye')] }],
    })
  })

  it.each<[Json, JsonObject]>([
    ['required', { type: 'any' }],
    ['none', { type: 'none' }],
    ['auto', { type: 'auto' }],
  ])('translates the tool choice %j', (choice, said) => {
    expect(translate({ tools: [search], tool_choice: choice })['tool_choice']).toEqual(said)
  })

  it('forbids parallel calls without a tool choice, and omits the choice without tools', () => {
    expect(translate({ tools: [search], parallel_tool_calls: false })['tool_choice']).toEqual({
      type: 'auto',
      disable_parallel_tool_use: true,
    })
    expect(translate({ parallel_tool_calls: false, tool_choice: 'auto' })).not.toHaveProperty('tool_choice')
  })

  it('writes an object schema for a function whose parameters or type are missing', () => {
    const functions = [{ name: 'a' }, { name: 'b', parameters: { properties: { c: {} } } }]
    const tools = functions.map((one) => ({ type: 'function', function: one }))
    expect(translate({ tools })['tools']).toEqual([
      { name: 'a', input_schema: { type: 'object', properties: {} } },
      { name: 'b', input_schema: { type: 'object', properties: { c: {} } } },
    ])
  })

  it("joins the results of one turn into one message, without duplicates and before the user's text", () => {
    expect(
      messages(
        hello,
        { role: 'assistant', content: 'Let me see.', tool_calls: [call('a'), call('b', '')] },
        { role: 'tool', tool_call_id: 'b', content: 'B' },
        { role: 'user', content: 'Hurry!' },
        { role: 'tool', tool_call_id: 'a', content: [text('A')] },
        { role: 'tool', tool_call_id: 'b', content: 'more' },
      ),
    ).toEqual([
      { role: 'user', content: [text('Hello')] },
      {
        role: 'assistant',
        content: [
          text('Let me see.'),
          { type: 'tool_use', id: 'a', name: 'search', input: { q: 1 } },
          { type: 'tool_use', id: 'b', name: 'search', input: {} },
        ],
      },
      {
        role: 'user',
        content: [
          { type: 'tool_result', tool_use_id: 'b', content: [text('B'), text('more')] },
          { type: 'tool_result', tool_use_id: 'a', content: [text('A')] },
          text('Hurry!'),
        ],
      },
    ])
  })

  it('joins adjacent messages of one role and omits empty texts and messages', () => {
    expect(
      messages(
        hello,
        { role: 'user', content: [text(''), text('there')] },
        { role: 'assistant', content: '' },
        { role: 'user', content: '  \n' },
        { role: 'user', content: '?' },
        { role: 'assistant', content: null, refusal: 'No.' },
        { role: 'assistant', content: [{ type: 'refusal', refusal: 'Never.' }] },
      ),
    ).toEqual([
      { role: 'user', content: [text('Hello'), text('there'), text('?')] },
      { role: 'assistant', content: [text('No.'), text('Never.')] },
    ])
  })

  it.each<[string, JsonObject]>([
    ['{"a":', { raw: '{"a":' }],
    ['[1]', { raw: '[1]' }],
    ['"text"', { raw: '"text"' }],
    ['', {}],
    [' {} ', {}],
  ])('writes the arguments %j as an object', (args, input) => {
    const list = [
      hello,
      { role: 'assistant', tool_calls: [call('a', args)] },
      { role: 'tool', tool_call_id: 'a', content: '' },
    ]
    expect(messages(...list)).toMatchObject([{}, { content: [{ input }] }, { content: [{ tool_use_id: 'a' }] }])
  })

  it('renames calls with equal ids, using characters that the format allows', () => {
    const turn = (id: string) => [
      { role: 'assistant', tool_calls: [call(id)] },
      { role: 'tool', tool_call_id: id, content: 'ok' },
    ]
    const said = messages(hello, ...turn('call.1'), ...turn('call.1'), ...turn('')) as readonly JsonObject[]
    const ids = said.flatMap((message) =>
      (message['content'] as readonly JsonObject[]).flatMap((block) => block['id'] ?? block['tool_use_id'] ?? []),
    )
    expect(ids).toEqual(['call_1', 'call_1', 'call_1_2', 'call_1_2', 'call', 'call'])
  })

  it('reads deprecated function calls, whose results are matched by name', () => {
    const old = {
      functions: [{ name: 'search', parameters: { type: 'object' } }],
      function_call: 'auto',
      messages: [
        hello,
        { role: 'assistant', content: null, function_call: { name: 'search', arguments: '{}' } },
        { role: 'function', name: 'search', content: 'ok' },
      ],
    }
    expect(write(old).ignored).toEqual([])
    expect(translate(old)).toMatchObject({
      tools: [{ name: 'search' }],
      messages: [{}, { content: [{ type: 'tool_use', id: 'search' }] }, { content: [{ tool_use_id: 'search' }] }],
    })
  })

  it('declares and forbids used tools when the request declares none', () => {
    const list = [
      hello,
      { role: 'assistant', tool_calls: [call('a')] },
      { role: 'tool', tool_call_id: 'a', content: 'ok' },
    ]
    expect(translate({ messages: list })).toMatchObject({
      tools: [{ name: 'search', input_schema: { type: 'object' } }],
      tool_choice: { type: 'none' },
    })
  })

  it('sends images and files in the format of their source', () => {
    const parts = [
      { type: 'image_url', image_url: { url: 'data:image/png;base64,aGk=' } },
      { type: 'image_url', image_url: { url: 'https://example.org/a.png' }, cache_control: { type: 'ephemeral' } },
      { type: 'file', file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,aGk=' } },
      { type: 'file', file: { filename: 'a.txt', file_data: 'data:text/plain;base64,w6kh' } },
    ]
    expect(messages({ role: 'user', content: parts })).toEqual([
      {
        role: 'user',
        content: [
          { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'aGk=' } },
          {
            type: 'image',
            source: { type: 'url', url: 'https://example.org/a.png' },
            cache_control: { type: 'ephemeral' },
          },
          { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: 'aGk=' }, title: 'a.pdf' },
          { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'é!' }, title: 'a.txt' },
        ],
      },
    ])
  })

  it('reports every omitted hint', () => {
    const hints = {
      seed: 1,
      logit_bias: { '1': 1 },
      frequency_penalty: 0.1,
      presence_penalty: 0.1,
      metadata: { a: 'b' },
      store: true,
      service_tier: 'auto',
      prompt_cache_key: 'a',
      verbosity: 'low',
      prediction: { type: 'content', content: 'a' },
    }
    const list = [
      {
        role: 'user',
        name: 'Ada',
        content: [{ type: 'image_url', image_url: { url: 'https://example.org', detail: 'low' } }],
      },
      { role: 'assistant', content: 'Hi', reasoning_content: 'hm', annotations: [], audio: null, function_call: null },
    ]
    const { body, ignored } = write({ ...hints, messages: list })
    const named = [...Object.keys(hints), 'messages[].name', 'image_url.detail', 'messages[].reasoning_content']
    expect(ignored.toSorted()).toEqual(named.toSorted())
    expect(Object.keys(bodyOf(bodyText(body)))).toEqual(['model', 'max_tokens', 'messages'])
  })
})

describe('a setting that the message format expresses differently', () => {
  it('writes the effort next to the answer format', () => {
    const json_schema = { name: 'a', schema: { type: 'object' } }
    const { body, ignored } = write({
      reasoning_effort: 'low',
      response_format: { type: 'json_schema', json_schema },
    })

    expect(bodyOf(bodyText(body))['output_config']).toEqual({
      effort: 'low',
      format: { type: 'json_schema', schema: { type: 'object' } },
    })
    expect(ignored).toEqual([])
  })

  it('writes an instruction for an answer of any JSON object, after all other instructions', () => {
    const { body } = write({
      response_format: { type: 'json_object' },
      messages: [{ role: 'system', content: 'A' }, hello],
    })

    const system = bodyOf(bodyText(body))['system']
    expect(system).toMatchObject([
      { text: 'A' },
      { type: 'text', text: expect.stringContaining('JSON object') as string },
    ])
  })
})

describe('content that a message upstream does not support is rejected with the name of the field', () => {
  const audio = { type: 'input_audio', input_audio: { data: 'aGk=', format: 'wav' } }
  const file = (source: JsonObject) => ({
    messages: [{ role: 'user', content: [text('a'), { type: 'file', file: source }] }],
  })
  const result = { role: 'tool', tool_call_id: 'a', content: 'ok' }
  it.each<[string, JsonObject]>([
    ['n', { n: 2 }],
    ['logprobs', { logprobs: true }],
    ['top_logprobs', { top_logprobs: 3 }],
    ['modalities', { modalities: ['text', 'audio'] }],
    ['audio', { audio: { voice: 'alloy', format: 'wav' } }],
    ['web_search_options', { web_search_options: {} }],
    ['field_of_tomorrow', { field_of_tomorrow: 0 }],
    ['__proto__', JSON.parse('{"__proto__":1}') as JsonObject],
    ['constructor', { constructor: 'a' }],
    ['response_format', { response_format: { type: 'grammar', grammar: 'a' } }],
    ['tools[1].type', { tools: [search, { type: 'custom', custom: { name: 'a' } }] }],
    [
      'tool_choice',
      { tools: [search], tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'auto', tools: [] } } },
    ],
    ['messages[0].content[1]', { messages: [{ role: 'user', content: [text('a'), audio] }] }],
    ['messages[0].content[1]', file({ file_id: 'file-1' })],
    ['messages[0].content[1]', file({ file_data: 'data:application/zip;base64,aGk=' })],
    ['messages[0].content[1]', file({ file_data: 'data:text/plain;base64,%%%' })],
    ['messages[0].content[0].later', { messages: [{ role: 'user', content: [{ ...text('a'), later: 1 }] }] }],
    ['messages[0].later', { messages: [{ ...hello, later: 1 }] }],
    ['messages[1].audio', { messages: [hello, { role: 'assistant', audio: { id: 'audio_1' } }] }],
    ['messages', { messages: [{ role: 'system', content: 'Be brief.' }] }],
    ['messages', { messages: [{ role: 'user', content: '' }] }],
    ['messages', { messages: [hello, result] }],
    ['messages', { messages: [hello, { role: 'assistant', tool_calls: [call('a')] }, hello] }],
    [
      'messages',
      {
        messages: [
          hello,
          { role: 'assistant', tool_calls: [call('a')] },
          hello,
          { role: 'assistant', content: 'b' },
          result,
        ],
      },
    ],
  ])('%s of %j', (param, fields) => {
    const failure = failureOf(() => write(fields))
    expect(failure.kind).toBe('invalid-request')
    expect(failure.details.param).toBe(param)
  })
})
