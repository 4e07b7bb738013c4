import { createAnthropic } from '@ai-sdk/anthropic'
import Anthropic, { BadRequestError } from '@anthropic-ai/sdk'
import { ChatAnthropic } from '@langchain/anthropic'
import { generateText, jsonSchema, streamText, type ToolSet } from 'ai'
import { describe, expect, it } from 'vitest'
import { type Completion, type SseEvent, toStreamChunks } from '../../../src/core/completion.ts'
import { NO_USAGE } from '../../../src/core/money.ts'
import { GatewayError } from '../../../src/core/errors.ts'
import type { JsonObject } from '../../../src/core/json.ts'
import { messagesClient } from '../../../src/formats/messages/client.ts'
import { messagesUpstream } from '../../../src/formats/messages/upstream.ts'
import { bodyOf, context, metrics, readEvents, writeChunks } from './samples.ts'
import { bodyText } from '../../support/body-text.ts'

/** A response of a chat-format upstream, serialized in the message format. */
const response: Completion = {
  id: 'chatcmpl-1',
  model: 'gpt-5',
  parts: [
    { type: 'text', text: 'I will look it up.' },
    { type: 'tool-call', id: 'call_1', name: 'search', input: '{"query":"tea"}' },
    { type: 'tool-call', id: 'call_2', name: 'now', input: '' },
  ],
  finish: 'tool-call',
  usage: { ...NO_USAGE, inputTokens: 10, cacheReadTokens: 4, outputTokens: 7 },
}

const sse = (events: readonly SseEvent[]): string =>
  events.map((event) => `event: ${event.event}\ndata: ${event.data}\n\n`).join('')

/** Answers each request in the message format, as a stream if the request asks for one. */
const createServer =
  (events: readonly SseEvent[] = writeChunks(toStreamChunks(response)), whole: Completion = response) =>
  (_: unknown, init?: { readonly body?: unknown }): Promise<Response> => {
    const isStream = bodyOf(String(init?.body))['stream'] === true
    const body = isStream ? sse(events) : messagesClient.writeCompletion(whole, metrics, context)
    const type = isStream ? 'text/event-stream' : 'application/json'
    return Promise.resolve(new Response(body, { headers: { 'content-type': type, 'request-id': 'req_1' } }))
  }

const createFailingServer = (failure: GatewayError, status: number) => (): Promise<Response> =>
  Promise.resolve(Response.json(messagesClient.writeFailure(failure, 'req_1'), { status }))

const official = (fetch: typeof globalThis.fetch) => new Anthropic({ apiKey: 'sk-svc-1', fetch, maxRetries: 0 })
const question = { model: 'x', max_tokens: 100, messages: [{ role: 'user', content: 'Tea?' }] } satisfies JsonObject
const asked = { ...question, messages: [{ role: 'user' as const, content: 'Tea?' }] }

const broken: readonly SseEvent[] = [
  ...writeChunks(toStreamChunks(response)).slice(0, 3),
  messagesClient.writeFailureEvent(new GatewayError('overloaded', 'The upstream is overloaded.'), 'req_1'),
]

describe('the official client', () => {
  it('reads a whole message with its bill', async () => {
    const message = await official(createServer()).messages.create(asked)
    expect(message.content).toMatchObject([
      { type: 'text', text: 'I will look it up.' },
      { type: 'tool_use', id: 'call_1', input: { query: 'tea' } },
      { type: 'tool_use', id: 'call_2', input: {} },
    ])
    expect(message).toMatchObject({ id: 'msg_1', stop_reason: 'tool_use', svc_metrics: { your_cost: 0.003 } })
    expect(message.usage).toMatchObject({ input_tokens: 10, cache_read_input_tokens: 4, output_tokens: 7 })
  })

  it('assembles a stream to the same message', async () => {
    const streamed = await official(createServer()).messages.stream(asked).finalMessage()
    const whole = await official(createServer()).messages.create(asked)
    expect(streamed.content.map((block) => JSON.stringify({ ...block }))).toEqual(
      whole.content.map((block) => JSON.stringify({ ...block })),
    )
    expect(streamed).toMatchObject({ id: 'msg_1', stop_reason: 'tool_use', stop_sequence: null })
    expect(streamed.usage).toMatchObject({ input_tokens: 10, cache_read_input_tokens: 4, output_tokens: 7 })
  })

  it('receives the bill in the raw events', async () => {
    const events: unknown[] = []
    for await (const event of await official(createServer()).messages.create({ ...asked, stream: true }))
      events.push(event)
    expect(events.at(-2)).toMatchObject({ type: 'message_delta', svc_metrics: { original_cost: 0.004 } })
  })

  it('assembles a forwarded stream of an upstream of the format', async () => {
    const passed = writeChunks(readEvents(writeChunks(toStreamChunks(response))))
    const streamed = await official(createServer(passed)).messages.stream(asked).finalMessage()
    expect(streamed.content).toHaveLength(3)
    expect(streamed.usage.output_tokens).toBe(7)
  })

  it('throws for a broken stream', async () => {
    await expect(official(createServer(broken)).messages.stream(asked).finalMessage()).rejects.toThrow(
      'overloaded_error',
    )
  })

  it('reads type, details and request id of a refusal', async () => {
    const failure = new GatewayError('invalid-request', 'No threads here.', {
      details: { error_code: 'thread_unsupported_request' },
    })
    const error: unknown = await official(createFailingServer(failure, 400))
      .messages.create(asked)
      .catch((thrown: unknown) => thrown)
    expect(error).toMatchObject({ status: 400, errorCode: 'thread_unsupported_request' })
    expect(error).toBeInstanceOf(BadRequestError)
  })
})

