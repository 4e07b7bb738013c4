import { afterEach, describe, expect, it } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import { costOf, NO_USAGE, promptTokens, type Usage } from '../../src/core/money.ts'
import {
  anthropic,
  createGateway,
  openaiCompatible,
  readBill,
  type Gateway,
  type GatewayOptions,
  type ResponseBill,
} from '../../src/index.ts'
import { gemini } from '../../src/providers.ts'
import { CachingVendor } from '../support/caching-vendor.ts'
import { agentConversation, chatConversation, requestsOf } from '../support/conversation-kinds.ts'
import { recordingStore, type RecordingStore } from '../support/recording-store.ts'
import {
  buildEvents,
  HANG,
  startUpstream,
  type Reply,
  type Upstream,
  type UpstreamRequest,
} from '../support/upstream.ts'

const MARGIN = 1.5
const PRICE = { input: 3, output: 15, cacheRead: 0.3 }
const DEARER = { input: 5, output: 25, cacheRead: 2.5 }
const USAGE: Usage = { ...NO_USAGE, inputTokens: 500, cacheReadTokens: 4000, outputTokens: 20 }
const NO_TIERS = { thresholdTokens: { vanishing: 1e9, recursive: 1e9, family: 1e9 } }

interface Setting {
  readonly gateway: Gateway
  readonly upstream: Upstream
  readonly secret: string
  readonly store: RecordingStore
  readonly clock: { now: number }
}

const open: Setting[] = []
afterEach(async () => {
  for (const { gateway, upstream } of open.splice(0)) {
    await gateway.close()
    await upstream.close()
  }
})

async function start(
  reply: (request: UpstreamRequest) => Reply,
  options: Partial<GatewayOptions> & { readonly price?: typeof PRICE } = {},
): Promise<Setting> {
  const { price = PRICE, ...others } = options
  const clock = { now: Date.UTC(2026, 0, 5, 12) }
  const upstream = await startUpstream({ reply })
  const size = { family: 'test', contextWindowTokens: 200_000, maxOutputTokens: 1000 }
  const models = [
    { id: 'model', price, ...size },
    { id: 'other', price, ...size },
  ]
  const store = recordingStore()
  const gateway = createGateway({
    providers: [
      openaiCompatible({ name: 'chat', baseUrl: upstream.baseUrl, models, responses: true }),
      anthropic({ name: 'messages', baseUrl: upstream.url, apiKey: 'test', models }),
      gemini({ name: 'gemini', baseUrl: upstream.url, apiKey: 'test', models }),
      openaiCompatible({
        name: 'fallback',
        baseUrl: upstream.baseUrl,
        models: [{ id: 'model', price: DEARER, ...size }],
      }),
    ],
    margin: MARGIN,
    cache: false,
    store,
    runtime: { now: () => clock.now, random: () => 0 },
    ...others,
  })
  const { value } = await gateway.keys.create({ name: 'test' })
  const setting = { gateway, upstream, secret: value, store, clock }
  open.push(setting)
  return setting
}

interface Sent {
  readonly bill: ResponseBill
  readonly text: string
}

const PATHS = { chat: 'chat/completions', messages: 'messages', responses: 'responses' } as const

