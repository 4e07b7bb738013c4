import { describe, expect, it } from 'vitest'
import type { Json, JsonObject } from '../../../src/core/json.ts'
import { responsesClient } from '../../../src/formats/responses/client.ts'
import { responsesUpstream } from '../../../src/formats/responses/upstream.ts'
import { failureOf } from '../chat/support.ts'
import { bodyText } from '../../support/body-text.ts'
import { chatFormat, messagesFormat, type WholeFormat } from '../../support/two-way-formats.ts'

type Body = Record<string, Json | undefined>

const read = (fields: JsonObject) => responsesClient.readPrompt({ model: 'a/b', input: 'Hi', ...fields })

/** The body that an upstream of another format gets, and the hints that were left out. */
function translated(to: WholeFormat, fields: JsonObject): { readonly body: Body; readonly ignored: readonly string[] } {
  const { body, ignored } = to.writePrompt(read(fields), 'm')
  return { body: JSON.parse(bodyText(body)) as Body, ignored }
}

const call = (id: string, name = 'look'): JsonObject => ({
  type: 'function_call',
  call_id: id,
  name,
  arguments: '{"q":1}',
})
const output = (id: string, text: Json = 'found'): JsonObject => ({
  type: 'function_call_output',
  call_id: id,
  output: text,
})
const user = (content: Json): JsonObject => ({ role: 'user', content })
const assistant = (text: string): JsonObject => ({
  type: 'message',
  role: 'assistant',
  id: 'msg_1',
  status: 'completed',
  content: [{ type: 'output_text', text, annotations: [] }],
})

describe('a responses request', () => {
  it('reads its instructions first and its text as a user message', () => {
    const { messages } = read({ instructions: 'Be brief.' })

    expect(messages.map(({ role, parts }) => [role, parts])).toEqual([
      ['system', [{ type: 'text', text: 'Be brief.' }]],
      ['user', [{ type: 'text', text: 'Hi' }]],
    ])
  })

  it('joins the reasoning, text and calls of one turn into one message', () => {
    const reasoning = { type: 'reasoning', id: 'rs_1', summary: [{ type: 'summary_text', text: 'Hm.' }] }
    const { messages } = read({
      input: [
        user('a'),
        reasoning,
        assistant('I look.'),
        call('1'),
        call('2'),
        output('1'),
        output('2'),
        assistant('b'),
        assistant('c'),
      ],
    })

    expect(messages.map(({ role, parts }) => [role, parts.map((part) => part.type)])).toEqual([
      ['user', ['text']],
      ['assistant', ['thinking', 'text', 'tool-call', 'tool-call']],
      ['tool', ['tool-result']],
      ['tool', ['tool-result']],
      ['assistant', ['text']],
      ['assistant', ['text']],
    ])
  })

  it('has the settings of other formats', () => {
    const { settings, tools, stream } = read({
      max_output_tokens: 7,
      temperature: 1.5,
      top_p: 0.5,
      parallel_tool_calls: false,
      tool_choice: { type: 'function', name: 'look' },
      text: { format: { type: 'json_schema', name: 'place', schema: { type: 'object' }, strict: true } },
      reasoning: { effort: 'low' },
      safety_identifier: 'ada',
      tools: [{ type: 'function', name: 'look', parameters: null, strict: null }, { type: 'web_search' }],
      stream: true,
    })

    expect(settings).toEqual({
      maxTokens: 7,
      temperature: 1.5,
      topP: 0.5,
      parallelToolCalls: false,
      toolChoice: { type: 'tool', name: 'look' },
      shape: { type: 'schema', name: 'place', schema: { type: 'object' }, strict: true },
      effort: 'low',
      user: 'ada',
    })
    expect(tools.map(({ name, parameters }) => [name, parameters])).toEqual([
      ['look', { type: 'object', properties: {} }],
      ['web_search', undefined],
    ])
    expect(stream).toBe(true)
  })

  it('reads images and files in each form', () => {
    const content = [
      { type: 'input_image', image_url: 'data:image/png;base64,aGk=' },
      { type: 'input_image', image_url: 'https://example.org/a.png' },
      { type: 'input_image', file_id: 'file-1' },
      { type: 'input_file', filename: 'a.pdf', file_data: 'data:application/pdf;base64,aGk=' },
      { type: 'input_file', file_url: 'https://example.org/a.pdf' },
      { type: 'input_file' },
    ]
    const parts = read({ input: [user(content)] }).messages[0]?.parts ?? []

    expect(parts.map((part) => ('source' in part ? part.source : part.type))).toEqual([
      { type: 'base64', mediaType: 'image/png', data: 'aGk=' },
      { type: 'url', url: 'https://example.org/a.png' },
      { type: 'file', id: 'file-1' },
      { type: 'base64', mediaType: 'application/pdf', data: 'aGk=' },
      { type: 'url', url: 'https://example.org/a.pdf' },
      'opaque',
    ])
  })

  it.each<[JsonObject, string]>([
    [{ model: 7 }, 'model'],
    [{ model: 'a b' }, 'model'],
    [{ input: null }, 'input'],
    [{ input: {} }, 'input'],
    [{ input: [] }, 'input'],
    [{ input: ['a'] }, 'input[0]'],
    [{ input: [{ role: 'user' }] }, 'input[0].content'],
    [{ input: [{ type: 7 }] }, 'input[0].type'],
    [{ input: [user([{ text: 'a' }])] }, 'input[0].content[0].type'],
    [{ input: [user([{ type: 'input_text' }])] }, 'input[0].content[0].text'],
    [{ input: [user([{ type: 'input_image' }])] }, 'input[0].content[0].image_url'],
    [{ input: [{ ...call('1'), arguments: {} }] }, 'input[0].arguments'],
    [{ input: [{ ...call('1'), call_id: undefined }] }, 'input[0].call_id'],
    [{ input: [{ type: 'function_call_output', call_id: '1' }] }, 'input[0].output'],
    [{ instructions: 7 }, 'instructions'],
    [{ max_output_tokens: 0 }, 'max_output_tokens'],
    [{ temperature: 2.1 }, 'temperature'],
    [{ top_p: -1 }, 'top_p'],
    [{ stream: 'yes' }, 'stream'],
    [{ store: 'no' }, 'store'],
    [{ metadata: [] }, 'metadata'],
    [{ previous_response_id: 7 }, 'previous_response_id'],
    [{ tools: {} }, 'tools'],
    [{ tools: [{ type: 'function' }] }, 'tools[0].name'],
    [{ tools: [{ type: 'function', name: 'a', parameters: 7 }] }, 'tools[0].parameters'],
    [{ tool_choice: 7 }, 'tool_choice'],
    [{ text: 'json' }, 'text'],
    [{ text: { format: {} } }, 'text.format.type'],
    [{ reasoning: 'low' }, 'reasoning'],
  ])('rejects %j with param %s', (fields, param) => {
    const failure = failureOf(() => read(fields))

    expect(failure.kind).toBe('invalid-request')
    expect(failure.details.param).toBe(param)
    expect(failure.message).toContain('expected')
  })
})

