import { afterEach, describe, expect, it } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import { prose } from '../plugins/savings/conversation.ts'
import { everyNth } from '../support/full.ts'
import { sendRequest, CHAT, FORMAT_PAIRS, ENDPOINTS, MESSAGE, type Endpoint } from '../support/send-request.ts'
import { startStage, type Stage, type StageOptions } from '../support/stage.ts'
import { post } from '../support/read-stream.ts'
import { CUT, buildEvents, HANG, replyInOrder, type Reply, type UpstreamRequest } from '../support/upstream.ts'
import { recordingStore, type DailyTotals, type RecordingStore } from '../support/recording-store.ts'

/**
 * Both models cost 1 $ per million prompt tokens and 2 $ per million output tokens: 1,000 and 2,000 nano-dollars each.
 */
const INPUT = 1000
const MARGIN = 1.5

interface RecordedStage extends Stage {
  readonly store: RecordingStore
}

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()))
})

async function startOne(
  reply: (request: UpstreamRequest) => Reply | Promise<Reply>,
  options: StageOptions = {},
): Promise<RecordedStage> {
  const store = recordingStore()
  const key = { name: 'payer', budget_limit_cents: 100_000 }
  const stage = await startStage({ reply, store, key, margin: MARGIN, ...options })
  stages.push(stage)
  return { ...stage, store }
}

/** Returns the costs in the usage report of the key, in nano-dollars, after all settlements. */
async function readTotals({ store }: RecordedStage): Promise<DailyTotals> {
  await store.waitUntilSettled()
  expect(await store.maxHeld()).toBe(0)
  expect(await store.spent('budget')).toBe(store.dailyTotals().billed)
  return store.dailyTotals()
}

const createUsage = ({ dialect }: UpstreamRequest, input: number, output: number): JsonObject =>
  dialect === 'chat'
    ? { prompt_tokens: input, completion_tokens: output, total_tokens: input + output }
    : { input_tokens: input, output_tokens: output }

/** About 26,000 tokens, enough for the tiers to run. */
const CONVERSATION = [
  ...Array.from({ length: 24 }, (_, at) => ({
    role: at % 2 === 0 ? 'user' : 'assistant',
    content: `${at}: ${prose(at, 500)}`,
  })),
  { role: 'user', content: 'Which port does the ledger of the orchard listen on?' },
]

const isSmall = ({ body }: UpstreamRequest): boolean => body['model'] === 'small'

/** The small model reports these tokens; the main call receives `main`. */
function withSmallModel(main: Reply): (request: UpstreamRequest) => Reply {
  return (request) =>
    isSmall(request) ? { text: '{"terms":["billing port"]}', usage: createUsage(request, 1000, 100) } : main
}

const SMALL_CALL = 1000 * INPUT + 100 * 2 * INPUT

describe.each(ENDPOINTS)(
  'small-model calls of a request on the $name endpoint whose main call is refused',
  (endpoint) => {
    const body = { ...endpoint.body, messages: CONVERSATION }

    it('are billed with the margin when a header requested them', async () => {
      const stage = await startOne(withSmallModel({ kind: 'failure', status: 400 }))
      const reply = await sendRequest(stage, body, { path: endpoint.path, headers: { 'x-vanishing-context': 'true' } })

      expect(reply.status).toBe(400)
      expect(stage.upstream.requests.filter(isSmall)).toHaveLength(1)
      expect(await readTotals(stage)).toEqual({
        requests: 1,
        actual: SMALL_CALL,
        billed: SMALL_CALL * MARGIN,
        prompt: 0,
        completion: 0,
      })
      const { records } = await stage.gateway.audit.read({ keyId: stage.keyId })
      expect(records).toMatchObject([{ outcome: 'refused', costUsd: (SMALL_CALL * MARGIN) / 1e9, tokensUsed: 0 }])
    })

    it('are not billed when the size of the prompt caused them', async () => {
      const savings = { thresholdTokens: { vanishing: 5000 }, keep: 0 }
      const stage = await startOne(withSmallModel({ kind: 'failure', status: 400 }), { savings })
      await sendRequest(stage, body, { path: endpoint.path })

      const calls = stage.upstream.requests.filter(isSmall).length
      expect(calls).toBeGreaterThan(0)
      expect(await readTotals(stage)).toMatchObject({ actual: calls * SMALL_CALL, billed: 0 })
    })

    it.each([{ 'x-svc-rlm': 'true' }, {}])(
      'are billed when the caller disconnects during them (headers: %j)',
      async (headers) => {
        const savings = { thresholdTokens: { vanishing: 1e9, recursive: 5000, family: 1e9 }, keep: 0 }
        const stage = await startOne(() => ({ kind: 'hang' }), { savings, smallPrice: { input: 0.1, output: 0.2 } })
        const controller = new AbortController()
        const left = post(stage, endpoint.path, { body, headers, signal: controller.signal })
        const request = await stage.upstream.waitForRequest(1)
        controller.abort()
        await Promise.all([left, request.aborted])

        expect(stage.upstream.requests.every(isSmall)).toBe(true)
        const { billed, actual } = await readTotals(stage)
        expect(actual).toBeGreaterThan(100 * INPUT)
        expect(billed).toBe(actual * MARGIN)
      },
    )

    it('are billed at most the reserved amount', async () => {
      const stage = await startOne((request) =>
        isSmall(request)
          ? { text: '{"terms":["billing port"]}', usage: createUsage(request, 190_000, 1000) }
          : { kind: 'failure', status: 400 },
      )
      const short = { ...endpoint.body, max_tokens: 1 }
      const messages = CONVERSATION.map((message) => ({ ...message, content: message.content.slice(0, 60) }))
      await sendRequest(
        stage,
        { ...short, messages },
        { path: endpoint.path, headers: { 'x-vanishing-context': 'true' } },
      )

      const { billed, actual } = await readTotals(stage)
      expect(actual).toBeGreaterThanOrEqual(190_000 * INPUT)
      expect(billed).toBeGreaterThan(0)
      expect(billed).toBeLessThan(20_000 * INPUT)
    })
  },
)

