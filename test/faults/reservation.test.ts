import { afterEach, describe, expect, it } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import { anthropic, openaiCompatible, type LogRecord } from '../../src/index.ts'
import {
  sendRequest,
  CHAT,
  FORMAT_PAIRS,
  expectErrorResponse,
  ENDPOINTS,
  MESSAGE,
  type Reply,
} from '../support/send-request.ts'
import { honestReply, promptTokensOf, VENDOR_READING } from '../support/honest-vendor.ts'
import { startStage, type Stage, type StageOptions } from '../support/stage.ts'
import { startUpstream, type UpstreamRequest } from '../support/upstream.ts'
import { recordingStore, type RecordingStore } from '../support/recording-store.ts'

const NOON = Date.UTC(2026, 0, 30, 12, 12, 12)
const PRICE = { input: 1, output: 2 }
const MODEL = { id: 'large', price: PRICE, contextWindowTokens: 200_000, maxOutputTokens: 1000 }
const EXCEEDED = { status: 402, type: 'budget_exceeded_error', code: 'budget_exceeded' }
/** Nano-dollars per cent; a prompt token costs 1,000. */
const CENT = 10_000_000

interface RecordedStage extends Stage {
  readonly store: RecordingStore
  readonly log: readonly LogRecord[]
}

const closers: (() => Promise<void>)[] = []
afterEach(async () => {
  await Promise.all(closers.splice(0).map((close) => close()))
})

/**
 * Starts a gateway with four vendors: without a counter, with o200k, with a count endpoint, and with a configured
 * factor.
 */
async function start(
  key: Partial<NonNullable<StageOptions['key']>>,
  options: Partial<StageOptions> = {},
  reply: (request: UpstreamRequest) => ReturnType<typeof honestReply> = honestReply,
): Promise<RecordedStage> {
  const upstream = await startUpstream({ reply })
  const store = recordingStore(() => NOON)
  const log: LogRecord[] = []
  const stage = await startStage({
    store,
    margin: 1,
    log: (record) => void log.push(record),
    runtime: { now: () => NOON, random: () => 0 },
    key: { name: 'limited', ...key },
    providers: [
      openaiCompatible({
        name: 'chat',
        baseUrl: upstream.baseUrl,
        models: [
          MODEL,
          { ...MODEL, id: 'known', tokenFactor: 2 },
          { id: 'vectors', kind: 'embedding', price: { input: 1, output: 0 } },
          { id: 'exact-vectors', kind: 'embedding', price: { input: 1, output: 0 }, tokenizer: 'cl100k' },
        ],
      }),
      openaiCompatible({
        name: 'o200k',
        baseUrl: `${upstream.url}/o200k/v1`,
        models: [{ ...MODEL, tokenizer: 'o200k' }],
      }),
      anthropic({ baseUrl: upstream.url, apiKey: 'k', models: [MODEL] }),
    ],
    ...options,
  })
  closers.push(stage.close, upstream.close)
  return { ...stage, upstream, store, log }
}

const userMessage = (content: unknown): JsonObject[] => [{ role: 'user', content: content as string }]
const callCount = (stage: Stage): number => stage.upstream.requests.filter(({ path }) => !path.includes('count')).length
const countCallCount = (stage: Stage): number =>
  stage.upstream.requests.filter(({ path }) => path.includes('count')).length

/** 30 KB, which have 30,000 tokens for a vendor with a token per digit. */
const DIGITS = '1234567890'.repeat(3_000)
const CHEROKEE = String.fromCodePoint(...Array.from({ length: 5_000 }, (_, at) => 0x13a0 + (at % 80)))
/** 40 KB of prose, about 8,000 tokens. */
const PROSE = 'The gateway reads each request once. '.repeat(1_080)

