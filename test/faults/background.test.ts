import { afterEach, describe, expect, it } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import type { Provider, StoredResponseCall } from '../../src/core/ports.ts'
import { openaiCompatible } from '../../src/index.ts'
import { sendRequest, parseEvents, expectErrorResponse } from '../support/send-request.ts'
import { PRICE, startStage, type Stage } from '../support/stage.ts'
import { CUT, gate, HANG, startUpstream, type Reply, type Upstream, type UpstreamRequest } from '../support/upstream.ts'

const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close()
})

interface BackgroundStage extends Stage {
  readonly vendor: Upstream
}

/** Starts a gateway with a vendor of the responses format. A complete response has 100 prompt and 500 output tokens. */
async function start(
  reply: (request: UpstreamRequest) => Reply | Promise<Reply>,
  onPoll: (call: StoredResponseCall) => void = () => {},
): Promise<BackgroundStage> {
  const vendor = await startUpstream({ reply })
  closing.push(vendor.close)
  const models = [{ id: 'gpt-x', price: PRICE, contextWindowTokens: 100_000, maxOutputTokens: 1000 }]
  const native = openaiCompatible({ name: 'native', baseUrl: vendor.baseUrl, models, responses: true })
  const storedResponse: Provider['storedResponse'] = async (call) => {
    onPoll(call)
    return (await native.storedResponse?.(call)) ?? ''
  }
  const stage = await startStage({ margin: 1, providers: [{ ...native, storedResponse }] })
  closing.push(stage.close)
  return Object.assign(stage, { vendor })
}

const PATH = '/v1/responses'
const ID = 'resp_vendor1'
const BODY = { model: 'native/gpt-x', input: 'Think long.', background: true }
const FULL_PRICE_USD = 0.0011
const RESERVED_OUTPUT_USD = 0.002

const message = { type: 'message', id: 'msg_1', role: 'assistant', content: [{ type: 'output_text', text: 'Done.' }] }
const usage = { input_tokens: 100, output_tokens: 500, total_tokens: 600 }
const responseOf = (status: string, fields: JsonObject = {}): JsonObject => ({
  id: ID,
  object: 'response',
  model: 'gpt-x',
  status,
  output: [],
  usage: null,
  ...fields,
})
const replyWith = (status: string, fields: JsonObject = {}): Reply => ({
  kind: 'json',
  value: responseOf(status, fields),
})
const completed = (): Reply => replyWith('completed', { output: [message], usage })
const notFound: Reply = { kind: 'failure', status: 404 }

async function billed({ gateway, keyId }: Stage): Promise<number> {
  return (await gateway.keys.usage(keyId)).cost.billedUsd
}

describe('a background response', () => {
  it('cannot be deleted before it is billed', async () => {
    const { opened, open } = gate()
    const stage = await start(async ({ method }) => {
      if (method === 'POST') return replyWith('queued')
      if (method === 'DELETE') return { kind: 'json', value: { id: ID, object: 'response', deleted: true } }
      await opened
      return completed()
    })
    await sendRequest(stage, BODY, { path: PATH })
    const reply = await sendRequest(stage, undefined, { path: `${PATH}/${ID}`, method: 'DELETE' })

    expectErrorResponse(reply, { status: 409, type: 'invalid_request_error', param: 'response_id' })
    expect(reply.headers['retry-after']).toBe('5')
    expect(stage.vendor.requests.map(({ method }) => method)).not.toContain('DELETE')

    open()
    await expect.poll(() => billed(stage)).toBe(FULL_PRICE_USD)
    const remove = (): Promise<number> =>
      sendRequest(stage, undefined, { path: `${PATH}/${ID}`, method: 'DELETE' }).then(({ status }) => status)
    await expect.poll(remove).toBe(200)
    expect(await remove()).toBe(404)
  })

  it('that the vendor no longer has is billed with the reserved output', async () => {
    const stage = await start(({ method, path }) =>
      method === 'POST' && path === PATH ? replyWith('queued') : notFound,
    )
    await sendRequest(stage, BODY, { path: PATH })

    await expect.poll(() => billed(stage)).toBeGreaterThanOrEqual(RESERVED_OUTPUT_USD)
  })

  it('that fails without usage is not billed', async () => {
    const stage = await start(({ method }) => replyWith(method === 'POST' ? 'queued' : 'failed'))
    await sendRequest(stage, BODY, { path: PATH })

    const records = async (): Promise<number> => (await stage.gateway.audit.read({ keyId: stage.keyId })).records.length
    await expect.poll(records).toBe(1)
    expect(await billed(stage)).toBe(0)
  })

  it('that is cancelled without usage is billed for the input of a custom tool', async () => {
    const item = { type: 'custom_tool_call', id: 'ctc_1', call_id: 'call_1', name: 'write' }
    const output = [{ ...item, input: 'lorem ipsum dolor sit amet '.repeat(40) }]
    const stage = await start(({ method }) =>
      method === 'POST' ? replyWith('queued') : replyWith('cancelled', { output }),
    )
    await sendRequest(stage, BODY, { path: PATH })

    await expect.poll(() => billed(stage)).toBeGreaterThan(0.0004)
  })

  it('is polled with timeouts that end before its reservation expires', async () => {
    const polls: number[] = []
    const stage = await start(
      ({ method }) => (method === 'POST' ? replyWith('queued') : completed()),
      ({ timeouts }) => polls.push(timeouts.totalMs),
    )
    await sendRequest(stage, BODY, { path: PATH })

    await expect.poll(() => billed(stage)).toBe(FULL_PRICE_USD)
    // After the deadline, the last wait of 5 seconds, a poll and the cancellation can take up to 60 seconds.
    expect(polls.map((total) => 5_000 + 2 * total)).toEqual([expect.toSatisfy((ms: number) => ms < 60_000)])
  })

  it('is billed in full if its caller disconnects before it is accepted', async () => {
    const { opened, open } = gate()
    const stage = await start(async ({ method }) => {
      if (method === 'GET') return completed()
      await opened
      return replyWith('queued')
    })
    const leaving = new AbortController()
    const asked = sendRequest(stage, BODY, { path: PATH, signal: leaving.signal }).catch(() => undefined)
    await stage.vendor.waitForRequest(1)
    leaving.abort()
    await asked
    open()

    await expect.poll(() => billed(stage)).toBe(FULL_PRICE_USD)
    expect(stage.vendor.requests[0]?.isAborted).toBe(false)
  })

  it('is rejected if background is not a boolean', async () => {
    const stage = await start(completed)
    const reply = await sendRequest(stage, { ...BODY, background: 'true' }, { path: PATH })

    expectErrorResponse(reply, { status: 400, type: 'invalid_request_error', param: 'background' })
    expect(stage.vendor.requests).toEqual([])
  })
})

