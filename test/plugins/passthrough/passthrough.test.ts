import { toFile, type OpenAI } from 'openai'
import { afterEach, describe, expect, it } from 'vitest'
import { createGateway, memoryStore, openaiCompatible, type GatewayOptions, type Store } from '../../../src/index.ts'
import { extractive } from '../../../src/testing.ts'
import type { ResponseSink } from '../../../src/core/http.ts'
import type { JsonObject } from '../../../src/core/json.ts'
import { sendRequest, expectErrorResponse, type Reply } from '../../support/send-request.ts'
import { collectUnhandledRejections } from '../../support/unhandled-rejections.ts'
import { startStage, type Stage, type StageOptions } from '../../support/stage.ts'
import { CUT, gate, startUpstream, type Reply as ModelResponse } from '../../support/upstream.ts'
import { IS_FULL } from '../../support/full.ts'

const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close()
})

type Passthrough = NonNullable<GatewayOptions['passthrough']>

/** Every endpoint is open, reaches the chat provider and costs nothing. */
const FREE = { provider: 'chat', free: true }
const ALL_FREE: Passthrough = {
  images: FREE,
  audio: FREE,
  moderations: FREE,
  completions: FREE,
  files: FREE,
  rerank: FREE,
}

async function start(passthrough: Passthrough | undefined = ALL_FREE, options: StageOptions = {}): Promise<Stage> {
  const stage = await startStage({ margin: 2, ...(passthrough !== undefined && { passthrough }), ...options })
  closing.push(stage.close)
  stage.upstream.reply = options.reply ?? (() => ({ kind: 'json', value: { ok: true } }))
  return stage
}

const IMAGE = { model: 'chat/painter', prompt: 'A lake.' }

function post(stage: Stage, path: string, body: JsonObject = IMAGE, secret = stage.secret): Promise<Reply> {
  return sendRequest(stage, body, { path, secret })
}

async function spent(stage: Stage): Promise<number> {
  const { records } = await stage.gateway.audit.read({ keyId: stage.keyId })
  const { currentUsageCents: cents } = await stage.gateway.keys.usage(stage.keyId)
  const billed = records.reduce((sum, record) => sum + record.costUsd, 0)
  expect(cents).toBe(Math.round(billed * 100))
  return Math.round(billed * 1e6) / 1e6
}

/** Returns a form as the official client serializes it. */
function speech(): Promise<File> {
  return toFile(new Uint8Array([82, 73, 70, 70, 13, 10, 45, 45, 255]), 'speech.wav', { type: 'audio/wav' })
}

describe('an endpoint that is not open', () => {
  it.each([
    '/v1/images/generations',
    '/v1/audio/speech',
    '/v1/moderations',
    '/v1/completions',
    '/v1/files',
    '/v1/rerank',
  ])('answers 404 at %s with the name of the option', async (path) => {
    const stage = await startStage()
    closing.push(stage.close)
    const reply = await post(stage, path)

    expectErrorResponse(reply, { status: 404, type: 'invalid_request_error' })
    expect(reply.error['message']).toContain(`passthrough.${path.split('/')[2]}`)
    expect(stage.upstream.requests).toEqual([])
  })

  it.each([
    [{ image: {} }, 'passthrough.image: there is no such option. Did you mean images?'],
    [{ images: { prices: () => 1 } }, 'images.prices: there is no such option. Did you mean priceUsd?'],
    [{ images: { price: () => 1 } }, 'images.price: there is no such option. Did you mean priceUsd?'],
    [{ images: { priceUsd: 1 } }, 'images.priceUsd: expected a function priceUsd(request) that returns dollars, got 1'],
    [{ images: { priceUsd: () => 1, free: true } }, 'images: expected priceUsd or free, not both'],
    [{ images: { finalPriceUsd: () => 1 } }, 'images: expected priceUsd or free, not both'],
  ])('is an error at the start as %j', (passthrough, message) => {
    expect(() => createGateway({ providers: [extractive()], passthrough: passthrough as Passthrough })).toThrow(message)
  })

  it('with a provider that is not configured is an error at the start', () => {
    expect(() => createGateway({ providers: [extractive()], passthrough: { images: { provider: 'none' } } })).toThrow(
      'passthrough.images.provider: no provider "none" is configured',
    )
  })
})