describe('a budget covers everything that is sent', () => {
  const schema = { type: 'object', properties: { a: { type: 'string', description: DIGITS } } }

  it.each<[string, JsonObject]>([
    ['response_format', { response_format: { type: 'json_schema', json_schema: { name: 'a', schema } } }],
    ['prediction', { prediction: { type: 'content', content: DIGITS } }],
    ['a field that no format knows', { notes: { more: [DIGITS] } }],
    ['tools', { tools: [{ type: 'function', function: { name: 'a', parameters: schema } }] }],
    [
      'reasoning_content',
      { messages: [{ role: 'assistant', content: 'Hm.', reasoning_content: DIGITS }, ...userMessage('?')] },
    ],
    ['Cherokee', { messages: userMessage(CHEROKEE) }],
    ['digits', { messages: userMessage(DIGITS) }],
    ['tabs, vertical tabs and form feeds', { messages: userMessage('\t\u000b\u000c'.repeat(6_000)) }],
  ])('in %s, so that 30 concurrent requests cannot exceed it', async (_, fields) => {
    const stage = await start({ budget_limit_cents: 10 })
    const replies = await Promise.all(
      Array.from({ length: 30 }, () => sendRequest(stage, { ...CHAT.body, max_tokens: 16, ...fields })),
    )
    const read = stage.upstream.requests.map(promptTokensOf)
    expect(read.length).toBeGreaterThan(0)
    expect(read.reduce((sum, tokens) => sum + (tokens + 32) * 1000, 0)).toBeLessThanOrEqual(10 * CENT)
    expect(await stage.store.spent('budget')).toBeLessThanOrEqual(10 * CENT)
    for (const reply of replies.filter(({ status }) => status !== 200)) expectErrorResponse(reply, EXCEEDED)
    expect(stage.log.filter(isClamped)).toEqual([])
  })

  it('of embeddings', async () => {
    const stage = await start({ budget_limit_cents: 1 })
    const body = { model: 'chat/vectors', input: ['Hello', CHEROKEE] }
    expectErrorResponse(await sendRequest(stage, body, { path: '/v1/embeddings' }), EXCEEDED)
    expect((await sendRequest(stage, { ...body, input: 'Hello' }, { path: '/v1/embeddings' })).status).toBe(200)
    expect(callCount(stage)).toBe(1)
  })

  it('of a turn that is recalled by its id', async () => {
    const stage = await start({ budget_limit_cents: 6 })
    const path = '/v1/responses'
    const first = { model: 'chat/large', input: DIGITS, max_output_tokens: 16 }
    const reply = await sendRequest(stage, first, { path })
    expect(reply.status).toBe(200)
    const next = { model: 'chat/large', input: 'And?', max_output_tokens: 16, previous_response_id: reply.body['id'] }
    expectErrorResponse(await sendRequest(stage, next as JsonObject, { path }), EXCEEDED)
    expect(callCount(stage)).toBe(1)
  })

  it('without counting the base64 text of an image as words', async () => {
    const stage = await start({ budget_limit_cents: 2 })
    const url = `data:image/png;base64,${'QUJD'.repeat(50_000)}`
    const content = [{ type: 'image_url', image_url: { url } }]
    expect((await sendRequest(stage, { ...CHAT.body, messages: userMessage(content) })).status).toBe(200)
  })
})