describe('a responses request for a model that uses the chat format', () => {
  it('contains all fields that both formats support', () => {
    const { body, ignored } = translated(chatFormat, {
      instructions: 'Be brief.',
      input: [
        user('a'),
        assistant('I look.'),
        call('1'),
        call('2'),
        output('1'),
        output('2', [{ type: 'input_text', text: 'b' }]),
      ],
      max_output_tokens: 7,
      temperature: 0.5,
      top_p: 0.9,
      parallel_tool_calls: false,
      tool_choice: { type: 'function', name: 'look' },
      text: { format: { type: 'json_object' } },
      reasoning: { effort: 'low' },
      user: 'ada',
      tools: [{ type: 'function', name: 'look', description: 'Looks', parameters: { type: 'object' }, strict: true }],
      metadata: { a: 'b' },
      store: true,
      stream: true,
    })

    expect(body).toEqual({
      model: 'm',
      messages: [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: 'a' },
        {
          role: 'assistant',
          content: 'I look.',
          tool_calls: ['1', '2'].map((id) => ({
            id,
            type: 'function',
            function: { name: 'look', arguments: '{"q":1}' },
          })),
        },
        { role: 'tool', tool_call_id: '1', content: 'found' },
        { role: 'tool', tool_call_id: '2', content: 'b' },
      ],
      max_tokens: 7,
      temperature: 0.5,
      top_p: 0.9,
      parallel_tool_calls: false,
      tool_choice: { type: 'function', function: { name: 'look' } },
      response_format: { type: 'json_object' },
      reasoning_effort: 'low',
      user: 'ada',
      tools: [
        {
          type: 'function',
          function: { name: 'look', description: 'Looks', parameters: { type: 'object' }, strict: true },
        },
      ],
      stream: true,
      stream_options: { include_usage: true },
    })
    expect(ignored).toEqual([])
  })

  it('reports the omitted hints', () => {
    const { ignored } = translated(chatFormat, {
      service_tier: 'flex',
      prompt_cache_key: 'k',
      max_tool_calls: 3,
      truncation: 'auto',
      text: { verbosity: 'low' },
      reasoning: { summary: 'auto' },
      include: ['reasoning.encrypted_content'],
      top_logprobs: 0,
    })

    expect(ignored.toSorted()).toEqual(
      [
        'service_tier',
        'prompt_cache_key',
        'max_tool_calls',
        'truncation',
        'text.verbosity',
        'reasoning.summary',
      ].toSorted(),
    )
  })
})

