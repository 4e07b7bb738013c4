import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import {
  sendRequest,
  authorizationLine,
  CHAT,
  sendRawBytes,
  expectErrorResponse,
  ENDPOINTS,
  MESSAGE,
  parseStatuses,
} from '../support/send-request.ts'
import { startStage, type Stage } from '../support/stage.ts'

let stage: Stage
let called = 0
beforeAll(async () => {
  stage = await startStage()
})
afterAll(() => stage.close())
beforeEach(() => {
  stage.upstream.reply = () => 'Hello from upstream.'
  called = stage.upstream.requests.length
})

function expectNotCalled(): void {
  expect(stage.upstream.requests).toHaveLength(called)
}

const WRONG_KEY = { status: 401, type: 'authentication_error', code: 'invalid_api_key' }
const json = JSON.stringify(CHAT.body)
const LENGTH = `content-length: ${Buffer.byteLength(json)}\r\n`
const START = `POST ${CHAT.path} HTTP/1.1\r\nhost: x\r\n`
const TYPE = 'content-type: application/json\r\n'

/** Sends a request over a raw connection, with additional header lines and an unchanged body. */
function send(lines: string, body: string | Uint8Array = json, start = START): Promise<string> {
  return sendRawBytes(stage, [`${start}${authorizationLine(stage)}${TYPE}connection: close\r\n${lines}\r\n`, body])
}

describe.each(ENDPOINTS)('a key on the $name endpoint', ({ path, body }) => {
  it.each<[string, (secret: string) => string | null]>([
    ['missing', () => null],
    ['empty', () => ''],
    ['unknown', () => 'sk-bf-00000000-0000-4000-8000-000000000000'],
    ['cut', (secret) => secret.slice(0, -1)],
    ['extended', (secret) => `${secret}0`],
    ['in capitals', (secret) => secret.toUpperCase()],
    ['doubled', (secret) => secret + secret],
    ['in quotes', (secret) => `"${secret}"`],
    ['twice', (secret) => `${secret}, ${secret}`],
    ['null', () => 'null'],
    ['undefined', () => 'undefined'],
    ['the upstream’s', () => 'sk-upstream-secret'],
    ['SQL', () => "' OR 1=1 --"],
    ['a query of a document store', () => '{"$ne":null}'],
    ['a template', () => '{{7*7}}${7*7}'],
    ['__proto__', () => '__proto__'],
    ['a name of the store', () => 'key-hash:'],
    ['a pattern', () => '*'],
    ['8,000 characters', () => 'x'.repeat(8_000)],
  ])('that is %s receives the response of an unknown key', async (_, change) => {
    const secret = change(stage.secret)
    for (const header of ['authorization', 'x-api-key', 'x-bf-vk']) {
      const value = secret === null ? undefined : header === 'authorization' ? `Bearer ${secret}` : secret
      const reply = await sendRequest(stage, body, { path, secret: null, headers: { [header]: value } })

      expectErrorResponse(reply, WRONG_KEY)
      expect(reply.headers['x-ratelimit-limit']).toBe('0')
      if (secret !== null && secret.length > 9) expect(reply.text).not.toContain(secret.slice(0, 12))
    }
    expectNotCalled()
  })

  it('is read from each of the three headers, also if repeated', async () => {
    const headers = { 'x-api-key': stage.secret, 'x-bf-vk': stage.secret, authorization: `bearer ${stage.secret}` }

    for (const [name, value] of Object.entries(headers)) {
      expect((await sendRequest(stage, body, { path, secret: null, headers: { [name]: value } })).status).toBe(200)
    }
    expect((await sendRequest(stage, body, { path, secret: null, headers })).status).toBe(200)
  })

  it('is rejected next to a different key', async () => {
    const other = (await stage.gateway.keys.create({ name: 'other' })).value
    for (const value of ['wrong', other]) {
      for (const name of ['x-api-key', 'x-bf-vk']) {
        expectErrorResponse(await sendRequest(stage, body, { path, headers: { [name]: value } }), WRONG_KEY)
      }
      const twice = { authorization: undefined, 'x-api-key': stage.secret, 'x-bf-vk': value }
      expectErrorResponse(await sendRequest(stage, body, { path, secret: null, headers: twice }), WRONG_KEY)
    }
    expectNotCalled()
  })
})

