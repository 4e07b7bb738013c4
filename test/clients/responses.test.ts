import OpenAI from 'openai'
import { zodTextFormat } from 'openai/helpers/zod'
import { afterEach, describe, expect, it } from 'vitest'
import * as z from 'zod'
import { memoryStore } from '../../src/index.ts'
import { CHAT_MODEL, MESSAGE_MODEL, startStage, type Stage, type StageOptions } from '../support/stage.ts'
import { eventsUntilText, gate, HANG } from '../support/upstream-events.ts'
import { CUT } from '../support/upstream.ts'

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((openStage) => openStage.close()))
})

async function stage(options: StageOptions = {}): Promise<Stage> {
  const started = await startStage(options)
  stages.push(started)
  return started
}

const weather: OpenAI.Responses.FunctionTool = {
  type: 'function',
  name: 'weather',
  description: 'The weather of a city',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  strict: false,
}
const picture =
  'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=='
const toolCalls = [
  { id: 'call_1', name: 'weather', input: '{"city":"Paris"}' },
  { id: 'call_2', name: 'weather', input: '{"city":"Rome"}' },
]

describe.each([
  ['a chat upstream', CHAT_MODEL],
  ['a message upstream', MESSAGE_MODEL],
])('responses of the official client with %s', (_, model) => {
  it('are whole answers with their usage and the bill', async () => {
    const { openai, upstream } = await stage({
      reply: () => ({ text: 'Bonjour.', usage: usageFor(model, 100, 50) }),
    })

    const { data, response } = await openai.responses
      .create({ model, instructions: 'Be brief.', input: 'Hello?', max_output_tokens: 60, metadata: { a: 'b' } })
      .withResponse()

    expect(data.output_text).toBe('Bonjour.')
    expect(data).toMatchObject({
      object: 'response',
      status: 'completed',
      error: null,
      incomplete_details: null,
      instructions: 'Be brief.',
      max_output_tokens: 60,
      metadata: { a: 'b' },
      model: 'large',
      output: [
        {
          type: 'message',
          role: 'assistant',
          status: 'completed',
          content: [{ type: 'output_text', text: 'Bonjour.', annotations: [] }],
        },
      ],
      parallel_tool_calls: true,
      previous_response_id: null,
      store: true,
      tool_choice: 'auto',
      tools: [],
      usage: {
        input_tokens: 100,
        input_tokens_details: { cached_tokens: 0 },
        output_tokens: 50,
        output_tokens_details: { reasoning_tokens: 0 },
        total_tokens: 150,
      },
      svc_metrics: { billed_amount: 0.0003, theoretical_cost: 0.0002 },
    })
    expect(data.id).toMatch(/^resp_[0-9a-f]{32}$/)
    expect(response.headers.get('x-svc-billed-amount')).toBe('$0.000300')
    expect(upstream.last.text).toContain('Be brief.')
    expect(upstream.last.body['model']).toBe('large')
  })

  it('stream their events in the client’s own order, the bill on the last one', async () => {
    const { openai } = await stage({
      reply: () => ({ text: ['Bon', 'jour', '.'], usage: usageFor(model, 100, 50) }),
    })

    const stream = await openai.responses.create({ model, input: 'Hello?', max_output_tokens: 60, stream: true })
    const events = []
    for await (const event of stream) events.push(event)

    expect(events.map((event) => event.type)).toEqual([
      'response.created',
      'response.in_progress',
      'response.output_item.added',
      'response.content_part.added',
      'response.output_text.delta',
      'response.output_text.delta',
      'response.output_text.delta',
      'response.output_text.done',
      'response.content_part.done',
      'response.output_item.done',
      'response.completed',
    ])
    expect(events.map((event) => event.sequence_number)).toEqual(events.map((_event, index) => index))
    expect(events.at(-1)).toMatchObject({
      response: {
        status: 'completed',
        usage: { input_tokens: 100, output_tokens: 50, total_tokens: 150 },
        svc_metrics: { billed_amount: 0.0003, strategy: 'Passthrough (no optimization needed)' },
      },
    })
  })

  it('are incomplete when the limit ended them', async () => {
    const finish = model === CHAT_MODEL ? 'length' : 'max_tokens'
    const { openai } = await stage({ reply: () => ({ text: 'Bon', finish }) })

    const whole = await openai.responses.create({ model, input: 'Hello?', max_output_tokens: 1 })
    const streamed = await openai.responses.stream({ model, input: 'Hello!', max_output_tokens: 1 }).finalResponse()

    for (const response of [whole, streamed]) {
      expect(response.status).toBe('incomplete')
      expect(response.incomplete_details).toEqual({ reason: 'max_output_tokens' })
      expect(response.output_text).toBe('Bon')
    }
  })

  it('call tools in parallel, whole and through the stream helper, and take their results', async () => {
    const { openai, upstream } = await stage({ reply: () => ({ text: 'Let me look.', toolCalls }) })
    const body = { model, input: 'Weather?', max_output_tokens: 60, tools: [weather] }

    const whole = await openai.responses.create(body)
    const streamed = await openai.responses.stream({ ...body, input: 'The weather?' }).finalResponse()

    for (const response of [whole, streamed]) {
      expect(
        response.output.flatMap((item) =>
          item.type === 'function_call' ? [[item.call_id, item.name, item.arguments, item.status]] : [],
        ),
      ).toEqual(toolCalls.map((call) => [call.id, call.name, call.input, 'completed']))
      expect(response.output_text).toBe('Let me look.')
    }
    upstream.reply = () => 'Sunny in both.'
    const responded = await openai.responses.create({
      ...body,
      input: [
        { role: 'user', content: 'Weather?' },
        ...whole.output,
        { type: 'function_call_output', call_id: 'call_1', output: 'sunny' },
        { type: 'function_call_output', call_id: 'call_2', output: 'sunny too' },
      ] as OpenAI.Responses.ResponseInput,
    })
    expect(responded.output_text).toBe('Sunny in both.')
    expect(upstream.last.text).toContain('sunny too')
  })

  it('continue an earlier response by its id, repeatedly, whole and streamed', async () => {
    const { openai, upstream } = await stage({ reply: () => ({ text: 'Let me look.', toolCalls: [toolCalls[0]!] }) })
    const common = { model, max_output_tokens: 60, tools: [weather] }

    const first = await openai.responses.create({
      ...common,
      instructions: 'Be brief.',
      input: 'The weather in Paris?',
    })
    upstream.reply = () => 'Sunny.'
    const second = await openai.responses
      .stream({
        ...common,
        previous_response_id: first.id,
        input: [{ type: 'function_call_output', call_id: 'call_1', output: '22 degrees' }],
      })
      .finalResponse()
    expect(second.output_text).toBe('Sunny.')
    expect(second.previous_response_id).toBe(first.id)
    const third = await openai.responses.create({ ...common, previous_response_id: second.id, input: 'And tomorrow?' })

    expect(third.previous_response_id).toBe(second.id)
    const sent = upstream.last.text
    for (const said of ['The weather in Paris?', 'Let me look.', '22 degrees', 'Sunny.', 'And tomorrow?']) {
      expect(sent).toContain(said)
    }
    expect(sent).not.toContain('Be brief.')
    expect(sent).not.toContain('resp_')
  })

  it('send images and files in the format of the upstream', async () => {
    const { openai, upstream } = await stage()

    await openai.responses.create({
      model,
      max_output_tokens: 60,
      input: [
        {
          role: 'user',
          content: [
            { type: 'input_text', text: 'What is it?' },
            { type: 'input_image', image_url: picture, detail: 'auto' },
            { type: 'input_file', filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBERi0=' },
          ],
        },
      ],
    })

    const [message] = upstream.last.body['messages'] as { content: { type: string }[] }[]
    expect(message?.content.map((part) => part.type)).toEqual(
      model === CHAT_MODEL ? ['text', 'image_url', 'file'] : ['text', 'image', 'document'],
    )
    expect(upstream.last.text).toContain('iVBORw0KGgo')
  })

  it('have the requested JSON schema', async () => {
    const { openai, upstream } = await stage({ reply: () => '{"city":"Paris"}' })
    const format = zodTextFormat(z.object({ city: z.string() }), 'place')

    const parsed = await openai.responses.parse({ model, input: 'Where?', max_output_tokens: 60, text: { format } })
    const streamed = await openai.responses
      .stream({ model, input: 'Where is it?', max_output_tokens: 60, text: { format } })
      .finalResponse()

    expect(parsed.output_parsed).toEqual({ city: 'Paris' })
    expect(streamed.output_parsed).toEqual({ city: 'Paris' })
    const asked = upstream.last.body[model === CHAT_MODEL ? 'response_format' : 'output_config']
    expect(JSON.stringify(asked)).toContain('"city"')
  })

  it('are optimized by a header like every other request, and continue the whole conversation', async () => {
    const { openai, upstream } = await stage({ reply: () => 'Forty-two.' })
    const story = Array.from({ length: 60 }, (_item, index) => [
      {
        role: 'user' as const,
        content: `Chapter ${index}. ${'The river ran on and on through the valley. '.repeat(60)}`,
      },
      { type: 'function_call' as const, call_id: `call_${index}`, name: 'note', arguments: '{}' },
      { type: 'function_call_output' as const, call_id: `call_${index}`, output: `noted ${index}` },
    ]).flat()

    const { data, response } = await openai.responses
      .create(
        { model, max_output_tokens: 60, input: [...story, { role: 'user', content: 'What was chapter 42 about?' }] },
        { headers: { 'x-savings-level': 'extreme' } },
      )
      .withResponse()

    expect(response.headers.get('x-svc-strategy')).toMatch(/^Savings-Slider \(extreme/)
    expect(Number(response.headers.get('x-svc-tokens-saved'))).toBeGreaterThan(1000)
    expect(upstream.last.text).toContain('What was chapter 42 about?')
    await openai.responses.create({ model, max_output_tokens: 60, previous_response_id: data.id, input: 'And 43?' })
    for (const chapter of [0, 1, 30, 59]) expect(upstream.last.text).toContain(`Chapter ${chapter}.`)
  })

  it('end the upstream’s call when they are aborted in the middle of a stream', async () => {
    const opened = gate()
    const { openai, upstream } = await stage({
      reply: (request) => ({ kind: 'events', items: [...eventsUntilText(request.dialect), opened.opened, HANG] }),
    })

    const stream = await openai.responses.create({ model, input: 'Hello?', max_output_tokens: 60, stream: true })
    for await (const event of stream) if (event.type === 'response.output_text.delta') break

    await upstream.requests[0]?.aborted
    expect(upstream.last.isAborted).toBe(true)
  })

  it('fail with the client’s error when the upstream breaks off in the middle of a stream', async () => {
    const { openai } = await stage({
      reply: (request) => ({ kind: 'events', items: [...eventsUntilText(request.dialect), CUT] }),
    })

    const stream = await openai.responses.create({ model, input: 'Hello?', max_output_tokens: 60, stream: true })
    const seen: string[] = []
    const consume = async (): Promise<void> => {
      for await (const event of stream) seen.push(event.type)
    }

    await expect(consume()).rejects.toBeInstanceOf(OpenAI.APIError)
    expect(seen).toContain('response.output_text.delta')
    expect(seen).not.toContain('response.completed')
  })
})

describe('reasoning of an upstream of the messages format', () => {
  it('are encrypted reasoning items, streamed as summaries, and are sent back with their calls', async () => {
    const { openai, upstream } = await stage({
      reply: () => ({ thinking: 'Paris, I think.', toolCalls: [toolCalls[0]!] }),
    })
    const body = { model: MESSAGE_MODEL, max_output_tokens: 60, tools: [weather], input: 'Weather?' }

    const events: string[] = []
    const stream = openai.responses.stream(body)
    for await (const event of stream) events.push(event.type)
    const response = await stream.finalResponse()

    expect(response.output[0]).toMatchObject({
      type: 'reasoning',
      summary: [{ type: 'summary_text', text: 'Paris, I think.' }],
    })
    expect(events).toContain('response.reasoning_summary_text.delta')
    upstream.reply = () => 'Sunny.'
    await openai.responses.create({
      ...body,
      previous_response_id: response.id,
      input: [{ type: 'function_call_output', call_id: 'call_1', output: 'sunny' }],
    })
    const messages = upstream.last.body['messages'] as { content: unknown }[]
    expect(messages[1]?.content).toMatchObject([
      { type: 'thinking', thinking: 'Paris, I think.', signature: 'c2lnbmVk' },
      { type: 'tool_use', id: 'call_1' },
    ])
  })
})

describe('stored responses', () => {
  it('are read and deleted only by the key that created them', async () => {
    const { openai, gateway, url } = await stage({ reply: () => 'Bonjour.' })
    const other = await gateway.keys.create({ name: 'other' })
    const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: other.value, maxRetries: 0 })
    const { id } = await openai.responses.create({ model: CHAT_MODEL, input: 'Hello?' })

    expect(await openai.responses.retrieve(id)).toMatchObject({ id, status: 'completed', output_text: 'Bonjour.' })
    await expect(stranger.responses.retrieve(id)).rejects.toBeInstanceOf(OpenAI.NotFoundError)
    await expect(stranger.responses.delete(id)).rejects.toBeInstanceOf(OpenAI.NotFoundError)
    await expect(
      stranger.responses.create({ model: CHAT_MODEL, input: 'Go on.', previous_response_id: id }),
    ).rejects.toMatchObject({ status: 400, code: 'previous_response_not_found', param: 'previous_response_id' })
    await openai.responses.delete(id)
    await expect(openai.responses.retrieve(id)).rejects.toBeInstanceOf(OpenAI.NotFoundError)
  })

  it('are not stored with store: false', async () => {
    const { openai } = await stage({ reply: () => 'Bonjour.' })

    const response = await openai.responses.create({ model: CHAT_MODEL, input: 'Hello?', store: false })

    expect(response).toMatchObject({ store: false })
    await expect(openai.responses.retrieve(response.id)).rejects.toBeInstanceOf(OpenAI.NotFoundError)
  })

  it('expire after a day', async () => {
    let now = Date.now()
    const { openai } = await stage({
      reply: () => 'Bonjour.',
      runtime: { random: () => 0, now: () => now },
      store: memoryStore({ now: () => now }),
    })
    const { id } = await openai.responses.create({ model: CHAT_MODEL, input: 'Hello?' })

    now += 24 * 3600 * 1000 - 1
    expect(await openai.responses.retrieve(id)).toMatchObject({ id })
    now += 1
    await expect(openai.responses.retrieve(id)).rejects.toBeInstanceOf(OpenAI.NotFoundError)
  })

  it('have a new id also when the answer is from the cache', async () => {
    const { openai, upstream } = await stage({ reply: () => 'Bonjour.', cache: {} })
    const ask = () => openai.responses.create({ model: CHAT_MODEL, input: 'Hello?' }).withResponse()

    const first = await ask()
    const second = await ask()

    expect(second.response.headers.get('x-svc-cache')).toBe('HIT')
    expect(upstream.requests).toHaveLength(1)
    expect(second.data.output_text).toBe('Bonjour.')
    expect(second.data.id).not.toBe(first.data.id)
  })
})

