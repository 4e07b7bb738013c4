import { gzipSync } from 'node:zlib'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { Json, JsonObject } from '../../src/core/json.ts'
import {
  responseText,
  sendRequest,
  FORMAT_PAIRS,
  CHAT,
  expectErrorResponse,
  ENDPOINTS,
  MESSAGE,
  type Endpoint,
} from '../support/send-request.ts'
import { startStage, type Stage, type StageOptions } from '../support/stage.ts'
import { gate, type Reply } from '../support/upstream.ts'
import { everyNth } from '../support/full.ts'

const PAIRS = everyNth(3, FORMAT_PAIRS)

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()))
})

/** Starts a stage whose retries are immediate. */
async function startOne(reply: Reply, options: StageOptions = {}): Promise<Stage> {
  const stage = await startStage({ reply: () => reply, runtime: { random: () => 0 }, ...options })
  stages.push(stage)
  return stage
}

const BROKEN = { status: 502, type: 'upstream_error' }

async function expectBroken(
  reply: Reply,
  more: { readonly stream: boolean },
  options: StageOptions = {},
): Promise<void> {
  for (const { path, body } of ENDPOINTS) {
    const stage = await startOne(reply, options)
    const response = await sendRequest(stage, { ...body, ...more }, { path })
    expectErrorResponse(response, BROKEN)
    expect(response.text).not.toContain(new URL(stage.upstream.url).host)
    expect(stage.upstream.requests.length).toBeLessThanOrEqual(3)
    await stages.pop()?.close()
  }
}

describe('a status of the upstream', () => {
  it.each([
    [400, 400, 'invalid_request_error', 1],
    [401, 502, 'upstream_error', 1],
    [402, 502, 'upstream_error', 1],
    [403, 502, 'upstream_error', 1],
    [404, 404, 'invalid_request_error', 1],
    [405, 502, 'upstream_error', 3],
    [409, 409, 'invalid_request_error', 1],
    [413, 413, 'invalid_request_error', 1],
    [418, 502, 'upstream_error', 3],
    [422, 422, 'invalid_request_error', 1],
    [429, 429, 'rate_limit_error', 3],
    [500, 502, 'upstream_error', 3],
    [502, 502, 'upstream_error', 3],
    [503, 503, 'overloaded_error', 3],
    [504, 504, 'upstream_error', 3],
    [529, 503, 'overloaded_error', 3],
    [599, 502, 'upstream_error', 3],
  ])('of %i becomes %i %s after at most %4$i attempts', async (status, expected, type, tries) => {
    for (const stream of [false, true]) {
      for (const { path, body } of PAIRS) {
        const stage = await startOne({ kind: 'failure', status })
        expectErrorResponse(await sendRequest(stage, { ...body, stream }, { path }), { status: expected, type })
        expect(stage.upstream.requests.length).toBeLessThanOrEqual(tries)
        await stages.pop()?.close()
      }
    }
  })

  it.each([199, 201, 204, 205, 206, 226, 304, 600, 700, 999])('of %i is a broken upstream', async (status) => {
    for (const stream of [false, true]) {
      await expectBroken({ kind: 'socket', bytes: `HTTP/1.1 ${status} Odd\r\ncontent-length: 0\r\n\r\n` }, { stream })
    }
  })

  it('of 101 opens no connection', async () => {
    await expectBroken(
      { kind: 'socket', bytes: 'HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n' },
      { stream: false },
    )
  })

  it.each(['7', '3600', 'Wed, 21 Oct 2099 07:28:00 GMT'])('of 429 keeps its Retry-After of %s', async (wait) => {
    for (const { path, body } of PAIRS) {
      const stage = await startOne({ kind: 'failure', status: 429, headers: { 'retry-after': '3600' } })
      stage.upstream.reply = () => ({
        kind: 'failure',
        status: 429,
        headers: { 'retry-after': wait, 'x-should-retry': 'false' },
      })
      const reply = await sendRequest(stage, body, { path })

      expectErrorResponse(reply, { status: 429, type: 'rate_limit_error', code: 'upstream_rate_limited' })
      expect(reply.headers['retry-after']).toBe(wait)
      await stages.pop()?.close()
    }
  })

  it.each(['-1', 'soon', '1e9', '9'.repeat(200), '', 'NaN'])(
    'of 429 with the Retry-After %j remains 429',
    async (wait) => {
      const stage = await startOne({
        kind: 'failure',
        status: 429,
        headers: { 'retry-after': wait, 'x-should-retry': 'false' },
      })
      expectErrorResponse(await sendRequest(stage, CHAT.body), { status: 429, type: 'rate_limit_error' })
    },
  )

  it('that reports a fault of the caller keeps its message, type and code', async () => {
    const failure = {
      message: 'max_tokens is too large for this model.',
      type: 'invalid_request_error',
      code: 'too_large',
      param: 'max_tokens',
    }
    const stage = await startOne({ kind: 'failure', status: 400, failure })
    const reply = await sendRequest(stage, CHAT.body)

    expect(reply.status).toBe(400)
    expect(reply.error).toMatchObject(failure)
  })
})