describe('keys', () => {
  it('that are valid work during 200 concurrent requests with wrong keys', async () => {
    const wrong = Array.from({ length: 200 }, (_, index) =>
      sendRequest(stage, CHAT.body, { secret: `sk-bf-wrong-${index}` }),
    )
    const right = sendRequest(stage, CHAT.body)

    expect(new Set((await Promise.all(wrong)).map((reply) => reply.status))).toEqual(new Set([401]))
    expect((await right).status).toBe(200)
    expect((await sendRequest(stage, CHAT.body)).status).toBe(200)
    expect(stage.upstream.requests).toHaveLength(called + 2)
  })

  it.each(['/v1/models', '/v1/models/chat/large'])('are required for %s', async (path) => {
    expectErrorResponse(await sendRequest(stage, undefined, { method: 'GET', path, secret: null }), WRONG_KEY)
    expectErrorResponse(await sendRequest(stage, undefined, { method: 'GET', path, secret: 'wrong' }), WRONG_KEY)
    expect((await sendRequest(stage, undefined, { method: 'GET', path })).status).toBe(200)
  })

  it('are rejected if inactive', async () => {
    const { value } = await stage.gateway.keys.create({ name: 'inactive', is_active: false })
    expectErrorResponse(await sendRequest(stage, CHAT.body, { secret: value }), WRONG_KEY)
    expectNotCalled()
  })

  it('are rejected if expired', async () => {
    const { value } = await stage.gateway.keys.create({ name: 'expired', expires_at: '2020-01-01T00:00:00Z' })
    expectErrorResponse(await sendRequest(stage, CHAT.body, { secret: value }), WRONG_KEY)
    expectNotCalled()
  })
})

