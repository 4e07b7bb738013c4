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

const response = (parts: readonly object[], finishReason = 'STOP'): object => ({
  candidates: [{ content: { role: 'model', parts }, finishReason, index: 0 }],
  usageMetadata,
  modelVersion: 'gemini-3-flash-preview',
  responseId: 'resp-1',
})

const MODEL = 'gemini/gemini-3-flash-preview'

describe('requests to a Gemini model', () => {
  it('keeps the title of a text document', async () => {
    upstream.reply = () => ({ kind: 'json', value: response([{ text: 'Yes.' }]) })
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
    upstream.reply = () => ({ kind: 'json', value: response([{ text: '{"a":1}' }]) })
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
    upstream.reply = () => ({ kind: 'json', value: response(parts) })

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
      { ...response([parts[0] ?? {}], ''), candidates: [{ content: { parts: [parts[0]] } }] },
      { candidates: [{ content: { parts: [parts[1]] } }], usageMetadata },
      response([parts[2] ?? {}]),
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

  const ask = { model: MODEL, messages: [{ role: 'user' as const, content: 'Hello?' }] }

  /** Returns the end of a response as the three formats write it, not streamed and streamed. */
  async function endsOf(value: object): Promise<readonly unknown[]> {
    upstream.reply = ({ path }) =>
      path.includes('streamGenerateContent')
        ? { kind: 'events', items: [{ data: JSON.stringify(value) }] }
        : { kind: 'json', value }
    const { messages } = ask
    const chat = await openai.chat.completions.create(ask)
    const message = await anthropic.messages.create({ model: MODEL, max_tokens: 9, messages })
    const response = await openai.responses.create({ model: MODEL, input: 'Hello?' })
    const streamedMessage = await anthropic.messages.stream({ model: MODEL, max_tokens: 9, messages }).finalMessage()
    const chatReasons: unknown[] = []
    for await (const { choices } of await openai.chat.completions.create({ ...ask, stream: true }))
      chatReasons.push(choices[0]?.finish_reason)
    const statuses: unknown[] = []
    for await (const event of await openai.responses.create({ model: MODEL, input: 'Hello?', stream: true }))
      if ('response' in event) statuses.push(event.response.incomplete_details?.reason ?? event.response.status)
    return [
      [chat.choices[0]?.finish_reason, chatReasons.at(-1)],
      [message.stop_reason, streamedMessage.stop_reason],
      [response.incomplete_details?.reason ?? response.status, statuses.at(-1)],
    ]
  }

  const FILTERED = [
    ['content_filter', 'content_filter'],
    ['refusal', 'refusal'],
    ['content_filter', 'content_filter'],
  ]

  it.each([
    'SAFETY',
    'RECITATION',
    'LANGUAGE',
    'BLOCKLIST',
    'PROHIBITED_CONTENT',
    'SPII',
    'MODEL_ARMOR',
    'IMAGE_SAFETY',
    'IMAGE_PROHIBITED_CONTENT',
    'IMAGE_RECITATION',
  ])('reads %s as a refusal in each format', async (reason) => {
    expect(await endsOf(response([{ text: 'A' }], reason))).toEqual(FILTERED)
  })

  it.each([
    'SAFETY',
    'MODEL_ARMOR',
    'JAILBREAK',
    'BLOCKLIST',
    'PROHIBITED_CONTENT',
    'IMAGE_SAFETY',
    'OTHER',
    'A_LATER_REASON',
  ])('reads a prompt that is blocked for %s as a refusal in each format', async (blockReason) => {
    expect(await endsOf({ promptFeedback: { blockReason }, usageMetadata })).toEqual(FILTERED)
  })

  it.each(['BLOCK_REASON_UNSPECIFIED', 'BLOCKED_REASON_UNSPECIFIED'])(
    'does not read %s as blocked',
    async (blockReason) => {
      expect(await endsOf({ ...response([{ text: 'A' }]), promptFeedback: { blockReason } })).toEqual([
        ['stop', 'stop'],
        ['end_turn', 'end_turn'],
        ['completed', 'completed'],
      ])
    },
  )

  it.each(['MAX_TOKENS', 'OTHER', 'IMAGE_OTHER', 'NO_IMAGE', 'TOO_MANY_TOOL_CALLS', 'A_LATER_REASON'])(
    'reads %s as an incomplete answer in each format',
    async (reason) => {
      expect(await endsOf(response([{ text: 'A' }], reason))).toEqual([
        ['length', 'length'],
        ['max_tokens', 'max_tokens'],
        ['max_output_tokens', 'max_output_tokens'],
      ])
    },
  )

  it.each(['MALFORMED_FUNCTION_CALL', 'UNEXPECTED_TOOL_CALL', 'MALFORMED_RESPONSE', 'MISSING_THOUGHT_SIGNATURE'])(
    'reports %s as a failure of the model',
    async (reason) => {
      upstream.reply = () => ({ kind: 'json', value: response([], reason) })

      await expect(openai.chat.completions.create(ask)).rejects.toMatchObject({ status: 502 })
    },
  )

  it('sends the delay of RetryInfo as Retry-After', async () => {
    const details = [
      { '@type': 'type.googleapis.com/google.rpc.QuotaFailure', violations: [] },
      { '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay: '34.074824224s' },
    ]
    const error = { code: 429, message: 'Quota exceeded.', status: 'RESOURCE_EXHAUSTED', details }
    for (const value of [{ error }, [{ error }]]) {
      upstream.reply = () => ({ kind: 'json', status: 429, value })
      const failure: unknown = await openai.chat.completions.create(ask).catch((thrown: unknown) => thrown)

      if (!(failure instanceof OpenAI.APIError)) throw failure
      expect(failure.status).toBe(429)
      expect(failure.headers?.get('retry-after')).toBe('35')
      expect(failure.headers?.get('retry-after-ms')).toBe('34075')
    }
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

describe('images of a Gemini model', () => {
  const IMAGE = { inlineData: { mimeType: 'image/png', data: 'aW1hZ2U=' } }
  const drawn = response([{ text: 'Here:' }, IMAGE, { text: 'Done.' }, { inlineData: { data: 'x' }, thought: true }])
  const url = 'data:image/png;base64,aW1hZ2U='
  const ask = { model: MODEL, messages: [{ role: 'user' as const, content: 'Draw.' }] }

  beforeEach(() => {
    upstream.reply = ({ path }) =>
      path.includes('streamGenerateContent')
        ? { kind: 'events', items: [{ data: JSON.stringify(drawn) }] }
        : { kind: 'json', value: drawn }
  })

  it('are images of the chat message, as other vendors send them', async () => {
    const images = [{ type: 'image_url', index: 0, image_url: { url } }]

    const { choices } = await openai.chat.completions.create(ask)
    expect(choices[0]?.message).toMatchObject({ content: 'Here:Done.', images })

    const deltas: unknown[] = []
    for await (const chunk of await openai.chat.completions.create({ ...ask, stream: true }))
      deltas.push(chunk.choices[0]?.delta)
    expect(deltas).toContainEqual({ images })
  })

  it('are calls of the image tool in a response', async () => {
    const item = { type: 'image_generation_call', status: 'completed', result: 'aW1hZ2U=', output_format: 'png' }

    const { output } = await openai.responses.create({ model: MODEL, input: 'Draw.' })
    expect(output).toMatchObject([
      { type: 'message', content: [{ text: 'Here:' }] },
      item,
      { type: 'message', content: [{ text: 'Done.' }] },
    ])

    const stream = openai.responses.stream({ model: MODEL, input: 'Draw.' })
    const types: string[] = []
    for await (const event of stream) if ('output_index' in event && event.output_index === 1) types.push(event.type)
    expect(types).toEqual([
      'response.output_item.added',
      'response.image_generation_call.completed',
      'response.output_item.done',
    ])
    expect((await stream.finalResponse()).output[1]).toMatchObject(item)
  })

  it('are named as omitted in a message, which cannot contain them', async () => {
    const { data, response } = await anthropic.messages.create({ ...ask, max_tokens: 9 }).withResponse()
    expect(data.content).toEqual([
      { type: 'text', text: 'Here:' },
      { type: 'text', text: 'Done.' },
    ])
    expect(response.headers.get('x-svc-ignored')).toBe('content (image)')

    const streamed = await anthropic.messages.create({ ...ask, max_tokens: 9, stream: true })
    const events: unknown[] = []
    for await (const event of streamed) events.push(event)
    expect(events).toContainEqual(
      expect.objectContaining({
        type: 'message_delta',
        svc_metrics: expect.objectContaining({ ignored: ['content (image)'] }),
      }),
    )
  })
})

describe('files of a Gemini model that are not images', () => {
  const AUDIO = { inlineData: { mimeType: 'audio/L16;codec=pcm;rate=24000', data: 'c291bmQ=' } }
  const VIDEO = { inlineData: { mimeType: 'video/mp4', data: 'ZmlsbQ==' } }
  const LINK = { fileData: { mimeType: 'audio/wav', fileUri: 'https://example.com/a.wav' } }
  const PICTURE = { fileData: { mimeType: 'image/png', fileUri: 'https://example.com/a.png' } }
  const spoken = response([{ text: 'Listen:' }, AUDIO, VIDEO, LINK, PICTURE, { text: 'Done.' }])

  beforeEach(() => {
    upstream.reply = ({ path }) =>
      path.includes('streamGenerateContent')
        ? { kind: 'events', items: [{ data: JSON.stringify(spoken) }] }
        : { kind: 'json', value: spoken }
  })

  it('are named in a chat completion, which cannot contain them, and linked images are images', async () => {
    const ask = { model: MODEL, messages: [{ role: 'user' as const, content: 'Speak.' }] }
    const images = [{ type: 'image_url', index: 0, image_url: { url: 'https://example.com/a.png' } }]

    const { data, response } = await openai.chat.completions.create(ask).withResponse()
    expect(data.choices[0]?.message).toMatchObject({ content: 'Listen:Done.', images })
    expect(response.headers.get('x-svc-ignored')).toBe('message (audio), message (video), message (file)')

    const chunks: unknown[] = []
    for await (const chunk of await openai.chat.completions.create({ ...ask, stream: true })) chunks.push(chunk)
    expect(JSON.stringify(chunks)).toContain(JSON.stringify({ images }))
    expect(JSON.stringify(chunks)).not.toContain('c291bmQ=')
    expect(chunks.at(-1)).toMatchObject({
      svc_metrics: { ignored: ['message (audio)', 'message (video)', 'message (file)'] },
    })
  })

  it('are named in a response and in a message, with the linked images', async () => {
    const kinds = (field: string) => ['audio', 'video', 'file', 'image'].map((kind) => `${field} (${kind})`)

    const whole = await openai.responses.create({ model: MODEL, input: 'Speak.' }).withResponse()
    expect(whole.data.output.map(({ type }) => type)).toEqual(['message', 'message'])
    expect(whole.response.headers.get('x-svc-ignored')).toBe(kinds('output').join(', '))
    const response = await openai.responses.stream({ model: MODEL, input: 'Speak.' }).finalResponse()
    expect(response).toMatchObject({ svc_metrics: { ignored: kinds('output') } })

    const ask = { model: MODEL, max_tokens: 9, messages: [{ role: 'user' as const, content: 'Speak.' }] }
    const message = await anthropic.messages.create(ask).withResponse()
    expect(message.response.headers.get('x-svc-ignored')).toBe(kinds('content').join(', '))
    const events: unknown[] = []
    for await (const event of await anthropic.messages.create({ ...ask, stream: true })) events.push(event)
    expect(events).toContainEqual(
      expect.objectContaining({ svc_metrics: expect.objectContaining({ ignored: kinds('content') }) }),
    )
  })
})