describe('the bytes', () => {
  it('of a JSON request are forwarded with only the provider removed from the model, and those of the answer unchanged', async () => {
    const answer = '{ "created":1.0e3,\n "data" : [] , "x":"\\u00e9"}'
    const stage = await start(ALL_FREE, { reply: () => ({ kind: 'body', body: answer }) })
    const sent = '{ "prompt":"\\u00e9",\t"model":"chat\\/painter", "big":1.0e3 }'
    const response = await fetch(`${stage.url}/v1/images/generations`, {
      method: 'POST',
      headers: { authorization: `Bearer ${stage.secret}`, 'content-type': 'application/json' },
      body: sent,
    })

    expect(await response.text()).toBe(answer)
    expect(stage.upstream.last.text).toBe(sent.replace('"chat\\/painter"', '"painter"'))
    expect(stage.upstream.last.path).toBe('/v1/images/generations')
  })

  it('of a request without a model are forwarded unchanged to the provider of the option', async () => {
    const stage = await start()
    await post(stage, '/v1/moderations', { input: 'Hello' })

    expect(stage.upstream.last.text).toBe('{"input":"Hello"}')
  })

  it('of a form are forwarded with only the provider removed from the model', async () => {
    const stage = await start({ audio: { free: true } })
    const client = stage.openai
    stage.upstream.reply = () => ({ kind: 'json', value: { text: 'Hello.' } })

    const written = await client.audio.transcriptions.create({ model: 'chat/whisper', file: await speech() })
    const first = stage.upstream.last
    expect(written.text).toBe('Hello.')
    expect(first.headers['content-type']).toMatch(/^multipart\/form-data; ?boundary=/)
    const form = await new Response(first.text, {
      headers: { 'content-type': first.headers['content-type'] ?? '' },
    }).formData()
    expect(form.get('model')).toBe('whisper')
    expect(form.get('file')).toBeInstanceOf(File)
  })

  it('of an answer that is not JSON are forwarded unchanged, with their type', async () => {
    const audio = new Uint8Array([255, 0, 13, 10, 128])
    const stage = await start(ALL_FREE, {
      reply: () => ({ kind: 'body', body: audio, headers: { 'content-type': 'audio/mpeg', 'x-vendor': 'secret' } }),
    })
    const answer = await stage.openai.audio.speech.create({ model: 'chat/tts', voice: 'alloy', input: 'Hello' })

    expect(new Uint8Array(await answer.arrayBuffer())).toEqual(audio)
    expect(answer.headers.get('content-type')).toBe('audio/mpeg')
    expect(answer.headers.get('x-content-type-options')).toBe('nosniff')
    expect(answer.headers.get('x-vendor')).toBeNull()
  })

  it('of an answer are sent before the answer is complete', async () => {
    const { opened, open } = gate()
    const stage = await start(ALL_FREE, {
      reply: () => ({ kind: 'events', items: ['data: 1\n\n', opened, 'data: 2\n\n'] }),
    })
    const response = await fetch(`${stage.url}/v1/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${stage.secret}`, 'content-type': 'application/json' },
      body: '{"model":"chat/large","prompt":"x","stream":true}',
    })
    const reader = response.body?.getReader()
    const first = await reader?.read()
    open()

    expect(new TextDecoder().decode(first?.value)).toBe('data: 1\n\n')
    expect(new TextDecoder().decode((await reader?.read())?.value)).toBe('data: 2\n\n')
  })

  it('of an incomplete answer end in a broken connection', async () => {
    const stage = await start(ALL_FREE, { reply: () => ({ kind: 'events', items: ['data: 1\n\n', CUT] }) })
    const response = await fetch(`${stage.url}/v1/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${stage.secret}`, 'content-type': 'application/json' },
      body: '{"model":"chat/large","prompt":"x","stream":true}',
    })

    await expect(response.text()).rejects.toThrow()
  })

  it('of a body above limits.bodyBytes are rejected with 413', async () => {
    const stage = await start(ALL_FREE, { limits: { bodyBytes: 1000 } })

    expectErrorResponse(await post(stage, '/v1/moderations', { input: 'x'.repeat(1000) }), {
      status: 413,
      type: 'invalid_request_error',
    })
  })
})

describe('headers', () => {
  it('of the caller are not forwarded, in particular not the key', async () => {
    const stage = await start()
    await sendRequest(stage, IMAGE, {
      path: '/v1/images/generations',
      headers: {
        'x-api-key': stage.secret,
        cookie: 'a=b',
        'openai-organization': 'org-other',
        'x-forwarded-for': '1.2.3.4',
      },
    })

    const { headers } = stage.upstream.last
    expect(headers['authorization']).toBe('Bearer sk-upstream-secret')
    expect(JSON.stringify(headers)).not.toContain(stage.secret)
    expect(Object.keys(headers)).not.toEqual(expect.arrayContaining(['cookie']))
    expect(headers).not.toHaveProperty('openai-organization')
    expect(headers).not.toHaveProperty('x-forwarded-for')
    expect(headers).not.toHaveProperty('x-api-key')
  })

  it('state the bill of the answer', async () => {
    const stage = await start({ images: { provider: 'chat', priceUsd: () => 0.04 } })
    const { headers } = await post(stage, '/v1/images/generations')

    expect(headers['x-svc-actual-cost']).toBe('$0.040000')
    expect(headers['x-svc-billed-amount']).toBe('$0.080000')
    expect(headers['x-ratelimit-limit']).toBeDefined()
  })
})

