import { describe, expect, it } from 'vitest'
import type { JsonObject } from '../../../src/core/json.ts'
import { withParts } from '../../../src/core/messages.ts'
import { type Message, type Part, type Prompt } from '../../../src/core/prompt.ts'
import { chatUpstream } from '../../../src/formats/chat/upstream.ts'
import { chat, failureOf, promptOf, writeBody } from './support.ts'
import { bodyText } from '../../support/body-text.ts'

describe('a chat prompt to a chat upstream', () => {
  it('keeps the received text except for the model', () => {
    const text =
      '{ "messages":[{"role":"developer","content":"caf\\u00e9"}],\n "model" : "openai/gpt-4o", "seed":1.0, "stop":[], "x":null }'
    const { body, ignored } = chatUpstream.writePrompt(promptOf(text), 'gpt-4o')
    expect(bodyText(body)).toBe(text.replace('openai/gpt-4o', 'gpt-4o'))
    expect(ignored).toEqual([])
  })

  it('requests the usage of a stream without serializing the body again', () => {
    const text = '{ "model":"openai/gpt-4o","stream":true, "messages":[{"role":"user","content":"x"}]}'
    expect(bodyText(chatUpstream.writePrompt(promptOf(text), 'm').body)).toBe(
      '{"stream_options":{"include_usage":true}, "model":"m","stream":true, "messages":[{"role":"user","content":"x"}]}',
    )
  })

  it.each([
    [
      'options without a word on usage',
      { include_obfuscation: false },
      { include_obfuscation: false, include_usage: true },
    ],
    ['options that decline it', { include_usage: false }, { include_usage: true }],
    ['null', null, { include_usage: true }],
  ])('requests the usage of a stream when the caller sends %s', (_name, options, expected) => {
    const body = chat({ stream: true, stream_options: options })
    expect(writeBody(promptOf(body))).toEqual({ ...body, model: 'gpt-4o', stream_options: expected })
  })

  it('adds no field when the caller requests usage or no stream', () => {
    const asking = chat({ stream: true, stream_options: { include_usage: true } })
    expect(writeBody(promptOf(asking))).toEqual({ ...asking, model: 'gpt-4o' })
    expect(writeBody(promptOf(chat()))).toEqual(chat({ model: 'gpt-4o' }))
  })

  it("sends a repeated model key once, with the upstream's model", () => {
    const text = '{"model":"cheap/a","messages":[{"role":"user","content":"x"}],"model":"dear/b"}'
    const prompt = promptOf(text)
    expect(prompt.model).toBe('dear/b')
    expect(chatUpstream.writePrompt(prompt, 'b').body).toBe('{"model":"b","messages":[{"role":"user","content":"x"}]}')
  })

  it.each([
    ['max_tokens', { max_tokens: 500 }, { max_tokens: 100 }],
    ['max_completion_tokens', { max_completion_tokens: 500 }, { max_completion_tokens: 100 }],
    ['both', { max_tokens: 50, max_completion_tokens: 500 }, { max_tokens: 50, max_completion_tokens: 100 }],
  ])('lowers the output limit in the field of the caller: %s', (_name, said, expected) => {
    const prompt = promptOf(chat({ ...said, seed: 7 }))
    const lowered: Prompt = { ...prompt, settings: { ...prompt.settings, maxTokens: 100 } }
    expect(writeBody(lowered)).toEqual({ ...chat({ ...expected, seed: 7 }), model: 'gpt-4o' })
  })

  it.each([
    ['gpt-5', 'max_completion_tokens'],
    ['o3-mini', 'max_completion_tokens'],
    ['openai/gpt-4o', 'max_completion_tokens'],
    ['gpt-oss:20b', 'max_tokens'],
    ['mistral-large', 'max_tokens'],
    ['opus-like', 'max_tokens'],
  ])('adds a limit for %s as %s when the caller sets no limit', (model, field) => {
    const prompt = promptOf('{"model":"x/y", "messages":[{"role":"user","content":"x"}]}')
    const { body } = chatUpstream.writePrompt({ ...prompt, settings: { maxTokens: 9 } }, model)
    expect(bodyText(body)).toBe(`{"${field}":9,"model":"${model}", "messages":[{"role":"user","content":"x"}]}`)
  })

  it('changes only the settings that differ', () => {
    const prompt = promptOf(chat({ temperature: 1, stop: 'END', top_k: 3, n: 1, unknown: { a: [] } }))
    const { topK: _topK, ...settings } = prompt.settings
    expect(writeBody({ ...prompt, settings: { ...settings, temperature: 0.5, topP: 0.9 } })).toEqual(
      chat({ model: 'gpt-4o', temperature: 0.5, stop: 'END', n: 1, unknown: { a: [] }, top_p: 0.9 }),
    )
  })

  it('raises or removes its output limit when the pipeline does', () => {
    const prompt = promptOf(chat({ max_tokens: 10 }))
    expect(writeBody({ ...prompt, settings: { maxTokens: 20 } })['max_tokens']).toBe(20)
    expect(writeBody({ ...prompt, settings: {} })).toEqual(chat({ model: 'gpt-4o' }))
  })

  it('keeps the remaining tools unchanged when other tools are removed', () => {
    const kept = { type: 'function', function: { name: 'f' }, extra: 1 }
    const search = { type: 'web_search', web_search: { region: 'x' } }
    const prompt = promptOf(chat({ tools: [kept, search, kept], functions: [{ name: 'old' }] }))
    const [first, second, , old] = prompt.tools
    const tools = [first, second, old].filter((tool) => tool !== undefined)
    const written = writeBody({ ...prompt, tools })
    expect(written['tools']).toEqual([
      kept,
      search,
      { type: 'function', function: { name: 'old', parameters: { type: 'object', properties: {} } } },
    ])
    expect(written['functions']).toBeUndefined()
    expect(writeBody({ ...prompt, tools: [] })).toEqual(chat({ model: 'gpt-4o' }))
  })

  it('serializes only rewritten messages', () => {
    const image = { type: 'image_url', image_url: { url: 'https://example.com/a.png', detail: 'low' } }
    const body = chat({
      messages: [
        { role: 'developer', content: 'Be brief', name: 'dev' },
        { role: 'user', content: [{ type: 'text', text: 'old' }, image] },
        {
          role: 'assistant',
          content: 'Sure',
          tool_calls: [{ id: 'c', type: 'function', function: { name: 'f', arguments: '{ }' }, extra: 1 }],
        },
        { role: 'tool', tool_call_id: 'c', content: 'a long result', name: 'f' },
        { role: 'user', content: 'last', cache: true },
      ],
    })
    const prompt = promptOf(body)
    const text = (words: string): Part => ({ type: 'text', text: words })
    const [system, first, response, , last] = prompt.messages as [Message, Message, Message, Message, Message]
    const rewritten: Prompt = {
      ...prompt,
      messages: [
        system,
        withParts(first, [text('new'), ...first.parts.slice(1)]),
        withParts(response, [text('Ok'), ...response.parts.slice(1)]),
        { role: 'tool', parts: [{ type: 'tool-result', callId: 'c', content: [text('short')], failed: false }] },
        { role: 'system', parts: [text('3 messages left out')] },
        last,
      ],
    }
    expect(writeBody(rewritten)['messages']).toEqual([
      { role: 'developer', content: 'Be brief', name: 'dev' },
      { role: 'user', content: [{ type: 'text', text: 'new' }, image] },
      {
        role: 'assistant',
        content: 'Ok',
        tool_calls: [{ id: 'c', type: 'function', function: { name: 'f', arguments: '{ }' }, extra: 1 }],
      },
      { role: 'tool', tool_call_id: 'c', content: 'short' },
      { role: 'system', content: '3 messages left out' },
      { role: 'user', content: 'last', cache: true },
    ])
  })

  it('requests a stream or a whole answer as the pipeline decides', () => {
    const still = promptOf(chat({ stream: true, stream_options: { include_usage: true } }))
    expect(writeBody({ ...still, stream: false })).toEqual(chat({ model: 'gpt-4o' }))
    expect(writeBody({ ...promptOf(chat()), stream: true })).toEqual(
      chat({ model: 'gpt-4o', stream: true, stream_options: { include_usage: true } }),
    )
  })

  it('is written for a prompt without a body', () => {
    const prompt: Prompt = {
      native: { dialect: 'chat', value: {} },
      model: 'small',
      messages: [{ role: 'user', parts: [{ type: 'text', text: 'Sum up' }] }],
      settings: { maxTokens: 5, temperature: 0 },
      tools: [],
      stream: false,
    }
    expect(writeBody(prompt, 'small')).toEqual({
      model: 'small',
      messages: [{ role: 'user', content: 'Sum up' }],
      max_tokens: 5,
      temperature: 0,
    })
  })
})

