import { afterEach, describe, expect, it, vi } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import { createGateway, openaiCompatible, readBill, type ResponseBill } from '../../src/index.ts'
import { CachingVendor } from '../support/caching-vendor.ts'
import { HANG, startUpstream } from '../support/upstream.ts'

const price = { input: 3, output: 15, cacheRead: 0.3 }

const closers: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

interface Setting {
  readonly vendor: CachingVendor
  send(body: JsonObject, headers?: Readonly<Record<string, string>>): Promise<ResponseBill | undefined>
  /** Reads the first piece of a stream that never ends, and disconnects. Resolves when the request is billed. */
  abort(body: JsonObject): Promise<void>
  readonly billed: () => Promise<number>
  wait(ms: number): void
}

const CHUNK = JSON.stringify({
  id: 'chatcmpl-1',
  object: 'chat.completion.chunk',
  created: 1,
  model: 'model',
  choices: [{ index: 0, delta: { role: 'assistant', content: 'Yes.' }, finish_reason: null }],
})

/** A vendor that rejects requests with `logit_bias`, before it reads the prompt. */
async function start(savings: { readonly shadowShare?: number }): Promise<Setting> {
  let now = Date.UTC(2026, 0, 5, 12)
  const vendor = new CachingVendor(price, () => now)
  const upstream = await startUpstream({
    reply: (request) => {
      if ('logit_bias' in request.body) return { kind: 'failure', status: 400 }
      const reply = vendor.reply(request)
      return request.stream ? { kind: 'events', items: [{ data: CHUNK }, HANG] } : reply
    },
  })
  const models = [{ id: 'model', family: 'test', price, contextWindowTokens: 200_000, maxOutputTokens: 1000 }]
  const gateway = createGateway({
    providers: [openaiCompatible({ name: 'chat', baseUrl: upstream.baseUrl, models })],
    margin: 1,
    cache: false,
    savings,
    runtime: { now: () => now, random: () => 0.5 },
  })
  closers.push(async () => {
    await gateway.close()
    await upstream.close()
  })
  const { id, value } = await gateway.keys.create({ name: 'test' })
  const post = (body: JsonObject, headers: Readonly<Record<string, string>>, signal?: AbortSignal): Promise<Response> =>
    gateway.fetch('http://localhost/v1/chat/completions', {
      method: 'POST',
      headers: { authorization: `Bearer ${value}`, 'content-type': 'application/json', ...headers },
      body: JSON.stringify({ model: 'chat/model', max_tokens: 40, ...body }),
      ...(signal && { signal }),
    })
  const send: Setting['send'] = async (body, headers = {}) => {
    const response = await post(body, headers)
    await response.text()
    now += 1000
    return readBill(response)
  }
  const billed = async (): Promise<number> => (await gateway.keys.usage(id)).cost.billedUsd
  const abort: Setting['abort'] = async (body) => {
    const before = await billed()
    const leaving = new AbortController()
    const response = await post({ ...body, stream: true }, {}, leaving.signal)
    const reader = response.body?.getReader()
    await reader?.read()
    leaving.abort()
    await reader?.cancel().catch(() => {})
    await vi.waitFor(async () => expect(await billed()).toBeGreaterThan(before), { interval: 5, timeout: 20_000 })
    now += 1000
  }
  return { vendor, send, abort, billed, wait: (ms) => void (now += ms) }
}

function conversation(): readonly JsonObject[] {
  return Array.from({ length: 17 }, (_, turn) => ({
    role: turn % 2 === 0 ? 'user' : 'assistant',
    content: Array.from({ length: 160 }, (__, at) => `Entry ${turn}.${at}: pump ${at} ran at ${turn} bar.`).join(' '),
  }))
}

describe('the bill of a conversation whose last request the vendor rejected', () => {
  it.each([
    ['a shortened request', {}, 'extreme', undefined],
    ['a shadow trial', { shadowShare: 0.1 }, undefined, 'extreme'],
  ])('has no cached tokens after %s', async (_, savings, rejectedLevel, level) => {
    const { vendor, send } = await start(savings)
    const messages = conversation()
    const headersOf = (value: string | undefined): Record<string, string> =>
      value === undefined ? {} : { 'x-savings-level': value }

    expect(await send({ messages, logit_bias: { 1: 2 } }, headersOf(rejectedLevel))).toBeUndefined()
    const bill = await send({ messages }, headersOf(level))

    expect(vendor.charge).toBeGreaterThan(0)
    expect(bill?.billedUsd).toBeGreaterThan(vendor.charge * 0.999)
  })
})

describe('the bill of a conversation whose requests alternate between shortened and unchanged', () => {
  it('covers what the vendor charges, although shortened requests do not keep the vendor cache warm', async () => {
    const { vendor, send, billed, wait } = await start({})
    const messages = conversation()
    for (let turn = 0; turn < 8; turn++) {
      await send({ messages }, turn % 2 === 1 ? { 'x-savings-level': 'extreme' } : {})
      wait(240_000)
    }

    expect(await billed()).toBeGreaterThan(vendor.charge * 0.98)
  })

  it('covers what was sent if the caller wanted it shortened at any cost', async () => {
    const { vendor, send } = await start({})
    const messages = conversation()
    await send({ messages })
    const charged = vendor.charge
    const turn = [
      { role: 'assistant', content: 'Noted.' },
      { role: 'user', content: 'What did pump 7 do at entry 3.21?' },
    ]
    const headers = { 'x-savings-level': 'extreme', 'x-svc-force': 'true' }
    const bill = await send({ messages: [...messages, ...turn] }, headers)

    expect(bill?.strategy).toContain('extreme')
    expect(bill?.billedUsd).toBeGreaterThan((vendor.charge - charged) * 0.98)
  })
})

describe('the bill of streams that the caller leaves', () => {
  it.each<[string, (turn: number) => JsonObject]>([
    ['the name of a message', (turn) => ({ messages: withFirst({ name: `user${turn}` }) })],
    [
      'the role of the first message',
      (turn) => ({ messages: withFirst({ role: ['system', 'developer'][turn] ?? 'user' }) }),
    ],
    ['the response format', (turn) => ({ messages: withFirst({}), response_format: formatOf(turn) })],
    ['the key of the prompt cache', (turn) => ({ messages: withFirst({}), prompt_cache_key: `key${turn}` })],
    [
      'the tool choice',
      (turn) => ({ messages: withFirst({}), tool_choice: ['none', 'auto', 'required'][turn] ?? null }),
    ],
  ])('counts no prefix as cached if %s differs', async (_, bodyOf) => {
    const { vendor, abort, billed } = await start({})
    for (let turn = 0; turn < 3; turn++) await abort(bodyOf(turn))

    expect(await billed()).toBeGreaterThan(vendor.charge * 0.98)
  })

  it('counts the prefix that was sent before as cached, also if a marker or the sampling changes', async () => {
    const { abort, billed } = await start({})
    await abort({ messages: conversation() })
    const first = await billed()
    await abort({ messages: conversation(), temperature: 0.3, user: 'someone' })

    expect((await billed()) - first).toBeLessThan(first / 4)
  })
})

function withFirst(fields: JsonObject): readonly JsonObject[] {
  return conversation().map((message, index) => (index === 0 ? { ...message, ...fields } : message))
}

function formatOf(turn: number): JsonObject {
  const schema = { type: 'object', properties: { [`field${turn}`]: { type: 'string' } } }
  return { type: 'json_schema', json_schema: { name: 'answer', schema } }
}
