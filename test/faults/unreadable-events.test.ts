import { afterEach, describe, expect, it } from 'vitest'
import { anthropic, createGateway, openaiCompatible, type Gateway } from '../../src/index.ts'
import { gemini } from '../../src/providers.ts'
import { CUT, startUpstream, type StreamItem, type Upstream } from '../support/upstream.ts'

const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close()
})

interface VendorStream {
  readonly start: readonly string[]
  readonly text: (text: string) => string
  /** Reports 900 output tokens. */
  readonly end: readonly string[]
}

const data = (value: object): string => `data: ${JSON.stringify(value)}\n\n`
const named = (value: { readonly type: string; readonly [name: string]: unknown }): string =>
  `event: ${value.type}\n${data(value)}`
const chunk = (delta: object, finish: string | null = null): string =>
  data({ id: 'c1', model: 'large', choices: [{ index: 0, delta, finish_reason: finish }] })
const response = { id: 'resp_1', object: 'response', model: 'large', output: [] }

const STREAMS: Readonly<Record<'chat' | 'messages' | 'responses' | 'gemini', VendorStream>> = {
  chat: {
    start: [chunk({ role: 'assistant', content: '' })],
    text: (content) => chunk({ content }),
    end: [
      chunk({}, 'stop'),
      data({ id: 'c1', choices: [], usage: { prompt_tokens: 10, completion_tokens: 900 } }),
      'data: [DONE]\n\n',
    ],
  },
  messages: {
    start: [
      named({
        type: 'message_start',
        message: {
          id: 'msg_1',
          type: 'message',
          role: 'assistant',
          model: 'large',
          content: [],
          usage: { input_tokens: 10 },
        },
      }),
      named({ type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } }),
    ],
    text: (text) => named({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } }),
    end: [
      named({ type: 'content_block_stop', index: 0 }),
      named({ type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 900 } }),
      named({ type: 'message_stop' }),
    ],
  },
  responses: {
    start: [
      named({ type: 'response.created', response }),
      named({ type: 'response.output_item.added', output_index: 0, item: { type: 'message', id: 'i1', content: [] } }),
      named({ type: 'response.content_part.added', output_index: 0, part: { type: 'output_text', text: '' } }),
    ],
    text: (delta) =>
      named({ type: 'response.output_text.delta', item_id: 'i1', output_index: 0, content_index: 0, delta }),
    end: [
      named({
        type: 'response.completed',
        response: { ...response, status: 'completed', usage: { input_tokens: 10, output_tokens: 900 } },
      }),
    ],
  },
  gemini: {
    start: [data({ responseId: 'g1', modelVersion: 'large' })],
    text: (text) => data({ candidates: [{ content: { parts: [{ text }] } }] }),
    end: [
      data({
        candidates: [{ content: { parts: [] }, finishReason: 'STOP' }],
        usageMetadata: { promptTokenCount: 10, candidatesTokenCount: 900 },
      }),
    ],
  },
}

const VENDORS = ['chat', 'messages', 'responses', 'gemini'] as const
type Vendor = (typeof VENDORS)[number]

/** At least 300 tokens each. */
const LONG_TEXT = 'lorem ipsum dolor sit amet consectetur '.repeat(50)
const PIECES = Array.from({ length: 50 }, (_, index) => `lorem ipsum dolor sit amet ${index} `)

/** Breaks the JSON of an event, which still ends in the same characters. */
function malformed(event: string): string {
  return event.replace(LONG_TEXT, `${LONG_TEXT}" `)
}

interface VendorStage {
  readonly gateway: Gateway
  readonly upstream: Upstream
  readonly logged: readonly object[]
  /** Sends the same request each time. */
  readonly ask: (headers?: Readonly<Record<string, string>>) => Promise<string>
  readonly completionTokens: () => Promise<number>
}

const FRONTS = {
  chat: { path: '/v1/chat/completions', end: '[DONE]' },
  messages: { path: '/v1/messages', end: 'event: message_stop' },
  responses: { path: '/v1/responses', end: 'event: response.completed' },
} as const
type Front = keyof typeof FRONTS