describe('a rejection by the vendor', () => {
  it('keeps its status and message, without the secrets of the gateway, and is not billed', async () => {
    const stage = await start(
      { images: { provider: 'chat', priceUsd: () => 0.04 } },
      {
        reply: () => ({
          kind: 'failure',
          status: 400,
          failure: {
            message: 'Bad size for sk-upstream-secret at https://internal.example/v1',
            type: 'invalid_request_error',
          },
        }),
      },
    )
    const reply = await post(stage, '/v1/images/generations')

    expect(reply.status).toBe(400)
    expect(reply.error['message']).toContain('Bad size')
    expect(reply.text).not.toMatch(/sk-upstream-secret|internal\.example/)
    expect(await spent(stage)).toBe(0)
  })

  it.each<[number, ModelResponse]>([
    [502, { kind: 'failure', status: 500 }],
    [502, { kind: 'failure', status: 401 }],
    [502, { kind: 'body', body: '', status: 302, headers: { location: 'http://169.254.169.254/' } }],
    [502, { kind: 'cut' }],
    [429, { kind: 'failure', status: 429, headers: { 'retry-after': '7' } }],
    [503, { kind: 'failure', status: 503 }],
  ])('is answered with %i after one call, and is not billed', async (status, reply) => {
    const stage = await start({ images: { provider: 'chat', priceUsd: () => 0.04 } }, { reply: () => reply })

    expect((await post(stage, '/v1/images/generations')).status).toBe(status)
    expect(stage.upstream.requests).toHaveLength(1)
    expect(await spent(stage)).toBe(0)
  })
})

describe('the key', () => {
  it('is required', async () => {
    const stage = await start()

    for (const path of ['/v1/images/generations', '/v1/moderations', '/v1/files']) {
      expect((await sendRequest(stage, IMAGE, { path, secret: 'sk-bf-wrong' })).status).toBe(401)
    }
    expect((await sendRequest(stage, undefined, { method: 'GET', path: '/v1/files', secret: null })).status).toBe(401)
    expect(stage.upstream.requests).toEqual([])
  })

  it('has one request taken from its request limit', async () => {
    const stage = await start(ALL_FREE, {
      key: { name: 'limited', rate_limit_requests: 1, rate_limit_reset_duration: '1h' },
    })

    expect((await post(stage, '/v1/moderations')).status).toBe(200)
    expectErrorResponse(await post(stage, '/v1/moderations'), { status: 429, type: 'rate_limit_error' })
    expect(stage.upstream.requests).toHaveLength(1)
  })

  it('is counted in the metrics', async () => {
    const stage = await start({ images: { provider: 'chat', priceUsd: () => 0.04 } })
    await post(stage, '/v1/images/generations')

    expect(stage.gateway.metrics.summary()).toMatchObject({
      optimizer: { requestsTotal: 1 },
      billing: { totalCostUsd: 0.04, totalBilledUsd: 0.08 },
    })
  })

  it('is recorded in the audit trail, rejected requests included', async () => {
    const stage = await start({ images: { provider: 'chat', priceUsd: () => 0.04 } })
    await post(stage, '/v1/images/generations')
    await post(stage, '/v1/audio/speech')

    const { records } = await stage.gateway.audit.read({ keyId: stage.keyId })
    expect(records.map(({ status, model, costUsd }) => [status, model, costUsd])).toEqual([
      [200, 'chat/painter', 0.08],
      [404, null, 0],
    ])
  })

  it('with a list of models may use only those, and must send one', async () => {
    const stage = await start(ALL_FREE, { key: { name: 'narrow', allowed_models: ['chat/painter'] } })

    expect((await post(stage, '/v1/images/generations')).status).toBe(200)
    expect((await post(stage, '/v1/images/generations', { model: 'painter' })).status).toBe(200)
    expect((await post(stage, '/v1/images/generations', { model: 'chat/other' })).status).toBe(403)
    expect((await post(stage, '/v1/images/generations', { prompt: 'x' })).status).toBe(403)
    expect((await post(stage, '/v1/images/generations', { model: 'chat/painter', Model: 'chat/other' })).status).toBe(
      403,
    )
    expect((await post(stage, '/v1/images/generations', { model: 'chat/painter', models: ['x'] })).status).toBe(403)
    expect(stage.upstream.requests).toHaveLength(2)
  })

  it('with its own providers reaches no other provider', async () => {
    const stage = await start(ALL_FREE, {
      key: { name: 'narrow', provider_configs: [{ provider: 'anthropic', weight: 1 }] },
    })

    expect((await post(stage, '/v1/images/generations')).status).toBe(403)
    expect((await post(stage, '/v1/moderations', { input: 'x' })).status).toBe(403)
    expect(stage.upstream.requests).toEqual([])
  })

  it('with models of a provider may use only those, by either name, and must send one', async () => {
    const config = { provider: 'chat', weight: 1, allowed_models: ['painter'] }
    const stage = await start(ALL_FREE, {
      key: { name: 'narrow', provider_configs: [config] },
      reply: () => ({ kind: 'json', value: { id: 'file-1' } }),
    })

    for (const model of ['painter', 'chat/painter']) {
      expect((await post(stage, '/v1/images/generations', { model })).status, model).toBe(200)
    }
    for (const body of [{ model: 'other' }, { model: 'chat/other' }, { prompt: 'x' }]) {
      expect((await post(stage, '/v1/images/generations', body)).status, JSON.stringify(body)).toBe(403)
    }
    expect((await post(stage, '/v1/files', { purpose: 'x' })).status).toBe(200)
    expect(stage.upstream.requests).toHaveLength(3)
  })

  it('with a maximum answer must send max_tokens within it', async () => {
    const stage = await start(ALL_FREE, { key: { name: 'short', max_tokens: 10 } })

    expect((await post(stage, '/v1/completions', { model: 'chat/large', prompt: 'x', max_tokens: 10 })).status).toBe(
      200,
    )
    expect((await post(stage, '/v1/completions', { model: 'chat/large', prompt: 'x', max_tokens: 11 })).status).toBe(
      403,
    )
    expect((await post(stage, '/v1/completions', { model: 'chat/large', prompt: 'x' })).status).toBe(403)
  })
})

