import { afterEach, describe, expect, it } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import { NO_USAGE } from '../../src/core/money.ts'
import { readMessageUsage } from '../../src/formats/usage.ts'
import { anthropic } from '../../src/index.ts'
import { post } from '../support/read-stream.ts'
import { startStage, type Stage } from '../support/stage.ts'
import { recordingStore, type RecordingStore } from '../support/recording-store.ts'
import { startUpstream, type Upstream } from '../support/upstream.ts'

const iteration = (type: string, model: string, input_tokens: number, output_tokens: number): JsonObject => ({
  type,
  model,
  input_tokens,
  output_tokens,
  cache_read_input_tokens: 0,
  cache_creation_input_tokens: 0,
  cache_creation: null,
})

const open: { close(): Promise<void> }[] = []
afterEach(async () => {
  for (const one of open.splice(0)) await one.close()
})

interface Started {
  readonly stage: Stage
  readonly upstream: Upstream
  readonly store: RecordingStore
}

/** Dollars per million tokens: the requested model 10 and 50, its fallback 5 and 25. */
async function start(iterations: readonly object[]): Promise<Started> {
  const usage = { input_tokens: 1000, output_tokens: 200, iterations }
  const message = { id: 'msg_1', type: 'message', role: 'assistant', model: 'claude-opus-4-8' }
  const content = [{ type: 'text', text: 'Hello.' }]
  const events = [
    { type: 'message_start', message: { ...message, content: [], usage: { input_tokens: 1000, output_tokens: 1 } } },
    { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
    { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'Hello.' } },
    { type: 'content_block_stop', index: 0 },
    { type: 'message_delta', delta: { stop_reason: 'end_turn', stop_sequence: null }, usage },
    { type: 'message_stop' },
  ]
  const upstream = await startUpstream({
    reply: ({ stream }) =>
      stream
        ? { kind: 'events', items: events.map((event) => ({ event: event.type, data: JSON.stringify(event) })) }
        : { kind: 'json', value: { ...message, content, stop_reason: 'end_turn', stop_sequence: null, usage } },
  })
  const models = [
    { id: 'claude-fable-5', price: { input: 10, output: 50 } },
    { id: 'claude-opus-4-8', price: { input: 5, output: 25 } },
    { id: 'costly', price: { input: 1000, output: 5000 } },
  ]
  const store = recordingStore()
  const stage = await startStage({
    store,
    margin: 1,
    providers: [anthropic({ apiKey: 'sk-test', baseUrl: upstream.url, models })],
  })
  open.push(stage, upstream)
  return { stage, upstream, store }
}

/** Returns the cost of a request in dollars, as the vendor bills it. */
async function billed({ stage }: Started, stream: boolean): Promise<number> {
  const body = {
    model: 'anthropic/claude-fable-5',
    max_tokens: 500,
    messages: [{ role: 'user', content: 'Hello' }],
    fallbacks: [{ model: 'claude-opus-4-8' }],
    stream,
  }
  const response = await post(stage, '/v1/messages', { body })
  const text = await response.text()
  expect(response.status, text).toBe(200)
  const cost = /"your_cost":([\d.e-]+)/.exec(text)?.[1]
  return Number(cost)
}

