import { createHash } from 'node:crypto'
import { inspect } from 'node:util'
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { anthropic, createGateway, openaiCompatible, type Gateway } from '../../src/index.ts'
import { everyNth } from '../support/full.ts'
import { sendRequest, FORMAT_PAIRS, ENDPOINTS, type RequestBody } from '../support/send-request.ts'
import { PRICE, startStage, type Stage } from '../support/stage.ts'
import {
  CUT,
  HANG,
  startUpstream,
  type Reply,
  type StreamItem,
  type Upstream,
  type UpstreamRequest,
} from '../support/upstream.ts'
import { eventsUntilText } from '../support/upstream-events.ts'

/** Keys that do not match any pattern of well-known keys. */
const CHAT_SECRET = 'chatupstreamkey0123456789'
const MESSAGE_SECRET = 'messageupstreamkey987654321'
const HEADER_SECRET = 'tenant-header-of-the-operator'
/** A password, a host, an address and names of an account that only the upstream has. */
const INNER_WORDS = [
  'hunter2pw',
  'ledger-db-1',
  '10.20.30.40',
  'northwind-ai',
  '123456789012',
  'org-abcdef',
  'ai-east',
] as const

let upstream: Upstream
let stage: Stage
let other: string
const written: unknown[] = []

beforeAll(async () => {
  upstream = await startUpstream()
  const models = [{ id: 'large', price: PRICE, contextWindowTokens: 200_000, maxOutputTokens: 1000 }]
  stage = await startStage({
    providers: [
      openaiCompatible({
        name: 'chat',
        baseUrl: upstream.baseUrl,
        apiKey: CHAT_SECRET,
        headers: { 'x-tenant': HEADER_SECRET },
        models,
      }),
      anthropic({ baseUrl: upstream.url, apiKey: MESSAGE_SECRET, models }),
      openaiCompatible({ name: 'gone', baseUrl: 'http://127.0.0.1:9/v1', apiKey: CHAT_SECRET, models }),
      openaiCompatible({ name: 'lost', baseUrl: 'http://secret-host.invalid/v1', apiKey: CHAT_SECRET, models }),
    ],
    log: (record) => written.push(record),
    runtime: { random: () => 0 },
    timeouts: { idleMs: 100, firstByteMs: 2_000, totalMs: 4_000 },
  })
  other = (await stage.gateway.keys.create({ name: 'other' })).value
  for (const method of ['log', 'info', 'warn', 'error', 'debug', 'trace'] as const) {
    vi.spyOn(console, method).mockImplementation((...words: unknown[]) => void written.push(words))
  }
})
afterAll(async () => {
  vi.restoreAllMocks()
  await stage.close()
  await upstream.close()
})
beforeEach(() => {
  written.length = 0
})

/** Returns the texts that must not occur in responses or logs. */
function secrets(): readonly string[] {
  const hash = (text: string): string => createHash('sha256').update(text).digest('hex')
  return [
    CHAT_SECRET,
    MESSAGE_SECRET,
    HEADER_SECRET,
    stage.secret,
    other,
    hash(stage.secret),
    hash(other),
    new URL(upstream.url).host,
    '127.0.0.1:9',
    'secret-host',
    ...INNER_WORDS,
  ]
}

/** Stack frames and local paths must not occur either. */
const INNER = /node_modules|\.ts:\d|\bat async |\/work\/|ECONNREFUSED|ENOTFOUND|UND_ERR/

function expectClean(text: string, what: string): void {
  for (const secret of secrets())
    expect(text.includes(secret), `${secret} in ${what}: ${text.slice(0, 500)}`).toBe(false)
}

async function expectNoLeak(
  body: RequestBody,
  path: string,
  more: Parameters<typeof sendRequest>[2] = {},
): Promise<void> {
  const reply = await sendRequest(stage, body, { path, ...more })
  const received = JSON.stringify(reply.headers) + reply.text
  expectClean(received, 'the answer')
  expect(received).not.toMatch(INNER)
  expectClean(inspect(written, { depth: 20 }), 'the log')
}

/** Secrets that the gateway sends to the upstream. */
const privateValues = ({ dialect }: UpstreamRequest): readonly string[] =>
  dialect === 'chat' ? [CHAT_SECRET, HEADER_SECRET] : [MESSAGE_SECRET]
const echo = (request: UpstreamRequest): string =>
  `Wrong keys ${privateValues(request).join(' and ')} at ${upstream.url}/v1/x and http://127.0.0.1:9/, ` +
  `postgres://svc:${INNER_WORDS[0]}@${INNER_WORDS[1]}/x, host ${INNER_WORDS[1]} (${INNER_WORDS[2]}:5432), ` +
  `Project \`${INNER_WORDS[3]}\` (projects/${INNER_WORDS[3]}, ${INNER_WORDS[4]}) of organization ${INNER_WORDS[5]}, ` +
  `resource group '${INNER_WORDS[6]}'`

