import { afterEach, describe, expect, it } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import type { Price } from '../../src/core/money.ts'
import { anthropic, openai, openaiCompatible } from '../../src/index.ts'
import { waitForBatch } from '../support/batches.ts'
import { recordingStore, type RecordingStore } from '../support/recording-store.ts'
import { sendRequest, type Reply } from '../support/send-request.ts'
import { startStage, type Stage, type StageOptions } from '../support/stage.ts'
import { type Report, TIER_FORMATS, type TierFormat, tierReply } from '../support/tier-vendor.ts'
import { startUpstream } from '../support/upstream.ts'

const PRICE: Price = {
  input: 10,
  output: 50,
  tiers: { flex: 0.5, priority: 2, ultrafast: { input: 60, output: 300 }, fast: 3, 'inference_geo:us': 1.1 },
}
/** Cost of 100 prompt and 200 output tokens at the list price. */
const LIST_USD = 0.011

const closers: (() => Promise<void>)[] = []
afterEach(async () => {
  await Promise.all(closers.splice(0).map((close) => close()))
})

interface TierStage extends Stage {
  readonly store: RecordingStore
  /** Reserved amounts in dollars, oldest first. */
  readonly reserved: readonly number[]
  /** What the vendor reports; tests replace it. */
  report: Report
}

async function start(options: Partial<StageOptions> = {}, price: Price = PRICE): Promise<TierStage> {
  const upstream = await startUpstream({ reply: (request) => tierReply(request, stage.report) })
  const store = recordingStore()
  const reserved: number[] = []
  const large = { id: 'large', price, contextWindowTokens: 200_000, maxOutputTokens: 1000 }
  const models = [
    large,
    { ...large, id: 'unpriced', price: { input: 10, output: 50 } },
    { ...large, id: 'other', price: { input: 1, output: 5, tiers: { fast: 4 } } },
  ]
  const started = await startStage({
    margin: 1,
    key: { name: 'k', budget_limit_cents: 1_000_000 },
    providers: [
      openaiCompatible({ name: 'chat', baseUrl: upstream.baseUrl, responses: true, models }),
      anthropic({ baseUrl: upstream.url, apiKey: 'k', models }),
    ],
    store: {
      ...store,
      reserve: (request) => {
        const amounts = request.claims.flatMap(({ amount, elastic }) => (elastic === true ? [amount] : []))
        if (amounts.length > 0) reserved.push(Math.max(...amounts) / 1e9)
        return store.reserve(request)
      },
    },
    ...options,
  })
  const stage: TierStage = { ...started, upstream, store, reserved, report: {} }
  closers.push(started.close, upstream.close)
  return stage
}

const send = (stage: TierStage, { path, body }: TierFormat, fields: JsonObject): Promise<Reply> =>
  sendRequest(stage, { ...body, ...fields }, { path })

/** Returns the billed and actual dollars of one request. */
async function bill(
  stage: TierStage,
  format: TierFormat,
  fields: JsonObject,
): Promise<{ readonly billed: number; readonly actual: number; readonly reserved: number }> {
  const before = stage.store.dailyTotals()
  const reply = await send(stage, format, fields)
  expect(reply.status, reply.text).toBe(200)
  await stage.store.waitUntilSettled()
  const after = stage.store.dailyTotals()
  return {
    billed: (after.billed - before.billed) / 1e9,
    actual: (after.actual - before.actual) / 1e9,
    reserved: stage.reserved.at(-1) ?? 0,
  }
}

const [CHAT = never(), RESPONSES = never(), MESSAGES = never()] = TIER_FORMATS

function never(): never {
  throw new Error('There is no such format.')
}

interface Case {
  readonly title: string
  readonly fields: JsonObject
  readonly reported: JsonObject | undefined
  /** Multiple of the list price. */
  readonly factor: number
}