describe.each([false, true])('a message that a fallback model answered (streamed: %s)', (stream) => {
  it('is billed at the price of the fallback', async () => {
    const started = await start([iteration('fallback_message', 'claude-opus-4-8', 1000, 200)])
    expect(await billed(started, stream)).toBeCloseTo(0.01, 9)
  })

  it('is billed for each model at its own price, and not for a model that declined without output', async () => {
    const partial = iteration('message', 'claude-fable-5', 1000, 40)
    const served = iteration('fallback_message', 'claude-opus-4-8', 1000, 200)
    expect(await billed(await start([partial, served]), stream)).toBeCloseTo(0.012 + 0.01, 9)

    const declined = iteration('message', 'claude-fable-5', 1000, 0)
    expect(await billed(await start([declined, served]), stream)).toBeCloseTo(0.01, 9)
  })

  it('is billed for each model if both together read more than a context window', async () => {
    const partial = iteration('message', 'claude-fable-5', 600_000, 40)
    const served = iteration('fallback_message', 'claude-opus-4-8', 600_000, 200)
    expect(await billed(await start([partial, served]), stream)).toBeCloseTo(6.002 + 3.005, 6)
  })

  it('is billed at the requested price for dated and unknown models', async () => {
    const dated = await start([iteration('fallback_message', 'claude-fable-5-20260609', 1000, 200)])
    expect(await billed(dated, stream)).toBeCloseTo(0.02, 9)
    const unknown = await start([iteration('fallback_message', 'claude-of-tomorrow', 1000, 200)])
    expect(await billed(unknown, stream)).toBeCloseTo(0.02, 9)
  })

  it('is billed at most the reserved amount for a costly model', async () => {
    const started = await start([iteration('fallback_message', 'costly', 100_000, 500)])
    await billed(started, stream)
    await started.store.waitUntilSettled()
    // Both models may read their context window of 1,000,000 tokens and write 500 tokens, at the price of the dearer one.
    expect(started.store.dailyTotals().billed).toBeLessThanOrEqual((20 + 0.05) * 1e9)
    expect(started.store.dailyTotals().billed).toBeGreaterThan(0)
  })

  it('is billed for advice at the price of the adviser', async () => {
    const advice = [
      iteration('message', 'claude-fable-5', 1000, 200),
      iteration('advisor_message', 'claude-opus-4-8', 2000, 40),
    ]
    expect(await billed(await start(advice), stream)).toBeCloseTo(0.02 + 0.011, 9)
  })
})

describe('a model that the request names beside its own', () => {
  const bodyWith = (fields: JsonObject): JsonObject => ({
    model: 'anthropic/claude-fable-5',
    max_tokens: 500,
    messages: [{ role: 'user', content: 'Hello' }],
    ...fields,
  })
  const named: readonly [string, (model: string) => JsonObject][] = [
    ['a fallback', (model) => ({ fallbacks: [{ model }] })],
    ['an adviser', (model) => ({ tools: [{ type: 'advisor_20260301', name: 'advisor', model }] })],
  ]

  it.each(named)('is reserved at its own price as %s', async (_, fields) => {
    const { stage, store } = await start([iteration('fallback_message', 'costly', 100_000, 500)])
    const response = await post(stage, '/v1/messages', { body: bodyWith(fields('costly')) })
    const theoretical = Number(/"original_cost":([\d.e-]+)/.exec(await response.text())?.[1])
    await store.waitUntilSettled()

    expect(theoretical).toBeCloseTo(100 + 2.5, 6)
    expect(store.dailyTotals().billed).toBe(102.5e9)
  })

  it.each(named)('is refused without a price, before the vendor is called, as %s', async (_, fields) => {
    const { stage, upstream } = await start([])
    const response = await post(stage, '/v1/messages', { body: bodyWith(fields('claude-of-tomorrow')) })
    expect(response.status).toBe(404)
    expect(await response.text()).toContain('claude-of-tomorrow')
    expect(upstream.requests).toHaveLength(0)
  })

  it.each(named)('is accepted with a date after a known name, as %s', async (_, fields) => {
    const { stage } = await start([])
    const response = await post(stage, '/v1/messages', { body: bodyWith(fields('claude-opus-4-8-20260609')) })
    expect(response.status).toBe(200)
  })
})

it('keeps the totals of a message without other models', () => {
  const iterations = [iteration('message', 'claude-fable-5', 10, 1), iteration('message', 'claude-fable-5', 20, 2)]
  const usage = readMessageUsage({ input_tokens: 30, output_tokens: 3, iterations })
  expect({ ...NO_USAGE, ...usage }).toEqual({ ...NO_USAGE, inputTokens: 30, outputTokens: 3 })
})
