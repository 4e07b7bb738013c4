import { afterEach, describe, expect, it } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import { openaiCompatible, readBill } from '../../src/index.ts'
import { readResults, waitForBatch } from '../support/batches.ts'
import { fc } from '../support/properties.ts'
import { post } from '../support/read-stream.ts'
import { recordingStore } from '../support/recording-store.ts'
import { CHAT, ENDPOINTS, FORMAT_PAIRS, MESSAGE, type Endpoint } from '../support/send-request.ts'
import { MESSAGE_MODEL, PRICE, startStage, type Stage, type StageOptions } from '../support/stage.ts'
import { buildEvents, startUpstream, type Reply, type UpstreamRequest } from '../support/upstream.ts'

const closers: (() => Promise<void>)[] = []
afterEach(async () => {
  await Promise.all(closers.splice(0).map((close) => close()))
})

async function start(options: StageOptions = {}): Promise<Stage> {
  const started = await startStage(options)
  closers.push(started.close)
  return started
}

/** A reply whose usage has these numbers of tokens. */
function replyOf({ dialect, stream }: UpstreamRequest, output: number, input: number = 10): Reply {
  const usage =
    dialect === 'chat'
      ? { prompt_tokens: input, completion_tokens: output, total_tokens: input + output }
      : { input_tokens: input, output_tokens: output }
  return { text: stream ? ['Yes.'] : 'Yes.', usage }
}

interface Question {
  readonly endpoint?: Endpoint
  readonly body?: JsonObject
  readonly secret?: string
}

const LONG = 900

function bodyOf({ endpoint = CHAT, body }: Question): JsonObject {
  return { ...endpoint.body, max_tokens: LONG, ...body }
}

/** Sends one request for each number of output tokens. */
async function completion(stage: Stage, outputs: readonly number[], question: Question = {}): Promise<void> {
  const { endpoint = CHAT, secret = stage.secret } = question
  for (const output of outputs) {
    stage.upstream.reply = (request) => replyOf(request, output)
    const response = await post(stage, endpoint.path, { body: bodyOf(question), secret })
    await response.text()
    expect(response.status).toBe(200)
  }
}

interface Explanation {
  readonly tokens: { readonly original: number; readonly completion: number }
  readonly cost: { readonly billed_usd: number; readonly max_usd: number }
  readonly limits: { readonly in_force: readonly { readonly kind: string; readonly takes: number }[] }
}

async function explain(stage: Stage, question: Question = {}): Promise<Explanation> {
  const { endpoint = CHAT, secret = stage.secret } = question
  const headers = { 'x-svc-explain': 'true' }
  const response = await post(stage, endpoint.path, { body: bodyOf(question), headers, secret })
  return (await response.json()) as Explanation
}

async function expectedOutput(stage: Stage, question: Question = {}): Promise<number> {
  return (await explain(stage, question)).tokens.completion
}

