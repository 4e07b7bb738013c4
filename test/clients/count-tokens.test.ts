import { afterEach, describe, expect, it } from 'vitest'
import type { Provider } from '../../src/index.ts'
import { extractive } from '../../src/testing.ts'
import { sendRequest } from '../support/send-request.ts'
import { CHAT_MODEL, MESSAGE_MODEL, startStage, type Stage, type StageOptions } from '../support/stage.ts'
import { recordingStore } from '../support/recording-store.ts'

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((openStage) => openStage.close()))
})

async function stage(options: StageOptions = {}): Promise<Stage> {
  const started = await startStage(options)
  stages.push(started)
  return started
}

const messages = [{ role: 'user' as const, content: 'How many tokens are these?' }]
const countReply = (tokens: number) => () => ({ kind: 'json', value: { input_tokens: tokens } }) as const

describe('counting tokens through the official client', () => {
  it('sends only the prompt to an upstream that can count', async () => {
    const { anthropic, upstream } = await stage({ reply: countReply(1234) })

    const { data, response } = await anthropic.messages
      .countTokens({ model: MESSAGE_MODEL, messages, system: 'Be brief.' })
      .withResponse()

    expect(data).toEqual({ input_tokens: 1234 })
    expect(response.headers.get('x-svc-estimated')).toBeNull()
    expect(upstream.last.path).toBe('/v1/messages/count_tokens')
    expect(upstream.last.body).toEqual({ model: 'large', messages, system: 'Be brief.' })
  })

  it('counts in the gateway if the upstream cannot count', async () => {
    const { anthropic, upstream } = await stage()

    const { data, response } = await anthropic.messages.countTokens({ model: CHAT_MODEL, messages }).withResponse()

    expect(data.input_tokens).toBeGreaterThan(5)
    expect(data.input_tokens).toBeLessThan(30)
    expect(response.headers.get('x-svc-estimated')).toBe('true')
    expect(upstream.requests).toHaveLength(0)
  })

  it.each([
    ['fails', { kind: 'failure', status: 500 } as const],
    ['does not know the path', { kind: 'failure', status: 404 } as const],
    ['breaks off', { kind: 'cut' } as const],
    ['counts no number', { kind: 'json', value: { input_tokens: 'many' } } as const],
  ])('counts in the gateway if the upstream %s', async (_, reply) => {
    const { anthropic } = await stage({ reply: () => reply })

    const { data, response } = await anthropic.messages.countTokens({ model: MESSAGE_MODEL, messages }).withResponse()

    expect(data.input_tokens).toBeGreaterThan(5)
    expect(response.headers.get('x-svc-estimated')).toBe('true')
  })

  it.each([
    ['10 seconds', {}, 10_000],
    ['the total time of a request, if that is shorter,', { totalMs: 4000 }, 4000],
  ])('waits %s at most for the upstream', async (_, timeouts, expectedMs) => {
    const waits: number[] = []
    const provider: Provider = {
      ...extractive(),
      countTokens: async (call) => {
        waits.push(call.timeouts.totalMs)
        return 5
      },
    }
    const { anthropic } = await stage({ providers: [provider], timeouts })

    await anthropic.messages.countTokens({ model: 'extractive/extractive', messages })

    expect(waits).toEqual([expectedMs])
  })

  it('is free, and counts only against the request limit', async () => {
    const store = recordingStore()
    const { anthropic, gateway, keyId } = await stage({
      store,
      reply: countReply(10),
      key: { name: 'k', rate_limit_requests: 3, rate_limit_tokens: 1, budget_limit_cents: 1 },
    })
    const count = { model: MESSAGE_MODEL, messages }
    const remaining = async (): Promise<string | null> => {
      const { response } = await anthropic.messages.countTokens(count).withResponse()
      return response.headers.get('x-ratelimit-remaining')
    }

    expect([await remaining(), await remaining(), await remaining()]).toEqual(['2', '1', '0'])
    expect(await store.maxHeld()).toBe(0)
    expect(await store.spent('tokens')).toBe(0)
    expect(await gateway.keys.usage(keyId)).toMatchObject({ requests: 3, cost: { billedUsd: 0 } })
    expect((await gateway.audit.read({ keyId })).records).toHaveLength(3)
  })

  it.each([CHAT_MODEL, MESSAGE_MODEL])(
    'of %s is refused without an upstream call when the limit is reached',
    async (model) => {
      const { anthropic, gateway, keyId, upstream } = await stage({ key: { name: 'k', rate_limit_requests: 0 } })
      for (let times = 0; times < 3; times += 1) {
        await expect(anthropic.messages.countTokens({ model, messages })).rejects.toMatchObject({
          status: 429,
          error: { type: 'error', error: { type: 'rate_limit_error' } },
        })
      }
      expect(upstream.requests).toHaveLength(0)
      const { records } = await gateway.audit.read({ keyId })
      expect(records.map(({ outcome }) => outcome)).toEqual(['refused', 'refused', 'refused'])
    },
  )

  it.each([
    ['without a key', { secret: null }, {}, 401],
    ['of a model that the key may not use', {}, { model: CHAT_MODEL }, 403],
    ['of a model that there is not', {}, { model: 'anthropic/none' }, 404],
    ['of messages that are none', {}, { messages: 'none' }, 400],
  ])('is rejected %s', async (_, options, change, status) => {
    const { url, secret } = await stage({ key: { name: 'k', allowed_models: ['anthropic/*'] } })

    const reply = await sendRequest(
      { url, secret },
      { model: MESSAGE_MODEL, messages, ...change },
      { path: '/v1/messages/count_tokens', ...options },
    )

    expect(reply.status).toBe(status)
    expect(reply.body).toMatchObject({ type: 'error', request_id: expect.stringMatching(/^req_/) })
  })
})