describe('a background stream', () => {
  const created = event('response.created', { response: responseOf('in_progress') })
  const delta = event('response.output_text.delta', { item_id: 'msg_1', output_index: 0, content_index: 0, delta: 'D' })

  it('that is cut is billed with the usage of the finished response', async () => {
    const stage = await start(({ method }) =>
      method === 'POST' ? { kind: 'events', items: [created, delta, CUT] } : completed(),
    )
    const reply = await sendRequest(stage, { ...BODY, stream: true }, { path: PATH })

    expect(parseEvents(reply.text).at(-1)?.event).toBe('error')
    await expect.poll(() => billed(stage)).toBe(FULL_PRICE_USD)
    const stored = await sendRequest(stage, undefined, { path: `${PATH}/${ID}`, method: 'GET' })
    expect(stored.body['status']).toBe('completed')
    expect(stored.headers['cache-control']).toBe('no-store')
  })

  const WORDS = 'lorem ipsum dolor sit amet '.repeat(40)
  const words = event('response.output_text.delta', {
    item_id: 'msg_1',
    output_index: 0,
    content_index: 0,
    delta: WORDS,
  })
  /** At least 200 tokens. */
  const MIN_STREAMED_USD = 0.0004

  it.each(['cancelled', 'failed'])(
    'whose response is %s without usage is billed for the streamed text',
    async (status) => {
      const stage = await start(({ method }) =>
        method === 'POST' ? { kind: 'events', items: [created, words, CUT] } : replyWith(status),
      )
      const reply = await sendRequest(stage, { ...BODY, stream: true }, { path: PATH })

      expect(reply.text).toContain(WORDS)
      const records = async (): Promise<number> =>
        (await stage.gateway.audit.read({ keyId: stage.keyId })).records.length
      await expect.poll(records).toBe(1)
      expect(await billed(stage)).toBeGreaterThan(MIN_STREAMED_USD)
    },
  )

  it('is cancelled at the vendor when the gateway closes', async () => {
    const stage = await start(({ method, path }) => {
      if (path.endsWith('/cancel')) return replyWith('cancelled', { usage })
      return method === 'POST' ? { kind: 'events', items: [created, delta, HANG] } : replyWith('in_progress')
    })
    const response = await fetch(`${stage.url}${PATH}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${stage.secret}`, 'content-type': 'application/json' },
      body: JSON.stringify({ ...BODY, stream: true }),
    })
    await response.body?.getReader().read()
    await stage.gateway.close()

    expect(stage.vendor.last.path).toBe(`${PATH}/${ID}/cancel`)
  })
})

function event(type: string, fields: JsonObject): { readonly event: string; readonly data: string } {
  return { event: type, data: JSON.stringify({ type, sequence_number: 0, ...fields }) }
}