const SERVICE_TIERS: readonly Case[] = [
  { title: 'an empty text', fields: { service_tier: 'priority' }, reported: { service_tier: '' }, factor: 2 },
  {
    title: 'the requested tier',
    fields: { service_tier: 'priority' },
    reported: { service_tier: 'priority' },
    factor: 2,
  },
  { title: 'its other name', fields: { service_tier: 'fast' }, reported: { service_tier: 'priority' }, factor: 2 },
  { title: 'the other name', fields: { service_tier: 'priority' }, reported: { service_tier: 'fast' }, factor: 2 },
  { title: 'the list price', fields: { service_tier: 'priority' }, reported: { service_tier: 'default' }, factor: 1 },
  {
    title: 'a tier with prices',
    fields: { service_tier: 'ultrafast' },
    reported: { service_tier: 'ultrafast' },
    factor: 6,
  },
  { title: 'a cheaper tier', fields: { service_tier: 'ultrafast' }, reported: { service_tier: 'fast' }, factor: 2 },
  { title: 'a discount', fields: { service_tier: 'flex' }, reported: { service_tier: 'flex' }, factor: 0.5 },
  { title: 'no discount', fields: { service_tier: 'flex' }, reported: { service_tier: 'default' }, factor: 1 },
  { title: 'no tier, for a discount', fields: { service_tier: 'flex' }, reported: undefined, factor: 1 },
  { title: 'no tier', fields: { service_tier: 'priority' }, reported: undefined, factor: 2 },
  { title: 'an unknown tier', fields: { service_tier: 'priority' }, reported: { service_tier: 'turbo' }, factor: 2 },
  {
    title: 'a name of JavaScript',
    fields: { service_tier: 'priority' },
    reported: { service_tier: 'constructor' },
    factor: 2,
  },
  {
    title: 'the tier of the project',
    fields: { service_tier: 'auto' },
    reported: { service_tier: 'priority' },
    factor: 2,
  },
  {
    title: 'the default of the project',
    fields: { service_tier: 'auto' },
    reported: { service_tier: 'default' },
    factor: 1,
  },
  { title: 'no tier of the project', fields: { service_tier: 'auto' }, reported: undefined, factor: 1 },
  {
    title: 'an unknown tier of the project',
    fields: { service_tier: 'auto' },
    reported: { service_tier: 'x' },
    factor: 2,
  },
  { title: 'the tier of a project, unasked', fields: {}, reported: { service_tier: 'priority' }, factor: 2 },
  { title: 'an unknown tier, unasked', fields: {}, reported: { service_tier: 'turbo' }, factor: 1 },
  { title: 'the list price, unasked', fields: {}, reported: { service_tier: 'default' }, factor: 1 },
]

const MESSAGE_TIERS: readonly Case[] = [
  { title: 'fast mode', fields: { speed: 'fast' }, reported: { speed: 'fast', service_tier: 'standard' }, factor: 3 },
  { title: 'standard speed', fields: { speed: 'fast' }, reported: { speed: 'standard' }, factor: 1 },
  { title: 'no speed', fields: { speed: 'fast' }, reported: { service_tier: 'standard' }, factor: 3 },
  { title: 'a region', fields: { inference_geo: 'us' }, reported: { inference_geo: 'us' }, factor: 1.1 },
  { title: 'a region, unasked', fields: {}, reported: { inference_geo: 'us' }, factor: 1.1 },
  { title: 'no region', fields: { inference_geo: 'us' }, reported: { inference_geo: 'not_available' }, factor: 1 },
  {
    title: 'fast mode in a region',
    fields: { speed: 'fast', inference_geo: 'us' },
    reported: { speed: 'fast', inference_geo: 'us' },
    factor: 3.3,
  },
  {
    title: 'standard speed in a region',
    fields: { speed: 'fast', inference_geo: 'us' },
    reported: { speed: 'standard', inference_geo: 'us' },
    factor: 1.1,
  },
  // The capacity that the operator has bought is not billed by the token.
  { title: 'bought capacity', fields: { service_tier: 'auto' }, reported: { service_tier: 'turbo' }, factor: 2 },
]

const CASES = [
  ...[CHAT, RESPONSES].flatMap((format) => SERVICE_TIERS.map((one) => ({ ...one, format }))),
  ...MESSAGE_TIERS.map((one) => ({ ...one, format: MESSAGES })),
].flatMap((one) => [false, true].map((stream) => ({ ...one, stream, name: one.format.name })))

