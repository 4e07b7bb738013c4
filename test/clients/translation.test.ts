import type OpenAI from 'openai'
import { afterEach, describe, expect, it } from 'vitest'
import { asArray, asObject, type JsonObject } from '../../src/core/json.ts'
import { anthropic, openaiCompatible } from '../../src/index.ts'
import { CHAT_MODEL, MESSAGE_MODEL, PRICE, startStage, type Stage, type StageOptions } from '../support/stage.ts'
import { startUpstream } from '../support/upstream.ts'

const closing: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0)) await close()
})

async function openStage(options: StageOptions = {}): Promise<Stage> {
  const started = await startStage(options)
  closing.push(started.close)
  return started
}

type Params = OpenAI.Responses.ResponseCreateParamsNonStreaming

/** Tools as the vendor's agent declares them. */
const AGENT: JsonObject = {
  tools: [
    { type: 'web_search' },
    {
      type: 'custom',
      name: 'patch',
      description: 'Edits files.',
      format: { type: 'grammar', syntax: 'lark', definition: 'start: X' },
    },
    {
      type: 'namespace',
      name: 'clock',
      description: 'Time',
      tools: [{ type: 'function', name: 'sleep', parameters: { type: 'object', properties: {} } }],
    },
    { type: 'function', name: 'plain', parameters: { type: 'object', properties: {} } },
  ],
  client_metadata: { session_id: 's-1' },
  include: ['reasoning.encrypted_content'],
}
const BROUGHT = {
  type: 'additional_tools',
  role: 'developer',
  tools: [{ type: 'namespace', name: 'more', tools: [{ type: 'custom', name: 'exec' }] }],
}

describe.each([
  ['a chat upstream', CHAT_MODEL],
  ['a message upstream', MESSAGE_MODEL],
])('an agent’s responses request to %s', (_, model) => {
  const ask = (input: unknown): Params => ({ model, input, ...AGENT }) as unknown as Params

  it('declares custom and grouped tools as functions, and lists the omitted tools', async () => {
    const { openai, upstream } = await openStage()

    const { data, response } = await openai.responses
      .create(ask([BROUGHT, { role: 'user', content: 'Go.' }]))
      .withResponse()

    const names = asArray(upstream.last.body['tools']).map((tool) => {
      const declared = asObject(tool)
      return asObject(declared?.['function'])?.['name'] ?? declared?.['name']
    })
    expect(names).toEqual(['patch', 'clock__sleep', 'plain', 'more__exec'])
    expect(JSON.stringify(upstream.last.body['tools'])).toContain('start: X')
    expect(response.headers.get('x-svc-ignored')).toBe('tools (web_search)')
    expect(data.metadata).toEqual({ session_id: 's-1' })
  })

  it.each([false, true])('returns the calls in the form of the declared tools (stream: %s)', async (stream) => {
    const toolCalls = [
      { id: 'call_1', name: 'patch', input: '{"input":"line 1\\nline 2"}' },
      { id: 'call_2', name: 'clock__sleep', input: '{"ms":1}' },
      { id: 'call_3', name: 'plain', input: '{}' },
      { id: 'call_4', name: 'more__exec', input: '{"input":"ls"}' },
    ]
    const { openai } = await openStage({ reply: () => ({ toolCalls }) })

    const output = stream
      ? await collectEvents(openai, ask([BROUGHT, { role: 'user', content: 'Go.' }]))
      : (await openai.responses.create(ask([BROUGHT, { role: 'user', content: 'Go.' }]))).output

    expect(output).toMatchObject([
      { type: 'custom_tool_call', call_id: 'call_1', name: 'patch', input: 'line 1\nline 2' },
      { type: 'function_call', call_id: 'call_2', namespace: 'clock', name: 'sleep', arguments: '{"ms":1}' },
      { type: 'function_call', call_id: 'call_3', name: 'plain', arguments: '{}' },
      { type: 'custom_tool_call', call_id: 'call_4', namespace: 'more', name: 'exec', input: 'ls' },
    ])
  })

  it('contains earlier calls and their results', async () => {
    const { openai, upstream } = await openStage()

    await openai.responses.create(
      ask([
        { role: 'user', content: 'Go.' },
        { type: 'web_search_call', id: 'ws_1', status: 'completed' },
        { type: 'custom_tool_call', call_id: 'c1', name: 'patch', input: 'a "quote"' },
        { type: 'function_call', call_id: 'c2', namespace: 'clock', name: 'sleep', arguments: '{}' },
        { type: 'custom_tool_call_output', call_id: 'c1', output: 'patched' },
        { type: 'function_call_output', call_id: 'c2', output: 'slept' },
      ]),
    )

    const sentText = JSON.stringify(upstream.last.body['messages'])
    for (const part of ['quote', 'patch', 'clock__sleep', 'patched', 'slept']) expect(sentText).toContain(part)
  })
})

