import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { describe, expect, it } from 'vitest'
import { type SseEvent, type StreamChunk, Collector, toStreamChunks } from '../../src/core/completion.ts'
import { GatewayError } from '../../src/core/errors.ts'
import type { Json, JsonObject } from '../../src/core/json.ts'
import { messagesClient } from '../../src/formats/messages/client.ts'
import { messagesUpstream } from '../../src/formats/messages/upstream.ts'
import { chatClient } from '../../src/formats/chat/client.ts'
import { chatUpstream } from '../../src/formats/chat/upstream.ts'
import { failureOf, metrics, svcMetrics } from './chat/support.ts'
import { bodyText } from '../support/body-text.ts'
import { chatFormat, messagesFormat, type WholeFormat } from '../support/two-way-formats.ts'

type Body = Record<string, Json | undefined>

/** Translates a caller's body for an upstream of the other format. */
function translate(from: WholeFormat, to: WholeFormat, body: JsonObject): Body {
  return JSON.parse(bodyText(to.writePrompt(from.readPrompt(body), 'upstream-model').body)) as Body
}

const toChat = (body: JsonObject): Body =>
  translate(messagesFormat, chatFormat, { model: 'a/b', max_tokens: 100, ...body })
const toMessages = (body: JsonObject): Body => translate(chatFormat, messagesFormat, { model: 'a/b', ...body })

const chatPrompt = (fields: JsonObject = {}) =>
  chatClient.readPrompt({ model: 'a/b', messages: [{ role: 'user', content: 'x' }], stream: true, ...fields })
const messagePrompt = () =>
  messagesClient.readPrompt({ model: 'a/b', max_tokens: 9, messages: [{ role: 'user', content: 'x' }], stream: true })

/** Returns the bytes that a caller receives for a stream of chunks. */
function serialize(to: WholeFormat, chunks: readonly StreamChunk[], fields: JsonObject = {}): string {
  const prompt = to.dialect === 'chat' ? chatPrompt(fields) : messagePrompt()
  const writer = to.createStreamWriter({ prompt, createdSeconds: 1_700_000_000 })
  const events = [...chunks.flatMap((chunk) => [...writer.write(chunk)]), ...writer.end(metrics)]
  return events.map(({ event, data }) => `${event === undefined ? '' : `event: ${event}\n`}data: ${data}\n\n`).join('')
}

function respondWith(text: string, status = 200): typeof fetch {
  const type = text.startsWith('{') ? 'application/json' : 'text/event-stream'
  return async () => new Response(text, { status, headers: { 'content-type': type } })
}
const openai = (text: string, status?: number) =>
  new OpenAI({ apiKey: 'k', baseURL: 'http://gateway.test/v1', maxRetries: 0, fetch: respondWith(text, status) })
const anthropic = (text: string, status?: number) =>
  new Anthropic({ apiKey: 'k', baseURL: 'http://gateway.test', maxRetries: 0, fetch: respondWith(text, status) })

const askChat = { model: 'a/b', messages: [{ role: 'user' as const, content: 'x' }] }
const askMessages = { ...askChat, max_tokens: 9 }

const read = (from: WholeFormat, events: readonly SseEvent[]): readonly StreamChunk[] => {
  const reader = from.createReader()
  return events.map((event) => reader(event))
}
const chunk = (delta: JsonObject, reason: string | null = null): SseEvent => ({
  data: JSON.stringify({
    id: 'chatcmpl-1',
    object: 'chat.completion.chunk',
    created: 1,
    model: 'gpt',
    choices: [{ index: 0, delta, finish_reason: reason }],
  }),
})
const event = (data: JsonObject): SseEvent => ({ event: String(data['type']), data: JSON.stringify(data) })