describe('the budget', () => {
  const KEY = { name: 'budget', budget_limit_cents: 10, budget_reset_duration: '1d' } as const

  it('rejects an endpoint that has no price and is not free', async () => {
    const stage = await start({ images: { provider: 'chat' } }, { key: KEY })
    const reply = await post(stage, '/v1/images/generations')

    expectErrorResponse(reply, { status: 403, type: 'permission_error' })
    expect(reply.error).toMatchObject({ code: 'price_unknown' })
    expect(stage.upstream.requests).toEqual([])
  })

  it('serves an endpoint that is free, and one without a price to keys without a budget', async () => {
    expect((await post(await start({ images: FREE }, { key: KEY }), '/v1/images/generations')).status).toBe(200)
    expect((await post(await start({ images: { provider: 'chat' } }), '/v1/images/generations')).status).toBe(200)
  })

  it('is billed the price times the margin, and rejects requests that it does not cover', async () => {
    const price = ({ fields }: { readonly fields: object }) => 0.02 * Number('n' in fields ? fields.n : 1)
    const stage = await start({ images: { provider: 'chat', priceUsd: price } }, { key: KEY })

    expect((await post(stage, '/v1/images/generations', { ...IMAGE, n: 2 })).status).toBe(200)
    expect(await spent(stage)).toBe(0.08)
    expectErrorResponse(await post(stage, '/v1/images/generations'), { status: 402, type: 'budget_exceeded_error' })
    expect(stage.upstream.requests).toHaveLength(1)
  })

  it('is not exceeded by parallel requests', async () => {
    const stage = await start({ images: { provider: 'chat', priceUsd: () => 0.02 } }, { key: KEY })
    const replies = await Promise.all(Array.from({ length: 8 }, () => post(stage, '/v1/images/generations')))

    expect(replies.filter(({ status }) => status === 200)).toHaveLength(2)
    expect(stage.upstream.requests).toHaveLength(2)
  })

  it('is billed the final price, and no more than the price', async () => {
    const finalPrice = (_: unknown, { usage }: { readonly usage?: unknown }) => Number(usage)
    const stage = await start(
      { images: { provider: 'chat', priceUsd: () => 0.04, finalPriceUsd: finalPrice } },
      { key: KEY },
    )

    stage.upstream.reply = () => ({ kind: 'json', value: { usage: 0.01 } })
    const { headers } = await post(stage, '/v1/images/generations')
    expect(headers['x-svc-billed-amount']).toBe('$0.020000')
    stage.upstream.reply = () => ({ kind: 'json', value: { usage: 1 } })
    await post(stage, '/v1/images/generations')
    expect(await spent(stage)).toBe(0.1)
  })

  it('is billed the price if the final price cannot be computed, and the caller gets the answer', async () => {
    const finalPrice = (): number => {
      throw new TypeError('no usage')
    }
    const stage = await start(
      { images: { provider: 'chat', priceUsd: () => 0.02, finalPriceUsd: finalPrice } },
      { key: KEY },
    )

    expect((await post(stage, '/v1/images/generations')).body).toEqual({ ok: true })
    expect(await spent(stage)).toBe(0.04)
  })

  it.each([
    ['NaN', NaN],
    ['a negative number', -1],
    ['Infinity', Infinity],
    ['0', 0],
    ['less than a billionth of a dollar', 0.19e-9],
    ['a text', '0.02'],
    ['a list', []],
    ['undefined', undefined],
  ])('is not changed by a price that is %s: the request is rejected and not sent', async (_, price) => {
    const stage = await start({ images: { provider: 'chat', priceUsd: () => price as number } }, { key: KEY })
    const reply = await post(stage, '/v1/images/generations')

    expectErrorResponse(reply, { status: 400, type: 'invalid_request_error' })
    expect(reply.error).toMatchObject({ code: 'price_unknown' })
    expect(reply.error['message']).toContain('passthrough.images.priceUsd')
    expect(stage.upstream.requests).toEqual([])
    expect(await spent(stage)).toBe(0)
  })

  it('is not changed by a price function that throws: the request is rejected, and the failure is logged', async () => {
    const price = ({ fields }: { readonly fields: JsonObject }): number => {
      if (typeof fields['size'] !== 'string') throw new TypeError('size is not a text')
      return 0.02
    }
    const lines: JsonObject[] = []
    const log = (line: object): void => void lines.push(line as JsonObject)
    const stage = await start({ images: { provider: 'chat', priceUsd: price } }, { key: KEY, log })

    expectErrorResponse(await post(stage, '/v1/images/generations', { ...IMAGE, size: 7 }), {
      status: 400,
      type: 'invalid_request_error',
    })
    expect(JSON.stringify(lines)).toContain('passthrough.images.priceUsd failed')
    expect(stage.upstream.requests).toEqual([])
  })

  it('is billed for a request whose caller disconnects', async () => {
    const { opened, open } = gate()
    const stage = await start({ images: { provider: 'chat', priceUsd: () => 0.02 } }, { key: KEY })
    stage.upstream.reply = async () => {
      await opened
      return { kind: 'json', value: {} }
    }
    const leaving = new AbortController()
    const asked = sendRequest(stage, IMAGE, { path: '/v1/images/generations', signal: leaving.signal }).catch(
      () => 'left',
    )
    const request = await stage.upstream.waitForRequest(1)
    leaving.abort()
    expect(await asked).toBe('left')
    await request.aborted
    open()

    await expect.poll(() => spent(stage)).toBe(0.04)
  })
})