describe('a prompt whose bytes do not fit the budget', () => {
  it('is counted by the vocabulary of its model', async () => {
    const stage = await start({ budget_limit_cents: 1 })
    const { status } = await sendRequest(stage, { ...CHAT.body, model: 'o200k/large', messages: userMessage(PROSE) })
    expect(status).toBe(200)
    expect(await stage.store.spent('budget')).toBeLessThanOrEqual(CENT)
  })

  it('is counted by cl100k for an embedding model with that tokenizer', async () => {
    const stage = await start({ budget_limit_cents: 1 })
    const path = '/v1/embeddings'
    expect((await sendRequest(stage, { model: 'chat/exact-vectors', input: PROSE }, { path })).status).toBe(200)
    expectErrorResponse(await sendRequest(stage, { model: 'chat/vectors', input: PROSE }, { path }), EXCEEDED)
  })

  it('is counted by its vendor if it has an endpoint', async () => {
    const stage = await start({ budget_limit_cents: 1 })
    const body = { ...MESSAGE.body, messages: userMessage(PROSE) }
    expect((await sendRequest(stage, body, { path: MESSAGE.path })).status).toBe(200)
    expect(countCallCount(stage)).toBe(1)
  })

  it('is counted by o200k times the configured factor', async () => {
    const stage = await start({ budget_limit_cents: 2 })
    expect((await sendRequest(stage, { ...CHAT.body, model: 'chat/known', messages: userMessage(PROSE) })).status).toBe(
      200,
    )
  })

  it('is rejected if no counter exists', async () => {
    const stage = await start({ budget_limit_cents: 2 })
    expectErrorResponse(await sendRequest(stage, { ...CHAT.body, messages: userMessage(PROSE) }), EXCEEDED)
    expect(callCount(stage)).toBe(0)
  })

  it('is rejected if the vendor fails to count', async () => {
    const stage = await start({ budget_limit_cents: 1 }, {}, (request) =>
      request.path.includes('count') ? { kind: 'failure', status: 500 } : honestReply(request),
    )
    const body = { ...MESSAGE.body, messages: userMessage(PROSE) }
    expectErrorResponse(await sendRequest(stage, body, { path: MESSAGE.path }), EXCEEDED)
    expect(callCount(stage)).toBe(0)
  })

  it('is not counted if the bytes fit, or if the budget is spent', async () => {
    const stage = await start({ budget_limit_cents: 1 })
    const small = await sendRequest(stage, MESSAGE.body, { path: MESSAGE.path })
    expect(small.status).toBe(200)
    expect(countCallCount(stage)).toBe(0)
    const spent = await start({ budget_limit_cents: 0 })
    const body = { ...MESSAGE.body, messages: userMessage(PROSE) }
    expectErrorResponse(await sendRequest(spent, body, { path: MESSAGE.path }), EXCEEDED)
    expect(countCallCount(spent)).toBe(0)
  })

  it('counts against the request limit when its vendor counts it, also if it is then rejected', async () => {
    const stage = await start({ budget_limit_cents: 1, rate_limit_requests: 2 })
    const body = { ...MESSAGE.body, messages: userMessage(DIGITS) }
    const replies: Reply[] = []
    for (let count = 0; count < 4; count++) replies.push(await sendRequest(stage, body, { path: MESSAGE.path }))
    expect(replies.map(({ status }) => status)).toEqual([402, 402, 429, 429])
    expect(countCallCount(stage)).toBe(2)
  })

  it('counts once against the request limit when it is counted and answered', async () => {
    const stage = await start({ budget_limit_cents: 1, rate_limit_requests: 5 })
    const reply = await sendRequest(stage, { ...MESSAGE.body, messages: userMessage(PROSE) }, { path: MESSAGE.path })
    expect(reply.status).toBe(200)
    expect(reply.headers['x-ratelimit-remaining']).toBe('4')
    expect(await stage.store.spent('requests')).toBe(1)
  })
})

describe('a token limit', () => {
  it.each(ENDPOINTS)(
    'accepts a prompt whose bytes exceed it but whose tokens do not ($name)',
    async ({ path, body }) => {
      const stage = await start({ rate_limit_tokens: 12_000 })
      expect((await sendRequest(stage, { ...body, messages: userMessage(PROSE) }, { path })).status).toBe(200)
    },
  )

  it('rejects a prompt whose tokens exceed it, regardless of the estimate', async () => {
    const stage = await start({ rate_limit_tokens: 8_000 })
    const reply = await sendRequest(stage, { ...CHAT.body, messages: userMessage(CHEROKEE) })
    expect(reply.status).toBe(429)
    expect(callCount(stage)).toBe(0)
  })
})

