import { afterEach, describe, expect, it } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import { createGateway, openaiCompatible, readBill, type ResponseBill } from '../../src/index.ts'
import { CachingVendor } from '../support/caching-vendor.ts'
import { startUpstream } from '../support/upstream.ts'

const price = { input: 3, output: 15, cacheRead: 0.3 }

const closers: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

interface Setting {
  readonly vendor: CachingVendor
  send(body: JsonObject, headers?: Readonly<Record<string, string>>): Promise<ResponseBill | undefined>
}

/** A vendor that rejects requests with `logit_bias`, before it reads the prompt. */
async function start(savings: { readonly shadow?: number }): Promise<Setting> {
  let now = Date.UTC(2026, 0, 5, 12)
  const vendor = new CachingVendor(price, () => now)
  const upstream = await startUpstream({
    reply: (request) => ('logit_bias' in request.body ? { kind: 'failure', status: 400 } : vendor.reply(request)),
  })
  const models = [{ id: 'model', family: 'test', price, contextWindow: 200_000, maxOutputTokens: 1000 }]
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
  const { value } = await gateway.keys.create({ name: 'test' })
  const send: Setting['send'] = async (body, headers = {}) => {
    const response = await gateway.fetch('http://localhost/v1/chat/completions', {
      method: 'POST',
      headers: { authorization: `Bearer ${value}`, 'content-type': 'application/json', ...headers },
      body: JSON.stringify({ model: 'chat/model', max_tokens: 40, ...body }),
    })
    await response.text()
    now += 1000
    return readBill(response)
  }
  return { vendor, send }
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
    ['a shadow trial', { shadow: 0.1 }, undefined, 'extreme'],
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