describe('a message request to a chat upstream', () => {
  it('contains the system prompt, tools, settings and the answer format', () => {
    const schema = {
      type: 'object',
      properties: { a: { type: 'string' } },
      required: ['a'],
      additionalProperties: false,
    }
    expect(
      toChat({
        system: [{ type: 'text', text: 'Be brief', cache_control: { type: 'ephemeral' } }],
        messages: [{ role: 'user', content: [{ type: 'text', text: 'Hi', cache_control: { type: 'ephemeral' } }] }],
        temperature: 0,
        top_p: 0.5,
        stop_sequences: ['END'],
        stream: true,
        tools: [{ name: 'f', description: 'd', input_schema: schema, cache_control: { type: 'ephemeral' } }],
        tool_choice: { type: 'any', disable_parallel_tool_use: true },
        output_config: { format: { type: 'json_schema', schema } },
        thinking: { type: 'enabled', budget_tokens: 1024 },
        metadata: { user_id: 'u' },
      }),
    ).toEqual({
      model: 'upstream-model',
      max_tokens: 100,
      messages: [
        { role: 'system', content: 'Be brief' },
        { role: 'user', content: 'Hi' },
      ],
      temperature: 0,
      top_p: 0.5,
      stop: ['END'],
      tools: [{ type: 'function', function: { name: 'f', description: 'd', parameters: schema } }],
      tool_choice: 'required',
      parallel_tool_calls: false,
      response_format: { type: 'json_schema', json_schema: { name: 'answer', schema, strict: true } },
      stream: true,
      stream_options: { include_usage: true },
    })
  })

  it('moves tool results before the text of their turn, and images of results into the user message', () => {
    const { messages } = toChat({
      messages: [
        { role: 'user', content: 'Look' },
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 'Hm', signature: 's' },
            { type: 'text', text: 'Looking' },
            { type: 'tool_use', id: 't1', name: 'look', input: { at: 1 } },
            { type: 'tool_use', id: 't2', name: 'look', input: {} },
          ],
        },
        {
          role: 'user',
          content: [
            { type: 'tool_result', tool_use_id: 't1', content: 'gone', is_error: true },
            {
              type: 'tool_result',
              tool_use_id: 't2',
              content: [
                { type: 'text', text: 'seen' },
                { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'QUJD' } },
              ],
            },
            { type: 'text', text: 'And now?' },
          ],
        },
      ],
      tools: [{ name: 'look', input_schema: { type: 'object' } }],
    })
    expect(messages).toEqual([
      { role: 'user', content: 'Look' },
      {
        role: 'assistant',
        content: 'Looking',
        tool_calls: [
          { id: 't1', type: 'function', function: { name: 'look', arguments: '{"at":1}' } },
          { id: 't2', type: 'function', function: { name: 'look', arguments: '{}' } },
        ],
      },
      { role: 'tool', tool_call_id: 't1', content: 'Error: gone' },
      { role: 'tool', tool_call_id: 't2', content: 'seen' },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'Result of the tool call t2:' },
          { type: 'image_url', image_url: { url: 'data:image/png;base64,QUJD' } },
          { type: 'text', text: 'And now?' },
        ],
      },
    ])
  })

  it('contains images and documents', () => {
    const { messages } = toChat({
      messages: [
        {
          role: 'user',
          content: [
            { type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } },
            {
              type: 'document',
              title: 'a.pdf',
              source: { type: 'base64', media_type: 'application/pdf', data: 'UERG' },
            },
            { type: 'document', title: 'Notes', source: { type: 'text', media_type: 'text/plain', data: 'words' } },
          ],
        },
      ],
    })
    expect(messages).toEqual([
      {
        role: 'user',
        content: [
          { type: 'image_url', image_url: { url: 'https://example.com/a.png' } },
          { type: 'file', file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,UERG' } },
          { type: 'text', text: 'Notes\n\nwords' },
        ],
      },
    ])
  })

  it.each<[string, JsonObject, string]>([
    ['an unknown block', { messages: [{ role: 'user', content: [{ type: 'new_block' }] }] }, 'messages[0]'],
    ['an unknown field', { messages: [{ role: 'user', content: 'x' }], new_field: 1 }, 'new_field'],
    [
      'a tool that the vendor runs',
      { messages: [{ role: 'user', content: 'x' }], tools: [{ type: 'web_search_20250305', name: 'web_search' }] },
      'tools[0]',
    ],
    [
      'a file id',
      { messages: [{ role: 'user', content: [{ type: 'image', source: { type: 'file', file_id: 'f' } }] }] },
      'messages[0]',
    ],
  ])('is rejected for %s', (_name, body, param) => {
    const failure = failureOf(() => toChat(body))
    expect([failure.kind, failure.details.param]).toEqual(['invalid-request', param])
  })
})