describe('headers', () => {
  const CURIOUS = {
    cookie: 'session=caller-secret',
    'x-forwarded-for': '127.0.0.1',
    'x-forwarded-host': 'evil.example',
    'x-real-ip': '127.0.0.1',
    'x-admin': 'true',
    'x-admin-key': 'caller-secret',
    'proxy-authorization': 'Basic caller-secret',
    'openai-organization': 'caller-secret',
    'x-goog-api-key': 'caller-secret',
    'x-custom': 'caller-secret',
    referer: 'https://caller.example/caller-secret',
    'user-agent': 'caller-secret',
  }

  it.each(ENDPOINTS)('of a caller do not reach the upstream ($name)', async ({ path, body }) => {
    expect((await sendRequest(stage, body, { path, headers: CURIOUS })).status).toBe(200)

    const { headers } = stage.upstream.last
    expect(JSON.stringify(headers)).not.toMatch(/caller|evil|127\.0\.0\.1"/)
    expect(JSON.stringify(headers)).not.toContain(stage.secret)
    const known = ['host', 'connection', 'content-type', 'content-length', 'accept', 'accept-encoding']
    const own = ['authorization', 'x-api-key', 'anthropic-version']
    expect(Object.keys(headers).filter((name) => !known.includes(name) && !own.includes(name))).toEqual([])
  })

  it.each(ENDPOINTS)('of an upstream do not reach the caller ($name)', async ({ path, body }) => {
    const headers = {
      'set-cookie': ['a=upstream-secret', 'b=2'],
      'x-api-key': 'upstream-secret',
      'access-control-allow-origin': '*',
      'content-security-policy': 'upstream-secret',
      'x-svc-billed-amount': '$999.000000',
      'x-svc-strategy': 'upstream-secret',
      'x-ratelimit-remaining': '7',
      'anthropic-ratelimit-requests-remaining': '7',
      'openai-organization': 'upstream-secret',
      'x-request-id': 'upstream-secret',
      location: 'http://upstream-secret',
      server: 'upstream-secret',
      'strict-transport-security': 'max-age=1',
      link: '<x>; rel=preload',
    }
    const message = {
      type: 'message',
      role: 'assistant',
      id: 'x',
      model: 'large',
      content: [{ type: 'text', text: 'Hi' }],
      stop_reason: 'end_turn',
      usage: { input_tokens: 1, output_tokens: 1 },
    }
    const chat = {
      id: 'x',
      choices: [{ index: 0, message: { role: 'assistant', content: 'Hi' }, finish_reason: 'stop' }],
    }
    for (const status of [200, 400, 429, 500]) {
      stage.upstream.reply = () => ({ kind: 'json', value: path === MESSAGE.path ? message : chat, status, headers })
      const reply = await sendRequest(stage, body, { path })

      expect(JSON.stringify(reply.headers)).not.toContain('upstream-secret')
      expect(reply.headers).not.toHaveProperty('set-cookie')
      expect(reply.headers).not.toHaveProperty('access-control-allow-origin')
      expect(reply.headers).not.toHaveProperty('link')
      expect(reply.headers['x-ratelimit-remaining']).not.toBe('7')
      expect(reply.headers['x-svc-billed-amount']).not.toBe('$999.000000')
    }
  })

  it.each(ENDPOINTS)('of an event stream of an upstream do not reach the caller ($name)', async ({ path, body }) => {
    stage.upstream.reply = (request) => ({
      kind: 'by-hand',
      response: (response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream', 'set-cookie': 'a=1', 'x-svc-cache': 'HIT' })
        response.end(
          request.dialect === 'chat'
            ? 'data: {"id":"x","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
            : 'event: message_start\ndata: {"type":"message_start","message":{"id":"x","type":"message","role":"assistant","content":[],"model":"large","usage":{"input_tokens":1,"output_tokens":1}}}\n\nevent: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Hi"}}\n\nevent: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\nevent: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n',
        )
      },
    })
    const reply = await sendRequest(stage, { ...body, stream: true }, { path })

    expect(reply.status).toBe(200)
    expect(reply.headers).not.toHaveProperty('set-cookie')
    expect(reply.headers['x-svc-cache']).toBe('MISS')
  })

  it.each([
    ['x-vanishing-context', ['maybe', '', '1', 'TRUE', '__proto__', 'x'.repeat(6_000)]],
    ['x-svc-rlm', ['maybe', '', '0', 'constructor', 'x'.repeat(6_000)]],
    ['x-savings-level', ['turbo', '', '__proto__', 'constructor', 'x'.repeat(6_000)]],
    ['vendor-version', ['', 'junk', '1999-01-01', '__proto__', 'x'.repeat(6_000)]],
    ['anthropic-version', ['', 'junk', '1999-01-01', '__proto__']],
    ['x-request-id', ['mine', 'x'.repeat(6_000), '<script>']],
    ['cache-control', ['no-store', 'junk, , =', 'x'.repeat(6_000)]],
    ['accept', ['text/html', 'junk', '']],
    ['accept-encoding', ['gzip, br', '*;q=0', 'junk']],
    ['range', ['bytes=0-1']],
    ['if-none-match', ['*']],
    ['idempotency-key', ['x'.repeat(6_000)]],
  ])('called %s with arbitrary values are ignored or rejected, never a 500', async (name, values) => {
    for (const { path, body } of ENDPOINTS) {
      for (const value of values) {
        const reply = await sendRequest(stage, body, { path, headers: { [name]: value } })
        expect(reply.status, `${name}: ${value.slice(0, 20)}`).toBeOneOf([200, 400])
        expect(reply.headers['x-request-id']).toMatch(/^req_[0-9a-f]{32}$/)
        expect(reply.headers).not.toHaveProperty('content-encoding')
      }
    }
  })

  it('of a foreign host or origin are not reflected', async () => {
    const hostile = {
      host: 'evil.example',
      origin: 'https://evil.example',
      'x-forwarded-host': 'evil.example',
      forwarded: 'host=evil.example',
    }
    for (const { path, body } of ENDPOINTS) {
      for (const sent of [body, 'no JSON']) {
        const reply = await sendRequest(stage, sent, { path, headers: hostile })
        expect(reply.text + JSON.stringify(reply.headers)).not.toContain('evil')
        expect(reply.headers).not.toHaveProperty('access-control-allow-credentials')
      }
    }
    expect(stage.upstream.last.headers['host']).toBe(stage.upstream.url.slice('http://'.length))
  })
})

describe('no part of a request chooses the upstream address', () => {
  const visits: string[] = []
  let canary: Server
  let address = ''
  beforeAll(async () => {
    canary = createServer((incoming, response) => {
      visits.push(incoming.url ?? '')
      response.end('{}')
    })
    await new Promise<void>((resolve) => void canary.listen(0, '127.0.0.1', resolve))
    address = `http://127.0.0.1:${(canary.address() as AddressInfo).port}`
  })
  afterAll(() => canary.close())

  it('none of fourteen headers', async () => {
    const names = [
      'x-base-url',
      'x-custom-host',
      'x-portkey-custom-host',
      'x-upstream-url',
      'x-target-url',
      'x-openai-base-url',
      'x-forwarded-host',
      'x-original-url',
      'x-rewrite-url',
      'x-host',
      'x-proxy-url',
      'api-base',
      'openai-api-base',
      'destination',
    ]
    for (const { path, body } of ENDPOINTS) {
      const headers = Object.fromEntries(names.map((name) => [name, address]))
      expect((await sendRequest(stage, body, { path, headers })).status).toBe(200)
    }
    expect(visits).toEqual([])
    expect(stage.upstream.requests).toHaveLength(called + 2)
  })

  it('none of seventeen body fields', async () => {
    const names = [
      'base_url',
      'baseUrl',
      'api_base',
      'api_url',
      'endpoint',
      'host',
      'hostname',
      'url',
      'proxy',
      'custom_host',
      'upstream',
      'target',
      'provider',
      'config',
      'webhook',
      'callback_url',
      'fallbacks',
    ]
    for (const { path, body } of ENDPOINTS) {
      for (const name of names) {
        const reply = await sendRequest(stage, { ...body, [name]: address }, { path })
        // In the chat format, models and hosts that a router may call instead.
        expect({ fallbacks: [200, 404], provider: [200, 400] }[name] ?? [200]).toContain(reply.status)
      }
    }
    expect(visits).toEqual([])
    const paths = new Set(stage.upstream.requests.slice(called).map((request) => request.path))
    expect(paths).toEqual(new Set(['/v1/chat/completions', '/v1/messages']))
  })

  it('not the path, the query or the model', async () => {
    const { host } = new URL(address)
    const paths = [
      `/${address}/v1/chat/completions`,
      `//${host}/v1/chat/completions`,
      `/v1/proxy/${host}`,
      `/v1/chat/completions?base_url=${address}`,
      `/v1/messages?url=${address}`,
      `/proxy?url=${address}`,
      `/v1/chat/completions/@${host}`,
      `/v1/chat/completions/..;/${host}`,
    ]
    for (const path of paths) expect((await sendRequest(stage, CHAT.body, { path })).status).toBeOneOf([200, 400, 404])
    for (const model of [
      `chat/large@${host}`,
      `${address}/large`,
      `chat/${address}`,
      `//${host}/large`,
      `openai@${host}/large`,
    ]) {
      expect((await sendRequest(stage, { ...CHAT.body, model })).status).toBeOneOf([400, 404])
    }
    const absolute = await sendRawBytes(stage, [
      `POST ${address}${CHAT.path} HTTP/1.1\r\nhost: ${host}\r\nconnection: close\r\n${authorizationLine(stage)}${TYPE}${LENGTH}\r\n${json}`,
    ])
    expect(parseStatuses(absolute)).toHaveLength(1)
    expect(visits).toEqual([])
  })

  it('not the URL of an image, which the gateway does not fetch', async () => {
    const chat = {
      ...CHAT.body,
      messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: `${address}/image` } }] }],
    }
    const message = {
      ...MESSAGE.body,
      messages: [{ role: 'user', content: [{ type: 'image', source: { type: 'url', url: `${address}/image` } }] }],
    }

    for (const model of [CHAT.model, MESSAGE.model]) {
      expect((await sendRequest(stage, { ...chat, model })).status).toBe(200)
      expect((await sendRequest(stage, { ...message, model }, { path: MESSAGE.path })).status).toBe(200)
    }
    expect(visits).toEqual([])
  })

  it.each([301, 302, 303, 307, 308])('not an upstream that redirects with %i', async (status) => {
    const own = await startStage({ runtime: { random: () => 0 } })
    own.upstream.reply = () => ({ kind: 'json', value: {}, status, headers: { location: `${address}/moved` } })
    for (const { path, body } of ENDPOINTS) {
      const reply = await sendRequest(own, body, { path })
      expectErrorResponse(reply, { status: 502, type: 'upstream_error' })
      expect(reply.text + JSON.stringify(reply.headers)).not.toContain(new URL(address).host)
    }
    expect(visits).toEqual([])
    await own.close()
  })
})