describe('a prompt of the message format to a chat upstream', () => {
  const block = (value: JsonObject): { dialect: 'messages'; value: JsonObject } => ({ dialect: 'messages', value })
  const foreign = (fields: Partial<Prompt>, value: JsonObject = {}): Prompt => ({
    native: block(value),
    model: 'x/y',
    messages: [{ role: 'user', parts: [{ type: 'text', text: 'Hi' }] }],
    settings: {},
    tools: [],
    stream: false,
    ...fields,
  })

  it('reports the omitted hints', () => {
    const hints = {
      top_k: 5,
      metadata: { user_id: 'u' },
      thinking: { type: 'enabled', budget_tokens: 1024 },
      service_tier: 'auto',
      container: 'c1',
      output_config: { task_budget: 5, format: null },
    }
    const { body, ignored } = chatUpstream.writePrompt(foreign({ settings: { topK: 5 } }, hints), 'm')
    expect([...ignored].sort()).toEqual([
      'container',
      'metadata',
      'output_config.task_budget',
      'service_tier',
      'thinking',
      'top_k',
    ])
    expect(JSON.parse(bodyText(body))).toEqual({ model: 'm', messages: [{ role: 'user', content: 'Hi' }] })
  })

  it.each<[string, Prompt, string]>([
    ['an unknown field', foreign({}, { new_field: 1 }), 'new_field'],
    ['servers of tools', foreign({}, { mcp_servers: [{ url: 'https://x' }] }), 'mcp_servers'],
    ['a container with skills', foreign({}, { container: { skills: [] } }), 'container'],
    [
      'an answer that is to be continued',
      foreign({ messages: [{ role: 'assistant', parts: [{ type: 'text', text: '{' }] }] }),
      'messages[0]',
    ],
    ['an unknown choice of tools', foreign({}, { tool_choice: { type: 'best' } }), 'tool_choice'],
    ['an unknown format', foreign({}, { output_config: { format: { type: 'xml' } } }), 'output_config.format'],
    ['an unknown output field', foreign({}, { output_config: { tone: 'x' } }), 'output_config.tone'],
    [
      'a tool that the vendor runs',
      foreign({ tools: [{ name: 'web_search', native: block({ type: 'web_search_20250305', name: 'web_search' }) }] }),
      'tools[0]',
    ],
    [
      'an unknown block',
      foreign({ messages: [{ role: 'user', parts: [{ type: 'opaque', native: block({ type: 'search_result' }) }] }] }),
      'messages[0]',
    ],
    [
      'a document by its address',
      foreign({
        messages: [{ role: 'user', parts: [{ type: 'document', source: { type: 'url', url: 'https://x/a.pdf' } }] }],
      }),
      'messages[0]',
    ],
    [
      'a file id of the other vendor',
      foreign({ messages: [{ role: 'user', parts: [{ type: 'image', source: { type: 'file', id: 'file_1' } }] }] }),
      'messages[0]',
    ],
    [
      'a document that shall be cited',
      foreign({
        messages: [
          {
            role: 'user',
            parts: [
              {
                type: 'document',
                source: { type: 'text', text: 'x' },
                native: block({ type: 'document', source: {}, citations: { enabled: true } }),
              },
            ],
          },
        ],
      }),
      'messages[0] (document).citations',
    ],
  ])('is rejected for %s', (_name, prompt, param) => {
    const failure = failureOf(() => chatUpstream.writePrompt(prompt, 'm'))
    expect(failure.kind).toBe('invalid-request')
    expect(failure.details.param).toBe(param)
  })

  it('accepts fields without effect', () => {
    const silent = { new_field: null, other_field: false, list: [], mode: { enabled: false } }
    expect(chatUpstream.writePrompt(foreign({}, silent), 'm').ignored).toEqual([])
    for (const loud of [true, 0, '', ['x'], {}, { enabled: true }]) {
      expect(failureOf(() => chatUpstream.writePrompt(foreign({}, { new_field: loud }), 'm')).details.param).toBe(
        'new_field',
      )
    }
  })

  it('has no tool settings without tools', () => {
    const prompt = foreign({ settings: { toolChoice: { type: 'auto' }, parallelToolCalls: false } })
    expect(writeBody(prompt)).toEqual({ model: 'gpt-4o', messages: [{ role: 'user', content: 'Hi' }] })
  })

  it('is rejected if it refers to a stored thread', () => {
    const failure = failureOf(() => chatUpstream.writePrompt(foreign({}, { thread: { type: 'create' } }), 'm'))
    expect(failure.details.details).toEqual({ error_code: 'thread_unsupported_request' })
  })

  it.each([
    [{ type: 'object', properties: { a: { type: 'string' } }, required: ['a'], additionalProperties: false }, true],
    [{ type: 'object', properties: { a: { type: 'string' } }, additionalProperties: false }, false],
    [{ type: 'object', properties: {}, additionalProperties: true }, false],
  ])('requests a strict schema if the upstream supports it: %j', (schema, strict) => {
    const prompt = foreign({ settings: { shape: { type: 'schema', schema } } })
    expect(writeBody(prompt)['response_format']).toEqual({
      type: 'json_schema',
      json_schema: { name: 'answer', schema, strict },
    })
  })
})