describe('a chat request to a message upstream', () => {
  it('contains the system prompt, tools, images and settings', () => {
    const body = toMessages({
      messages: [
        { role: 'developer', content: 'Be brief' },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Look' },
            { type: 'image_url', image_url: { url: 'data:image/png;base64,QUJD' } },
          ],
        },
        {
          role: 'assistant',
          content: null,
          tool_calls: [
            { id: 'c1', type: 'function', function: { name: 'f', arguments: '{"a":1}' } },
            { id: 'c2', type: 'function', function: { name: 'f', arguments: '' } },
          ],
        },
        { role: 'tool', tool_call_id: 'c1', content: 'one' },
        { role: 'tool', tool_call_id: 'c2', content: 'two' },
        { role: 'user', content: 'And?' },
      ],
      max_completion_tokens: 50,
      temperature: 0.5,
      stop: 'END',
      tools: [{ type: 'function', function: { name: 'f' } }],
      tool_choice: 'required',
      parallel_tool_calls: false,
      stream: true,
      stream_options: { include_usage: true },
      seed: 1,
    })
    expect(body).toMatchObject({
      model: 'upstream-model',
      max_tokens: 50,
      temperature: 0.5,
      stop_sequences: ['END'],
      stream: true,
      tool_choice: { type: 'any', disable_parallel_tool_use: true },
      tools: [{ name: 'f', input_schema: { type: 'object' } }],
    })
    expect(body['seed']).toBeUndefined()
    expect(JSON.stringify(body['system'])).toContain('Be brief')
    const messages = body['messages'] as readonly JsonObject[]
    expect(messages.map((message) => message['role'])).toEqual(['user', 'assistant', 'user'])
    expect(messages[0]).toMatchObject({
      content: [{ text: 'Look' }, { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'QUJD' } }],
    })
    expect(messages[1]).toMatchObject({
      content: [
        { type: 'tool_use', id: 'c1', name: 'f', input: { a: 1 } },
        { type: 'tool_use', id: 'c2', name: 'f', input: {} },
      ],
    })
    expect(messages[2]).toMatchObject({
      content: [{ tool_use_id: 'c1' }, { tool_use_id: 'c2' }, { type: 'text', text: 'And?' }],
    })
  })

  it('is equal after translation in both directions', () => {
    const body = {
      max_tokens: 100,
      messages: [
        { role: 'system', content: 'Be brief' },
        { role: 'user', content: 'Hi' },
        {
          role: 'assistant',
          content: 'Calling',
          tool_calls: [{ id: 'c1', type: 'function', function: { name: 'f', arguments: '{"a":1}' } }],
        },
        { role: 'tool', tool_call_id: 'c1', content: 'one' },
        { role: 'user', content: 'And?' },
      ],
      tools: [{ type: 'function', function: { name: 'f', parameters: { type: 'object', properties: {} } } }],
      stop: ['END'],
      temperature: 0.5,
    }
    expect(toChat(toMessages(body))).toEqual({ model: 'upstream-model', ...body })
  })
})

