import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import OpenAI from 'openai'
import Anthropic from '@anthropic-ai/sdk'
import { chatClient } from '../../src/formats/chat/client.ts'
import { geminiUpstream } from '../../src/formats/gemini/upstream.ts'
import { createGateway, type Gateway } from '../../src/index.ts'
import { gemini } from '../../src/providers.ts'
import { serve, type RunningServer } from '../../src/node.ts'
import { startUpstream, type Upstream } from '../support/upstream.ts'

let upstream: Upstream
let gateway: Gateway
let server: RunningServer
let openai: OpenAI
let anthropic: Anthropic

beforeEach(async () => {
  upstream = await startUpstream()
  gateway = createGateway({
    providers: [gemini({ apiKey: 'google-test-key', baseUrl: upstream.url })],
    cache: false,
    margin: 1,
    runtime: { random: () => 0 },
  })
  const key = await gateway.keys.create({ name: 'gemini' })
  server = await serve(gateway, { port: 0 })
  openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: key.value, maxRetries: 0 })
  anthropic = new Anthropic({ baseURL: server.url, apiKey: key.value, maxRetries: 0 })
})

afterEach(async () => {
  await server.close()
  await gateway.close()
  await upstream.close()
})

const usageMetadata = {
  promptTokenCount: 100,
  cachedContentTokenCount: 40,
  candidatesTokenCount: 10,
  thoughtsTokenCount: 5,
  totalTokenCount: 115,
}

const answer = (parts: readonly object[], finishReason = 'STOP'): object => ({
  candidates: [{ content: { role: 'model', parts }, finishReason, index: 0 }],
  usageMetadata,
  modelVersion: 'gemini-3-flash-preview',
  responseId: 'resp-1',
})

const MODEL = 'gemini/gemini-3-flash-preview'

describe('requests to a Gemini model', () => {
  it('keeps the title of a text document', async () => {
    upstream.reply = () => ({ kind: 'json', value: answer([{ text: 'Yes.' }]) })
    await anthropic.messages.create({
      model: MODEL,
      max_tokens: 50,
      messages: [
        {
          role: 'user',
          content: [
            { type: 'document', title: 'Minutes', source: { type: 'text', media_type: 'text/plain', data: 'We met.' } },
            { type: 'text', text: 'Did they meet?' },
          ],
        },
      ],
    })

    expect(upstream.last.body['contents']).toEqual([
      { role: 'user', parts: [{ text: 'Minutes\n\nWe met.' }, { text: 'Did they meet?' }] },
    ])
  })

  it('writes system text, images, tools, results, the schema and the settings in its format', async () => {
    upstream.reply = () => ({ kind: 'json', value: answer([{ text: '{"a":1}' }]) })
    const schema = { type: 'object', properties: { a: { type: 'number' } } }

    await openai.chat.completions.create({
      model: MODEL,
      max_completion_tokens: 50,
      temperature: 0.5,
      stop: ['END'],
      reasoning_effort: 'low',
      response_format: { type: 'json_schema', json_schema: { name: 'a', schema } },
      tools: [{ type: 'function', function: { name: 'look', description: 'Looks.', parameters: schema } }],
      tool_choice: 'required',
      messages: [
        { role: 'system', content: 'Be brief.' },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'What is this?' },
            { type: 'image_url', image_url: { url: 'data:image/png;base64,aGVsbG8=' } },
          ],
        },
        {
          role: 'assistant',
          content: null,
          tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'look', arguments: '{"a":2}' } }],
        },
        { role: 'tool', tool_call_id: 'call_1', content: 'a cat' },
      ],
    })

    expect(upstream.last.path).toBe('/v1beta/models/gemini-3-flash-preview:generateContent')
    expect(upstream.last.headers['x-goog-api-key']).toBe('google-test-key')
    expect(upstream.last.body).toEqual({
      systemInstruction: { parts: [{ text: 'Be brief.' }] },
      contents: [
        {
          role: 'user',
          parts: [{ text: 'What is this?' }, { inlineData: { mimeType: 'image/png', data: 'aGVsbG8=' } }],
        },
        {
          role: 'model',
          parts: [
            {
              functionCall: { id: 'call_1', name: 'look', args: { a: 2 } },
              thoughtSignature: 'skip_thought_signature_validator',
            },
          ],
        },
        {
          role: 'user',
          parts: [{ functionResponse: { id: 'call_1', name: 'look', response: { result: 'a cat' } } }],
        },
      ],
      tools: [{ functionDeclarations: [{ name: 'look', description: 'Looks.', parametersJsonSchema: schema }] }],
      toolConfig: { functionCallingConfig: { mode: 'ANY' } },
      generationConfig: {
        maxOutputTokens: 50,
        temperature: 0.5,
        stopSequences: ['END'],
        responseMimeType: 'application/json',
        responseJsonSchema: schema,
        thinkingConfig: { thinkingLevel: 'low' },
      },
    })
  })

  it.each(['maximum', 'constructor'])('sends the highest thinking budget for the unknown effort %s', (effort) => {
    const messages = [{ role: 'user', content: 'Hi' }]
    const prompt = chatClient.readPrompt({ model: 'gemini-2.5-flash', messages, reasoning_effort: effort })
    const body: unknown = JSON.parse(String(geminiUpstream.writePrompt(prompt, 'gemini-2.5-flash').body))
    expect(body).toMatchObject({ generationConfig: { thinkingConfig: { thinkingBudget: 24_576 } } })
  })

  it('rejects content that the format cannot express, and reports the field', async () => {
    const image = { type: 'image_url' as const, image_url: { url: 'https://example.com/a.png' } }

    const asking = openai.chat.completions.create({ model: MODEL, messages: [{ role: 'user', content: [image] }] })

    await expect(asking).rejects.toMatchObject({ status: 400, param: 'messages[0]' })
    expect(upstream.requests).toEqual([])
  })
})