describe('a request is billed by the tier that the response reports', () => {
  it.each(CASES)('$name, streamed: $stream: $title', async ({ format, fields, reported, factor, stream }) => {
    const stage = await start()
    stage.report = reported === undefined ? {} : { tiers: reported }
    const { billed, actual, reserved } = await bill(stage, format, { ...fields, stream })
    expect(billed).toBeCloseTo(LIST_USD * factor, 9)
    expect(actual).toBeCloseTo(LIST_USD * factor, 9)
    expect(billed).toBeLessThanOrEqual(reserved)
    expect(stage.upstream.last.body).toMatchObject(fields)
  })
})

describe('a stream of the chat format', () => {
  it.each([
    ['only the first chunk', 'priority', undefined, 2],
    ['another tier in the chunk with usage', 'default', 'priority', 2],
    ['null in the chunk with usage', 'priority', null, 2],
    ['the list price in the chunk with usage', 'priority', 'default', 1],
  ])('is billed by the tier that the vendor names last: %s', async (_, first, last, factor) => {
    const stage = await start()
    const head = { id: 'c', object: 'chat.completion.chunk', created: 1, model: 'large' }
    const delta = { role: 'assistant', content: 'Hello.' }
    const usage = { prompt_tokens: 100, completion_tokens: 200, total_tokens: 300 }
    const chunks = [
      { ...head, service_tier: first, choices: [{ index: 0, delta, finish_reason: 'stop' }] },
      { ...head, ...(last !== undefined && { service_tier: last }), choices: [], usage },
    ]
    const items = [...chunks.map((chunk) => JSON.stringify(chunk)), '[DONE]'].map((data) => ({ data }))
    stage.upstream.reply = () => ({ kind: 'events', items })
    const { billed } = await bill(stage, CHAT, { service_tier: 'priority', stream: true })
    expect(billed).toBeCloseTo(LIST_USD * factor, 9)
  })
})

describe('the reserved amount', () => {
  it('covers the dearest tier that may apply', async () => {
    const stage = await start()
    const reservedFor = async (format: TierFormat, fields: JsonObject): Promise<number> =>
      (await bill(stage, format, fields)).reserved
    const list = await reservedFor(CHAT, { service_tier: 'default' })
    expect(await reservedFor(CHAT, { service_tier: 'priority' })).toBeGreaterThan(list * 1.9)
    expect(await reservedFor(CHAT, { service_tier: 'ultrafast' })).toBeGreaterThan(list * 5.9)
    expect(await reservedFor(CHAT, { service_tier: 'auto' })).toBeGreaterThan(list * 1.9)
    expect(await reservedFor(CHAT, { service_tier: 'flex' })).toBeLessThan(list * 1.1)
    expect(await reservedFor(CHAT, {})).toBeLessThan(list)
    const listed = await reservedFor(MESSAGES, {})
    expect(await reservedFor(MESSAGES, { speed: 'fast', inference_geo: 'us' })).toBeGreaterThan(listed * 3.2)
  })

  it('bounds the bill of a tier that was not requested', async () => {
    const stage = await start()
    stage.report = { tiers: { service_tier: 'ultrafast' }, prompt: 60, output: 500 }
    const { billed, actual, reserved } = await bill(stage, CHAT, {})
    expect(actual).toBeCloseTo((60 * 60 + 500 * 300) / 1e6, 9)
    expect(billed).toBeCloseTo(reserved, 9)
  })

  it('rejects a request that the budget covers only at the list price', async () => {
    const stage = await start({ key: { name: 'k', budget_limit_cents: 1 } })
    expect((await send(stage, CHAT, { max_tokens: 16 })).status).toBe(200)
    const small = await start({ key: { name: 'k', budget_limit_cents: 1 } })
    expect((await send(small, CHAT, { max_tokens: 16, service_tier: 'ultrafast' })).status).toBe(402)
    expect(small.upstream.requests).toHaveLength(0)
  })
})

