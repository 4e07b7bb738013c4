import { describe, expect, it } from 'vitest'
import type { Json, JsonObject } from '../../../src/core/json.ts'
import { withParts } from '../../../src/core/messages.ts'
import { type Message, type Prompt, type Settings } from '../../../src/core/prompt.ts'
import { messagesClient } from '../../../src/formats/messages/client.ts'
import { messagesUpstream } from '../../../src/formats/messages/upstream.ts'
import { parseBody } from '../../../src/formats/parse-body.ts'
import { bodyOf, smallBody } from './samples.ts'
import { bodyText } from '../../support/body-text.ts'

const read = (fields: JsonObject) => messagesClient.readPrompt({ ...smallBody, ...fields })
const write = (prompt: Prompt) => bodyOf(bodyText(messagesUpstream.writePrompt(prompt, 'sonnet').body))
const messagesOf = (prompt: Prompt) => write(prompt)['messages'] as readonly JsonObject[]

describe('writing a prompt of the message format', () => {
  it('keeps the received text except for the model', () => {
    const text =
      '{ "max_tokens":1e2,\n "model" : "claude/sonnet", "messages":[{"role":"user","content":"\\u00e9"}], "new_field": 1.0}'
    const parsed = parseBody(new TextEncoder().encode(text))
    const prompt = messagesClient.readPrompt(parsed.body, parsed.received)
    const { body, ignored } = messagesUpstream.writePrompt(prompt, 'sonnet')
    expect(bodyText(body)).toBe(text.replace('claude/sonnet', 'sonnet'))
    expect(ignored).toEqual([])
  })

  it('sends one model when the body contains the key twice', () => {
    const text = '{"model":"free","max_tokens":1,"messages":[{"role":"user","content":"a"}],"model":"claude/sonnet"}'
    const parsed = parseBody(new TextEncoder().encode(text))
    const prompt = messagesClient.readPrompt(parsed.body, parsed.received)
    const { body } = messagesUpstream.writePrompt(prompt, 'sonnet')
    expect(bodyText(body).match(/"model"/g)).toHaveLength(1)
    expect(bodyOf(bodyText(body))['model']).toBe('sonnet')
  })

  it.each<[string, Settings, JsonObject]>([
    ['a lowered limit', { maxTokens: 50 }, { max_tokens: 50 }],
    ['a default', { temperature: 0.7 }, { temperature: 0.7 }],
    ['a stop', { stop: ['END'] }, { stop_sequences: ['END'] }],
    [
      'a choice of tool',
      { toolChoice: { type: 'required' } },
      { tool_choice: { type: 'any', disable_parallel_tool_use: true } },
    ],
    [
      'a shape',
      { shape: { type: 'schema', schema: { type: 'array' } } },
      { output_config: { effort: 'low', format: { type: 'json_schema', schema: { type: 'array' } } } },
    ],
  ])('changes exactly the field of %s', (_, settings, changed) => {
    const fields = {
      top_p: 0.5,
      tool_choice: { type: 'auto', disable_parallel_tool_use: true, later: 1 },
      output_config: { effort: 'low' },
      unknown: [{ a: null }],
    }
    const prompt = read(fields)
    const body = write({ ...prompt, settings: { ...prompt.settings, ...settings } })
    expect(body).toEqual({ ...smallBody, ...fields, ...changed, model: 'sonnet' })
  })

  it('writes a changed answer format only under its current name', () => {
    const prompt = read({ output_format: { type: 'json_schema', schema: {} } })
    const shape = { type: 'schema', schema: { type: 'array' } } as const
    expect(write({ ...prompt, settings: { ...prompt.settings, shape } })).toEqual({
      ...smallBody,
      model: 'sonnet',
      output_config: { format: { type: 'json_schema', schema: { type: 'array' } } },
    })
  })

  it.each<[string, number, JsonObject]>([
    ['keeps a budget for thoughts that still fits', 5000, { type: 'enabled', budget_tokens: 4000 }],
    ['lowers one that does not', 4000, { type: 'enabled', budget_tokens: 3999 }],
    ['disables thinking if there is no room for reasoning', 1024, { type: 'disabled' }],
  ])('%s with a limit of %i', (_, maxTokens, thinking) => {
    const prompt = read({ max_tokens: 8000, thinking: { type: 'enabled', budget_tokens: 4000 } })
    const body = write({ ...prompt, settings: { ...prompt.settings, maxTokens } })
    expect(body).toEqual({ ...smallBody, model: 'sonnet', max_tokens: maxTokens, thinking })
  })

  it('omits a removed setting', () => {
    const prompt = read({ temperature: 0.3, top_p: 0.9 })
    const { topP: _, ...settings } = prompt.settings
    expect(write({ ...prompt, settings })).toEqual({ ...smallBody, temperature: 0.3, model: 'sonnet' })
  })

  it('writes a changed stream flag and the remaining tools', () => {
    const tools = [
      { name: 'a', input_schema: {} },
      { type: 'web_search_20260318', name: 'b' },
    ]
    const prompt = read({ stream: true, tools })
    expect(write({ ...prompt, stream: false })['stream']).toBe(false)
    expect(write({ ...prompt, tools: prompt.tools.slice(1) })['tools']).toEqual(tools.slice(1))
    expect(write({ ...prompt, tools: [] })).not.toHaveProperty('tools')
  })

  const conversation: readonly JsonObject[] = [
    { role: 'user', content: [{ type: 'text', text: 'one', cache_control: { type: 'ephemeral' } }], tag: 1 },
    {
      role: 'assistant',
      content: [{ type: 'tool_use', id: 't1', name: 'a', input: { b: 1 }, caller: { type: 'direct' } }],
    },
    {
      role: 'user',
      content: [
        { type: 'text', text: 'and' },
        { type: 'tool_result', tool_use_id: 't1', content: 'ok' },
      ],
    },
    { role: 'assistant', content: 'three' },
    { role: 'user', content: 'four' },
  ]

  const blocksAt = (index: number): readonly Json[] => {
    const content = conversation[index]?.['content']
    return Array.isArray(content) ? (content as readonly Json[]) : []
  }

  it('sends unchanged messages as received, and unchanged parts of rewritten messages', () => {
    const prompt = read({ system: 'S', messages: conversation })
    const messages = prompt.messages.map((message, index): Message =>
      index === 2 ? withParts(message, [...message.parts, { type: 'text', text: 'rewritten' }]) : message,
    )
    const [call] = blocksAt(1)
    expect(write({ ...prompt, messages })).toEqual({
      ...smallBody,
      model: 'sonnet',
      system: 'S',
      messages: [
        conversation[0],
        { role: 'assistant', content: [call, { type: 'text', text: 'rewritten' }] },
        ...conversation.slice(2),
      ],
    })
  })

  it('joins messages of one role after the message between them is dropped, with tool results first', () => {
    const prompt = read({ messages: conversation })
    const [first, , third, , fifth] = prompt.messages as [Message, Message, Message, Message, Message]
    expect(messagesOf({ ...prompt, messages: [first, third, fifth] })).toEqual([
      {
        role: 'user',
        tag: 1,
        content: [
          { type: 'tool_result', tool_use_id: 't1', content: 'ok' },
          { type: 'text', text: 'one', cache_control: { type: 'ephemeral' } },
          { type: 'text', text: 'and' },
          { type: 'text', text: 'four' },
        ],
      },
    ])
  })

  it('omits empty content', () => {
    const prompt = read({ messages: conversation })
    const [first] = prompt.messages as [Message]
    const empty: Message = { role: 'assistant', parts: [{ type: 'text', text: ' ' }] }
    const next: Message = {
      role: 'user',
      parts: [
        { type: 'text', text: 'next' },
        { type: 'text', text: '' },
      ],
    }
    expect(messagesOf({ ...prompt, messages: [first, empty, next] })).toEqual([
      { role: 'user', tag: 1, content: [...blocksAt(0), { type: 'text', text: 'next' }] },
    ])
  })

  it('keeps the position of the system prompt when the conversation is rewritten', () => {
    const system = [{ type: 'text', text: 'S', cache_control: { type: 'ephemeral' } }]
    const later = { role: 'system', content: 'now in French' }
    const prompt = read({ system, messages: [...conversation, later] })
    const body = write({ ...prompt, messages: prompt.messages.filter((_, index) => index !== 1 && index !== 2) })
    expect(body['system']).toEqual(system)
    expect((body['messages'] as readonly Json[]).at(-1)).toEqual(later)
  })

  it('writes a rewritten, added or removed system prompt outside of the messages', () => {
    const prompt = read({ system: 'S' })
    const [, user] = prompt.messages as [Message, Message]
    const anew: Message = { role: 'system', parts: [{ type: 'text', text: 'T' }] }
    const blocks = [{ type: 'text', text: 'T' }]
    expect(write({ ...prompt, messages: [anew, user] })).toEqual({ ...smallBody, model: 'sonnet', system: blocks })
    expect(write({ ...read({}), messages: [anew, user] })).toEqual({ ...smallBody, model: 'sonnet', system: blocks })
    expect(write({ ...prompt, messages: [user] })).toEqual({ ...smallBody, model: 'sonnet' })
  })

  it('keeps neighboring system messages of a rewritten conversation separate', () => {
    const notes = [
      { role: 'system', content: 'now in French' },
      { role: 'system', content: [{ type: 'text', text: 'and loud' }] },
    ]
    const prompt = read({ messages: [...conversation, ...notes] })
    expect(messagesOf({ ...prompt, messages: prompt.messages.slice(4) })).toEqual([conversation[4], ...notes])
  })

  it('keeps a system message at the start of the messages', () => {
    const messages = [
      { role: 'system', content: 'S' },
      { role: 'user', content: 'a' },
    ]
    const prompt = read({ messages })
    expect(write({ ...prompt, settings: { maxTokens: 1 } })).toEqual({
      ...smallBody,
      model: 'sonnet',
      max_tokens: 1,
      messages,
    })
  })
})