describe('vendor tools', () => {
  const works: [string, string, JsonObject][] = [
    ['a server tool', MESSAGE.path, { ...MESSAGE.body, tools: [{ type: 'web_search_20250305', name: 'web_search' }] }],
    ['an MCP server', MESSAGE.path, { ...MESSAGE.body, mcp_servers: [{ type: 'url', url: 'https://mcp.example' }] }],
    [
      'a document by URL',
      MESSAGE.path,
      {
        ...MESSAGE.body,
        messages: userMessage([{ type: 'document', source: { type: 'url', url: 'https://pages.example/a.pdf' } }]),
      },
    ],
    [
      'an image by URL',
      CHAT.path,
      {
        ...CHAT.body,
        messages: userMessage([{ type: 'image_url', image_url: { url: 'https://pages.example/a.png' } }]),
      },
    ],
    [
      'a file by id',
      CHAT.path,
      { ...CHAT.body, messages: userMessage([{ type: 'file', file: { file_id: 'file-1' } }]) },
    ],
    ['a search switch', CHAT.path, { ...CHAT.body, enable_search: true }],
    ['a search switch in capitals', CHAT.path, { ...CHAT.body, ENABLE_SEARCH: true }],
  ]

  it.each(works)('reserves the context window of the model: %s', async (_, path, body) => {
    const stage = await start({ budget_limit_cents: 50 })
    const replies = await Promise.all(Array.from({ length: 10 }, () => sendRequest(stage, body, { path })))
    expect(replies.filter(({ status }) => status === 200)).toHaveLength(2)
    for (const reply of replies.filter(({ status }) => status !== 200)) expectErrorResponse(reply, EXCEEDED)
    expect(await stage.store.spent('budget')).toBeGreaterThan(2 * VENDOR_READING * 1000)
    expect(await stage.store.spent('budget')).toBeLessThanOrEqual(50 * CENT)
  })

  it.each(works)('is refused with vendorTools: refuse: %s', async (_, path, body) => {
    const stage = await start({}, { vendorTools: 'refuse' })
    expectErrorResponse(await sendRequest(stage, body, { path }), {
      status: 403,
      type: 'permission_error',
      code: 'vendor_tools_disabled',
    })
    expect(callCount(stage)).toBe(0)
    expect((await sendRequest(stage, { ...CHAT.body, max_tokens: 16 })).status).toBe(200)
  })

  it.each(works)('is billed in full with vendorTools: allow: %s', async (_, path, body) => {
    const stage = await start({ budget_limit_cents: 5 }, { vendorTools: 'allow' })
    expect((await sendRequest(stage, body, { path })).status).toBe(200)
    expect(await stage.store.spent('budget')).toBeGreaterThan(VENDOR_READING * 1000)
  })

  it('does not include tools that the caller runs', async () => {
    const stage = await start({ budget_limit_cents: 1 })
    const tools = [
      { name: 'look_up', input_schema: { type: 'object', properties: {} } },
      { type: 'bash_20250124', name: 'bash' },
    ]
    expect((await sendRequest(stage, { ...MESSAGE.body, tools }, { path: MESSAGE.path })).status).toBe(200)
  })
})