describe('an answer of any JSON object from a message upstream', () => {
  const ask = {
    model: MESSAGE_MODEL,
    messages: [{ role: 'user' as const, content: 'Hi' }],
    response_format: { type: 'json_object' as const },
  }

  it('has no code fence', async () => {
    const { openai } = await openStage({ reply: () => '```json\n{"a": 1}\n```' })

    expect((await openai.chat.completions.create(ask)).choices[0]?.message.content).toBe('{"a": 1}')
  })

  it('that is not JSON is a 502, which is not billed', async () => {
    const { openai, gateway, keyId } = await openStage({ reply: () => 'Sure: {"a": 1}' })

    const failure = await openai.chat.completions.create(ask).catch((error: unknown) => error)

    expect(failure).toMatchObject({ status: 502 })
    expect((await gateway.keys.usage(keyId)).cost.billedUsd).toBe(0)
  })

  it('that is not JSON ends its stream with an error', async () => {
    const { openai } = await openStage({ reply: () => 'Sure' })
    const read = async (): Promise<void> => {
      for await (const _ of await openai.chat.completions.create({ ...ask, stream: true }));
    }

    await expect(read()).rejects.toThrow(/JSON object/)
  })
})

describe('settings that a model of another format does not support', () => {
  async function twoVendors(fields: JsonObject, untranslatableFields: 'refuse' | 'drop' = 'refuse') {
    const upstream = await startUpstream()
    closing.push(upstream.close)
    const models = [
      { id: 'thinker', price: PRICE, efforts: ['low', 'high'], rejectsSamplingParameters: true },
      { id: 'plain', price: PRICE },
    ]
    const { url, secret } = await openStage({
      providers: [
        anthropic({ baseUrl: upstream.url, apiKey: 'k', models }),
        openaiCompatible({ name: 'chat', baseUrl: upstream.baseUrl, models }),
      ],
      limits: { maxTemperature: 2 },
      onUntranslatable: untranslatableFields,
    })
    const path = 'max_tokens' in fields ? 'messages' : 'chat/completions'
    const responded = await fetch(`${url}/v1/${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
      body: JSON.stringify({ messages: [{ role: 'user', content: 'Hi' }], ...fields }),
    })
    const { error } = (await responded.json()) as { error?: { message: string; param?: string } }
    const sent = upstream.requests.at(-1)?.body ?? {}
    return { status: responded.status, ignored: responded.headers.get('x-svc-ignored'), sent, error }
  }

  it('omit samplers that the model rejects, and keep those of its format', async () => {
    const translated = await twoVendors({ model: 'anthropic/thinker', temperature: 0.5, top_p: 0.9 })
    expect(translated).toMatchObject({ status: 200, ignored: 'temperature, top_p' })
    expect(translated.sent).not.toHaveProperty('temperature')

    const own = await twoVendors({ model: 'chat/thinker', temperature: 0.5 })
    expect(own).toMatchObject({ status: 200, ignored: null, sent: { temperature: 0.5 } })
  })

  it.each([
    ['anthropic/thinker', { reasoning_effort: 'minimal' }, { output_config: { effort: 'low' } }, null],
    ['anthropic/thinker', { reasoning_effort: 'xhigh' }, { output_config: { effort: 'high' } }, null],
    ['anthropic/plain', { reasoning_effort: 'low' }, {}, 'reasoning_effort'],
    ['chat/thinker', { max_tokens: 9, output_config: { effort: 'max' } }, { reasoning_effort: 'high' }, null],
    ['chat/plain', { max_tokens: 9, output_config: { effort: 'low' } }, {}, 'output_config.effort'],
  ])('%s receives the effort of %j as %j', async (model, fields, expected, ignored) => {
    expect(await twoVendors({ model, ...fields })).toMatchObject({ status: 200, sent: expected, ignored })
  })

  it('are rejected by default, and are dropped and listed with onUntranslatable: drop', async () => {
    const fields = {
      model: 'anthropic/plain',
      logprobs: true,
      n: 2,
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Hi' },
            { type: 'input_audio', input_audio: { data: 'aGk=', format: 'wav' } },
          ],
        },
      ],
    }

    expect(await twoVendors(fields)).toMatchObject({ status: 400, error: { param: 'logprobs' } })
    const dropped = await twoVendors(fields, 'drop')
    expect(dropped).toMatchObject({
      status: 200,
      sent: { messages: [{ role: 'user', content: [{ type: 'text', text: 'Hi' }] }] },
    })
    expect(dropped.ignored?.split(', ').toSorted()).toEqual(['logprobs', 'messages[0]', 'n'])
  })

  it('do not include a conversation that the vendor stores', async () => {
    const held = { model: 'chat/plain', max_tokens: 9, thread: { id: 't' } }

    expect((await twoVendors(held, 'drop')).status).toBe(400)
  })

  it('include a temperature up to 2 if operator and vendor allow it', async () => {
    expect((await twoVendors({ model: 'chat/plain', temperature: 1.7 })).sent).toMatchObject({ temperature: 1.7 })
    expect(await twoVendors({ model: 'anthropic/plain', temperature: 1.7 })).toMatchObject({
      status: 400,
      error: { param: 'temperature' },
    })
  })
})

describe('a temperature above the configured limit', () => {
  it.each(['chat/completions', 'responses'])('is a 400 on /v1/%s with the name of the option', async (path) => {
    const { url, secret } = await openStage()
    const prompt = path === 'responses' ? { input: 'Hi' } : { messages: [{ role: 'user', content: 'Hi' }] }

    const responded = await fetch(`${url}/v1/${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: CHAT_MODEL, ...prompt, temperature: 1.2 }),
    })

    expect(responded.status).toBe(400)
    expect(await responded.text()).toContain('limits.maxTemperature')
  })

  it('names the option for a model behind the messages format if the limit is below 1', async () => {
    const models = [{ id: 'plain', price: PRICE }]
    const { url, secret } = await openStage({
      providers: [anthropic({ baseUrl: 'http://127.0.0.1:9', apiKey: 'k', models })],
      limits: { maxTemperature: 0.5 },
    })

    const responded = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
      body: JSON.stringify({
        model: 'anthropic/plain',
        messages: [{ role: 'user', content: 'Hi' }],
        temperature: 0.7,
      }),
    })

    expect(await responded.text()).toContain('expected a number from 0 to 0.5. The operator can raise the maximum')
  })
})