async function start(vendor: Vendor, front: Front, items: readonly StreamItem[]): Promise<VendorStage> {
  const upstream = await startUpstream({ reply: () => ({ kind: 'events', items }) })
  closing.push(upstream.close)
  const models = [{ id: 'large', price: { input: 1, output: 2 }, contextWindowTokens: 100_000, maxOutputTokens: 5000 }]
  const provider = {
    chat: () => openaiCompatible({ name: 'vendor', baseUrl: upstream.baseUrl, models }),
    responses: () => openaiCompatible({ name: 'vendor', baseUrl: upstream.baseUrl, models, responses: true }),
    messages: () => anthropic({ name: 'vendor', baseUrl: upstream.url, apiKey: 'x', models }),
    gemini: () => gemini({ name: 'vendor', baseUrl: upstream.url, apiKey: 'x', models }),
  }[vendor]()
  const logged: object[] = []
  const gateway = createGateway({
    providers: [provider],
    margin: 1,
    runtime: { random: () => 0 },
    log: (record) => logged.push(record),
  })
  closing.push(() => gateway.close())
  const key = await gateway.keys.create({ name: 'key' })
  const messages = [{ role: 'user', content: 'What is it?' }]
  const body = { model: 'vendor/large', stream: true, ...(front === 'responses' ? { input: messages } : { messages }) }
  const limit = front === 'responses' ? { max_output_tokens: 4000 } : { max_tokens: 4000 }
  return {
    gateway,
    upstream,
    logged,
    ask: async (headers = {}) => {
      const sent = await gateway.fetch(`http://gateway${FRONTS[front].path}`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key.value}`, 'content-type': 'application/json', ...headers },
        body: JSON.stringify({ ...body, ...limit }),
      })
      return sent.text()
    },
    completionTokens: async () => (await gateway.keys.usage(key.id)).tokens.completion,
  }
}

/** A vendor of the responses format is called in the chat format by the other fronts. */
const PAIRS = VENDORS.flatMap((vendor) => {
  const fronts: readonly Front[] = vendor === 'responses' ? ['responses'] : ['chat', 'messages', 'responses']
  return fronts.map((front) => ({ vendor, front }))
})

describe.each(PAIRS)('a malformed event of a $vendor vendor in a stream on the $front front', ({ vendor, front }) => {
  const { start: begin, text, end } = STREAMS[vendor]
  const events = [...begin, text('One'), malformed(text(LONG_TEXT)), ...PIECES.map(text)]

  it('makes the stream end with an error event instead of its last event, and is reported', async () => {
    const { ask, logged, completionTokens } = await start(vendor, front, [...events, ...end])
    const received = await ask()
    expect(received).toContain('One')
    expect(received).not.toContain(FRONTS[front].end)
    expect(received).toMatch(/"error"/)
    await expect.poll(completionTokens).toBeGreaterThan(300)
    await expect.poll(() => JSON.stringify(logged)).toContain('upstream')
  })

  it('keeps the stream out of the cache and out of the stored responses of its Idempotency-Key', async () => {
    const { ask, upstream } = await start(vendor, front, [...events, ...end])
    await ask()
    await ask()
    await ask({ 'idempotency-key': 'one' })
    await ask({ 'idempotency-key': 'one' })
    expect(upstream.requests).toHaveLength(4)
  })

  it('causes no second call if the whole stream arrives at once', async () => {
    const { ask, upstream, completionTokens } = await start(vendor, front, [[...events, ...end].join('')])
    const received = await ask()
    expect(received).toMatch(/"error"/)
    expect(upstream.requests).toHaveLength(1)
    await expect.poll(completionTokens).toBeGreaterThan(300)
  })

  it('does not end the count of a stream that then breaks off', async () => {
    const { ask, completionTokens } = await start(vendor, front, [...events, CUT])
    await ask()
    const isForwarded = vendor === front
    await expect.poll(completionTokens).toBeGreaterThan(isForwarded ? 600 : 300)
  })
})

it('a chat stream that ends without a finish reason is not served to a second request', async () => {
  const { start: begin, text } = STREAMS.chat
  const { ask, upstream } = await start('chat', 'chat', [...begin, text('One'), 'data: [DONE]\n\n'])
  await ask()
  await ask()
  await ask({ 'idempotency-key': 'one' })
  await ask({ 'idempotency-key': 'one' })
  expect(upstream.requests).toHaveLength(4)
})