describe.each(everyNth(3, FORMAT_PAIRS))('no secret is revealed on the $name', (endpoint) => {
  const { path, body } = endpoint

  it.each([400, 401, 403, 404, 409, 413, 422, 429, 500, 503])(
    'by an upstream that answers %i and repeats every secret it has received',
    async (status) => {
      const places: readonly ((text: string, one: string) => Reply)[] = [
        (text) => ({ kind: 'failure', status, failure: { message: text } }),
        (text) => ({ kind: 'failure', status, failure: { message: 'x', type: text, code: text, param: text } }),
        (_, one) => ({ kind: 'failure', status, failure: { message: one, type: one, code: one, param: one } }),
        (text, one) => ({ kind: 'failure', status, failure: { message: 'x', details: { hint: text, [one]: [text] } } }),
        () => ({
          kind: 'failure',
          status,
          failure: { message: 'x', details: [{ metadata: { consumer: INNER_WORDS[3], account: 123_456_789_012 } }] },
        }),
        (text) => ({ kind: 'json', status, value: { error: text } }),
        (text) => ({ kind: 'json', status, value: { detail: text } }),
        (text) => ({ kind: 'json', status, value: { message: text } }),
        (text) => ({ kind: 'body', status, body: text }),
        (text, one) => ({
          kind: 'failure',
          status,
          headers: { 'retry-after': one, 'x-should-retry': one, 'retry-after-ms': one, 'x-echo': text },
        }),
      ]
      for (const place of places) {
        for (const stream of [false, true]) {
          upstream.reply = (request) => place(echo(request), privateValues(request)[0] ?? '')
          await expectNoLeak({ ...body, stream }, path)
        }
        upstream.reply = () => 'Well.'
        await sendRequest(stage, body, { path })
      }
    },
  )

  it('by an upstream that breaks off or sends an error during its stream', async () => {
    const ends: readonly ((text: string) => StreamItem)[] = [
      () => CUT,
      () => HANG,
      (text) => `data: ${JSON.stringify({ error: { message: text, type: text, code: text } })}\n\n`,
      (text) =>
        `event: error\ndata: ${JSON.stringify({ type: 'error', error: { type: 'api_error', message: text } })}\n\n`,
      (text) => `data: ${JSON.stringify({ error: { message: text, code: 400 } })}\n\n`,
      (text) => `data: ${text}\n\n`,
      (text) => `event: ${text}\ndata: {}\n\n`,
    ]
    for (const end of ends) {
      for (const begun of [true, false]) {
        upstream.reply = (request) => ({
          kind: 'events',
          items: [...(begun ? eventsUntilText(request.dialect) : []), end(echo(request))],
        })
        await expectNoLeak({ ...body, stream: true }, path)
        upstream.reply = () => 'Well.'
        await sendRequest(stage, body, { path })
      }
    }
  })

  it('by an unreadable or unreachable upstream', async () => {
    const replies: readonly ((text: string) => Reply)[] = [
      (text) => ({ kind: 'body', body: text }),
      (text) => ({ kind: 'json', value: { error: { message: text } } }),
      (text) => ({ kind: 'socket', bytes: `${text}\r\n\r\n` }),
    ]
    for (const reply of replies) {
      upstream.reply = (request) => reply(echo(request))
      await expectNoLeak(body, path)
      upstream.reply = () => 'Well.'
      await sendRequest(stage, body, { path })
    }
    for (const model of ['gone/large', 'lost/large']) {
      for (const stream of [false, true]) await expectNoLeak({ ...body, model, stream }, path)
    }
  })
})

describe.each(ENDPOINTS)('no secret is revealed on the $name endpoint', ({ path, body }) => {
  it('to a caller whose request is invalid', async () => {
    const text = JSON.stringify(body)
    const wrong: readonly RequestBody[] = [
      '',
      text.slice(0, -1),
      `${text}${other}`,
      { ...body, model: `x/${'y'.repeat(300)}` },
      { ...body, messages: 5 },
      { ...body, tools: {} },
    ]
    for (const sent of wrong) {
      const reply = await sendRequest(stage, sent, { path })
      expect(reply.status).toBeGreaterThanOrEqual(400)
      expect(JSON.stringify(reply.headers) + reply.text).not.toMatch(INNER)
      expectClean(JSON.stringify(reply.headers), 'the headers')
    }
    expectClean(inspect(written, { depth: 20 }), 'the log')
  })

  it('to a caller who sends a key in another place', async () => {
    await expectNoLeak(body, `${path}?key=${stage.secret}`, { secret: null })
    await expectNoLeak(body, `${path}/${stage.secret}`)
    await expectNoLeak(body, path, { secret: other.slice(0, -1) })
    await expectNoLeak(body, path, { headers: { 'x-api-key': other } })
  })
})