describe('errors of responses', () => {
  it.each([
    [400, OpenAI.BadRequestError, 400],
    [401, OpenAI.InternalServerError, 502],
    [404, OpenAI.NotFoundError, 404],
    [429, OpenAI.RateLimitError, 429],
    [500, OpenAI.InternalServerError, 502],
    [503, OpenAI.InternalServerError, 503],
  ])('an upstream’s %i is the matching error class of the client', async (status, kind, expected) => {
    const { openai } = await stage({ reply: () => ({ kind: 'failure', status }) })

    const error = await openai.responses
      .create({ model: CHAT_MODEL, input: 'Hello?' })
      .catch((reason: unknown) => reason)

    expect(error).toBeInstanceOf(kind)
    expect(error).toMatchObject({ status: expected })
  })

  it.each([
    [{ max_output_tokens: -1 }, 'max_output_tokens'],
    [{ input: [] }, 'input'],
    [{ input: [{ role: 'tutor', content: 'a' }] }, 'input[0].role'],
    [{ input: [{ type: 'item_reference', id: 'msg_unknown_0' }] }, 'input[0]'],
    [{ input: [{ type: 'item_reference', id: 'elsewhere' }] }, 'input[0]'],
    [{ conversation: 'conv_1' }, 'conversation'],
    [{ background: true }, 'background'],
    [{ input: [{ role: 'user', content: [{ type: 'input_audio', data: 'a' }] }] }, 'input[0]'],
    [{ later: 1 }, 'later'],
  ])('%j is a 400 that names %s', async (fields, param) => {
    const { openai, upstream } = await stage()

    const error = await openai.responses
      .create({ model: CHAT_MODEL, input: 'Hello?', ...fields } as OpenAI.Responses.ResponseCreateParamsNonStreaming)
      .catch((reason: unknown) => reason)

    expect(error).toMatchObject({ status: 400, param, type: 'invalid_request_error' })
    expect(upstream.requests).toHaveLength(0)
  })
})

function usageFor(model: string, input: number, output: number): Record<string, number> {
  return model === CHAT_MODEL
    ? { prompt_tokens: input, completion_tokens: output, total_tokens: input + output }
    : { input_tokens: input, output_tokens: output }
}