describe('a field that chooses a higher price', () => {
  const fields: readonly (readonly [string, { readonly path: string; readonly body: JsonObject }, JsonObject])[] = [
    ['the priority tier', CHAT, { service_tier: 'priority' }],
    ['an unknown tier', CHAT, { service_tier: 'turbo' }],
    ['a tier that is not a string', CHAT, { service_tier: ['priority'] }],
    ['another spelling, which lenient vendors accept', CHAT, { Service_Tier: 'priority' }],
    ['fast mode', MESSAGE, { speed: 'fast' }],
    ['a region', MESSAGE, { inference_geo: 'us' }],
    ['a prompt cache of 12 hours', CHAT, { prompt_cache_options: { ttl: '12h' } }],
    ['an order of hosts', CHAT, { provider: { order: ['dear'] } }],
    ['a list of hosts', CHAT, { provider: { only: ['dear'], sort: 'price' } }],
    ['excluded hosts', CHAT, { provider: { ignore: ['cheap'] } }],
    ['the fastest host', CHAT, { provider: { sort: 'throughput' } }],
    ['the fastest host, in another form', CHAT, { provider: { sort: { by: 'latency', partition: 'none' } } }],
    ['a condition that not all hosts meet', CHAT, { provider: { data_collection: 'deny' } }],
    ['a host', CHAT, { provider: 'dear' }],
    ['hosts in another spelling', CHAT, { Provider: { order: ['dear'] } }],
  ]

  it.each(fields)('is refused before the upstream is called: %s', async (_, { path, body }, field) => {
    const stage = await start({})
    const reply = await sendRequest(stage, { ...body, ...field }, { path })
    expect(reply.status).toBe(400)
    expect(JSON.stringify(reply.body)).toContain(Object.keys(field)[0])
    expect(callCount(stage)).toBe(0)
  })

  it('is audited with the model of the request', async () => {
    const stage = await start({})
    await sendRequest(stage, { ...CHAT.body, service_tier: 'priority' })

    const { records } = await stage.gateway.audit.read({ keyId: stage.keyId })
    expect(records).toMatchObject([{ status: 400, model: CHAT.model }])
  })

  it('is refused inside of a field for further fields', async () => {
    const stage = await start({})
    const reply = await sendRequest(stage, { ...CHAT.body, extra_body: { provider: { order: ['dear'] } } })
    expect([reply.status, reply.error['param'], callCount(stage)]).toEqual([400, 'provider', 0])
  })

  it.each(fields)('is sent where the operator allows it: %s', async (_, { path, body }, field) => {
    const stage = await start({}, { surcharges: 'allow' })
    expect((await sendRequest(stage, { ...body, ...field }, { path })).status).toBe(200)
    expect(callCount(stage)).toBe(1)
  })

  it('is not rejected at the list price', async () => {
    const stage = await start({})
    for (const tier of ['auto', 'default', 'flex', null]) {
      expect((await sendRequest(stage, { ...CHAT.body, service_tier: tier })).status).toBe(200)
    }
    const hosts = {
      sort: 'price',
      allow_fallbacks: true,
      max_price: { prompt: 1 },
      order: [],
      data_collection: 'allow',
    }
    for (const provider of [hosts, {}, null]) {
      expect((await sendRequest(stage, { ...CHAT.body, provider })).status).toBe(200)
    }
    const message = { ...MESSAGE.body, service_tier: 'standard_only', speed: 'standard', inference_geo: 'global' }
    expect((await sendRequest(stage, message, { path: MESSAGE.path })).status).toBe(200)
  })
})

describe('audio input, which vendors bill above the price of text', () => {
  const audio = { type: 'input_audio', input_audio: { data: 'aGk=', format: 'wav' } }
  const file = { type: 'file', file: { filename: 'a.mp3', file_data: 'data:audio/mpeg;base64,aGk=' } }
  const bodies = [audio, file].map((part) => ({
    ...CHAT.body,
    messages: [
      { role: 'user', content: 'Hello?' },
      { role: 'user', content: [part, { type: 'text', text: 'What is this?' }] },
    ],
  }))

  it('is refused before the upstream is called', async () => {
    const stage = await start({})
    for (const body of bodies) {
      const { status, error } = await sendRequest(stage, body)
      expect([status, error['param']]).toEqual([400, 'messages[1]'])
    }
    expect(callCount(stage)).toBe(0)
  })

  it('is sent where the operator allows it', async () => {
    const stage = await start({}, { surcharges: 'allow' })
    for (const body of bodies) expect((await sendRequest(stage, body)).status).toBe(200)
    expect(callCount(stage)).toBe(2)
  })
})