describe('a whole answer', () => {
  const context = { prompt: chatPrompt(), createdSeconds: 1_700_000_000 }

  it('of a message upstream is a completion to the official chat client', async () => {
    const response = messagesUpstream.readCompletion({
      id: 'msg_1',
      type: 'message',
      role: 'assistant',
      model: 'claude',
      content: [
        { type: 'thinking', thinking: 'Hm', signature: 's' },
        { type: 'text', text: 'Hi' },
        { type: 'tool_use', id: 't1', name: 'f', input: { a: 1 } },
      ],
      stop_reason: 'tool_use',
      usage: { input_tokens: 5, cache_read_input_tokens: 3, cache_creation_input_tokens: 2, output_tokens: 7 },
    })
    const text = chatClient.writeCompletion(response, metrics, context)
    const completion = await openai(text).chat.completions.create(askChat)
    expect(completion.choices[0]).toMatchObject({
      message: {
        role: 'assistant',
        content: 'Hi',
        tool_calls: [{ id: 't1', function: { name: 'f', arguments: '{"a":1}' } }],
      },
      finish_reason: 'tool_calls',
    })
    expect(completion.usage).toMatchObject({
      prompt_tokens: 10,
      completion_tokens: 7,
      total_tokens: 17,
      prompt_tokens_details: { cached_tokens: 3 },
    })
  })

  it('of a chat upstream is parsed as a message by the official message client', async () => {
    const response = chatUpstream.readCompletion({
      id: 'chatcmpl-1',
      model: 'gpt',
      choices: [
        {
          message: {
            role: 'assistant',
            content: 'Hi',
            tool_calls: [{ id: 'c1', type: 'function', function: { name: 'f', arguments: '{"a":1}' } }],
          },
          finish_reason: 'tool_calls',
        },
      ],
      usage: { prompt_tokens: 10, completion_tokens: 7, prompt_tokens_details: { cached_tokens: 4 } },
    })
    const text = messagesClient.writeCompletion(response, metrics, { prompt: messagePrompt(), createdSeconds: 1 })
    const message = await anthropic(text).messages.create(askMessages)
    expect(message).toMatchObject({
      type: 'message',
      stop_reason: 'tool_use',
      content: [
        { type: 'text', text: 'Hi' },
        { type: 'tool_use', id: 'c1', name: 'f', input: { a: 1 } },
      ],
      usage: { input_tokens: 6, cache_read_input_tokens: 4, output_tokens: 7 },
      svc_metrics: { savings_percent: 10 },
    })
  })

  it.each([
    ['end_turn', 'stop'],
    ['max_tokens', 'length'],
    ['stop_sequence', 'stop'],
    ['refusal', 'content_filter'],
    ['pause_turn', 'stop'],
  ])('with stop reason %s has the finish reason %s', (reason, expected) => {
    const body = {
      id: 'm',
      type: 'message',
      role: 'assistant',
      model: 'c',
      content: [{ type: 'text', text: 'x' }],
      stop_reason: reason,
      stop_sequence: reason === 'stop_sequence' ? 'END' : null,
      usage: { input_tokens: 1, output_tokens: 1 },
    }
    const text = chatClient.writeCompletion(messagesUpstream.readCompletion(body), metrics, context)
    expect(JSON.parse(text)).toMatchObject({ choices: [{ finish_reason: expected }] })
  })
})