describe('a tier without a known price', () => {
  const requests: readonly (readonly [string, TierFormat, JsonObject])[] = [
    ['an unknown tier', CHAT, { service_tier: 'turbo' }],
    ['a model without prices of tiers', CHAT, { model: 'chat/unpriced', service_tier: 'priority' }],
    ['capital letters', CHAT, { service_tier: 'PRIORITY' }],
    ['a name of JavaScript', CHAT, { service_tier: 'constructor' }],
    ['another name of JavaScript', CHAT, { service_tier: '__proto__' }],
    ['an empty name', CHAT, { service_tier: '' }],
    ['a list', CHAT, { service_tier: ['priority'] }],
    ['another spelling', CHAT, { serviceTier: 'priority' }],
    ['another spelling beside the list price', CHAT, { service_tier: 'default', Service_Tier: 'priority' }],
    ['a field inside of extra_body', CHAT, { extra_body: { service_tier: 'priority' } }],
    ['a tier of the responses format', RESPONSES, { service_tier: 'scale' }],
    ['a region', MESSAGES, { inference_geo: 'eu' }],
    ['a region with the name of a tier', MESSAGES, { inference_geo: 'flex' }],
    ['a region with the name of the list price', MESSAGES, { inference_geo: 'default' }],
    ['fast mode for a fallback without its price', MESSAGES, { speed: 'fast', fallbacks: [{ model: 'unpriced' }] }],
  ]

  it.each(requests)('is refused before the vendor is called: %s', async (_, format, fields) => {
    const stage = await start()
    const { status, text } = await send(stage, format, fields)
    expect([status, stage.upstream.requests.length], text).toEqual([400, 0])
  })

  it('is refused with the name of the field, the model and the remedy', async () => {
    const stage = await start()
    const { error } = await send(stage, CHAT, { model: 'chat/unpriced', service_tier: 'priority' })
    expect(error).toMatchObject({ param: 'service_tier' })
    expect(error['message']).toMatch(/no price of the model unpriced for the value "priority".*price\.tiers/)
  })

  it('is sent and billed at the list price where the operator allows it', async () => {
    const stage = await start({ surcharges: 'allow' })
    for (const fields of [{ service_tier: 'turbo' }, { model: 'chat/unpriced', service_tier: 'priority' }]) {
      stage.report = { tiers: { service_tier: 'turbo' } }
      expect((await bill(stage, CHAT, fields)).billed).toBeCloseTo(LIST_USD, 9)
    }
    stage.report = { tiers: { service_tier: 'priority' } }
    expect((await bill(stage, CHAT, { service_tier: 'priority' })).billed).toBeCloseTo(2 * LIST_USD, 9)
    expect((await bill(stage, CHAT, { Service_Tier: 'priority' })).billed).toBeCloseTo(2 * LIST_USD, 9)
  })

  it('is refused for each tier above the list price with surcharges: refuse', async () => {
    const stage = await start({ surcharges: 'refuse' })
    for (const [format, fields] of [
      [CHAT, { service_tier: 'priority' }],
      [RESPONSES, { service_tier: 'fast' }],
      [MESSAGES, { speed: 'fast' }],
      [MESSAGES, { inference_geo: 'us' }],
    ] as const) {
      expect((await send(stage, format, fields)).status).toBe(400)
    }
    expect(stage.upstream.requests).toHaveLength(0)
    stage.report = { tiers: { service_tier: 'flex' } }
    expect((await bill(stage, CHAT, { service_tier: 'flex' })).billed).toBeCloseTo(LIST_USD / 2, 9)
  })

  it('is refused if two tiers have their own prices, which cannot be combined', async () => {
    const own = { input: 20, output: 100 }
    const stage = await start({}, { ...PRICE, tiers: { fast: own, 'inference_geo:us': own } })
    expect((await send(stage, MESSAGES, { speed: 'fast' })).status).toBe(200)
    expect((await send(stage, MESSAGES, { speed: 'fast', inference_geo: 'us' })).status).toBe(400)
  })
})