describe('the provider', () => {
  it('is that of the model, and the answer is 404 if the option has another provider', async () => {
    const other = await startUpstream({ reply: () => ({ kind: 'json', value: { from: 'other' } }) })
    closing.push(other.close)
    const stage = await startStage({
      passthrough: { images: { free: true }, rerank: FREE },
      providers: [
        openaiCompatible({
          name: 'chat',
          baseUrl: other.baseUrl,
          apiKey: 'sk-chat-secret',
          defaultPrice: { input: 1, output: 1 },
        }),
        openaiCompatible({
          name: 'second',
          baseUrl: other.baseUrl,
          apiKey: 'sk-second-secret',
          defaultPrice: { input: 1, output: 1 },
        }),
        extractive(),
      ],
    })
    closing.push(stage.close)

    await post(stage, '/v1/images/generations', { model: 'second/painter' })
    expect(other.last.headers['authorization']).toBe('Bearer sk-second-secret')
    await post(stage, '/v1/images/generations', { model: 'painter' })
    expect(other.last.headers['authorization']).toBe('Bearer sk-chat-secret')
    expect((await post(stage, '/v1/rerank', { model: 'second/ranker' })).status).toBe(404)
    expect((await post(stage, '/v1/images/generations', { prompt: 'x' })).status).toBe(400)
    expect((await post(stage, '/v1/images/generations', { model: 'extractive/extractive' })).status).toBe(404)
    expect(other.requests).toHaveLength(2)
  })
})

describe('a path', () => {
  it.each([
    '/v1/images/..',
    '/v1/images/%2e%2e',
    '/v1/images/..%2fmodels',
    '/v1/images/%2e%2e%2ffiles',
    '/v1/images/a%2fb',
    '/v1/images/a%5cb',
    '/v1/images/a%00',
    '/v1/images/a%3fb=c',
    '/v1/images/a%23b',
    '/v1/images/a/b',
    '/v1/images/a;b',
    '/v1/images/%252e%252e',
    '/v1/images/',
    '/v1/images/@evil.example',
  ])('of %s reaches no vendor', async (path) => {
    const stage = await start()

    expect((await post(stage, path)).status).toBe(404)
    expect(stage.upstream.requests).toEqual([])
  })

  it('reaches the vendor without its query', async () => {
    const stage = await start()
    await post(stage, '/v1/images/generations?model=other&api-version=1&../../')

    expect(stage.upstream.last.path).toBe('/v1/images/generations')
  })
})