describe('an answer of the upstream', () => {
  const deep = `{"id":"x","choices":${'['.repeat(100_000)}${']'.repeat(100_000)}}`

  it.each<[string, Reply]>([
    [
      'in HTML',
      { kind: 'body', body: '<html><body>502 Bad Gateway</body></html>', headers: { 'content-type': 'text/html' } },
    ],
    ['that is reset', { kind: 'cut' }],
    ['of cut JSON', { kind: 'body', body: '{"id":"x","choices":[{"index":0,"mess' }],
    ['of nothing', { kind: 'body', body: '' }],
    ['null', { kind: 'json', value: null }],
    ['[]', { kind: 'json', value: [] }],
    ['"text"', { kind: 'json', value: 'text' }],
    ['5', { kind: 'json', value: 5 }],
    ['{}', { kind: 'json', value: {} }],
    ['with an error and status 200', { kind: 'json', value: { error: { message: 'sorry', type: 'server_error' } } }],
    ['100,000 levels deep', { kind: 'body', body: deep }],
    ['in two documents', { kind: 'body', body: '{}{}' }],
    [
      'that is shorter than announced',
      {
        kind: 'socket',
        bytes: 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{"id":',
      },
    ],
    ['that is no HTTP', { kind: 'socket', bytes: 'SSH-2.0-OpenSSH_9.6\r\n\r\n' }],
    [
      'with 200 KB of headers',
      { kind: 'socket', bytes: `HTTP/1.1 200 OK\r\nx: ${'y'.repeat(200_000)}\r\ncontent-length: 2\r\n\r\n{}` },
    ],
    [
      'with two lengths',
      { kind: 'socket', bytes: 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{} ' },
    ],
    [
      'with a broken chunk',
      { kind: 'socket', bytes: 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n' },
    ],
    [
      'with 1,000 content codings',
      {
        kind: 'json',
        value: {},
        headers: { 'content-encoding': Array.from({ length: 1000 }, () => 'gzip').join(', ') },
      },
    ],
    [
      'that is a gzip bomb',
      { kind: 'body', body: gzipSync(Buffer.alloc(50_000_000)), headers: { 'content-encoding': 'gzip' } },
    ],
  ])('%s is a broken upstream', async (_, reply) => {
    await expectBroken(reply, { stream: false })
    await expectBroken(reply, { stream: true })
  })

  it.each<[string, JsonObject]>([
    ['no choices', { choices: [] }],
    ['choices of null', { choices: [null] }],
    ['choices that are an object', { choices: {} }],
    ['a message that is a text', { choices: [{ index: 0, message: 'Hi', finish_reason: 'stop' }] }],
    ['no message', { choices: [{ index: 0, finish_reason: 'stop' }] }],
  ])('of the chat format with %s is a broken upstream', async (_, value) => {
    for (const endpoint of ENDPOINTS) {
      const stage = await startOne({
        kind: 'json',
        value: { id: 'x', object: 'chat.completion', model: 'large', ...value },
      })
      expectErrorResponse(
        await sendRequest(stage, { ...endpoint.body, model: CHAT.model }, { path: endpoint.path }),
        BROKEN,
      )
    }
  })

  it.each<[string, JsonObject]>([
    ['no content', {}],
    ['content of null', { content: null }],
    ['content that is a text', { content: 'Hi' }],
    ['blocks of null', { content: [null] }],
    ['a block without a type', { content: [{ text: 'Hi' }] }],
    ['a text that is a number', { content: [{ type: 'text', text: 5 }] }],
  ])('of the message format with %s is a broken upstream', async (_, value) => {
    for (const endpoint of ENDPOINTS) {
      const stage = await startOne({
        kind: 'json',
        value: { id: 'x', type: 'message', role: 'assistant', model: 'large', stop_reason: 'end_turn', ...value },
      })
      expectErrorResponse(
        await sendRequest(stage, { ...endpoint.body, model: MESSAGE.model }, { path: endpoint.path }),
        BROKEN,
      )
    }
  })

  it('larger than 32 MiB is aborted', async () => {
    let written = 0
    const stage = await startOne(
      {
        kind: 'by-hand',
        response: async (response) => {
          response.writeHead(200, { 'content-type': 'application/json' })
          const piece = Buffer.alloc(1_000_000, 0x20)
          while (written < 200 && !response.destroyed) {
            written += 1
            if (!response.write(piece))
              await new Promise((resolve) => response.once('drain', resolve).once('close', resolve))
          }
          response.end('{}')
        },
      },
      { runtime: { random: () => 0 } },
    )
    expectErrorResponse(await sendRequest(stage, CHAT.body), BROKEN)
    expect(written).toBeLessThan(3 * 60)
  })

  it.each(ENDPOINTS)('may contain the key __proto__ without any effect ($name)', async ({ path, body, name }) => {
    const poison =
      '"__proto__":{"polluted":1,"usage":{"prompt_tokens":999999}},"constructor":{"prototype":{"polluted":1}}'
    const chat = `{${poison},"id":"x","object":"chat.completion","model":"large","choices":[{"index":0,"message":{"role":"assistant","content":"Hi","__proto__":{"polluted":1}},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":1,"__proto__":{"prompt_tokens":7}}}`
    const message = `{${poison},"id":"x","type":"message","role":"assistant","model":"large","content":[{"type":"text","text":"Hi","__proto__":{"polluted":1}}],"stop_reason":"end_turn","usage":{"input_tokens":5,"output_tokens":1}}`
    const stage = await startOne({ kind: 'body', body: name === 'chat' ? chat : message })
    const reply = await sendRequest(stage, body, { path })

    expect(responseText(reply)).toBe('Hi')
    expect(reply.headers['x-svc-original-tokens']).toBe('5')
    expect({}).not.toHaveProperty('polluted')
  })
})

describe('tries', () => {
  it.each(PAIRS)('are at most three, and the third may answer ($name)', async ({ path, body }) => {
    for (const stream of [false, true]) {
      const stage = await startOne('unused')
      stage.upstream.reply = ({ index }) => (index < 2 ? { kind: 'failure', status: 500 } : 'At last.')
      const reply = await sendRequest(stage, { ...body, stream }, { path })

      expect(reply.status).toBe(200)
      expect(reply.text).toContain('last.')
      expect(stage.upstream.requests).toHaveLength(3)
      await stages.pop()?.close()
    }
  })

  it('send the same body', async () => {
    const stage = await startOne('unused')
    stage.upstream.reply = ({ index }) => (index < 2 ? { kind: 'cut' } : 'At last.')
    await sendRequest(stage, CHAT.body)

    const [first, ...others] = stage.upstream.requests
    expect(others.length).toBeGreaterThan(0)
    for (const other of others) expect([other.text, other.headers]).toEqual([first?.text, first?.headers])
  })

  it('end when the caller leaves', async () => {
    const controller = new AbortController()
    const stage = await startOne('unused', { runtime: { random: () => 0.999 } })
    stage.upstream.reply = () => ({ kind: 'failure', status: 500 })
    const reply = sendRequest(stage, CHAT.body, { signal: controller.signal })
    await stage.upstream.waitForRequest(1)
    controller.abort()

    await expect(reply).rejects.toThrow()
    expect((await sendRequest(stage, undefined, { method: 'GET', path: '/health' })).status).toBe(200)
    expect(stage.upstream.requests.length).toBeLessThanOrEqual(2)
  })
})

describe('a slow upstream', () => {
  const timeouts = { firstByteMs: 60, idleMs: 60, totalMs: 120 }

  it.each(PAIRS)('that sends nothing ends with 504 ($name)', async ({ path, body }) => {
    for (const stream of [false, true]) {
      const stage = await startOne({ kind: 'hang' }, { timeouts })
      const reply = await sendRequest(stage, { ...body, stream }, { path })

      expectErrorResponse(reply, { status: 504, type: 'upstream_error', code: 'upstream_timeout' })
      await stage.upstream.last.aborted
      await stages.pop()?.close()
    }
  })

  it.each(ENDPOINTS)('that stalls in its body ends with 504 ($name)', async ({ path, body }) => {
    const stage = await startOne(
      {
        kind: 'by-hand',
        response: (response) => {
          response.writeHead(200, { 'content-type': 'application/json' })
          response.write('{"id":')
        },
      },
      { timeouts },
    )

    expectErrorResponse(await sendRequest(stage, body, { path }), { status: 504, type: 'upstream_error' })
    await stage.upstream.last.aborted
  })

  it('that never ends is aborted after timeouts.totalMs', async () => {
    const stage = await startOne(
      {
        kind: 'by-hand',
        response: (response) => {
          response.writeHead(200, { 'content-type': 'application/json' })
          const timer = setInterval(() => response.write(' '), 5)
          response.once('close', () => clearInterval(timer))
        },
      },
      { timeouts: { totalMs: 1_000 } },
    )

    expectErrorResponse(await sendRequest(stage, CHAT.body), { status: 504, type: 'upstream_error' })
    await stage.upstream.last.aborted
  })

  it('with 200 requests that hang does not block other requests', async () => {
    const release = gate()
    const stage = await startOne('unused')
    stage.upstream.reply = async (request) => {
      if (request.text.includes('slow')) await release.opened
      return 'Done.'
    }
    const slow = Array.from({ length: 200 }, () => sendRequest(stage, { ...CHAT.body, user: 'slow' }))
    await stage.upstream.waitForRequest(200)

    expect((await sendRequest(stage, CHAT.body)).status).toBe(200)
    expect((await sendRequest(stage, MESSAGE.body, { path: MESSAGE.path })).status).toBe(200)
    release.open()
    expect(new Set((await Promise.all(slow)).map((reply) => reply.status))).toEqual(new Set([200]))
  })

  it('that fails for 200 concurrent requests causes 200 responses', async () => {
    const stage = await startOne({ kind: 'failure', status: 500 })
    const replies = await Promise.all(Array.from({ length: 200 }, () => sendRequest(stage, CHAT.body)))

    expect(new Set(replies.map((reply) => reply.status))).toBeOneOf([
      new Set([502]),
      new Set([502, 503]),
      new Set([503]),
    ])
    expect(stage.upstream.requests.length).toBeLessThanOrEqual(3 * 200)
  })
})

describe('a caller who disconnects', () => {
  it.each(PAIRS)('before the answer closes the call to the upstream ($name)', async ({ path, body }) => {
    for (const stream of [false, true]) {
      const stage = await startOne({ kind: 'hang' })
      const controller = new AbortController()
      const reply = sendRequest(stage, { ...body, stream }, { path, signal: controller.signal })
      const request = await stage.upstream.waitForRequest(1)
      controller.abort()

      await expect(reply).rejects.toThrow()
      await request.aborted
      expect(stage.upstream.requests).toHaveLength(1)
      await stages.pop()?.close()
    }
  })

  it('a hundred times concurrently closes a hundred calls', async () => {
    const stage = await startOne({ kind: 'hang' })
    const controller = new AbortController()
    const replies = Array.from({ length: 100 }, (_, index) =>
      sendRequest(stage, { ...CHAT.body, stream: index % 2 === 0 }, { signal: controller.signal }),
    )
    const left = Promise.allSettled(replies)
    await stage.upstream.waitForRequest(100)
    controller.abort()

    await left
    await Promise.all(stage.upstream.requests.map((request) => request.aborted))
    stage.upstream.reply = () => 'Still here.'
    expect((await sendRequest(stage, CHAT.body)).status).toBe(200)
  })
})

describe('the usage that an upstream reports', () => {
  let stage: Stage
  beforeAll(async () => {
    stage = await startStage({ key: { name: 'counted', budget_limit_cents: 900_000_000 } })
  })
  afterAll(() => stage.close())

  const odd: readonly Json[] = [-5, 1e300, 1e15, '7', null, [], {}, 1.5, true, '', '1e9']
  const fieldsOf = ({ name }: Endpoint): readonly [string, string] =>
    name === 'chat' ? ['prompt_tokens', 'completion_tokens'] : ['input_tokens', 'output_tokens']

  it.each(ENDPOINTS)('may be invalid: the bill is a number and the key remains usable ($name)', async (endpoint) => {
    const [input, output] = fieldsOf(endpoint)
    const usages: readonly (JsonObject | null)[] = [
      null,
      {},
      ...odd.map((value) => ({ [input]: value, [output]: value })),
      ...odd.map((value) => ({ [input]: 10, [output]: value })),
      ...odd.map((value) => ({ [input]: value, [output]: 10 })),
      ...odd.map((value) => ({
        [input]: 10,
        [output]: 5,
        total_tokens: value,
        prompt_tokens_details: value,
        completion_tokens_details: { reasoning_tokens: value },
        cache_read_input_tokens: value,
        cache_creation_input_tokens: value,
        cache_creation: { ephemeral_1h_input_tokens: value },
      })),
    ]
    for (const usage of usages) {
      for (const stream of [false, true]) {
        stage.upstream.reply = () => ({ text: 'Hello there.', usage })
        const reply = await sendRequest(stage, { ...endpoint.body, stream }, { path: endpoint.path })

        const usageText = JSON.stringify(usage)
        expect(reply.status, usageText).toBe(200)
        expect(JSON.stringify(reply.headers), usageText).not.toMatch(/NaN|Infinity|undefined|e\+/)
        expect(reply.headers['x-svc-billed-amount'], usageText).toMatch(/^\$\d+\.\d{6}$/)
        expect(Number(reply.headers['x-svc-billed-amount']?.slice(1)), usageText).toBeLessThan(10_000)
        expect(reply.text, usageText).not.toMatch(/NaN|Infinity|:null\.|undefined/)
      }
    }
    const used = await stage.gateway.keys.usage(stage.keyId)
    expect(Number.isSafeInteger(used.currentUsageCents)).toBe(true)
    stage.upstream.reply = () => 'Hello.'
    expect((await sendRequest(stage, endpoint.body, { path: endpoint.path })).status).toBe(200)
  })

  it.each(ENDPOINTS)('is ignored if it is out of range ($name)', async (endpoint) => {
    const [input, output] = fieldsOf(endpoint)
    const usage = `"usage":{"${input}":1e999,"${output}":-1e999}`
    const body =
      endpoint.name === 'chat'
        ? `{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],${usage}}`
        : `{"id":"x","type":"message","role":"assistant","model":"large","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn",${usage}}`
    stage.upstream.reply = () => ({ kind: 'body', body })
    const reply = await sendRequest(stage, endpoint.body, { path: endpoint.path })

    expect(reply.status).toBe(200)
    expect(reply.headers['x-svc-estimated']).toBe('true')
    expect(Number(reply.headers['x-svc-billed-amount']?.slice(1))).toBeLessThan(1)
    expect(Number(reply.headers['x-svc-billed-amount']?.slice(1))).toBeGreaterThan(0)
  })
})