describe('a model that the vendor may choose instead, whose tokens it does not report apart', () => {
  const CHEAP = { ...MODEL, id: 'cheap', price: { input: 1, output: 1 } }
  const DEAR = { ...MODEL, id: 'dear', price: { input: 1, output: 3 } }
  const startVendor = (options: Partial<StageOptions> = {}): Promise<RecordedStage> =>
    start({}, options).then(async (stage) => {
      const provider = openaiCompatible({
        name: 'chat',
        baseUrl: stage.upstream.baseUrl,
        models: [
          MODEL,
          CHEAP,
          DEAR,
          { ...CHEAP, id: 'dear-cache', price: { ...CHEAP.price, cacheWrite: 2 } },
          { ...CHEAP, id: 'dear-long', price: { ...CHEAP.price, long: { aboveTokens: 1000, input: 2, output: 2 } } },
        ],
      })
      return start({}, { ...options, providers: [provider] })
    })

  it.each<[string, JsonObject, number]>([
    ['a model that costs more', { models: ['large', 'dear'] }, 400],
    ['a model whose cache writes cost more', { models: ['dear-cache'] }, 400],
    ['a model whose long prompts cost more', { models: ['dear-long'] }, 400],
    ['a model that costs more, in fallbacks', { fallbacks: [{ model: 'dear' }] }, 400],
    ['a model that costs more, as text', { fallback_models: 'dear' }, 400],
    ['a model that costs more, in extra_body', { extra_body: { models: ['dear'] } }, 400],
    ['a model without a price', { models: ['cheap', 'unknown'] }, 404],
    ['models in another form', { models: [{ id: 'cheap' }] }, 400],
    ['another spelling of model', { Model: 'dear' }, 400],
    ['a preset', { preset: 'best' }, 400],
    ['an engine', { engine: 'dear' }, 400],
  ])('is refused before the upstream is called: %s', async (_, field, status) => {
    const stage = await startVendor()
    const reply = await sendRequest(stage, { ...CHAT.body, ...field })
    expect(reply.status).toBe(status)
    expect(callCount(stage)).toBe(0)
  })

  it.each<[string, JsonObject, number]>([
    ['another spelling of model', { Model: 'exact-vectors' }, 400],
    ['a tier with a higher price', { service_tier: 'priority' }, 400],
    ['a model without a price', { models: ['unknown'] }, 404],
    ['fields without a price', { user: 'me', dimensions: 8, encoding_format: 'float', input_type: 'query' }, 200],
  ])('is refused for embeddings too: %s', async (_, field, status) => {
    const stage = await start({})
    const body = { model: 'chat/vectors', input: 'Hello?', ...field }
    expect((await sendRequest(stage, body, { path: '/v1/embeddings' })).status).toBe(status)
    expect(callCount(stage)).toBe(status === 200 ? 1 : 0)
  })

  it('is accepted if it costs at most as much, or if the operator allows higher prices', async () => {
    const stage = await startVendor()
    for (const models of [['cheap'], ['cheap', 'large'], ['vendor/cheap'], []]) {
      expect((await sendRequest(stage, { ...CHAT.body, models })).status).toBe(200)
    }
    const lax = await startVendor({ surcharges: 'allow' })
    for (const field of [{ models: ['dear', 'unknown'] }, { preset: 'best' }]) {
      expect((await sendRequest(lax, { ...CHAT.body, ...field })).status).toBe(200)
    }
  })
})

