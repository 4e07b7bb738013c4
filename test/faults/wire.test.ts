import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import { sendRequest, ENDPOINTS, RESPONSES_FORMAT_PAIRS, type Reply } from '../support/send-request.ts'
import { startStage, type Stage } from '../support/stage.ts'
import { everyNth } from '../support/full.ts'

let stage: Stage
let called: number
beforeAll(async () => {
  stage = await startStage()
})
beforeEach(() => {
  called = stage.upstream.requests.length
})
afterAll(() => stage.close())

const MB = 1024 * 1024
const allEndpoints = [...ENDPOINTS, ...RESPONSES_FORMAT_PAIRS]

/** Serializes a body with one additional field. */
function withField(body: JsonObject, field: string): string {
  return JSON.stringify(body).replace(/\}$/, `,${field}}`)
}

function expectNotCalled(reply: Reply, message: RegExp): void {
  expect([reply.status, reply.error['type']]).toEqual([400, 'invalid_request_error'])
  expect(reply.error['message']).toMatch(message)
  expect(stage.upstream.requests).toHaveLength(called)
}

describe.each(everyNth(3, allEndpoints))('a body of 31 MB on the $name endpoint', ({ path, body }) => {
  it.each([
    ['numbers in an unknown field', () => `"x":[${'1,'.repeat(15.5 * MB)}1]`, /more than 500000 numbers/],
    ['strings in an unknown field', () => `"x":[${'"a",'.repeat(7 * MB)}1]`, /100000 keys and array elements/],
    ['blanks', () => `${' '.repeat(31 * MB)}"x":1`, /4194304 bytes outside its strings/],
    ['text in an unknown field', () => `"x":"${'Some words. '.repeat(2.5 * MB)}"`, /^prompt is too long/],
  ])('of %s is rejected before it is parsed', async (_, field, message) => {
    expectNotCalled(await sendRequest(stage, withField(body, field()), { path }), message)
  })
})

describe.each(everyNth(2, ENDPOINTS))('a prompt on the $name endpoint', ({ path, body }) => {
  const asking = (content: unknown): JsonObject => ({ ...body, messages: [{ role: 'user', content }] }) as JsonObject

  it('that far exceeds every context window is rejected, also if its text looks like base64', async () => {
    const reply = await sendRequest(stage, asking('abcd'.repeat(2.5 * MB)), { path })
    expectNotCalled(reply, /^prompt is too long: its text exceeds 8388608 bytes/)
  })

  it('of 30 MB of images is accepted', async () => {
    const data = 'iVBORw0K'.repeat(3.75 * MB)
    const image = path.includes('chat')
      ? { type: 'image_url', image_url: { url: `data:image/png;base64,${data}` } }
      : { type: 'image', source: { type: 'base64', media_type: 'image/png', data } }

    const reply = await sendRequest(stage, asking([image, { type: 'text', text: 'What is this?' }]), { path })

    expect(reply.status).toBe(200)
    expect(stage.upstream.last.text.length).toBeGreaterThan(30 * MB)
  })

  it('of 5,000 messages with 4 MB of text is accepted', async () => {
    const text = 'A line of a file.\n'.repeat(45)
    const messages = Array.from({ length: 5000 }, (_, index) => ({
      role: index % 2 === 0 ? 'user' : 'assistant',
      content: [{ type: 'text', text }],
    }))

    const sent = { ...body, messages: [...messages, ...messages.slice(0, 1)] }
    const reply = await sendRequest(stage, sent, { path, headers: { 'x-savings-level': 'off' } })

    expect(reply.status).toBe(200)
    expect(stage.upstream.last.text.length).toBeGreaterThan(4_000_000)
  })
})

describe('the limits of a body', () => {
  it('are options, and invalid values are rejected at the start', async () => {
    const small = await startStage({ limits: { promptBytes: 2000, jsonNumbers: 3, jsonSyntaxBytes: 500 } })
    const { body, path } = ENDPOINTS[0] ?? { body: {}, path: '' }
    const messageOf = async (field: string): Promise<unknown> =>
      (await sendRequest(small, withField(body, field), { path })).error['message']
    expect(await messageOf(`"x":"${'word '.repeat(500)}"`)).toMatch(/exceeds 2000 bytes/)
    expect(await messageOf('"x":[1,2,3,4]')).toMatch(/more than 3 numbers/)
    expect(await messageOf(`"x":${' '.repeat(600)}1`)).toMatch(/more than 500 bytes outside/)
    await small.close()

    for (const name of ['promptBytes', 'jsonNumbers', 'jsonSyntaxBytes']) {
      await expect(startStage({ limits: { [name]: 0 } })).rejects.toThrow(`limits.${name}`)
    }
  })
})