describe('no secret is revealed', () => {
  it.each([
    '/health',
    '/ready',
    '/v1/models',
    '/v1/models/chat/large',
    '/v1/models/none',
    '/nothing',
    '/metrics',
    '/api/governance/virtual-keys',
  ])('at %s', async (path) => {
    const reply = await sendRequest(stage, undefined, { path, method: 'GET' })
    const received = JSON.stringify(reply.headers) + reply.text
    expectClean(received, path)
    expect(received).not.toMatch(INNER)
    expect((await sendRequest(stage, undefined, { path, method: 'GET', secret: null })).text).not.toMatch(INNER)
  })

  it('by the lists and reports of keys', async () => {
    const { keys } = stage.gateway
    const shown = [
      await keys.list(),
      await keys.get(stage.keyId),
      await keys.usage(stage.keyId),
      await keys.rateLimit(stage.keyId),
      await keys.update(stage.keyId, { description: 'x' }),
    ]
    expectClean(JSON.stringify(shown), 'the reports')
    const again = await keys.create({ name: 'again' })
    expect(again.value).toMatch(/^sk-bf-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
    expect(JSON.stringify(await keys.get(again.id))).not.toContain(again.value)
  })

  it('by the request log and the audit trail', async () => {
    upstream.reply = () => 'Well.'
    for (const endpoint of FORMAT_PAIRS) {
      const marked = { ...endpoint.body, messages: [{ role: 'user', content: 'words-of-a-caller' }] }
      await sendRequest(stage, { ...marked, stream: true }, { path: `${endpoint.path}?key=${stage.secret}` })
      await sendRequest(stage, marked, {
        path: endpoint.path,
        secret: other,
        headers: { cookie: other, 'x-api-key': 'sk-bf-wrong-key' },
      })
    }
    const audit = await stage.gateway.audit.read()

    expect(written.length).toBeGreaterThan(0)
    expect(JSON.stringify(audit).length).toBeGreaterThan(100)
    for (const text of [inspect(written, { depth: 20 }), JSON.stringify(audit)]) {
      expectClean(text, 'the books')
      expect(text).not.toMatch(/words-of-a-caller|sk-bf-wrong-key|at \S+:\d+:\d+/)
    }
  })

  it('by a fetch whose error contains every secret', async () => {
    const failing: Gateway = createGateway({
      providers: [
        openaiCompatible({ name: 'chat', baseUrl: upstream.baseUrl, apiKey: CHAT_SECRET, defaultPrice: PRICE }),
      ],
      runtime: {
        random: () => 0,
        fetch: async (url, init) => {
          throw new Error(`${String(url)} ${JSON.stringify(init)}`)
        },
      },
      log: (record) => written.push(record),
    })
    const { value } = await failing.keys.create({ name: 'x' })
    const response = await failing.fetch(
      new Request('http://x/v1/chat/completions', {
        method: 'POST',
        headers: { authorization: `Bearer ${value}`, 'content-type': 'application/json' },
        body: JSON.stringify({ model: 'chat/large', messages: [{ role: 'user', content: 'x' }] }),
      }),
    )
    const text = await response.text()
    expect(response.status).toBe(502)
    for (const secret of [...secrets(), value]) expect(text).not.toContain(secret)
    for (const secret of [...secrets(), value]) expect(inspect(written, { depth: 20 })).not.toContain(secret)
    await failing.close()
  })

  it('by a store whose error contains every secret', async () => {
    const failing = await startStage()
    const store = {
      ...(await import('../../src/index.ts')).memoryStore(),
      get: async (key: string) => {
        throw new Error(`redis://user:password@secret-host ${key}`)
      },
    }
    const gateway = createGateway({
      providers: [openaiCompatible({ name: 'chat', baseUrl: upstream.baseUrl, defaultPrice: PRICE })],
      store,
    })
    for (const path of ['/v1/chat/completions', '/v1/messages', '/v1/models', '/ready', '/health']) {
      const method = path.includes('chat') || path.includes('messages') ? 'POST' : 'GET'
      const init = {
        method,
        headers: { authorization: 'Bearer sk-bf-x', 'content-type': 'application/json' },
        ...(method === 'POST' && { body: '{}' }),
      }
      const response = await gateway.fetch(new Request(`http://x${path}`, init))
      const text = await response.text()
      expect(text).not.toMatch(/redis:|password|secret-host|key-hash/)
      expect(text).not.toMatch(INNER)
    }
    await gateway.close()
    await failing.close()
  })
})