describe('answers of a Gemini model', () => {
  const parts = [
    { text: 'Let me see.', thought: true },
    { text: 'Grüße.' },
    { functionCall: { name: 'look', args: { at: 'sky' } } },
  ]

  it('reads text, reasoning, tool calls and the usage with cached and reasoning tokens', async () => {
    upstream.reply = () => ({ kind: 'json', value: answer(parts) })

    const { choices, usage } = await openai.chat.completions.create({
      model: MODEL,
      messages: [{ role: 'user', content: 'Hello?' }],
    })

    expect(choices[0]?.message.content).toBe('Grüße.')
    expect(choices[0]?.finish_reason).toBe('tool_calls')
    expect(choices[0]?.message.tool_calls?.[0]).toMatchObject({ function: { name: 'look', arguments: '{"at":"sky"}' } })
    expect(usage).toMatchObject({
      prompt_tokens: 100,
      completion_tokens: 15,
      prompt_tokens_details: { cached_tokens: 40 },
      completion_tokens_details: { reasoning_tokens: 5 },
    })
  })

  it('reads a stream to the end without a last event', async () => {
    const frames = [
      { ...answer([parts[0] ?? {}], ''), candidates: [{ content: { parts: [parts[0]] } }] },
      { candidates: [{ content: { parts: [parts[1]] } }], usageMetadata },
      answer([parts[2] ?? {}]),
    ]
    upstream.reply = () => ({ kind: 'events', items: frames.map((frame) => ({ data: JSON.stringify(frame) })) })

    const message = await anthropic.messages
      .stream({ model: MODEL, max_tokens: 100, messages: [{ role: 'user', content: 'Hello?' }] })
      .finalMessage()

    expect(upstream.last.path).toBe('/v1beta/models/gemini-3-flash-preview:streamGenerateContent?alt=sse')
    expect(message.content.map(({ type }) => type)).toEqual(['thinking', 'text', 'tool_use'])
    expect(message.content[2]).toMatchObject({ name: 'look', input: { at: 'sky' } })
    expect(message.stop_reason).toBe('tool_use')
    expect(message.usage).toMatchObject({ input_tokens: 60, cache_read_input_tokens: 40, output_tokens: 15 })
  })

  it('reports a stream that ends without a finish reason as incomplete', async () => {
    const frame = { candidates: [{ content: { parts: [{ text: 'Half' }] } }] }
    upstream.reply = () => ({ kind: 'events', items: [{ data: JSON.stringify(frame) }] })

    const stream = await openai.chat.completions.create({
      model: MODEL,
      stream: true,
      messages: [{ role: 'user', content: 'Hello?' }],
    })

    await expect(
      (async () => {
        for await (const chunk of stream) void chunk
      })(),
    ).rejects.toThrow()
  })

  it.each(['SAFETY', 'RECITATION', 'PROHIBITED_CONTENT'])('reads %s as a filtered answer', async (reason) => {
    upstream.reply = () => ({ kind: 'json', value: answer([], reason) })

    const { choices } = await openai.chat.completions.create({
      model: MODEL,
      messages: [{ role: 'user', content: 'Hello?' }],
    })

    expect(choices[0]?.finish_reason).toBe('content_filter')
  })

  it('reads a blocked prompt as a filtered answer', async () => {
    upstream.reply = () => ({ kind: 'json', value: { promptFeedback: { blockReason: 'SAFETY' }, usageMetadata } })

    const { choices } = await openai.chat.completions.create({
      model: MODEL,
      messages: [{ role: 'user', content: 'Hello?' }],
    })

    expect(choices[0]?.finish_reason).toBe('content_filter')
  })

  it('does not report a rejected key of the gateway as a caller error', async () => {
    upstream.reply = () => ({
      kind: 'json',
      status: 400,
      value: {
        error: { code: 400, message: 'API key not valid. Please pass a valid API key.', status: 'INVALID_ARGUMENT' },
      },
    })

    const asking = openai.chat.completions.create({ model: MODEL, messages: [{ role: 'user', content: 'Hello?' }] })

    await expect(asking).rejects.toMatchObject({ status: 502 })
  })
})