describe.each(everyNth(3, FORMAT_PAIRS))('a call on the $name', (endpoint) => {
  it('that broke after it was accepted is part of the actual cost of the answer that followed', async () => {
    const stage = await startOne((request) =>
      request.index === 0
        ? {
            kind: 'events',
            items: [...buildEvents(request, { text: 'x', usage: createUsage(request, 50, 1) }).slice(0, 1), CUT],
          }
        : { text: 'Hello.', usage: createUsage(request, 50, 10) },
    )
    const reply = await sendRequest(stage, { ...endpoint.body, stream: true }, { path: endpoint.path })

    expect(reply.status).toBe(200)
    expect(stage.upstream.requests).toHaveLength(2)
    const { billed, actual, prompt } = await readTotals(stage)
    expect(prompt).toBe(50)
    expect(billed).toBe((50 + 2 * 10) * INPUT * MARGIN)
    // The message format reports prompt tokens before a stream breaks; for the chat format, the gateway counts them.
    expect(actual).toBeGreaterThan((50 + 2 * 10) * INPUT)
    if (endpoint.model === MESSAGE.model) expect(actual).toBe((50 + 2 * 10 + 50) * INPUT)
  })

  it('that was rejected or did not reach the upstream costs nothing', async () => {
    const replies = replyInOrder({ kind: 'failure', status: 503 }, { kind: 'cut' }, 'Hello.')
    const stage = await startOne(replies)
    expect((await sendRequest(stage, endpoint.body, { path: endpoint.path })).status).toBe(200)

    const { billed, actual } = await readTotals(stage)
    expect(stage.upstream.requests).toHaveLength(3)
    expect(billed).toBe(actual * MARGIN)
  })

  it('whose answer cannot be read is not billed', async () => {
    const stage = await startOne(() => ({ kind: 'json', value: {} }))
    expect((await sendRequest(stage, endpoint.body, { path: endpoint.path })).status).toBe(502)

    const { billed, actual } = await readTotals(stage)
    expect(stage.upstream.requests).toHaveLength(3)
    expect(billed).toBe(0)
    expect(actual).toBeGreaterThan(3 * INPUT)
  })

  it.each([false, true])(
    'whose caller disconnects before the answer is billed for the prompt (stream: %s)',
    async (stream) => {
      const stage = await startOne(() => ({ kind: 'hang' }))
      const controller = new AbortController()
      const left = sendAndDisconnect(stage, endpoint, stream, controller)
      const request = await stage.upstream.waitForRequest(1)
      controller.abort()
      await Promise.all([left, request.aborted])

      const { billed, actual, prompt, completion } = await readTotals(stage)
      expect(prompt).toBeGreaterThan(0)
      expect({ billed, actual, completion }).toEqual({
        billed: prompt * INPUT * MARGIN,
        actual: prompt * INPUT,
        completion: 0,
      })
      const { records } = await stage.gateway.audit.read({ keyId: stage.keyId })
      expect(records).toMatchObject([
        { outcome: 'left', status: 499, failure: 'cancelled', costUsd: Math.round(billed / 1000) / 1e6 },
      ])
    },
  )

  it('whose caller disconnects from a stream is audited as disconnected and billed for the received part', async () => {
    const stage = await startOne((request) => ({
      kind: 'events',
      items: [...buildEvents(request, { text: ['One', ' two', ' three'] }).slice(0, 5), HANG],
    }))
    const response = await post(stage, endpoint.path, { body: { ...endpoint.body, stream: true } })
    const reader = response.body?.getReader()
    await reader?.read()
    await reader?.cancel()
    await stage.upstream.last.aborted

    const { billed, prompt } = await readTotals(stage)
    expect(prompt).toBeGreaterThan(0)
    expect(billed).toBeGreaterThanOrEqual(prompt * INPUT * MARGIN)
    const { records } = await stage.gateway.audit.read({ keyId: stage.keyId })
    expect(records).toMatchObject([{ outcome: 'left', status: 499, failure: 'cancelled' }])
  })
})

