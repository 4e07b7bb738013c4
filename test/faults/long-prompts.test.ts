import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import type * as estimates from '../../src/tokens/estimate.ts'
import { createGateway, memoryStore, openaiCompatible, type Gateway } from '../../src/index.ts'
import { collectUnhandledRejections } from '../support/unhandled-rejections.ts'

/**
 * Characters estimated between two turns of the event loop. Only estimation advances the clock, so no test depends on
 * speed.
 */
const estimation = { now: 0, inTurn: 0, maxInTurn: 0, all: 0, failures: 0 }

vi.mock('../../src/tokens/estimate.ts', async (load) => {
  const real = await load<typeof estimates>()
  const estimateTokens = (text: string): number => {
    if (estimation.failures-- > 0) throw new Error('The estimate failed.')
    estimation.inTurn += text.length
    estimation.maxInTurn = Math.max(estimation.maxInTurn, estimation.inTurn)
    estimation.all += text.length
    estimation.now += text.length / CHARACTERS_PER_MS
    return real.estimateTokens(text)
  }
  return { ...real, estimateTokens }
})

const CHARACTERS_PER_MS = 10_000
/** Work of 15 milliseconds on a slow machine. */
const MAX_IN_TURN = 150_000

/** About 443,000 tokens in 900 messages. */
const words = 'The ledger holds what the reservation took, and settles it once. '
const messages = Array.from({ length: 901 }, (_, at) => ({
  role: at % 2 === 0 ? 'user' : 'assistant',
  content: `${at} ${words.repeat(33)}`,
}))
const CHARACTERS = messages.reduce((sum, { content }) => sum + content.length, 0)

const usage = { prompt_tokens: 440_000, completion_tokens: 1, total_tokens: 440_001 }
const completion = { choices: [{ index: 0, message: { role: 'assistant', content: 'Yes.' }, finish_reason: 'stop' }] }
const events = [
  { id: 'x', model: 'large', choices: [{ index: 0, delta: { content: 'Yes.' } }] },
  { id: 'x', model: 'large', choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] },
]
const frames = [...events.map((event) => `data: ${JSON.stringify(event)}\n\n`), 'data: [DONE]\n\n'].join('')

let gateway: Gateway
let secret: string

async function start(contextWindowTokens: number, response: () => Response | Promise<Response>): Promise<void> {
  const model = { id: 'large', price: { input: 1, output: 2 }, contextWindowTokens, maxOutputTokens: 100 }
  gateway = createGateway({
    providers: [openaiCompatible({ name: 'mock', baseUrl: 'http://upstream/v1', models: [model] })],
    store: memoryStore(),
    runtime: { fetch: async () => response(), random: () => 0 },
    log: () => {},
  })
  const limits = { budget_limit_cents: 1_000_000, rate_limit_tokens: 1_000_000_000 }
  secret = (await gateway.keys.create({ name: 'long', ...limits })).value
}

async function send(headers: Record<string, string>, more: object): Promise<number> {
  const response = await gateway.fetch(
    new Request('http://gateway/v1/chat/completions', {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json', ...headers },
      body: JSON.stringify({ model: 'mock/large', max_tokens: 16, messages, ...more }),
    }),
  )
  await response.text()
  return response.status
}

let isWatching = false

beforeEach(() => {
  Object.assign(estimation, { now: 0, inTurn: 0, maxInTurn: 0, all: 0, failures: 0 })
  vi.spyOn(performance, 'now').mockImplementation(() => estimation.now)
  isWatching = true
  const turn = (): void => {
    estimation.inTurn = 0
    if (isWatching) setImmediate(turn)
  }
  setImmediate(turn)
})

afterEach(async () => {
  isWatching = false
  vi.restoreAllMocks()
  await gateway.close()
})

const wholeResponse = (): Response => Response.json({ id: 'x', model: 'large', ...completion, usage })
const responseWithoutUsage = (): Response => Response.json({ id: 'x', model: 'large', ...completion })
const stream = (): Response => new Response(frames, { headers: { 'content-type': 'text/event-stream' } })
const invalidResponse = (): Response => new Response('{"choices":', { headers: { 'content-type': 'application/json' } })
const off = { 'x-savings-level': 'off' }
const LARGE = 10_000_000

it.each([
  ['is streamed', LARGE, stream, off, { stream: true }, 200],
  ['is above the window of its model', 128_000, wholeResponse, off, {}, 200],
  ['gets an answer without usage', LARGE, responseWithoutUsage, off, {}, 200],
  ['is explained', LARGE, wholeResponse, { ...off, 'x-svc-explain': 'true' }, {}, 200],
  ['has a savings header', LARGE, wholeResponse, { 'x-savings-level': 'min' }, {}, 200],
  ['gets a broken answer', LARGE, invalidResponse, off, {}, 502],
] as const)(
  'estimates a prompt of 443k tokens in turns when it %s',
  async (_, window, response, headers, more, status) => {
    await start(window, response)
    expect(await send(headers, more)).toBe(status)
    expect(estimation.all).toBeGreaterThanOrEqual(CHARACTERS)
    expect(estimation.maxInTurn).toBeLessThanOrEqual(MAX_IN_TURN)
  },
)

it.each([
  ['a header requests that it is sent unchanged', off],
  ['no tier can shorten it', {}],
])('does not estimate a prompt of 443k tokens whose upstream reports usage if %s', async (_, headers) => {
  await start(LARGE, wholeResponse)
  expect(await send(headers, {})).toBe(200)
  expect(estimation.all).toBeLessThan(1000)
})

it('streams the answer to a prompt of 443k tokens whose first estimate fails while the upstream answers', async () => {
  await start(LARGE, async () => {
    await new Promise((resolve) => setImmediate(resolve))
    return stream()
  })
  estimation.failures = 1
  let status: number | undefined
  const rejections = await collectUnhandledRejections(async () => {
    status = await send(off, { stream: true })
  })

  expect(rejections).toEqual([])
  expect(status).toBe(200)
})