async function collectEvents(openai: OpenAI, params: Params): Promise<readonly unknown[]> {
  const items: unknown[] = []
  for await (const event of await openai.responses.create({ ...params, stream: true })) {
    if (event.type === 'response.output_item.done') items.push(event.item)
  }
  return items
}

describe.each([false, true])('an answer in a deprecated or rare form (stream: %s)', (stream) => {
  it('has a function call for a client that declares functions', async () => {
    const toolCalls = ['1', '2'].map((input) => ({ id: `call_${input}`, name: 'look', input: `{"q":${input}}` }))
    const { openai, upstream } = await openStage({ reply: () => ({ toolCalls }) })
    const body = {
      model: MESSAGE_MODEL,
      messages: [{ role: 'user' as const, content: 'Look.' }],
      functions: [{ name: 'look', parameters: { type: 'object', properties: {} } }],
    }

    const [choice] = stream
      ? (await openai.chat.completions.stream({ ...body, stream }).finalChatCompletion()).choices
      : (await openai.chat.completions.create(body)).choices

    expect(choice).toMatchObject({
      finish_reason: 'function_call',
      message: { function_call: { name: 'look', arguments: '{"q":1}' } },
    })
    expect(choice?.message.tool_calls).toBeUndefined()
    expect(upstream.last.body['tool_choice']).toEqual({ type: 'auto', disable_parallel_tool_use: true })
  })

  it('has a refusal in a complete response', async () => {
    const chunk = (field: 'delta' | 'message', value: JsonObject, reason: string | null) => ({
      id: 'chatcmpl-1',
      choices: [{ index: 0, [field]: value, finish_reason: reason }],
    })
    const items = [chunk('delta', { refusal: 'I ' }, null), chunk('delta', { refusal: 'refuse.' }, 'stop')]
    const { openai } = await openStage({
      reply: () =>
        stream
          ? { kind: 'events', items: [...items.map((item) => ({ data: JSON.stringify(item) })), { data: '[DONE]' }] }
          : { kind: 'json', value: chunk('message', { content: null, refusal: 'I refuse.' }, 'stop') },
    })
    const body = { model: CHAT_MODEL, input: 'Help.' }
    const types: string[] = []

    const running = stream ? openai.responses.stream({ ...body, stream }) : undefined
    for await (const event of running ?? []) types.push(event.type)
    const response = running === undefined ? await openai.responses.create(body) : await running.finalResponse()

    expect(response.status).toBe('completed')
    expect(response.output).toMatchObject([
      { status: 'completed', content: [{ type: 'refusal', refusal: 'I refuse.' }] },
    ])
    if (stream) expect(types.filter((type) => type.startsWith('response.refusal'))).toHaveLength(3)
  })
})