describe('the messages endpoint', () => {
  it('accepts 300 tools and 40 stop sequences', async () => {
    const { body, path } = ENDPOINTS[1] ?? { body: {}, path: '' }
    const tools = Array.from({ length: 300 }, (_, index) => ({
      name: `tool_${index}`,
      input_schema: { type: 'object' },
    }))
    const stop_sequences = Array.from({ length: 40 }, (_, index) => `stop ${index}`)

    const reply = await sendRequest(stage, { ...body, tools, stop_sequences }, { path })

    expect(reply.status).toBe(200)
    expect(stage.upstream.last.body).toMatchObject({ tools, stop_sequences })
  })
})

describe.each(allEndpoints)('a steering header on the $name endpoint', ({ path, body }) => {
  const headerOf = async (name: string, value: string): Promise<Reply> =>
    sendRequest(stage, body, { path, headers: { [name]: value } })

  it.each([
    ['X-Svc-Explain', 'Yes please'],
    ['X-Svc-Detach', ''],
    ['X-Svc-RLM', 'maybe'],
    ['X-Vanishing-Context', 'on'],
    ['X-Savings-Level', 'turbo'],
    ['X-Svc-Cache-Threshold', 'high'],
    ['Cache-Control', 'no-stor'],
  ])('%s with the value "%s" is 400, and nothing is sent or billed', async (name, value) => {
    const reply = await headerOf(name, value)
    expectNotCalled(reply, new RegExp(`^${name} is "${value.toLowerCase()}"; expected`, 'i'))
    if (!path.includes('messages')) expect(reply.error['param']).toBe(name)
  })

  it.each(['1', 'true', 'YES'])('X-Svc-Explain: %s returns an explanation without an upstream call', async (value) => {
    const reply = await headerOf('X-Svc-Explain', value)
    expect(reply.status).toBe(200)
    expect(stage.upstream.requests).toHaveLength(called)
  })

  it.each(['0', 'false', 'no'])('X-Svc-Explain: %s calls the upstream', async (value) => {
    expect((await headerOf('X-Svc-Explain', value)).status).toBe(200)
    expect(stage.upstream.requests).toHaveLength(called + 1)
  })

  it.each([
    ['x-svc-explian', 'X-Svc-Explain'],
    ['X-Svc-Savings-Level', 'X-Savings-Level'],
    ['x-svc-cache', 'X-Svc-Cache-Threshold'],
    ['x-svc-cache-treshold', 'X-Svc-Cache-Threshold'],
  ])('that does not exist, %s, is 400 with the nearest name: %s', async (name, nearest) => {
    expectNotCalled(
      await headerOf(name, 'true'),
      new RegExp(`unknown request header ${name}\\. Did you mean ${nearest}\\?`, 'i'),
    )
  })
})

describe.each([
  ['/v1/embeddings', { model: 'chat/large', input: 'Hello?' }],
  ['/v1/messages/batches', { requests: [{ custom_id: 'a', params: { ...ENDPOINTS[1]?.body } }] }],
])('%s', (path, body) => {
  it('rejects X-Svc-Explain, which it does not support', async () => {
    expectNotCalled(
      await sendRequest(stage, body, { path, headers: { 'x-svc-explain': 'true' } }),
      /not available for this path/,
    )
  })
})

describe.each(ENDPOINTS)('a key __proto__ on the $name endpoint', ({ path, body }) => {
  it('is sent as an own key also in a rewritten body', async () => {
    const text = withField(body, '"metadata":{"a":1,"a":2},"__proto__":{"stream":true,"polluted":1}')

    const reply = await sendRequest(stage, text, { path })

    expect(reply.status).toBe(200)
    const sent: unknown = JSON.parse(stage.upstream.last.text)
    expect(Object.getOwnPropertyDescriptor(sent, '__proto__')?.value).toEqual({ stream: true, polluted: 1 })
    expect({}).not.toHaveProperty('polluted')
  })
})

describe('a stream of 20,000 chunks that its upstream sends at once', () => {
  it('yields to the event loop at least once per 100 chunks', async () => {
    const chunk = `data: ${JSON.stringify({ id: 'x', choices: [{ index: 0, delta: { content: 'a' } }] })}\n\n`
    const end = 'data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    const fetch = async (): Promise<Response> =>
      new Response(chunk.repeat(20_000) + end, { headers: { 'content-type': 'text/event-stream' } })
    const own = await startStage({ runtime: { fetch } })
    let turns = 0
    let isRunning = true
    const turn = (): void => {
      turns++
      if (isRunning) setImmediate(turn)
    }
    setImmediate(turn)

    const response = await own.gateway.fetch(
      new Request(`${own.url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${own.secret}` },
        body: JSON.stringify({ ...ENDPOINTS[0]?.body, stream: true }),
      }),
    )
    const text = await response.text()
    isRunning = false
    await own.close()

    expect(text.match(/"content":"a"/g)).toHaveLength(20_000)
    expect(turns).toBeGreaterThan(200)
  })
})