describe('a form', () => {
  const boundary = 'x-boundary'
  const part = (head: string, value: string): string => `--${boundary}\r\n${head}\r\n\r\n${value}\r\n`
  const field = (name: string, value: string): string => part(`Content-Disposition: form-data; name="${name}"`, value)
  const whole = (...parts: readonly string[]): string => `${parts.join('')}--${boundary}--\r\n`
  const file = (name: string): string => part(`Content-Disposition: form-data; name="${name}"; filename="f"`, 'x')
  const send = (stage: Stage, body: string, type = `multipart/form-data; boundary=${boundary}`): Promise<Response> =>
    fetch(`${stage.url}/v1/audio/transcriptions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${stage.secret}`, 'content-type': type },
      body,
    })

  it('is forwarded with the model replaced and every other byte unchanged', async () => {
    const stage = await start({ audio: { free: true } })
    const file = part(
      'Content-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav',
      'RIFF\r\n--x',
    )
    const sent = whole(field('a', ''), file, field('model', 'chat/whisper'), field('language', 'é'))

    expect((await send(stage, sent)).status).toBe(200)
    expect(stage.upstream.last.text).toBe(sent.replace('chat/whisper', 'whisper'))
  })

  it.each([
    ['two models', whole(field('model', 'chat/a'), field('model', 'chat/b'))],
    ['a model that is a file', whole(part('Content-Disposition: form-data; name="model"; filename="m"', 'chat/a'))],
    ['a preamble', `preamble\r\n${whole(field('model', 'chat/a'))}`],
    ['an epilogue', `${whole(field('model', 'chat/a'))}${field('model', 'chat/b')}`],
    ['no end', field('model', 'chat/a')],
    [
      'a boundary with blanks behind it',
      whole(field('model', 'chat/a')).replace(`--${boundary}\r\n`, `--${boundary} \r\n`),
    ],
    [
      'two dispositions',
      whole(part('Content-Disposition: form-data; name="a"\r\ncontent-disposition: form-data; name="model"', 'chat/b')),
    ],
    ['a folded header', whole(part('Content-Disposition: form-data;\r\n name="model"', 'chat/b'))],
    [
      'a transfer encoding',
      whole(part('Content-Disposition: form-data; name="model"\r\nContent-Transfer-Encoding: base64', 'Y2hhdC9h')),
    ],
    [
      'a file without a name',
      whole(field('model', 'chat/a'), part('Content-Disposition: form-data; name="n"; filename=""', '10')),
    ],
    [
      'an encoded file name alone',
      whole(field('model', 'chat/a'), part('Content-Disposition: form-data; name="n"; filename*=x', '10')),
    ],
    [
      'two file names',
      whole(
        field('model', 'chat/a'),
        part('Content-Disposition: form-data; name="n"; filename="a"; filename=""', '10'),
      ),
    ],
    [
      'a boundary behind a bare line feed',
      whole(
        field('model', 'chat/a'),
        part('Content-Disposition: form-data; name="f"; filename="f"', `x\n${field('model', 'chat/b')}`),
      ),
    ],
    ['bare line feeds', whole(field('model', 'chat/a')).replaceAll('\r\n', '\n')],
    ['a part without a name', whole(part('Content-Disposition: form-data', 'chat/a'))],
    ['a model with a line feed', whole(field('model', 'chat/a\n'))],
    ...['model ', ' model', 'model\t', 'Model', 'MODEL', 'mo_del', 'model[]', 'model[0]', 'mo\u200bdel', 'ｍodel'].map(
      (name): [string, string] => [
        `the field ${JSON.stringify(name)}`,
        whole(field('model', 'chat/a'), field(name, 'chat/b')),
      ],
    ),
    ['another spelling of its model alone', whole(field('Model', 'chat/b'))],
    ['a file whose name is another spelling', whole(field('model', 'chat/a'), file('Model'))],
    ['two spellings of a price field', whole(field('model', 'chat/a'), field('n', '1'), field('N', '10'))],
    ['a price field with a space', whole(field('model', 'chat/a'), field('n ', '10'))],
    ['1,001 parts', whole(...Array.from({ length: 1001 }, () => field('a', 'b')))],
    ['nothing', ''],
  ])('with %s is rejected with 400', async (_, body) => {
    const stage = await start({ audio: { free: true } })

    expect((await send(stage, body)).status).toBe(400)
    expect(stage.upstream.requests).toEqual([])
  })

  it('with repeated names of lists is forwarded', async () => {
    const stage = await start({ audio: { free: true } })
    const granularity = (value: string): string => field('timestamp_granularities[]', value)
    const sent = whole(
      field('model', 'chat/a'),
      granularity('word'),
      granularity('segment'),
      field('chunking[type]', 'a'),
    )

    expect((await send(stage, sent)).status).toBe(200)
  })

  it.each([{ Model: 'chat/b' }, { 'model ': 'chat/b' }, { n: 1, N: 10 }, { 'n ': 10 }])(
    'rejects the same field names in JSON: %j',
    async (fields) => {
      const stage = await start()
      const reply = await post(stage, '/v1/images/generations', { ...IMAGE, ...fields })

      expect([reply.status, stage.upstream.requests.length]).toEqual([400, 0])
    },
  )

  it.each([
    'multipart/form-data',
    'multipart/form-data; boundary=',
    'multipart/form-data; boundary=a; charset=x',
    'multipart/form-data; boundary="x-boundary "',
    'multipart/form-data; boundary="a b"',
    'multipart/mixed; boundary=a',
    'text/plain',
    'audio/wav',
  ])('announced as %s is rejected with 415', async (type) => {
    const stage = await start({ audio: { free: true } })

    expect((await send(stage, whole(field('model', 'chat/a')), type)).status).toBe(415)
  })

  it('that is compressed is rejected with an error that does not mention JSON', async () => {
    const stage = await start({ audio: { free: true } })
    const sent = await fetch(`${stage.url}/v1/audio/transcriptions`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${stage.secret}`,
        'content-type': `multipart/form-data; boundary=${boundary}`,
        'content-encoding': 'gzip',
      },
      body: whole(field('model', 'chat/a')),
    })

    expect(sent.status).toBe(415)
    expect(await sent.text()).toContain('Send the body without Content-Encoding.')
  })

  it('of a restricted key is checked against its permissions', async () => {
    const stage = await start({ audio: { free: true } }, { key: { name: 'narrow', allowed_models: ['chat/whisper'] } })

    expect((await send(stage, whole(field('model', 'chat/whisper')))).status).toBe(200)
    expect((await send(stage, whole(field('model', 'chat/other')))).status).toBe(403)
    expect((await send(stage, whole(field('model', 'chat/whisper'), field('MODEL', 'other')))).status).toBe(403)
  })
})

describe('files', () => {
  it('are listed with at most 16 store reads at once', async () => {
    const store = memoryStore()
    let running = 0
    let most = 0
    const get: Store['get'] = async (name) => {
      most = Math.max(most, (running += name.startsWith('file:') ? 1 : 0))
      const value = await store.get(name)
      running -= name.startsWith('file:') ? 1 : 0
      return value
    }
    const stage = await start(ALL_FREE, { store: { ...store, get } })
    for (let index = 100; index < 150; index++) {
      const value = JSON.stringify({ provider: 'chat', file: { id: `file-${index}` } })
      await store.set(`file:${stage.keyId}:file-${index}`, value)
    }
    const list = async (query: string): Promise<unknown> =>
      (await sendRequest(stage, undefined, { method: 'GET', path: `/v1/files?${query}` })).body

    expect(await list('limit=40')).toMatchObject({ data: { length: 40 }, has_more: true })
    expect(await list('after=file-139')).toMatchObject({ data: { length: 10 }, has_more: false })
    expect(most).toBe(16)
  })

  it.each(['%00', '%ED%A0%80', '..%2Fx', 'x'.repeat(201)])('are not listed after %s', async (after) => {
    const stage = await start()
    const reply = await sendRequest(stage, undefined, { method: 'GET', path: `/v1/files?after=${after}` })

    expectErrorResponse(reply, { status: 400, type: 'invalid_request_error', param: 'after' })
  })

  const FILE = { id: 'file-1', object: 'file', bytes: 3, created_at: 1, filename: 'a.txt', purpose: 'assistants' }

  /** A vendor that holds one file. */
  function vendor(id = FILE.id): NonNullable<StageOptions['reply']> {
    return ({ method, path }) => {
      if (path.endsWith('/content')) return { kind: 'body', body: 'abc', headers: { 'content-type': 'text/html' } }
      if (method === 'DELETE') return { kind: 'json', value: { id, object: 'file', deleted: true } }
      return { kind: 'json', value: { ...FILE, id } }
    }
  }

  async function upload(stage: Stage, client: OpenAI = stage.openai): Promise<string> {
    const file = await client.files.create({
      file: await toFile(new Uint8Array([1, 2, 3]), 'a.txt'),
      purpose: 'assistants',
    })
    return file.id
  }

  it('are created, listed, read and deleted by the key that created them', async () => {
    const stage = await start(ALL_FREE, { reply: vendor() })
    const { files } = stage.openai

    expect(await upload(stage)).toBe('file-1')
    expect((await files.list()).data).toEqual([FILE])
    expect((await files.retrieve('file-1')).filename).toBe('a.txt')
    expect(await (await files.content('file-1')).text()).toBe('abc')
    expect((await files.delete('file-1')).deleted).toBe(true)
    expect((await files.list()).data).toEqual([])
    expect((await sendRequest(stage, undefined, { method: 'GET', path: '/v1/files/file-1' })).status).toBe(404)
  })

  it('that the vendor no longer has are deleted, and the rejection is forwarded', async () => {
    const stage = await start(ALL_FREE, { reply: vendor() })
    await upload(stage)
    stage.upstream.reply = () => ({ kind: 'failure', status: 404 })

    expect((await sendRequest(stage, undefined, { method: 'GET', path: '/v1/files/file-1' })).status).toBe(404)
    expect((await stage.openai.files.list()).data).toEqual([FILE])
    expect((await sendRequest(stage, undefined, { method: 'DELETE', path: '/v1/files/file-1' })).status).toBe(404)
    expect((await stage.openai.files.list()).data).toEqual([])
  })

  it('of another key are not found by any method, and not listed', async () => {
    const stage = await start(ALL_FREE, { reply: vendor() })
    await upload(stage)
    const { value: other } = await stage.gateway.keys.create({ name: 'other' })
    const before = stage.upstream.requests.length

    for (const [method, path] of [
      ['GET', '/v1/files/file-1'],
      ['GET', '/v1/files/file-1/content'],
      ['DELETE', '/v1/files/file-1'],
      ['GET', '/v1/files/file-unknown'],
    ] as const) {
      const reply = await sendRequest(stage, undefined, { method, path, secret: other })
      expectErrorResponse(reply, { status: 404, type: 'invalid_request_error' })
    }
    const listed = await sendRequest(stage, undefined, { method: 'GET', path: '/v1/files', secret: other })
    expect(listed.body).toEqual({ object: 'list', data: [], has_more: false })
    expect(stage.upstream.requests).toHaveLength(before)
  })

  it.each([
    '/v1/files/..',
    '/v1/files/%2e%2e',
    '/v1/files/file-1%2f..%2ffile-2',
    '/v1/files/file-1/content/..%2f..',
    '/v1/files/%3a',
  ])('at %s are not found', async (path) => {
    const stage = await start(ALL_FREE, { reply: vendor() })
    await upload(stage)

    expect((await sendRequest(stage, undefined, { method: 'GET', path })).status).toBe(404)
    expect(stage.upstream.requests).toHaveLength(1)
  })

  it('are listed in pages', async () => {
    let next = 0
    const stage = await start(ALL_FREE, { reply: () => ({ kind: 'json', value: { ...FILE, id: `file-${next++}` } }) })
    for (let count = 0; count < 3; count++) await upload(stage)

    const first = await sendRequest(stage, undefined, { method: 'GET', path: '/v1/files?limit=2' })
    expect(first.body).toMatchObject({ data: [{ id: 'file-0' }, { id: 'file-1' }], has_more: true })
    const second = await sendRequest(stage, undefined, { method: 'GET', path: '/v1/files?limit=2&after=file-1' })
    expect(second.body).toMatchObject({ data: [{ id: 'file-2' }], has_more: false })
    expect((await sendRequest(stage, undefined, { method: 'GET', path: '/v1/files?limit=x' })).status).toBe(400)
  })

  it('without an id are a 502, and are not billed', async () => {
    const stage = await start(
      { files: { provider: 'chat', priceUsd: () => 0.01 } },
      { reply: () => ({ kind: 'json', value: { id: '../x' } }) },
    )

    await expect(upload(stage)).rejects.toMatchObject({ status: 502 })
    expect(await spent(stage)).toBe(0)
  })

  it.runIf(IS_FULL)('beyond the quota of the key are deleted at the vendor', async () => {
    const stage = await start(ALL_FREE, { reply: vendor() })
    const fill = Array.from({ length: 1_000 }, (_, index) => index)
    for (const index of fill) {
      stage.upstream.reply = vendor(`file-${index}`)
      await post(stage, '/v1/files', { purpose: 'x' })
    }
    stage.upstream.reply = vendor('file-one-too-many')

    expectErrorResponse(await post(stage, '/v1/files', { purpose: 'x' }), {
      status: 400,
      type: 'invalid_request_error',
    })
    expect(stage.upstream.last).toMatchObject({ method: 'DELETE', path: '/v1/files/file-one-too-many' })
  })
})

describe('a response whose connection throws', () => {
  it.each(['begin', 'write', 'end'] as const)('in %s is billed, and causes no unhandled rejection', async (failing) => {
    const stage = await start(
      { audio: { provider: 'chat', priceUsd: () => 0.01 } },
      { reply: () => ({ kind: 'body', body: new Uint8Array([1, 2, 3]), headers: { 'content-type': 'audio/mpeg' } }) },
    )
    const headers: Readonly<Record<string, string>> = {
      authorization: `Bearer ${stage.secret}`,
      'content-type': 'application/json',
    }
    const call = (name: keyof ResponseSink): void => {
      if (name === failing) throw new Error('The sink is broken.')
    }
    const reasons = await collectUnhandledRejections(async () => {
      const ended = new Promise<void>((resolve) => {
        const sink: ResponseSink = {
          send: () => resolve(),
          begin: () => call('begin'),
          write: () => (call('write'), true),
          onDrain: () => {},
          end: () => call('end'),
          destroy: resolve,
        }
        stage.gateway.handle(
          {
            method: 'POST',
            path: '/v1/audio/speech',
            query: '',
            origin: '',
            header: (name) => headers[name],
            headerNames: () => Object.keys(headers),
            body: () => new TextEncoder().encode('{"model":"chat/voice","input":"Hello","voice":"alloy"}'),
            onDisconnect: () => {},
          },
          sink,
        )
      })
      await ended
    })
    expect(reasons).toEqual([])
    expect(await spent(stage)).toBe(0.02)
  })
})