describe('the expected output of a request', () => {
  it('is 500 tokens before the first request, but not above the limit of the request', async () => {
    const stage = await start()

    expect(await expectedOutput(stage)).toBe(500)
    expect(await expectedOutput(stage, { body: { max_tokens: 20 } })).toBe(20)
    expect(await expectedOutput(stage, { body: { max_tokens: 20, n: 3 } })).toBe(60)
  })

  it.each([
    ['one request', [70], 70],
    ['an odd number of requests', [900, 10, 20], 20],
    ['an even number of requests', [10, 20, 30, 900], 25],
    ['equal outputs', [40, 7, 40, 900, 40], 40],
    ['20 requests', [...Array<number>(11).fill(5), ...Array<number>(9).fill(900)], 5],
    ['only the last 20 requests', [...Array<number>(20).fill(900), ...Array<number>(11).fill(5)], 5],
  ])('is the median of %s', async (_, outputs, median) => {
    const stage = await start()
    await completion(stage, outputs)

    expect(await expectedOutput(stage)).toBe(median)
  })

  it.each(ENDPOINTS)('counts streamed and other requests of the $name', async (endpoint) => {
    const stage = await start()
    await completion(stage, [11, 12], { endpoint })
    await completion(stage, [13], { endpoint, body: { stream: true } })

    expect(await expectedOutput(stage, { endpoint })).toBe(12)
  })

  it('does not exceed the limit of a request that asks for less than the median', async () => {
    const stage = await start()
    await completion(stage, [300])

    expect(await expectedOutput(stage, { body: { max_tokens: 20 } })).toBe(20)
  })

  it('is separate for each key and each model', async () => {
    const stage = await start()
    const { value: secret } = await stage.gateway.keys.create({ name: 'other' })
    await completion(stage, [11])
    await completion(stage, [22], { secret })
    await completion(stage, [33], { body: { model: 'chat/small' } })

    expect(await expectedOutput(stage)).toBe(11)
    expect(await expectedOutput(stage, { secret })).toBe(22)
    expect(await expectedOutput(stage, { body: { model: 'chat/small' } })).toBe(33)
    expect(await expectedOutput(stage, { secret, body: { model: 'chat/small' } })).toBe(500)
  })

  it('is kept for the last models of a key, and other keys cannot evict it', async () => {
    const upstream = await startUpstream()
    const models = Array.from({ length: 40 }, (_, index) => ({ id: `m${index}`, price: PRICE, maxOutputTokens: 1000 }))
    const stage = await start({ providers: [openaiCompatible({ name: 'chat', baseUrl: upstream.baseUrl, models })] })
    closers.push(upstream.close)
    const { value: secret } = await stage.gateway.keys.create({ name: 'other' })
    const responseModel = async (model: string, output: number, by = stage.secret): Promise<void> => {
      upstream.reply = (request) => replyOf(request, output)
      await (await post(stage, CHAT.path, { body: { ...bodyOf({}), model }, secret: by })).text()
    }
    await responseModel('chat/m0', 44, secret)
    for (const { id } of models) {
      await responseModel('chat/m0', 55)
      await responseModel(`chat/${id}`, 55)
    }

    expect(await expectedOutput(stage, { secret, body: { model: 'chat/m0' } })).toBe(44)
    expect(await expectedOutput(stage, { body: { model: 'chat/m0' } })).toBe(55)
    expect(await expectedOutput(stage, { body: { model: 'chat/m39' } })).toBe(55)
    expect(await expectedOutput(stage, { body: { model: 'chat/m1' } })).toBe(500)
  })

  it('ignores cache hits', async () => {
    const stage = await start({ cache: {} })
    await completion(stage, [11])
    await completion(stage, [44, 44], { body: { messages: [{ role: 'user', content: 'Another question?' }] } })
    for (let hits = 0; hits < 5; hits += 1) expect(await responseText(stage)).toBe('HIT')

    expect(await expectedOutput(stage, { body: { messages: [{ role: 'user', content: 'A third one?' }] } })).toBe(28)
  })

  it('ignores requests that fail and streams that break', async () => {
    const stage = await start()
    await completion(stage, [11])
    stage.upstream.reply = (request) => ({
      kind: 'events',
      items: buildEvents(request, { text: ['one', ' two'] }).slice(0, 2),
    })
    for (let broken = 0; broken < 3; broken += 1) {
      await (await post(stage, CHAT.path, { body: { ...bodyOf({}), stream: true } })).text()
    }
    stage.upstream.reply = () => ({ kind: 'failure', status: 400, failure: { message: 'No.' } })
    for (let failed = 0; failed < 3; failed += 1) await (await post(stage, CHAT.path, { body: bodyOf({}) })).text()

    expect(await expectedOutput(stage)).toBe(11)
  })

  it('ignores embeddings of the same model', async () => {
    const upstream = await startUpstream({
      reply: () => ({
        kind: 'json',
        value: { data: [{ index: 0, embedding: [1, 0] }], usage: { prompt_tokens: 5, total_tokens: 5 } },
      }),
    })
    const models = [{ id: 'both', price: PRICE, maxOutputTokens: 1000 }]
    const stage = await start({ providers: [openaiCompatible({ name: 'chat', baseUrl: upstream.baseUrl, models })] })
    closers.push(upstream.close)
    const response = await post(stage, '/v1/embeddings', { body: { model: 'chat/both', input: 'text' } })
    await response.text()

    expect(response.status).toBe(200)
    expect(await expectedOutput(stage, { body: { model: 'chat/both' } })).toBe(500)
  })

  it('ignores the items of batches', async () => {
    const stage = await start({ reply: (request) => replyOf(request, 44) })
    const params = { model: MESSAGE_MODEL, max_tokens: 50, messages: [{ role: 'user' as const, content: 'Hello' }] }
    const { id } = await stage.anthropic.messages.batches.create({ requests: [{ custom_id: 'a', params }] })
    await waitForBatch(stage.anthropic, id)

    expect(await readResults(stage.anthropic, id)).toMatchObject([{ result: { type: 'succeeded' } }])
    expect(await expectedOutput(stage, { endpoint: MESSAGE })).toBe(500)
  })
})