describe('a responses request for a model of the message format', () => {
  it('joins the content of one turn, and its results, in one message each', () => {
    const { body, ignored } = translated(messagesFormat, {
      instructions: 'Be brief.',
      input: [user('a'), call('1'), call('2'), output('1'), output('2'), { role: 'developer', content: 'More.' }],
      reasoning: { effort: 'low' },
      user: 'ada',
    })

    expect(body).toEqual({
      model: 'm',
      max_tokens: 4096,
      system: [
        { type: 'text', text: 'Be brief.' },
        { type: 'text', text: 'More.' },
      ],
      messages: [
        { role: 'user', content: [{ type: 'text', text: 'a' }] },
        {
          role: 'assistant',
          content: ['1', '2'].map((id) => ({ type: 'tool_use', id, name: 'look', input: { q: 1 } })),
        },
        {
          role: 'user',
          content: ['1', '2'].map((id) => ({
            type: 'tool_result',
            tool_use_id: id,
            content: [{ type: 'text', text: 'found' }],
          })),
        },
      ],
      tools: [{ name: 'look', input_schema: { type: 'object', properties: {} } }],
      tool_choice: { type: 'none' },
      output_config: { effort: 'low' },
      metadata: { user_id: 'ada' },
    })
    expect(ignored).toEqual([])
  })

  it('contains reasoning with its signature, but no reasoning of another vendor', () => {
    const sealed = { type: 'reasoning', id: 'rs_1', summary: [{ type: 'summary_text', text: 'Hm.' }] }
    const { body } = translated(messagesFormat, {
      input: [
        user('a'),
        { ...sealed, encrypted_content: 'svc-seal:c2ln' },
        { ...sealed, encrypted_content: 'gAAAAB-of-another-vendor' },
        assistant('b'),
        user('c'),
      ],
    })

    expect((body['messages'] as readonly JsonObject[])[1]?.['content']).toEqual([
      { type: 'thinking', thinking: 'Hm.', signature: 'c2ln' },
      { type: 'text', text: 'b' },
    ])
  })

  it('becomes an instruction when it requests JSON without a schema', () => {
    const { body } = translated(messagesFormat, { text: { format: { type: 'json_object' } } })

    expect(JSON.stringify(body['system'])).toContain('exactly one JSON object')
  })
})

describe.each([
  ['chat', chatFormat],
  ['message', messagesFormat],
])('content that the %s format cannot express', (_, format) => {
  it.each<[JsonObject, string]>([
    [{ previous_response_id: 'resp_1' }, 'previous_response_id'],
    [{ conversation: 'conv_1' }, 'conversation'],
    [{ prompt: { id: 'p' } }, 'prompt'],
    [{ background: true }, 'background'],
    [{ top_logprobs: 3 }, 'top_logprobs'],
    [{ include: ['message.output_text.logprobs'] }, 'include'],
    [{ later: 1 }, 'later'],
    [{ text: { format: { type: 'grammar' } } }, 'text.format'],
    [{ tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [] } }, 'tool_choice'],
    [{ instructions: 'a', input: [user('a'), { type: 'web_search_call', id: 'ws_1' }] }, 'input[1]'],
    [{ input: [user('a'), call('1'), call('2'), output('1'), { type: 'item_reference', id: 'x' }] }, 'input[4]'],
    [{ input: [{ ...user('a'), later: 1 }] }, 'input[0].later'],
    [{ input: [user([{ type: 'input_text', text: 'a', later: 1 }])] }, 'input[0].later'],
    [{ input: [user([{ type: 'input_audio' }])] }, 'input[0]'],
  ])('in %j is rejected with param %s', (fields, param) => {
    expect(failureOf(() => translated(format, fields)).details.param).toBe(param)
  })

  it('ignores a field that requests the default', () => {
    const silent = { background: false, conversation: null, include: [], top_logprobs: 0, truncation: 'disabled' }

    expect(translated(format, silent).ignored).toEqual([])
  })
})