async function sendAndDisconnect(
  stage: Stage,
  endpoint: Endpoint,
  stream: boolean,
  controller: AbortController,
): Promise<void> {
  const response = await post(stage, endpoint.path, { body: { ...endpoint.body, stream }, signal: controller.signal })
  expect(response.status).toBe(499)
}

it('embeddings whose caller disconnects are billed for the texts that were sent', async () => {
  const stage = await startOne(() => ({ kind: 'hang' }), {})
  const controller = new AbortController()
  const body = { model: 'chat/large', input: ['The fox jumps over the dog.'] }
  const response = post(stage, '/v1/embeddings', { body, signal: controller.signal })
  const request = await stage.upstream.waitForRequest(1)
  controller.abort()
  expect((await response).status).toBe(499)
  await request.aborted

  const { billed, prompt } = await readTotals(stage)
  expect(prompt).toBeGreaterThan(3)
  expect(billed).toBe(prompt * INPUT * MARGIN)
})

describe('an answered request is settled before its turn is stored', () => {
  it('so a store that cannot store the turn does not affect the answer or the bill', async () => {
    const store = recordingStore()
    const broken = {
      ...store,
      set: (key: string, value: string, options?: { readonly ttlMs?: number }) => {
        if (!key.startsWith('turn:')) return store.set(key, value, options)
        order.push('turn', store.settlements.length)
        throw new TypeError('set of a turn')
      },
    }
    const order: unknown[] = []
    for (const stream of [false, true]) {
      const stage = await startStage({ store: broken, key: { name: 'k', budget_limit_cents: 100 }, reply: () => 'Hi.' })
      stages.push(stage)
      const body = { model: CHAT.model, input: 'Hello?', max_output_tokens: 20, stream }
      const reply = await sendRequest(stage, body, { path: '/v1/responses' })
      expect(reply.status).toBe(200)
      if (stream) expect(reply.text).toContain('response.completed')
    }
    expect(order.slice(0, 2)).toEqual(['turn', 1])
    expect(store.settlements).toHaveLength(2)
    expect(await store.spent('budget')).toBeGreaterThan(0)
  })
})

it('an answer that is nested too deeply is not requested again', async () => {
  const body = `{"type":"message","content":[{"type":"tool_use","input":${'['.repeat(200)}${']'.repeat(200)}}]}`
  const stage = await startOne(() => ({ kind: 'body', body }))
  const reply = await sendRequest(stage, MESSAGE.body, { path: MESSAGE.path })

  expect([reply.status, reply.headers['x-should-retry']]).toEqual([502, 'false'])
  expect(stage.upstream.requests).toHaveLength(1)
})

describe('the beta of a million tokens of context', () => {
  const headers = { 'anthropic-beta': 'context-1m-2025-08-07, other-2025-01-01' }

  it('is not forwarded for a model whose entry has a smaller context window', async () => {
    const stage = await startOne(() => 'Hi.')
    expect((await sendRequest(stage, MESSAGE.body, { path: MESSAGE.path, headers })).status).toBe(200)

    expect(stage.upstream.last.headers['anthropic-beta']?.trim()).toBe('other-2025-01-01')
  })

  it.each(['Context-1M-2025-08-07, other', 'CONTEXT-1M-2025-08-07,other', '"context-1m-2025-08-07", other'])(
    'is not forwarded in another spelling: %s',
    async (betas) => {
      const stage = await startOne(() => 'Hi.')
      const options = { path: MESSAGE.path, headers: { 'Anthropic-Beta': betas } }
      expect((await sendRequest(stage, MESSAGE.body, options)).status).toBe(200)

      expect(stage.upstream.last.headers['anthropic-beta']?.trim()).toBe('other')
    },
  )

  it.each([
    { anthropic_beta: ['context-1m-2025-08-07'] },
    { anthropic_beta: ['Context-1M-2025-08-07'] },
    { Anthropic_Beta: 'CONTEXT-1M-2025-08-07' },
    { 'anthropic-beta': ['context-1m-2025-08-07'] },
    { betas: ['context-1m-2025-08-07'] },
    { extra_body: { anthropic_beta: ['context-1m-2025-08-07'] } },
    { additionalModelRequestFields: { anthropic_beta: ['Context-1m-2025-08-07'] } },
  ])('is rejected in the body: %j', async (fields) => {
    const stage = await startOne(() => 'Hi.')
    const body = { ...MESSAGE.body, ...fields }
    const reply = await sendRequest(stage, body, { path: MESSAGE.path })

    expect([reply.status, stage.upstream.requests.length]).toEqual([400, 0])
  })
})