describe('counting tokens of a response', () => {
  const input = 'How many tokens are these?'

  it('counts in the gateway if the upstream cannot count', async () => {
    const { openai, upstream } = await stage()

    const count = openai.responses.inputTokens.count({ model: CHAT_MODEL, input, instructions: 'Be brief.' })
    const { data, response } = await count.withResponse()

    expect(data).toEqual({ object: 'response.input_tokens', input_tokens: expect.any(Number) })
    expect(data.input_tokens).toBeGreaterThan(8)
    expect(data.input_tokens).toBeLessThan(40)
    expect(response.headers.get('x-svc-estimated')).toBe('true')
    expect(upstream.requests).toHaveLength(0)
  })

  it('is counted by an upstream of another format that can count', async () => {
    const { openai, upstream } = await stage({ reply: countReply(1234) })

    const { data, response } = await openai.responses.inputTokens.count({ model: MESSAGE_MODEL, input }).withResponse()

    expect(data).toEqual({ object: 'response.input_tokens', input_tokens: 1234 })
    expect(response.headers.get('x-svc-estimated')).toBeNull()
    expect(upstream.last.path).toBe('/v1/messages/count_tokens')
    expect(upstream.last.body).toEqual({
      model: 'large',
      messages: [{ role: 'user', content: [{ type: 'text', text: input }] }],
    })
  })

  it('includes the turns before it', async () => {
    const { openai } = await stage()
    const model = CHAT_MODEL
    const first = await openai.responses.create({ model, input: 'Tell me about tides. '.repeat(50) })

    const alone = await openai.responses.inputTokens.count({ model, input })
    const after = await openai.responses.inputTokens.count({ model, input, previous_response_id: first.id })

    expect(after.input_tokens).toBeGreaterThan(alone.input_tokens + 200)
  })

  it('of a prompt without input is that of its instructions', async () => {
    const { openai } = await stage()

    const { input_tokens } = await openai.responses.inputTokens.count({ model: CHAT_MODEL, instructions: 'Be brief.' })

    expect(input_tokens).toBeGreaterThan(2)
    expect(input_tokens).toBeLessThan(20)
  })

  it.each([
    ['without a key', { secret: null }, {}, 401],
    ['for a model that the key may not use', {}, { model: MESSAGE_MODEL }, 403],
    ['for a model that does not exist', {}, { model: 'chat/none' }, 404],
    ['for an invalid input', {}, { input: 1 }, 400],
    ['for a response that does not exist', {}, { previous_response_id: 'resp_none' }, 400],
  ])('is rejected %s', async (_, options, change, status) => {
    const { url, secret, upstream } = await stage({ key: { name: 'k', allowed_models: ['chat/*'] } })

    const reply = await sendRequest(
      { url, secret },
      { model: CHAT_MODEL, input, ...change },
      { path: '/v1/responses/input_tokens', ...options },
    )

    expect(reply.status).toBe(status)
    expect(reply.body).toMatchObject({ error: { message: expect.any(String), type: expect.any(String) } })
    expect(upstream.requests).toHaveLength(0)
  })
})
