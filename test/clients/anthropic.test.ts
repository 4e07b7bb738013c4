import Anthropic from '@anthropic-ai/sdk'
import { afterEach, describe, expect, it } from 'vitest'
import { CHAT_MODEL, MESSAGE_MODEL, startStage, type Stage, type StageOptions } from '../support/stage.ts'
import { CUT, eventsUntilText, gate, HANG } from '../support/upstream-events.ts'

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((openStage) => openStage.close()))
})

async function stage(options: StageOptions = {}): Promise<Stage> {
  const started = await startStage(options)
  stages.push(started)
  return started
}

const weather: Anthropic.Tool = {
  name: 'weather',
  input_schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
}
const question: Anthropic.MessageParam[] = [{ role: 'user', content: 'Hello?' }]
const picture = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=='

describe.each([
  ['on a real port', false],
  ['in process', true],
])('the official anthropic client, %s', (_, inProcess) => {
  describe.each([
    ['a message upstream', MESSAGE_MODEL],
    ['a chat upstream', CHAT_MODEL],
  ])('with %s', (__, model) => {
    it('gets a whole message with its usage and the bill in body and headers', async () => {
      const { anthropic, upstream } = await stage({
        inProcess,
        reply: () => ({ text: 'Bonjour.', usage: usageFor(model, 100, 50) }),
      })

      const { data, response } = await anthropic.messages
        .create({ model, system: 'Be brief.', messages: question, max_tokens: 60 })
        .withResponse()

      expect(data).toMatchObject({
        type: 'message',
        role: 'assistant',
        content: [{ type: 'text', text: 'Bonjour.' }],
        stop_reason: 'end_turn',
        stop_sequence: null,
        usage: { input_tokens: 100, output_tokens: 50, total_tokens: 150 },
        svc_metrics: { savings_percent: 0, original_cost: 0.0002, your_cost: 0.0002 },
      })
      expect(data.id).toMatch(model === MESSAGE_MODEL ? /^msg_/ : /./)
      expect(response.headers.get('x-svc-billed-amount')).toBe('$0.000300')
      expect(upstream.requests).toHaveLength(1)
    })

    it('receives a stream in the order of the format, with the bill in message_delta', async () => {
      const { anthropic } = await stage({
        inProcess,
        reply: () => ({ text: ['Bon', 'jour', '.'], usage: usageFor(model, 100, 50) }),
      })

      const events = []
      for await (const event of await anthropic.messages.create({
        model,
        messages: question,
        max_tokens: 60,
        stream: true,
      })) {
        events.push(event)
      }

      const types = events.map((event) => event.type).filter((type) => String(type) !== 'ping')
      expect(types).toEqual([
        'message_start',
        'content_block_start',
        ...types.filter((type) => type === 'content_block_delta'),
        'content_block_stop',
        'message_delta',
        'message_stop',
      ])
      expect(events.find((event) => event.type === 'message_delta')).toMatchObject({
        usage: { output_tokens: 50, total_tokens: 150 },
        svc_metrics: { savings_percent: 0, original_cost: 0.0002, your_cost: 0.0002 },
      })
    })

    it('joins a stream with its helper, including thinking and tools', async () => {
      const toolCalls = [
        { id: 'toolu_1', name: 'weather', input: '{"city":"Paris"}' },
        { id: 'toolu_2', name: 'weather', input: '{"city":"Rome"}' },
      ]
      const { anthropic } = await stage({ inProcess, reply: () => ({ text: 'Let me look.', toolCalls }) })

      const message = await anthropic.messages
        .stream({ model, messages: question, max_tokens: 60, tools: [weather] })
        .finalMessage()

      expect(message.stop_reason).toBe('tool_use')
      expect(message.content).toMatchObject([
        { type: 'text', text: 'Let me look.' },
        { type: 'tool_use', id: 'toolu_1', name: 'weather', input: { city: 'Paris' } },
        { type: 'tool_use', id: 'toolu_2', name: 'weather', input: { city: 'Rome' } },
      ])
    })

    it('sends tool results and images in the format of the upstream', async () => {
      const { anthropic, upstream } = await stage({ inProcess })

      await anthropic.messages.create({
        model,
        max_tokens: 60,
        tools: [weather],
        messages: [
          {
            role: 'user',
            content: [
              { type: 'text', text: 'What is it?' },
              { type: 'image', source: { type: 'base64', media_type: 'image/png', data: picture } },
            ],
          },
          {
            role: 'assistant',
            content: [{ type: 'tool_use', id: 'toolu_1', name: 'weather', input: { city: 'Paris' } }],
          },
          {
            role: 'user',
            content: [
              { type: 'tool_result', tool_use_id: 'toolu_1', content: 'sunny' },
              { type: 'text', text: 'Well?' },
            ],
          },
        ],
      })

      const messages = upstream.last.body['messages'] as { role: string }[]
      const expected = model === CHAT_MODEL ? ['user', 'assistant', 'tool', 'user'] : ['user', 'assistant', 'user']
      expect(messages.map((message) => message.role)).toEqual(expected)
      expect(upstream.last.text).toContain(picture)
    })

    it('ends the upstream’s call when it is aborted in the middle of a stream', async () => {
      const opened = gate()
      const { anthropic, upstream } = await stage({
        inProcess,
        reply: (request) => ({ kind: 'events', items: [...eventsUntilText(request.dialect), opened.opened, HANG] }),
      })

      const stream = anthropic.messages.stream({ model, messages: question, max_tokens: 60 })
      for await (const event of stream) if (event.type === 'content_block_delta') break

      await upstream.requests[0]?.aborted
      expect(upstream.last.isAborted).toBe(true)
    })

    it('receives an error when the upstream breaks off', async () => {
      const { anthropic } = await stage({
        inProcess,
        reply: (request) => ({ kind: 'events', items: [...eventsUntilText(request.dialect), CUT] }),
      })

      const stream = anthropic.messages.stream({ model, messages: question, max_tokens: 60 })

      await expect(stream.finalMessage()).rejects.toBeInstanceOf(Anthropic.APIError)
    })
  })

  it('thinking blocks pass a message upstream unchanged, streamed too', async () => {
    const { anthropic } = await stage({ inProcess, reply: () => ({ thinking: 'Hmm.', text: 'Yes.' }) })
    const body = { model: MESSAGE_MODEL, messages: question, max_tokens: 60 }

    const whole = await anthropic.messages.create(body)
    const streamed = await anthropic.messages.stream(body).finalMessage()

    for (const message of [whole, streamed]) {
      expect(message.content).toMatchObject([
        { type: 'thinking', thinking: 'Hmm.', signature: 'c2lnbmVk' },
        { type: 'text', text: 'Yes.' },
      ])
    }
  })

  it.each([
    [400, Anthropic.BadRequestError, 400],
    [403, Anthropic.InternalServerError, 502],
    [404, Anthropic.NotFoundError, 404],
    [429, Anthropic.RateLimitError, 429],
    [500, Anthropic.InternalServerError, 502],
    [529, Anthropic.InternalServerError, 503],
  ])('receives an upstream’s %i as the matching error class', async (status, kind, expected) => {
    const { anthropic } = await stage({ inProcess, reply: () => ({ kind: 'failure', status }) })

    const error = await anthropic.messages
      .create({ model: MESSAGE_MODEL, messages: question, max_tokens: 60 })
      .catch((reason: unknown) => reason)

    expect(error).toBeInstanceOf(kind)
    expect(error).toMatchObject({ status: expected, error: { type: 'error', error: { type: expect.any(String) } } })
    expect((error as InstanceType<typeof Anthropic.APIError>).requestID).toMatch(/^req_/)
  })

  it('lists the models in pages and reads one by its id', async () => {
    const { anthropic } = await stage({ inProcess })

    const ids = []
    for await (const model of anthropic.models.list({ limit: 1 })) ids.push(model.id)

    expect(new Set(ids).size).toBe(ids.length)
    expect(ids).toContain(MESSAGE_MODEL)
    expect(await anthropic.models.retrieve(MESSAGE_MODEL)).toMatchObject({ id: MESSAGE_MODEL, type: 'model' })
  })
})

function usageFor(model: string, input: number, output: number): Record<string, number> {
  return model === CHAT_MODEL
    ? { prompt_tokens: input, completion_tokens: output, total_tokens: input + output }
    : { input_tokens: input, output_tokens: output }
}