async function responseText(stage: Stage): Promise<string | null> {
  const response = await post(stage, CHAT.path, { body: bodyOf({}) })
  await response.text()
  return response.headers.get('x-svc-cache')
}

function dollars(response: { readonly headers: Headers }, name: string): number {
  return Number(response.headers.get(`x-svc-${name}`)?.slice(1))
}

describe.each(FORMAT_PAIRS)('a stream on the $name', (endpoint) => {
  it('begins with the expected amounts and the largest amount that it can be billed', async () => {
    const stage = await start({ key: { name: 'k', budget_limit_cents: 1000 } })
    await completion(stage, [40, 40, 40], { endpoint })
    const { cost, limits, tokens } = await explain(stage, { endpoint, body: { stream: true } })

    const response = await post(stage, endpoint.path, { body: bodyOf({ endpoint, body: { stream: true } }) })
    await response.text()

    expect(response.headers.get('x-svc-estimated')).toBe('true')
    expect(dollars(response, 'billed-amount')).toBeCloseTo((1.5 * (tokens.original + 2 * 40)) / 1e6, 5)
    expect(dollars(response, 'max-amount')).toBeGreaterThan((1.5 * 2 * LONG) / 1e6)
    const { takes } = limits.in_force.find(({ kind }) => kind === 'budget') ?? { takes: 0 }
    expect(dollars(response, 'max-amount')).toBeCloseTo(takes, 5)
    expect(cost.max_usd).toBeCloseTo(takes, 5)
    expect(readBill(response)).toMatchObject({ isEstimated: true, maxBilledUsd: dollars(response, 'max-amount') })
  })
})

describe('the expected price of a prompt', () => {
  const price = { input: 1, output: 2, cacheRead: 0.1 }
  const turn = (index: number): JsonObject => ({
    role: index % 2 === 0 ? 'user' : 'assistant',
    content: `Turn ${index}: ${`the harbour of town ${index} has ${index * 7} boats, `.repeat(150)}`,
  })
  const conversation = (turns: number): JsonObject => ({
    model: 'chat/cached',
    stream: true,
    messages: Array.from({ length: turns }, (_, index) => turn(index)),
  })

  it('counts the part that the record of the conversation expects in the cache of the vendor at its cached price', async () => {
    const upstream = await startUpstream({
      reply: () => ({ text: ['Yes.'], usage: { prompt_tokens: 12_000, completion_tokens: 2, total_tokens: 12_002 } }),
    })
    closers.push(upstream.close)
    const models = [{ id: 'cached', price, contextWindowTokens: 200_000, maxOutputTokens: 1000 }]
    const stage = await start({ providers: [openaiCompatible({ name: 'chat', baseUrl: upstream.baseUrl, models })] })
    const amounts: number[] = []
    for (const turns of [11, 13]) {
      const response = await post(stage, CHAT.path, { body: conversation(turns) })
      await response.text()
      amounts.push(dollars(response, 'billed-amount'))
    }

    const [first = 0, second = 0] = amounts
    expect(first).toBeGreaterThan(0.01)
    expect(second).toBeLessThan(first / 2)
  })
})

describe('a background response', () => {
  it('begins with the expected amounts, and is billed its reserved length if its end is unknown', async () => {
    const upstream = await startUpstream({
      reply: () => ({
        kind: 'json',
        value: { id: 'resp_1', object: 'response', status: 'queued', model: 'gpt-x', background: true, output: [] },
      }),
    })
    closers.push(upstream.close)
    const models = [{ id: 'gpt-x', price: PRICE, maxOutputTokens: 1000 }]
    const provider = openaiCompatible({ name: 'vendor', baseUrl: upstream.baseUrl, models, responses: true })
    const store = recordingStore()
    const stage = await start({ store, providers: [provider] })
    const body = { model: 'vendor/gpt-x', input: 'Name a river.', max_output_tokens: LONG, background: true }
    const response = await post(stage, '/v1/responses', { body })
    await response.text()

    expect(response.status).toBe(200)
    expect(dollars(response, 'billed-amount')).toBeLessThan((1.5 * 2 * 600) / 1e6)
    expect(dollars(response, 'max-amount')).toBeGreaterThan((1.5 * 2 * LONG) / 1e6)
    await stage.gateway.close()
    const billed = store.dailyTotals().billed / 1e9
    expect(billed).toBeGreaterThan((1.5 * 2 * LONG) / 1e6)
    expect(billed).toBeLessThanOrEqual(dollars(response, 'max-amount'))
  })
})

