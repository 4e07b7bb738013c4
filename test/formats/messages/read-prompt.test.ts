import { describe, expect, it } from 'vitest'
import type { Json, JsonObject } from '../../../src/core/json.ts'
import { textOfPart } from '../../../src/core/prompt.ts'
import { messagesClient } from '../../../src/formats/messages/client.ts'
import { failureOf, smallBody } from './samples.ts'

const read = (fields: JsonObject) => messagesClient.readPrompt({ ...smallBody, ...fields })
const content = (blocks: Json) => read({ messages: [{ role: 'user', content: blocks }] }).messages[0]!

describe('reading a message request', () => {
  it('keeps the body, its bytes and the position of the model', () => {
    const received = { bytes: new TextEncoder().encode(JSON.stringify(smallBody)), modelSpan: { start: 9, end: 24 } }
    const prompt = messagesClient.readPrompt(smallBody, received)
    const native = { dialect: 'messages', value: smallBody, received }
    expect(prompt.native).toEqual({ ...native, settings: { maxTokens: 100 } })
    expect(prompt.native.value).toBe(smallBody)
    expect(prompt).toMatchObject({ model: 'claude/sonnet', stream: false, tools: [], settings: { maxTokens: 100 } })
  })

  it('reads every parameter that both formats support', () => {
    const { settings, stream } = read({
      temperature: 0,
      top_p: 1,
      top_k: 40,
      stop_sequences: ['END', '\n'],
      stream: true,
      tool_choice: { type: 'tool', name: 'search', disable_parallel_tool_use: true },
      output_config: { effort: 'high', format: { type: 'json_schema', schema: { type: 'object' } } },
    })
    expect(stream).toBe(true)
    expect(settings).toEqual({
      maxTokens: 100,
      temperature: 0,
      topP: 1,
      topK: 40,
      stop: ['END', '\n'],
      toolChoice: { type: 'tool', name: 'search' },
      parallelToolCalls: false,
      effort: 'high',
      shape: { type: 'schema', schema: { type: 'object' } },
    })
  })

  it('reads the deprecated name of the answer format and every tool choice', () => {
    expect(read({ output_format: { type: 'json_schema', schema: {} } }).settings.shape).toEqual({
      type: 'schema',
      schema: {},
    })
    expect(read({ tool_choice: { type: 'any' } }).settings.toolChoice).toEqual({ type: 'required' })
    expect(read({ tool_choice: { type: 'none' } }).settings.toolChoice).toEqual({ type: 'none' })
    expect(read({ tool_choice: { type: 'of-tomorrow' } }).settings).toEqual({ maxTokens: 100 })
  })

  it('reads null in an optional field as absent', () => {
    const absent = { temperature: null, top_k: null, stop_sequences: null, tools: null, stream: null, system: null }
    expect(read(absent)).toMatchObject({ settings: { maxTokens: 100 }, tools: [], stream: false })
    expect(read(absent).messages).toHaveLength(1)
  })

  it('reads the system prompt outside of the messages as the first message', () => {
    const blocks = [{ type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } }]
    expect(read({ system: 'Be brief.' }).messages[0]).toEqual({
      role: 'system',
      parts: [{ type: 'text', text: 'Be brief.' }],
      native: { dialect: 'messages', value: { role: 'system', content: 'Be brief.' } },
    })
    expect(read({ system: blocks }).messages[0]?.parts).toEqual([
      { type: 'text', text: 'Be brief.', native: { dialect: 'messages', value: blocks[0] } },
    ])
  })

  it('keeps the position of a system message between other messages', () => {
    const messages = [...(smallBody['messages'] as Json[]), { role: 'system', content: 'From now on in French.' }]
    expect(read({ messages }).messages.map((message) => message.role)).toEqual(['user', 'system'])
  })

  it('reads text, images, documents and thinking, each with its received block', () => {
    const blocks = [
      { type: 'text', text: 'look' },
      { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'aGk=' } },
      { type: 'image', source: { type: 'url', url: 'https://example.org/a.png' } },
      { type: 'document', source: { type: 'file', file_id: 'file_1' }, title: 'Contract' },
      { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: 'aGk=' } },
      { type: 'thinking', thinking: 'hm', signature: 'sealed' },
      { type: 'redacted_thinking', data: 'cipher' },
    ]
    const { parts } = content(blocks)
    expect(parts.map((part) => part.native?.value)).toEqual(blocks)
    expect(parts.map((part) => ({ ...part, native: undefined }))).toEqual([
      { type: 'text', text: 'look' },
      { type: 'image', source: { type: 'base64', mediaType: 'image/png', data: 'aGk=' } },
      { type: 'image', source: { type: 'url', url: 'https://example.org/a.png' } },
      { type: 'document', source: { type: 'file', id: 'file_1' }, title: 'Contract' },
      { type: 'document', source: { type: 'base64', mediaType: 'application/pdf', data: 'aGk=' } },
      { type: 'thinking', text: 'hm', signature: 'sealed' },
      { type: 'thinking', text: 'cipher', redacted: true },
    ])
  })

  it('reads the text of a document of plain text or text blocks', () => {
    const plain = { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'All is well.' } }
    const made = {
      type: 'document',
      source: {
        type: 'content',
        content: [
          { type: 'text', text: 'One' },
          { type: 'text', text: 'Two' },
        ],
      },
    }
    expect(content([plain, made]).parts.map(textOfPart)).toEqual(['All is well.', 'One\nTwo'])
  })

  it('reads tool calls as JSON text, and tool results with their content', () => {
    const { parts } = content([
      { type: 'tool_use', id: 'toolu_1', name: 'search', input: { query: 'tea', deep: [1, { a: null }] } },
      { type: 'tool_result', tool_use_id: 'toolu_1', content: 'found', is_error: true },
      { type: 'tool_result', tool_use_id: 'toolu_2', content: [{ type: 'text', text: 'found' }] },
      { type: 'tool_result', tool_use_id: 'toolu_3' },
    ])
    expect(parts[0]).toMatchObject({ type: 'tool-call', id: 'toolu_1', input: '{"query":"tea","deep":[1,{"a":null}]}' })
    expect(parts[1]).toMatchObject({ callId: 'toolu_1', content: [{ type: 'text', text: 'found' }], failed: true })
    expect(parts[2]).toMatchObject({ callId: 'toolu_2', content: [{ type: 'text', text: 'found' }], failed: false })
    expect(parts[3]).toMatchObject({ callId: 'toolu_3', content: [] })
  })

  it('keeps unknown blocks and sources', () => {
    const unknown = { type: 'search_result', source: 'https://example.org', title: 'A', content: [] }
    const source = { type: 'image', source: { type: 'hologram' } }
    expect(content([unknown, source]).parts).toEqual([
      { type: 'opaque', native: { dialect: 'messages', value: unknown } },
      { type: 'opaque', native: { dialect: 'messages', value: source } },
    ])
  })

  it('reads tools of the caller with a schema and tools of the vendor without one', () => {
    const own = {
      name: 'search',
      description: 'Searches',
      input_schema: { type: 'object' },
      strict: true,
      cache_control: null,
    }
    const vendors = { type: 'web_search_20260318', name: 'web_search', max_uses: 3 }
    const toolset = { type: 'computer_toolset_20260801' }
    expect(read({ tools: [own, vendors, toolset] }).tools).toEqual([
      {
        name: 'search',
        description: 'Searches',
        parameters: { type: 'object' },
        strict: true,
        native: { dialect: 'messages', value: own },
      },
      { name: 'web_search', native: { dialect: 'messages', value: vendors } },
      { name: 'computer_toolset_20260801', native: { dialect: 'messages', value: toolset } },
    ])
  })

  it('keeps the thread of a stored conversation', () => {
    const thread = { type: 'continue', previous_message_id: 'msg_1' }
    expect(read({ thread }).native.value['thread']).toBe(thread)
  })
})