describe('a streamed answer', () => {
  const chatFrames: readonly SseEvent[] = [
    chunk({ role: 'assistant', content: '' }),
    chunk({ reasoning_content: 'Hm' }),
    chunk({ content: 'Calling ' }),
    chunk({ content: 'both' }),
    chunk({
      tool_calls: [
        { index: 0, id: 'c0', type: 'function', function: { name: 'f', arguments: '' } },
        { index: 1, id: 'c1', type: 'function', function: { name: 'g', arguments: '{"b"' } },
      ],
    }),
    chunk({ tool_calls: [{ index: 0, function: { arguments: '{"a"' } }] }),
    chunk({ tool_calls: [{ index: 1, function: { arguments: ':2}' } }] }),
    chunk({ tool_calls: [{ index: 0, function: { arguments: ':1}' } }] }),
    chunk({}, 'tool_calls'),
    {
      data: JSON.stringify({
        id: 'chatcmpl-1',
        object: 'chat.completion.chunk',
        created: 1,
        model: 'gpt',
        choices: [],
        usage: { prompt_tokens: 10, completion_tokens: 7, prompt_tokens_details: { cached_tokens: 4 } },
      }),
    },
    { data: '[DONE]' },
  ]

  const messageFrames: readonly SseEvent[] = [
    event({
      type: 'message_start',
      message: {
        id: 'msg_1',
        type: 'message',
        role: 'assistant',
        model: 'claude',
        content: [],
        stop_reason: null,
        stop_sequence: null,
        usage: { input_tokens: 5, cache_read_input_tokens: 3, cache_creation_input_tokens: 2, output_tokens: 1 },
      },
    }),
    event({ type: 'content_block_start', index: 0, content_block: { type: 'thinking', thinking: '', signature: '' } }),
    event({ type: 'content_block_delta', index: 0, delta: { type: 'thinking_delta', thinking: 'Hm' } }),
    event({ type: 'content_block_delta', index: 0, delta: { type: 'signature_delta', signature: 's' } }),
    event({ type: 'content_block_stop', index: 0 }),
    event({ type: 'ping' }),
    event({ type: 'content_block_start', index: 1, content_block: { type: 'text', text: '' } }),
    event({ type: 'content_block_delta', index: 1, delta: { type: 'text_delta', text: 'Calling both' } }),
    event({ type: 'content_block_stop', index: 1 }),
    event({
      type: 'content_block_start',
      index: 2,
      content_block: { type: 'tool_use', id: 't0', name: 'f', input: {} },
    }),
    event({ type: 'content_block_delta', index: 2, delta: { type: 'input_json_delta', partial_json: '{"a"' } }),
    event({ type: 'content_block_delta', index: 2, delta: { type: 'input_json_delta', partial_json: ':1}' } }),
    event({ type: 'content_block_stop', index: 2 }),
    event({
      type: 'content_block_start',
      index: 3,
      content_block: { type: 'tool_use', id: 't1', name: 'g', input: {} },
    }),
    event({ type: 'content_block_stop', index: 3 }),
    event({
      type: 'message_delta',
      delta: { stop_reason: 'tool_use', stop_sequence: null },
      usage: { output_tokens: 16 },
    }),
    event({ type: 'message_stop' }),
  ]

  it('of a chat upstream with interleaved calls is parsed by the official message client', async () => {
    const text = serialize(messagesFormat, read(chatFormat, chatFrames))
    const message = await anthropic(text).messages.stream(askMessages).finalMessage()
    expect(message.content.filter((block) => block.type !== 'thinking')).toMatchObject([
      { type: 'text', text: 'Calling both' },
      { type: 'tool_use', id: 'c0', name: 'f', input: { a: 1 } },
      { type: 'tool_use', id: 'c1', name: 'g', input: { b: 2 } },
    ])
    expect(message.stop_reason).toBe('tool_use')
    expect(message.usage).toMatchObject({ input_tokens: 6, cache_read_input_tokens: 4, output_tokens: 7 })
  })

  it('of a message upstream is a completion to the official chat client', async () => {
    const text = serialize(chatFormat, read(messagesFormat, messageFrames), { stream_options: { include_usage: true } })
    const completion = await openai(text).chat.completions.stream(askChat).finalChatCompletion()
    expect(completion.id).toBe('msg_1')
    expect(completion.choices[0]).toMatchObject({
      message: {
        content: 'Calling both',
        tool_calls: [
          { id: 't0', function: { name: 'f', arguments: '{"a":1}' } },
          { id: 't1', function: { name: 'g', arguments: '{}' } },
        ],
      },
      finish_reason: 'tool_calls',
    })
    expect(completion.usage).toMatchObject({ prompt_tokens: 10, completion_tokens: 16, total_tokens: 26 })
    expect(text).not.toMatch(/"content":"Hm/)
    expect(text.match(/svc_metrics/g)).toHaveLength(1)
    expect(text).toContain(JSON.stringify(svcMetrics))
  })

  it.each([
    ['chat', chatFormat, chatFrames],
    ['message', messagesFormat, messageFrames],
  ] as const)(
    'of a %s upstream is equal after it is joined, replayed, and read from the other format',
    (_name, from, events) => {
      const collect = (chunks: readonly StreamChunk[]) => {
        const collected = new Collector()
        for (const chunk of chunks) collected.add(chunk)
        return collected.completion()
      }
      const joined = collect(read(from, events))
      const to = from === chatFormat ? messagesFormat : chatFormat
      const replayed = serialize(to, toStreamChunks(joined), { stream_options: { include_usage: true } })
      const again = replayed
        .trim()
        .split('\n\n')
        .map((block): SseEvent => {
          const name = /^event: (.*)$/m.exec(block)?.[1]
          const data = /^data: (.*)$/m.exec(block)?.[1] ?? ''
          return name === undefined ? { data } : { event: name, data }
        })
      const { parts, finish, usage } = collect(read(to, again))
      const words = joined.parts.flatMap((part) => (part.type === 'text' ? [part.text] : []))
      expect(parts.flatMap((part) => (part.type === 'text' ? [part.text] : []))).toEqual(words)
      const calls = joined.parts.filter((part) => part.type === 'tool-call')
      expect(parts.filter((part) => part.type === 'tool-call')).toEqual(
        calls.map((call) => ({ ...call, input: call.input === '' ? expect.stringMatching(/^(\{\})?$/) : call.input })),
      )
      expect(finish).toBe(joined.finish)
      expect(usage?.outputTokens).toBe(joined.usage?.outputTokens)
    },
  )
})

describe('an error', () => {
  it('of a message upstream reaches a chat caller with its message', async () => {
    const failure = messagesUpstream.readFailure(400, {
      type: 'error',
      error: { type: 'invalid_request_error', message: 'prompt is too long', details: { error_code: 'x' } },
    })
    const body = JSON.stringify(chatClient.writeFailure(failure, 'r'))
    const refused = openai(body, 400).chat.completions.create(askChat)
    await expect(refused).rejects.toMatchObject({ status: 400, type: 'invalid_request_error' })
    expect(JSON.parse(body)).toMatchObject({ error: { message: 'prompt is too long', details: { error_code: 'x' } } })
  })

  it('of a chat upstream reaches a message caller with its message', async () => {
    const failure = chatUpstream.readFailure(400, {
      error: { message: 'too long', type: 'invalid_request_error', code: 'context_length_exceeded', param: 'messages' },
    })
    const body = JSON.stringify(messagesClient.writeFailure(failure, 'r'))
    await expect(anthropic(body, 400).messages.create(askMessages)).rejects.toMatchObject({ status: 400 })
    expect(JSON.parse(body)).toMatchObject({
      type: 'error',
      error: { type: 'invalid_request_error', message: 'too long' },
    })
  })

  it('inside a stream is thrown by the official clients', async () => {
    const failure = new GatewayError('upstream', 'It broke')
    const chat = `${chunk({ content: 'x' }).data}\n\ndata: ${chatClient.writeFailureEvent(failure, 'r').data}\n\n`
    const consume = async () => {
      const stream = await openai(`data: ${chat}`).chat.completions.create({ ...askChat, stream: true })
      for await (const part of stream) expect(part.choices).toHaveLength(1)
    }
    await expect(consume()).rejects.toThrow(/It broke/)
    const event = messagesClient.writeFailureEvent(failure, 'r')
    const stream = anthropic(`event: ${String(event.event)}\ndata: ${event.data}\n\n`).messages.stream(askMessages)
    await expect(stream.finalMessage()).rejects.toThrow(/It broke/)
  })
})