async function send(
  { gateway, secret }: Pick<Setting, 'gateway' | 'secret'>,
  format: keyof typeof PATHS,
  body: JsonObject,
  headers: Readonly<Record<string, string>> = {},
): Promise<Sent> {
  const response = await gateway.fetch(`http://localhost/v1/${PATHS[format]}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  })
  const text = await response.text()
  const bill = readBill(response)
  expect(response.status, text).toBe(200)
  if (bill === undefined) throw new Error('The response has no bill.')
  return { bill, text }
}

async function billedOf({ store }: Setting): Promise<number> {
  await store.waitUntilSettled()
  return store.dailyTotals().billed / 1e9
}

/** Replies in the format of the request with `USAGE`. */
function replyWithUsage(request: UpstreamRequest): Reply {
  const { path, dialect, stream } = request
  if (path.includes('/responses')) return responsesReply(stream)
  if (path.includes('enerateContent')) return geminiReply(path.includes('stream'))
  const usage =
    dialect === 'chat'
      ? {
          prompt_tokens: promptTokens(USAGE),
          completion_tokens: USAGE.outputTokens,
          total_tokens: promptTokens(USAGE) + USAGE.outputTokens,
          prompt_tokens_details: { cached_tokens: USAGE.cacheReadTokens },
        }
      : {
          input_tokens: USAGE.inputTokens,
          cache_read_input_tokens: USAGE.cacheReadTokens,
          output_tokens: USAGE.outputTokens,
        }
  return { text: stream ? ['Yes.'] : 'Yes.', usage }
}

function responsesReply(stream: boolean): Reply {
  const response = {
    id: 'resp_1',
    object: 'response',
    status: 'completed',
    model: 'model',
    output: [
      {
        type: 'message',
        id: 'msg_1',
        role: 'assistant',
        status: 'completed',
        content: [{ type: 'output_text', text: 'Yes.', annotations: [] }],
      },
    ],
    usage: {
      input_tokens: promptTokens(USAGE),
      output_tokens: USAGE.outputTokens,
      total_tokens: promptTokens(USAGE) + USAGE.outputTokens,
      input_tokens_details: { cached_tokens: USAGE.cacheReadTokens },
    },
  }
  if (!stream) return { kind: 'json', value: response }
  return {
    kind: 'events',
    items: [
      `event: response.completed\ndata: ${JSON.stringify({ type: 'response.completed', sequence_number: 0, response })}\n\n`,
    ],
  }
}

function geminiReply(stream: boolean): Reply {
  const value = {
    candidates: [{ content: { role: 'model', parts: [{ text: 'Yes.' }] }, finishReason: 'STOP', index: 0 }],
    usageMetadata: {
      promptTokenCount: promptTokens(USAGE),
      cachedContentTokenCount: USAGE.cacheReadTokens,
      candidatesTokenCount: USAGE.outputTokens,
    },
  }
  return stream ? { kind: 'events', items: [`data: ${JSON.stringify(value)}\n\n`] } : { kind: 'json', value }
}

const QUESTION = 'Which pump failed? '.repeat(600)

describe('cached tokens of a prompt that is sent unchanged', () => {
  const bodies = {
    chat: { messages: [{ role: 'user', content: QUESTION }], max_tokens: 40 },
    messages: { messages: [{ role: 'user', content: QUESTION }], max_tokens: 40 },
    responses: { input: QUESTION, max_output_tokens: 40 },
  }
  const cases = (['chat', 'messages', 'responses'] as const).flatMap((format) =>
    ['chat', 'messages', 'gemini'].flatMap((provider) => [false, true].map((stream) => ({ format, provider, stream }))),
  )

  it.each(cases)('have the price of the vendor: $format format, provider $provider, stream $stream', async (one) => {
    const setting = await start(replyWithUsage)
    await send(setting, one.format, { ...bodies[one.format], model: `${one.provider}/model`, stream: one.stream })

    expect(await billedOf(setting)).toBeCloseTo((costOf(USAGE, PRICE) * MARGIN) / 1e9, 8)
  })

  it('have the price of the provider that answers, if the first one fails', async () => {
    const fallbackPrice = costOf(USAGE, DEARER)
    const setting = await start((request) =>
      request.index === 0 ? { kind: 'failure', status: 400 } : replyWithUsage(request),
    )
    const { value: secret } = await setting.gateway.keys.create({
      name: 'weights',
      provider_configs: [
        { provider: 'chat', weight: 0.9 },
        { provider: 'fallback', weight: 0.1 },
      ],
    })
    setting.upstream.reply = (request) =>
      setting.upstream.requests.length <= 3 && request.index < 3
        ? { kind: 'failure', status: 500 }
        : replyWithUsage(request)
    const { bill } = await send({ ...setting, secret }, 'chat', { ...bodies.chat, model: 'model' })

    expect(bill.billedUsd).toBeCloseTo((fallbackPrice * MARGIN) / 1e9, 6)
  })
})

describe('the bill of a rewritten prompt', () => {
  const CHAT = requestsOf(chatConversation(1, 10), 'chat')

  it.each([
    ['the default thresholds', {}],
    ['thresholds that no prompt exceeds', { savings: NO_TIERS }],
  ])('counts the part that the last request sent at the cached price, with %s', async (_, options) => {
    const clock = { now: Date.UTC(2026, 0, 5, 12) }
    const direct = new CachingVendor(PRICE, () => clock.now)
    const vendor = new CachingVendor(PRICE, () => clock.now)
    const setting = await start(vendor.reply, { ...options, runtime: { now: () => clock.now, random: () => 0 } })
    let billed = 0
    for (const body of CHAT) {
      direct.receive({ dialect: 'chat', body })
      const headers = { 'x-savings-level': 'extreme' }
      const { bill } = await send(setting, 'chat', { ...body, model: 'chat/model' }, headers)
      billed += bill.billedUsd
      clock.now += 60_000
    }

    expect(billed / (direct.charge * MARGIN)).toBeGreaterThan(0.9)
    expect(billed / (direct.charge * MARGIN)).toBeLessThan(1.02)
  })

  it('does not assume that a vendor has cached the prompt for another model', async () => {
    const setting = await start(replyWithoutCache)
    const [first = {}, second = {}] = CHAT.slice(-2)
    await send(setting, 'chat', { ...first, model: 'chat/other' })
    const { bill } = await send(setting, 'chat', { ...second, model: 'chat/model' }, { 'x-savings-level': 'extreme' })

    expect(bill.optimizedTokens).toBeLessThan(bill.originalTokens)
    expect(bill.theoreticalCostUsd).toBeCloseTo((bill.originalTokens * PRICE.input + 2 * PRICE.output) / 1e6, 5)
  })

  it('does not assume that a vendor has cached the prompt behind other tools', async () => {
    const setting = await start(replyWithoutCache)
    const [first = {}, second = {}] = requestsOf(agentConversation(1, 12, 'chat'), 'chat').slice(-2)
    const { tools: _, ...withoutTools } = first
    await send(setting, 'chat', { ...withoutTools, model: 'chat/model' })
    const { bill } = await send(setting, 'chat', { ...second, model: 'chat/model' }, { 'x-savings-level': 'extreme' })

    expect(bill.optimizedTokens).toBeLessThan(bill.originalTokens)
    expect(bill.theoreticalCostUsd).toBeCloseTo((bill.originalTokens * PRICE.input + 2 * PRICE.output) / 1e6, 5)
  })

  it('counts the system prompt that other conversations have sent at the cached price', async () => {
    const vendor = new CachingVendor(PRICE, () => 1)
    const setting = await start(vendor.reply)
    const body = CHAT.at(-1) ?? {}
    const [system] = body['messages'] as readonly JsonObject[]
    const other = { ...body, messages: [system ?? {}, { role: 'user', content: 'Which plants are there?' }] }
    await send(setting, 'chat', { ...other, model: 'chat/model' })
    const { bill } = await send(setting, 'chat', { ...body, model: 'chat/model' }, { 'x-savings-level': 'extreme' })

    const { read } = vendor.receive({ dialect: 'chat', body: other })
    const discount = (read * (PRICE.input - PRICE.cacheRead)) / 1e6
    const atListPrice = (bill.originalTokens * PRICE.input + 40 * PRICE.output) / 1e6
    expect(bill.optimizedTokens).toBeLessThan(bill.originalTokens)
    expect(discount).toBeGreaterThan(0.002)
    expect(bill.theoreticalCostUsd).toBeGreaterThan(atListPrice - discount * 1.02)
    expect(bill.theoreticalCostUsd).toBeLessThan(atListPrice - discount * 0.9)
  })
})

function replyWithoutCache({ body }: UpstreamRequest): Reply {
  const prompt = Math.ceil(JSON.stringify(body['messages']).length / 4)
  return { text: 'Yes.', usage: { prompt_tokens: prompt, completion_tokens: 2, total_tokens: prompt + 2 } }
}

describe('the bill of a prompt whose tokens the vendor did not report', () => {
  it('counts the part that the last request sent at the cached price, if its caller disconnects', async () => {
    const [first = {}, second = {}] = requestsOf(chatConversation(1, 6), 'chat').slice(-2)
    const vendor = new CachingVendor(PRICE, () => 1)
    const setting = await start(vendor.reply, { savings: NO_TIERS })
    const tracked = await start(vendor.reply)
    const charges: number[] = []
    for (const { gateway, secret, upstream, store } of [setting, tracked]) {
      upstream.reply = vendor.reply
      await send({ gateway, secret }, 'chat', { ...first, model: 'chat/model' })
      await store.waitUntilSettled()
      const before = store.dailyTotals().billed
      upstream.reply = (request) => ({
        kind: 'events',
        items: [...buildEvents(request, { text: ['one', ' two'] }).slice(0, 2), HANG],
      })
      const controller = new AbortController()
      const response = await gateway.fetch('http://localhost/v1/chat/completions', {
        method: 'POST',
        headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
        body: JSON.stringify({ ...second, model: 'chat/model', stream: true }),
        signal: controller.signal,
      })
      const reader = response.body?.getReader()
      await reader?.read()
      controller.abort()
      await reader?.cancel().catch(() => {})
      await store.waitUntilSettled()
      charges.push(store.dailyTotals().billed - before)
    }
    const [atListPrice = 0, withRecord = 0] = charges

    expect(withRecord).toBeGreaterThan(0)
    expect(withRecord).toBeLessThan(atListPrice / 2)
  })
})

describe('the theoretical cost of a cache hit', () => {
  it('uses the prices of the vendor’s cache for the tokens that it served for the stored answer', async () => {
    const setting = await start(replyWithUsage, { cache: {} })
    const body = { messages: [{ role: 'user', content: QUESTION }], max_tokens: 40, model: 'chat/model' }
    const miss = await send(setting, 'chat', body)
    const hit = await send(setting, 'chat', body)

    expect(hit.bill).toMatchObject({ cache: 'HIT', billedUsd: 0, actualCostUsd: 0 })
    expect(hit.bill.theoreticalCostUsd).toBe(miss.bill.theoreticalCostUsd)
  })

  it('uses the input price if the options say so', async () => {
    const setting = await start(replyWithUsage, { cache: {}, billing: { cachedTokens: 'list' } })
    const body = { messages: [{ role: 'user', content: QUESTION }], max_tokens: 40, model: 'chat/model' }
    await send(setting, 'chat', body)
    const hit = await send(setting, 'chat', body)

    expect(hit.bill.theoreticalCostUsd).toBeCloseTo((4500 * PRICE.input + 20 * PRICE.output) / 1e6, 6)
  })
})