describe('the tiers of a request', () => {
  it('are not sent to a vendor of another format, which is billed at its list price', async () => {
    const stage = await start()
    const { billed } = await bill(
      stage,
      { ...CHAT, body: { ...CHAT.body, model: 'anthropic/large' } },
      {
        service_tier: 'priority',
      },
    )
    expect(billed).toBeCloseTo(LIST_USD, 9)
    expect(stage.upstream.last.body).not.toHaveProperty('service_tier')
  })

  it('apply to the tokens of a fallback at the price of its own tier', async () => {
    const stage = await start()
    const served = { type: 'fallback_message', model: 'other', input_tokens: 1000, output_tokens: 200 }
    const partial = { type: 'message', model: 'large', input_tokens: 1000, output_tokens: 40 }
    stage.report = { tiers: { speed: 'fast', iterations: [partial, served] } }
    const fields = { speed: 'fast', fallbacks: [{ model: 'other' }] }
    const { billed, reserved } = await bill(stage, MESSAGES, fields)
    expect(billed).toBeCloseTo(3 * 0.012 + 4 * 0.002, 9)
    expect(billed).toBeLessThanOrEqual(reserved)
  })

  it('apply to a cache write of one hour at its own price', async () => {
    const stage = await start({}, { ...PRICE, cacheWrite: 12.5, cacheWrite1h: 20 })
    const cache_creation = { ephemeral_1h_input_tokens: 500, ephemeral_5m_input_tokens: 100 }
    stage.report = { tiers: { speed: 'fast', cache_creation, cache_creation_input_tokens: 600 }, prompt: 400 }
    const content = [{ type: 'text', text: 'Hello?', cache_control: { type: 'ephemeral', ttl: '1h' } }]
    const { billed, reserved } = await bill(stage, MESSAGES, { speed: 'fast', messages: [{ role: 'user', content }] })
    const list = (400 * 10 + 100 * 12.5 + 500 * 20 + 200 * 50) / 1e6
    expect(billed).toBeLessThanOrEqual(reserved)
    // The prompt of six tokens cannot have been cached for more than the reserved tokens, which cuts the reported ones.
    expect(billed / (3 * list)).toBeGreaterThan(0.3)
  })

  it('are those of each item of a batch', async () => {
    const stage = await start()
    stage.upstream.reply = (request) =>
      tierReply(request, { tiers: { speed: request.body['speed'] ?? 'standard', service_tier: 'standard' } })
    const params = { ...MESSAGES.body }
    const requests = [
      { custom_id: 'fast', params: { ...params, speed: 'fast' } },
      { custom_id: 'standard', params },
      { custom_id: 'unpriced', params: { ...params, speed: 'turbo' } },
    ]
    const created = await sendRequest(stage, { requests }, { path: '/v1/messages/batches' })
    expect(created.status, created.text).toBe(200)
    const ended = await waitForBatch(stage.anthropic, String(created.body['id']))
    expect(ended).toMatchObject({ request_counts: { succeeded: 2, errored: 1 } })
    await stage.store.waitUntilSettled()
    expect(stage.store.dailyTotals().billed / 1e9).toBeCloseTo(4 * LIST_USD, 9)
  })

  it('are part of the key under which a response is cached, and a hit has the cost of its tier', async () => {
    const stage = await start({ cache: {} })
    stage.report = { tiers: { service_tier: 'priority' } }
    const first = await send(stage, CHAT, { service_tier: 'priority' })
    const hit = await send(stage, CHAT, { service_tier: 'priority' })
    expect(first.headers['x-svc-theoretical-cost']).toBe('$0.022000')
    expect(hit.headers).toMatchObject({ 'x-svc-cache': 'HIT', 'x-svc-theoretical-cost': '$0.022000' })
    stage.report = { tiers: { service_tier: 'default' } }
    const other = await send(stage, CHAT, { service_tier: 'default' })
    expect(other.headers).toMatchObject({ 'x-svc-cache': 'MISS', 'x-svc-theoretical-cost': '$0.011000' })
  })
})

describe('the built-in prices', () => {
  it('have the tiers that the vendors publish, and a tier that was not verified is refused', async () => {
    const upstream = await startUpstream({
      reply: (request) => tierReply(request, { tiers: { service_tier: 'fast' } }),
    })
    closers.push(upstream.close)
    const stage = await start({ providers: [openai({ apiKey: 'k', baseUrl: upstream.baseUrl })] })
    const ask = (model: string, service_tier: string): TierFormat => ({
      ...CHAT,
      body: {
        model: `openai/${model}`,
        messages: [{ role: 'user', content: 'Hello?' }],
        max_tokens: 500,
        service_tier,
      },
    })
    const { billed } = await bill(stage, ask('gpt-6.1-sol', 'fast'), {})
    expect(billed).toBeCloseTo(2 * ((100 * 2 + 200 * 10) / 1e6), 9)
    for (const [model, tier] of [
      ['gpt-6.2-astra', 'fast'],
      ['gpt-6.2-sol', 'ultrafast'],
      ['gpt-5-nano', 'priority'],
    ] as const) {
      expect((await send(stage, ask(model, tier), {})).status).toBe(400)
    }
  })
})