describe('requests of other formats for an upstream of the responses format', () => {
  const chat = (fields: JsonObject): JsonObject => ({ model: 'a/b', messages: [user('a')], ...fields })
  const toResponses = (from: WholeFormat, body: JsonObject): Body =>
    JSON.parse(bodyText(responsesUpstream.writePrompt(from.readPrompt(body), 'm').body)) as Body

  it('contain all fields that both formats support, and store: false', () => {
    const body = toResponses(
      chatFormat,
      chat({
        messages: [
          { role: 'system', content: 'Be brief.' },
          user([
            { type: 'text', text: 'a' },
            { type: 'image_url', image_url: { url: 'https://example.org/a.png' } },
          ]),
          {
            role: 'assistant',
            content: 'I look.',
            tool_calls: [{ id: '1', type: 'function', function: { name: 'look', arguments: '' } }],
          },
          { role: 'tool', tool_call_id: '1', content: 'found' },
        ],
        max_tokens: 7,
        response_format: { type: 'json_schema', json_schema: { name: 'p', schema: { type: 'object' } } },
        tools: [{ type: 'function', function: { name: 'look' } }],
        tool_choice: 'required',
        reasoning_effort: 'low',
      }),
    )

    expect(body).toEqual({
      model: 'm',
      store: false,
      input: [
        { role: 'system', content: 'Be brief.' },
        {
          role: 'user',
          content: [
            { type: 'input_text', text: 'a' },
            { type: 'input_image', image_url: 'https://example.org/a.png', detail: 'auto' },
          ],
        },
        { role: 'assistant', content: 'I look.' },
        { type: 'function_call', call_id: '1', name: 'look', arguments: '{}' },
        { type: 'function_call_output', call_id: '1', output: 'found' },
      ],
      max_output_tokens: 7,
      text: { format: { type: 'json_schema', name: 'p', schema: { type: 'object' } } },
      tools: [{ type: 'function', name: 'look', parameters: { type: 'object', properties: {} }, strict: false }],
      tool_choice: 'required',
      reasoning: { effort: 'low' },
    })
  })

  it('mark a failed call in the text of its result, and keep images in results', () => {
    const body = toResponses(messagesFormat, {
      model: 'a/b',
      max_tokens: 7,
      messages: [
        user('a'),
        { role: 'assistant', content: [{ type: 'tool_use', id: '1', name: 'look', input: {} }] },
        user([
          { type: 'tool_result', tool_use_id: '1', is_error: true, content: 'gone' },
          {
            type: 'tool_result',
            tool_use_id: '2',
            content: [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'aGk=' } }],
          },
        ]),
      ],
    })

    expect((body['input'] as readonly JsonObject[]).slice(2).map((item) => item['output'])).toEqual([
      'Error: gone',
      [{ type: 'input_image', image_url: 'data:image/png;base64,aGk=', detail: 'auto' }],
    ])
  })

  it.each<[WholeFormat, JsonObject, string]>([
    [chatFormat, chat({ stop: 'a' }), 'stop'],
    [chatFormat, chat({ n: 2 }), 'n'],
    [chatFormat, chat({ logprobs: true }), 'logprobs'],
    [messagesFormat, { ...chat({ stop_sequences: ['a'] }), max_tokens: 7 }, 'stop_sequences'],
  ])('are rejected if the format cannot express them: %#', (from, body, param) => {
    expect(failureOf(() => toResponses(from, body)).details.param).toBe(param)
  })
})

describe('the items of one answer', () => {
  const thought = (id: string): JsonObject => ({ type: 'reasoning', id, summary: [], encrypted_content: id })

  it('are one message, and reasoning after a text begins another', () => {
    const input = [
      user('Hi'),
      thought('rs_1'),
      assistant('First I look.'),
      thought('rs_2'),
      call('c1'),
      output('c1'),
      thought('rs_3'),
      assistant('Found.'),
      thought('rs_4'),
      assistant('Done.'),
    ]
    const types = read({ input }).messages.map(({ parts }) => parts.map((part) => part.type).join(' '))

    expect(types).toEqual([
      'text',
      'thinking text',
      'thinking tool-call',
      'tool-result',
      'thinking text',
      'thinking text',
    ])
  })

  it('contain parallel calls with the reasoning between them', () => {
    const input = [user('Hi'), thought('rs_1'), call('c1'), thought('rs_2'), call('c2'), output('c1'), output('c2')]

    expect(read({ input }).messages[1]?.parts).toHaveLength(4)
  })
})