describe('the header X-Svc-Max-Amount', () => {
  it('is part of an explanation', async () => {
    const stage = await start()
    const response = await post(stage, CHAT.path, { body: bodyOf({}), headers: { 'x-svc-explain': 'true' } })
    const { cost } = (await response.json()) as Explanation

    expect(dollars(response, 'max-amount')).toBe(cost.max_usd)
  })

  it('is absent if the billed amount is final', async () => {
    const stage = await start({ cache: {} })
    const whole = await post(stage, CHAT.path, { body: bodyOf({}) })
    await whole.text()
    const hit = await post(stage, CHAT.path, { body: bodyOf({ body: { stream: true } }) })
    await hit.text()

    expect(whole.headers.get('x-svc-max-amount')).toBeNull()
    expect(readBill(whole)?.maxBilledUsd).toBe(readBill(whole)?.billedUsd)
    expect(hit.headers.get('x-svc-cache')).toBe('HIT')
    expect(hit.headers.get('x-svc-max-amount')).toBeNull()
    expect(readBill(hit)).toMatchObject({ billedUsd: 0, maxBilledUsd: 0 })
  })

  it('is at least the expected and the billed amount, also if the budget covers only a part of the worst case', async () => {
    const stage = await start({ tokenizer: 'o200k' })
    const questions = fc.record({
      endpoint: fc.constantFrom(...FORMAT_PAIRS),
      cents: fc.constantFrom(100_000, 1, 2),
      words: fc.integer({ min: 1, max: 3000 }),
      limit: fc.integer({ min: 1, max: 1000 }),
      share: fc.double({ min: 0, max: 1, noNaN: true }),
      level: fc.constantFrom('off', 'med', 'max'),
      isStreamed: fc.boolean(),
    })
    let streams = 0

    await fc.assert(
      fc.asyncProperty(questions, async ({ endpoint, cents, words, limit, share, level, isStreamed }) => {
        const key = await stage.gateway.keys.create({ name: 'k', budget_limit_cents: cents })
        const messages = [{ role: 'user', content: 'one more word '.repeat(words) }]
        stage.upstream.reply = (request) => {
          const granted = Number(request.body['max_tokens'] ?? request.body['max_completion_tokens'])
          return replyOf(request, Math.round(Math.min(limit, granted) * share), 2 * words + 8)
        }
        // The second request has a history.
        for (const stream of [isStreamed, true]) {
          const before = await billedSoFar(stage, key.id)
          const response = await post(stage, endpoint.path, {
            body: { ...endpoint.body, messages, max_tokens: limit, stream },
            headers: { 'x-savings-level': level },
            secret: key.value,
          })
          await response.text()
          if (response.status !== 200 || !stream) continue
          const max = dollars(response, 'max-amount')
          streams += 1
          expect(dollars(response, 'billed-amount')).toBeLessThanOrEqual(max)
          expect((await billedSoFar(stage, key.id)) - before).toBeLessThanOrEqual(max + 2e-6)
        }
      }),
      {
        numRuns: 60,
        examples: [[{ ...PARTIAL, endpoint: FORMAT_PAIRS[0] ?? CHAT }], [{ ...PARTIAL, endpoint: MESSAGE }]],
      },
    )
    expect(streams).toBeGreaterThan(30)
  })
})

/** The budget of one cent covers the prompt only after it is counted, and a part of the output. */
const PARTIAL = { cents: 1, words: 1800, limit: 1000, share: 1, level: 'off', isStreamed: true } as const

async function billedSoFar(stage: Stage, keyId: string): Promise<number> {
  return (await stage.gateway.keys.usage(keyId)).cost.billedUsd
}