describe('implausible usage', () => {
  const enormous = (request: UpstreamRequest): ReturnType<typeof honestReply> => {
    const [input, output] = [1_000_000_000, 1_000_000_000]
    if (request.path.endsWith('/embeddings')) {
      const data = [{ object: 'embedding', index: 0, embedding: [1] }]
      return { kind: 'json', value: { object: 'list', data, usage: { prompt_tokens: input, total_tokens: input } } }
    }
    const chat = { prompt_tokens: input, completion_tokens: output, total_tokens: input + output }
    return { text: 'Yes.', usage: request.dialect === 'chat' ? chat : { input_tokens: input, output_tokens: output } }
  }

  it.each(FORMAT_PAIRS)(
    'is clamped to the sent prompt and the longest answer, and logged ($name)',
    async ({ path, body }) => {
      for (const stream of [false, true]) {
        const stage = await start({ budget_limit_cents: 100 }, {}, enormous)
        const reply = await sendRequest(stage, { ...body, stream }, { path })
        expect(reply.status).toBe(200)
        const bytes = JSON.stringify({ ...body, stream }).length
        await stage.store.waitUntilSettled()
        expect(await stage.store.spent('budget')).toBeLessThan((bytes + 300) * 1000 + 1000 * 2000)
        expect(stage.log.filter(isClamped)).toMatchObject([
          { level: 'WARN', request_id: reply.headers['x-request-id'], virtual_key_id: stage.keyId, model: 'large' },
        ])
      }
    },
  )

  it('of embeddings is clamped to the bytes of the inputs', async () => {
    const stage = await start({ budget_limit_cents: 100 }, {}, enormous)
    const body = { model: 'chat/vectors', input: 'Hello' }
    expect((await sendRequest(stage, body, { path: '/v1/embeddings' })).status).toBe(200)
    expect(await stage.store.spent('budget')).toBeLessThan(300 * 1000)
  })
})

function isClamped({ event }: LogRecord): boolean {
  return String(event).includes('the excess is not billed')
}

describe('a restricted key', () => {
  const restrictions: [string, NonNullable<StageOptions['key']>][] = [
    ['allowed_models', { name: 'k', allowed_models: ['chat/*', 'anthropic/*'] }],
    ['max_tokens', { name: 'k', max_tokens: 100 }],
    ['disable_tools', { name: 'k', disable_tools: true }],
  ]
  const fields: JsonObject[] = [
    { MAX_TOKENS: 100_000 },
    { maxTokens: 100_000 },
    { Model: 'other/dear' },
    { TOOLS: [{ type: 'web_search' }] },
    { 'max_token\u017f': 100_000 },
    { models: ['other/dear'] },
    { route: 'fallback' },
    { plugins: [{ id: 'web' }] },
    { search_parameters: { mode: 'on' } },
    { container: 'container_1' },
    { enable_search: true },
  ]

  it.each(restrictions)(
    'by %s may not send other spellings of known fields, nor switches of vendors',
    async (_, key) => {
      const stage = await start(key)
      for (const { path, body } of ENDPOINTS) {
        for (const field of fields) {
          const param = Object.keys(field)[0] ?? ''
          const refused = { status: 403, type: 'permission_error', code: 'field_not_allowed', param }
          expectErrorResponse(await sendRequest(stage, { ...body, ...field }, { path }), refused)
        }
        expect((await sendRequest(stage, { ...body, some_field: 1, temperature: 0.5 }, { path })).status).toBe(200)
      }
      expect(callCount(stage)).toBe(ENDPOINTS.length)
    },
  )

  it('by disable_tools may not use a model that searches', async () => {
    const stage = await start(
      { disable_tools: true },
      { providers: [openaiCompatible({ name: 'chat', baseUrl: 'http://127.0.0.1:9/v1', defaultPrice: PRICE })] },
    )
    const refused = { status: 403, type: 'permission_error', code: 'tools_disabled' }
    expectErrorResponse(await sendRequest(stage, { ...CHAT.body, model: 'chat/any:online' }), refused)
  })

  it('differs from other keys, which may send these fields unless they name a model without a price', async () => {
    const stage = await start({})
    for (const field of fields) {
      const expected = 'Model' in field ? 400 : 'models' in field ? 404 : 200
      expect((await sendRequest(stage, { ...CHAT.body, ...field })).status).toBe(expected)
    }
  })
})