describe('an invalid message request is rejected with the name of the field', () => {
  const user = (message: JsonObject) => ({ messages: [{ role: 'user', content: 'a' }, message] })
  const block = (value: Json) => ({ messages: [{ role: 'user', content: [value] }] })
  const many = <T>(count: number, item: T) => Array.from({ length: count }, () => item)

  it.each<[string, JsonObject]>([
    ['model', { model: undefined }],
    ['model', { model: null }],
    ['model', { model: {} }],
    ['model', { model: [] }],
    ['model', { model: '' }],
    ['model', { model: 'claude\r\nx-evil: 1' }],
    ['model', { model: 'claude\u2028' }],
    ['model', { model: '模型' }],
    ['model', { model: 'claude/../admin' }],
    ['model', { model: 'claude?x=1' }],
    ['model', { model: 'a'.repeat(100_000) }],
    ['messages', { messages: undefined }],
    ['messages', { messages: [] }],
    ['messages', { messages: 'Hello' }],
    ['messages', { messages: { length: 1, 0: { role: 'user', content: 'a' } } }],
    ['messages', { messages: many(10_001, { role: 'user', content: 'a' }) }],
    ['messages[0]', { messages: [null] }],
    ['messages[0]', { messages: [1] }],
    ['messages[0]', { messages: ['Hello'] }],
    ['messages[0]', { messages: [[]] }],
    ['messages[1].role', user({ content: 'a' })],
    ['messages[1].role', user({ role: 'tool', content: 'a' })],
    ['messages[1].role', user({ role: '__proto__', content: 'a' })],
    ['messages[1].role', user({ role: 'constructor', content: 'a' })],
    ['messages[1].role', user({ role: 1, content: 'a' })],
    ['messages[1].content', user({ role: 'user' })],
    ['messages[1].content', user({ role: 'user', content: null })],
    ['messages[1].content', user({ role: 'user', content: 1 })],
    ['messages[1].content', user({ role: 'user', content: {} })],
    ['messages[1].content', user({ role: 'user', content: many(1001, { type: 'text', text: 'a' }) })],
    ['messages[0].content[0]', block('text')],
    ['messages[0].content[0]', block(null)],
    ['messages[0].content[0].type', block({})],
    ['messages[0].content[0].type', block({ type: 1 })],
    ['messages[0].content[0].text', block({ type: 'text' })],
    ['messages[0].content[0].source', block({ type: 'image' })],
    ['messages[0].content[0].source.type', block({ type: 'image', source: {} })],
    [
      'messages[0].content[0].source.data',
      block({ type: 'image', source: { type: 'base64', media_type: 'image/png' } }),
    ],
    ['messages[0].content[0].source.url', block({ type: 'document', source: { type: 'url' } })],
    ['messages[0].content[0].source.file_id', block({ type: 'image', source: { type: 'file' } })],
    [
      'messages[0].content[0].source.content[0].type',
      block({ type: 'document', source: { type: 'content', content: [{}] } }),
    ],
    ['messages[0].content[0].id', block({ type: 'tool_use', name: 'a', input: {} })],
    ['messages[0].content[0].name', block({ type: 'tool_use', id: 'a', input: {} })],
    ['messages[0].content[0].input', block({ type: 'tool_use', id: 'a', name: 'a', input: '{}' })],
    ['messages[0].content[0].tool_use_id', block({ type: 'tool_result', content: 'a' })],
    ['messages[0].content[0].content', block({ type: 'tool_result', tool_use_id: 'a', content: 7 })],
    ['messages[0].content[0].content[0].type', block({ type: 'tool_result', tool_use_id: 'a', content: [{}] })],
    ['messages[0].content[0].thinking', block({ type: 'thinking', signature: 'a' })],
    ['messages[0].content[0].data', block({ type: 'redacted_thinking' })],
    ...[undefined, null, -1, 0, 1.5, '10', true, [], {}, 1e308, 2 ** 53 + 1, Number.POSITIVE_INFINITY].map(
      (value): [string, JsonObject] => ['max_tokens', { max_tokens: value }],
    ),
    ...[-0.1, 1.1, 3, 'hot', [], {}].map((value): [string, JsonObject] => ['temperature', { temperature: value }]),
    ...[-1, 2, 'x', {}].map((value): [string, JsonObject] => ['top_p', { top_p: value }]),
    ...[-1, 1.5, 'x'].map((value): [string, JsonObject] => ['top_k', { top_k: value }]),
    ...['true', 1, {}].map((value): [string, JsonObject] => ['stream', { stream: value }]),
    ['stop_sequences', { stop_sequences: 'END' }],
    ['stop_sequences', { stop_sequences: {} }],
    ['stop_sequences', { stop_sequences: many(10_000, 'a') }],
    ['stop_sequences[1]', { stop_sequences: ['a', 1] }],
    ['system', { system: 1 }],
    ['system', { system: {} }],
    ['system[0]', { system: ['Be brief.'] }],
    ['system[0].text', { system: [{ type: 'text' }] }],
    [
      'system[1].type',
      {
        system: [
          { type: 'text', text: 'a' },
          { type: 'image', source: { type: 'url', url: 'x' } },
        ],
      },
    ],
    ['tools', { tools: {} }],
    ['tools', { tools: many(10_001, { name: 'a', input_schema: {} }) }],
    ['tools[0]', { tools: ['search'] }],
    ['tools[0].name', { tools: [{ input_schema: {} }] }],
    ['tools[0].name', { tools: [{ name: '', input_schema: {} }] }],
    ['tools[0].type', { tools: [{ name: 'a', type: 1 }] }],
    ['tools[0].input_schema', { tools: [{ name: 'a' }] }],
    ['tool_choice', { tool_choice: 'auto' }],
    ['tool_choice.type', { tool_choice: {} }],
    ['tool_choice.name', { tool_choice: { type: 'tool' } }],
  ])('%s of %j', (param, fields) => {
    const failure = failureOf(() => read(fields))
    expect(failure.kind).toBe('invalid-request')
    expect(failure.details.param).toBe(param)
    expect(failure.message.length).toBeLessThan(300)
    expect(failure.message).toContain('expected')
  })

  it('rejects a malformed model name', () => {
    expect(failureOf(() => read({ model: 'a b' })).details.code).toBe('invalid_model')
  })
})