describe('the AI SDK', () => {
  const model = (fetch: typeof globalThis.fetch) => createAnthropic({ apiKey: 'sk-svc-1', fetch })('claude-sonnet-4-5')
  const tools: ToolSet = {
    search: { inputSchema: jsonSchema({ type: 'object', properties: { query: { type: 'string' } } }) },
    now: { inputSchema: jsonSchema({ type: 'object', properties: {} }) },
  }
  const calls = [
    { toolName: 'search', input: { query: 'tea' } },
    { toolName: 'now', input: {} },
  ]

  it('reads a whole message', async () => {
    const result = await generateText({ model: model(createServer()), prompt: 'Tea?', tools })
    expect(result.text).toBe('I will look it up.')
    expect(result.toolCalls).toMatchObject(calls)
    expect(result.usage).toMatchObject({ inputTokens: 14, outputTokens: 7 })
  })

  it.each([
    ['written anew', writeChunks(toStreamChunks(response))],
    ['passed on', writeChunks(readEvents(writeChunks(toStreamChunks(response))))],
  ])('reads a stream that was %s without an error part', async (_, events) => {
    const result = streamText({ model: model(createServer(events)), prompt: 'Tea?', tools })
    const types: string[] = []
    for await (const part of result.fullStream) types.push(part.type)
    expect(types).not.toContain('error')
    expect(await result.text).toBe('I will look it up.')
    expect(await result.toolCalls).toMatchObject(calls)
    expect(await result.usage).toMatchObject({ inputTokens: 14, outputTokens: 7 })
    expect(await result.finishReason).toBe('tool-calls')
  })

  it('shows the message of a refusal', async () => {
    const failure = new GatewayError('budget-exceeded', 'The budget of this key is reached.')
    await expect(
      generateText({ model: model(createFailingServer(failure, 402)), prompt: 'Tea?', maxRetries: 0 }),
    ).rejects.toThrow('The budget of this key is reached.')
  })

  it('reports a broken stream by an error part', async () => {
    const result = streamText({ model: model(createServer(broken)), prompt: 'Tea?', tools, onError: () => {} })
    const types: string[] = []
    for await (const part of result.fullStream) types.push(part.type)
    expect(types).toContain('error')
  })

  it('sends requests that the gateway reads and writes without a change', async () => {
    const sent: string[] = []
    const fetch: typeof globalThis.fetch = (url, init) => {
      sent.push(String(init?.body))
      return createServer()(url, { body: init?.body })
    }
    const image = new Uint8Array([137, 80, 78, 71, 13, 10, 26, 10])
    await generateText({
      model: model(fetch),
      tools,
      system: 'Be brief.',
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Tea?' },
            { type: 'file', data: image, mediaType: 'image/png' },
          ],
        },
        {
          role: 'assistant',
          content: [{ type: 'tool-call', toolCallId: 'a', toolName: 'search', input: { query: 'tea' } }],
        },
        {
          role: 'tool',
          content: [
            { type: 'tool-result', toolCallId: 'a', toolName: 'search', output: { type: 'text', value: 'ok' } },
          ],
        },
      ],
    })
    const [text = ''] = sent
    const prompt = messagesClient.readPrompt(bodyOf(text))
    expect(prompt.messages.flatMap((message) => message.parts.map((part) => part.type))).toEqual([
      'text',
      'text',
      'image',
      'tool-call',
      'tool-result',
    ])
    expect(bodyOf(bodyText(messagesUpstream.writePrompt(prompt, prompt.model).body))).toEqual(bodyOf(text))
  })
})

describe('LangChain', () => {
  const model = (fetch: typeof globalThis.fetch, streaming = false) =>
    new ChatAnthropic({ apiKey: 'sk-svc-1', model: 'x', streaming, maxRetries: 0, clientOptions: { fetch } })

  it('counts the tokens of a stream only once', async () => {
    const message = await model(createServer(), true).invoke('Tea?')
    expect(message.tool_calls).toMatchObject([
      { name: 'search', args: { query: 'tea' } },
      { name: 'now', args: {} },
    ])
    expect(message.usage_metadata).toMatchObject({ output_tokens: 7 })
  })

  it('reads a whole message', async () => {
    const message = await model(createServer()).invoke('Tea?')
    expect(message.text).toBe('I will look it up.')
    expect(message.usage_metadata).toMatchObject({ output_tokens: 7 })
  })
})