describe('framing', () => {
  const chunked = 'transfer-encoding: chunked\r\n'
  const smuggled = `GET /v1/models HTTP/1.1\r\nhost: x\r\n${'x: y\r\n'}\r\n`

  it.each<[string, string, string]>([
    ['both Content-Length and Transfer-Encoding', LENGTH + chunked, `0\r\n\r\n${smuggled}`],
    ['two different lengths', `${LENGTH}content-length: 5\r\n`, json],
    ['two lengths in one header', `content-length: ${json.length}, 5\r\n`, json],
    ['the length +5', 'content-length: +5\r\n', json],
    ['the length -1', 'content-length: -1\r\n', json],
    ['the length 0x5', 'content-length: 0x5\r\n', json],
    ['the length 5 5', 'content-length: 5 5\r\n', json],
    ['a length without a value', 'content-length: \r\n', json],
    ['an unknown transfer coding', 'transfer-encoding: junk\r\n', json],
    ['chunked that is not the last coding', 'transfer-encoding: chunked, identity\r\n', `0\r\n\r\n${smuggled}`],
    ['two transfer codings in two headers', `${chunked}transfer-encoding: identity\r\n`, `0\r\n\r\n${smuggled}`],
    ['a folded header', `${LENGTH}x-folded: a\r\n b\r\n`, json],
    ['a blank before the colon', `content-length : ${json.length}\r\n`, json],
    ['a header without a colon', `${LENGTH}nothing\r\n`, json],
    ['a header without a name', `${LENGTH}: x\r\n`, json],
    ['NUL in a header', `${LENGTH}x-nul: a\0b\r\n`, json],
    ['a control character in a header', `${LENGTH}x-control: a\u0001b\r\n`, json],
    ['a bare CR in a header', `${LENGTH}x-cr: a\rb: c\r\n`, json],
    ['a chunk size with a sign', chunked, `+5\r\nhello\r\n0\r\n\r\n${smuggled}`],
    ['a chunk size in the wrong base', chunked, `0x5\r\nhello\r\n0\r\n\r\n${smuggled}`],
    ['a chunk size out of range', chunked, `ffffffffffffffffff\r\nhello\r\n0\r\n\r\n${smuggled}`],
    ['a chunk without its end', chunked, `5\r\nhelloXX0\r\n\r\n${smuggled}`],
    ['a negative chunk size', chunked, `-1\r\nhello\r\n0\r\n\r\n${smuggled}`],
    ['a header of 17 KB', `${LENGTH}x-long: ${'x'.repeat(17_000)}\r\n`, json],
  ])('with %s receives one error response without an upstream call', async (_, lines, body) => {
    const text = await send(lines, body)

    expect(parseStatuses(text).length).toBeLessThanOrEqual(1)
    expect(parseStatuses(text)[0] ?? 400).toBeOneOf([400, 408, 411, 413, 415, 431, 501])
    expectNotCalled()
  })

  it('with 3,000 headers receives one response', async () => {
    const text = await send(LENGTH + Array.from({ length: 3_000 }, (_, index) => `x-${index}: y\r\n`).join(''))

    expect(parseStatuses(text)).toHaveLength(1)
    expect(parseStatuses(text)[0]).toBeOneOf([200, 400, 431])
  })

  it('with the key as the 300th header is unauthenticated', async () => {
    const many = Array.from({ length: 300 }, (_, index) => `x-${index}: y\r\n`).join('')
    const text = await sendRawBytes(stage, [
      `${START}connection: close\r\n${TYPE}${LENGTH}${many}${authorizationLine(stage)}\r\n`,
      json,
    ])

    expect(parseStatuses(text)[0]).toBeOneOf([400, 401, 415, 431])
    expectNotCalled()
  })

  it.each([
    [
      'a WebSocket',
      'connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: x\r\nsec-websocket-version: 13\r\n',
    ],
    [
      'HTTP/2 without TLS',
      'connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n',
    ],
  ])('that requests an upgrade to %s is answered over HTTP', async (_, lines) => {
    const text = await sendRawBytes(
      stage,
      [`${START}${authorizationLine(stage)}${TYPE}${lines}${LENGTH}\r\n`, json],
      (got) => got.includes('\r\n\r\n'),
    )

    expect(parseStatuses(text)).toHaveLength(1)
    expect(parseStatuses(text)[0]).toBeOneOf([200, 400, 426, 501])
  })

  it('with Expect: 100-continue receives 100, then the answer', async () => {
    const text = await send(`${LENGTH}expect: 100-continue\r\n`)
    expect(parseStatuses(text)).toEqual([100, 200])
  })

  it('with an unknown expectation receives one response', async () => {
    const text = await send(`${LENGTH}expect: 200-maybe\r\n`)
    expect(parseStatuses(text)).toHaveLength(1)
    expect(parseStatuses(text)[0]).toBeOneOf([200, 417])
  })

  it('with CONNECT opens no tunnel', async () => {
    const { host } = new URL(stage.upstream.url)
    const text = await sendRawBytes(stage, [
      `CONNECT ${host} HTTP/1.1\r\nhost: ${host}\r\n${authorizationLine(stage)}\r\n`,
      'GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n',
    ])

    expect(parseStatuses(text)).not.toContain(200)
    expectNotCalled()
  })

  it.each([
    'GET / HTTP/3.0\r\n\r\n',
    'nonsense\r\n\r\n',
    '\0\0\0\0\r\n\r\n',
    'GET /v1/models\r\n\r\n',
    '\u0016\u0003\u0001\u0002\0\u0001\0\u0001\u00fc\u0003\u0003\r\n\r\n',
    'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
  ])('that is invalid (%j) is rejected, and the connection is closed', async (bytes) => {
    const text = await sendRawBytes(stage, [bytes])
    expect(parseStatuses(text).every((status) => status >= 400)).toBe(true)
    expect((await sendRequest(stage, undefined, { method: 'GET', path: '/health' })).status).toBe(200)
  })

  it('in one packet with others is answered in order', async () => {
    const one = (content: string, close: boolean): string => {
      const body = JSON.stringify({ ...CHAT.body, messages: [{ role: 'user', content }] })
      return `${START}${authorizationLine(stage)}${TYPE}content-length: ${body.length}\r\n${close ? 'connection: close\r\n' : ''}\r\n${body}`
    }
    stage.upstream.reply = async (request) => {
      const [message] = request.body['messages'] as { content: string }[]
      return `answer ${message?.content}`
    }
    const text = await sendRawBytes(stage, [one('first', false) + one('second', false) + one('third', true)])

    expect(parseStatuses(text)).toEqual([200, 200, 200])
    expect([...text.matchAll(/answer (\w+)/g)].map((match) => match[1])).toEqual(['first', 'second', 'third'])
  })

  it('of 200 incomplete requests does not block other requests', async () => {
    const slow = Array.from({ length: 200 }, () => {
      let release = (): void => {}
      const done = sendRawBytes(stage, [
        START,
        () => new Promise<void>((resolve) => (release = resolve)),
        'connection: close\r\n\r\n',
      ])
      return { done, release: () => release() }
    })
    const health = await sendRequest(stage, undefined, { method: 'GET', path: '/health' })
    const response = await sendRequest(stage, CHAT.body)
    for (const { release } of slow) release()
    const replies = await Promise.all(slow.map(({ done }) => done))

    expect(health.status).toBe(200)
    expect(response.status).toBe(200)
    expect(replies.every((text) => parseStatuses(text).every((status) => status >= 400))).toBe(true)
  })
})
