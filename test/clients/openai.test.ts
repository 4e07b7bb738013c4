import OpenAI from 'openai'
import { afterEach, describe, expect, it } from 'vitest'
import { CHAT_MODEL, MESSAGE_MODEL, startStage, type Stage, type StageOptions } from '../support/stage.ts'
import { eventsUntilText, gate, HANG } from '../support/upstream-events.ts'

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((openStage) => openStage.close()))
})

async function stage(options: StageOptions = {}): Promise<Stage> {
  const started = await startStage(options)
  stages.push(started)
  return started
}

const weather: OpenAI.ChatCompletionTool = {
  type: 'function',
  function: {
    name: 'weather',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
}
const question: OpenAI.ChatCompletionMessageParam[] = [
  { role: 'system', content: 'Be brief.' },
  { role: 'user', content: 'Hello?' },
]
const picture =
  'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=='

describe.each([
  ['on a real port', false],
  ['in process', true],
])('the official openai client, %s', (_, inProcess) => {
  describe.each([
    ['a chat upstream', CHAT_MODEL],
    ['a message upstream', MESSAGE_MODEL],
  ])('with %s', (__, model) => {
    it('gets a whole answer with its usage and the bill in the headers', async () => {
      const { openai, upstream } = await stage({
        inProcess,
        reply: () => ({ text: 'Bonjour.', usage: usageFor(model, 100, 50) }),
      })

      const { data, response } = await openai.chat.completions
        .create({ model, messages: question, max_tokens: 60 })
        .withResponse()

      expect(data.choices[0]?.message.content).toBe('Bonjour.')
      expect(data.choices[0]?.finish_reason).toBe('stop')
      expect(data.usage).toMatchObject({ prompt_tokens: 100, completion_tokens: 50, total_tokens: 150 })
      expect(Object.fromEntries(response.headers)).toMatchObject({
        'x-svc-original-tokens': '100',
        'x-svc-optimized-tokens': '100',
        'x-svc-tokens-saved': '0',
        'x-svc-reduction-pct': '0%',
        'x-svc-savings-usd': '$0.000000',
        'x-svc-strategy': 'Passthrough (no optimization needed)',
        'x-svc-theoretical-cost': '$0.000200',
        'x-svc-actual-cost': '$0.000200',
        'x-svc-billed-amount': '$0.000300',
        'x-svc-profit-margin': '1.5x',
        'x-svc-cache': 'MISS',
      })
      expect(response.headers.get('x-svc-estimated')).toBeNull()
      expect(response.headers.get('x-request-id')).toBe(response.headers.get('request-id'))
      expect(upstream.requests).toHaveLength(1)
      expect(upstream.last.body['model']).toBe('large')
    })

    it('gets a stream whose chunk with finish_reason carries the bill', async () => {
      const { openai } = await stage({
        inProcess,
        reply: () => ({ text: ['Bon', 'jour', '.'], usage: usageFor(model, 100, 50) }),
      })

      const { data: stream, response } = await openai.chat.completions
        .create({ model, messages: question, max_tokens: 60, stream: true })
        .withResponse()
      const chunks = []
      for await (const chunk of stream) chunks.push(chunk)

      expect(chunks.every((chunk) => chunk.choices.length === 1)).toBe(true)
      expect(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join('')).toBe('Bonjour.')
      const last = chunks.at(-1)
      expect(last?.choices[0]?.finish_reason).toBe('stop')
      expect(last).toHaveProperty('svc_metrics')
      expect((last as { svc_metrics?: unknown }).svc_metrics).toEqual({
        original_tokens: 100,
        optimized_tokens: 100,
        tokens_saved: 0,
        reduction_pct: 0,
        strategy: 'Passthrough (no optimization needed)',
        cache: 'MISS',
        theoretical_cost: 0.0002,
        actual_cost: 0.0002,
        billed_amount: 0.0003,
        savings_usd: 0,
        profit_margin: 1.5,
      })
      expect(response.headers.get('x-svc-estimated')).toBe('true')
      expect(response.headers.get('content-type')).toContain('text/event-stream')
    })

    it('receives a last chunk with the usage on request', async () => {
      const { openai } = await stage({ inProcess, reply: () => ({ text: 'Hi', usage: usageFor(model, 10, 5) }) })

      const stream = await openai.chat.completions.create({
        model,
        messages: question,
        max_tokens: 60,
        stream: true,
        stream_options: { include_usage: true },
      })
      const chunks = []
      for await (const chunk of stream) chunks.push(chunk)

      expect(chunks.at(-1)?.choices).toEqual([])
      expect(chunks.at(-1)?.usage).toMatchObject({ prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 })
      expect(chunks.slice(0, -1).every((chunk) => chunk.choices.length === 1)).toBe(true)
    })

    it('receives parallel tool calls, whole and streamed, and sends their results', async () => {
      const toolCalls = [
        { id: 'call_1', name: 'weather', input: '{"city":"Paris"}' },
        { id: 'call_2', name: 'weather', input: '{"city":"Rome"}' },
      ]
      const { openai, upstream } = await stage({ inProcess, reply: () => ({ toolCalls }) })
      const body = { model, messages: question, max_tokens: 60, tools: [weather] }

      const whole = await openai.chat.completions.create(body)
      const streamed = await openai.chat.completions.stream(body).finalChatCompletion()

      for (const completion of [whole, streamed]) {
        const calls = completion.choices[0]?.message.tool_calls ?? []
        expect(
          calls.map((call) => (call.type === 'function' ? [call.id, call.function.name, call.function.arguments] : [])),
        ).toEqual(toolCalls.map((call) => [call.id, call.name, call.input]))
        expect(completion.choices[0]?.finish_reason).toBe('tool_calls')
      }
      upstream.reply = () => 'Sunny in both.'
      const responded = await openai.chat.completions.create({
        ...body,
        messages: [
          ...question,
          whole.choices[0]!.message,
          { role: 'tool', tool_call_id: 'call_1', content: 'sunny' },
          { role: 'tool', tool_call_id: 'call_2', content: 'sunny too' },
        ],
      })
      expect(responded.choices[0]?.message.content).toBe('Sunny in both.')
      expect(upstream.last.text).toContain('sunny too')
    })

    it('sends images in the format of the upstream', async () => {
      const { openai, upstream } = await stage({ inProcess })

      await openai.chat.completions.create({
        model,
        max_tokens: 60,
        messages: [
          {
            role: 'user',
            content: [
              { type: 'text', text: 'What is it?' },
              { type: 'image_url', image_url: { url: picture } },
            ],
          },
        ],
      })

      const [message] = upstream.last.body['messages'] as { content: { type: string }[] }[]
      expect(message?.content.map((part) => part.type)).toEqual(
        model === CHAT_MODEL ? ['text', 'image_url'] : ['text', 'image'],
      )
      expect(upstream.last.text).toContain('iVBORw0KGgo')
    })

    it('ends the upstream’s call when it is aborted in the middle of a stream', async () => {
      const opened = gate()
      const { openai, upstream } = await stage({
        inProcess,
        reply: (request) => ({ kind: 'events', items: [...eventsUntilText(request.dialect), opened.opened, HANG] }),
      })

      const stream = await openai.chat.completions.create({ model, messages: question, max_tokens: 60, stream: true })
      for await (const chunk of stream) {
        if (chunk.choices[0]?.delta.content !== '') break
      }

      await upstream.requests[0]?.aborted
      expect(upstream.last.isAborted).toBe(true)
    })
  })

  it.each([
    [400, OpenAI.BadRequestError, 400],
    [401, OpenAI.InternalServerError, 502],
    [404, OpenAI.NotFoundError, 404],
    [409, OpenAI.ConflictError, 409],
    [422, OpenAI.UnprocessableEntityError, 422],
    [429, OpenAI.RateLimitError, 429],
    [500, OpenAI.InternalServerError, 502],
    [503, OpenAI.InternalServerError, 503],
  ])('receives an upstream’s %i as the matching error class', async (status, kind, expected) => {
    const { openai } = await stage({ inProcess, reply: () => ({ kind: 'failure', status }) })

    const error = await openai.chat.completions
      .create({ model: CHAT_MODEL, messages: question })
      .catch((reason: unknown) => reason)

    expect(error).toBeInstanceOf(kind)
    expect(error).toMatchObject({ status: expected })
    expect((error as InstanceType<typeof OpenAI.APIError>).requestID).toMatch(/^req_/)
    expect(String((error as Error).message)).not.toContain('sk-upstream')
  })

  it('receives a wrong key, an unknown model and an invalid parameter as the matching error classes', async () => {
    const { openai, url } = await stage({ inProcess })
    const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'sk-bf-wrong', maxRetries: 0 })

    await expect(stranger.chat.completions.create({ model: CHAT_MODEL, messages: question })).rejects.toBeInstanceOf(
      OpenAI.AuthenticationError,
    )
    await expect(openai.chat.completions.create({ model: 'chat/none', messages: question })).rejects.toMatchObject({
      status: 404,
      code: 'invalid_model',
      param: 'model',
    })
    await expect(
      openai.chat.completions.create({ model: CHAT_MODEL, messages: question, max_tokens: -1 }),
    ).rejects.toMatchObject({ status: 400, param: 'max_tokens', type: 'invalid_request_error' })
  })

  it('lists the models and reads one by its id', async () => {
    const { openai } = await stage({ inProcess })

    const ids = []
    for await (const model of openai.models.list()) ids.push(model.id)

    expect(ids).toContain(CHAT_MODEL)
    expect(await openai.models.retrieve(CHAT_MODEL)).toMatchObject({
      id: CHAT_MODEL,
      object: 'model',
      owned_by: 'chat',
    })
  })
})

function usageFor(model: string, input: number, output: number): Record<string, number> {
  return model === CHAT_MODEL
    ? { prompt_tokens: input, completion_tokens: output, total_tokens: input + output }
    : { input_tokens: input, output_tokens: output }
}
