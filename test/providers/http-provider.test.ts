import { gzipSync } from 'node:zlib'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type {
  ClosableTransport,
  Provider,
  ProviderCall,
  TransportHandler,
  TransportRequest,
} from '../../src/core/ports.ts'
import { undiciTransport } from '../../src/http/transport-undici.ts'
import { fetchTransport } from '../../src/http/transport-fetch.ts'
import { chatClient } from '../../src/formats/chat/client.ts'
import { chatUpstream } from '../../src/formats/chat/upstream.ts'
import { httpProvider, type HttpProviderOptions } from '../../src/providers/http-provider.ts'
import { manualRuntime, type ManualRuntime } from '../support/manual-runtime.ts'
import {
  collectChunks,
  failureOf,
  providerCall,
  testModel,
  textOf,
  textOfCompletion,
  timeouts,
} from '../support/provider-call.ts'
import { noNetwork } from '../support/no-network.ts'
import { readChunks } from '../support/chunk-reader.ts'
import { tinyFormat, tinyPrompt } from '../support/tiny-format.ts'
import { CUT, gate, HANG, startUpstream, type Reply, type StreamItem, type Upstream } from '../support/upstream.ts'

let upstream: Upstream
let transport: ClosableTransport
let runtime: ManualRuntime
let provider: Provider

const secret = 'sk-very-secret-0123456789'

function create(options: Partial<HttpProviderOptions> = {}): Provider {
  return httpProvider({
    name: 'tiny',
    format: { dialect: tinyFormat.dialect, load: async () => tinyFormat },
    models: [testModel],
    model: () => testModel,
    urls: { create: `${upstream.url}/create`, count: `${upstream.url}/count`, ping: `${upstream.url}/models` },
    headers: { authorization: `Bearer ${secret}`, 'x-version': 'ours' },
    forwardedHeaders: ['x-version', 'x-beta'],
    secrets: () => [secret],
    ...options,
  })
}

beforeEach(async () => {
  upstream = await startUpstream()
  transport = undiciTransport()
  runtime = manualRuntime(transport)
  provider = create()
})

afterEach(async () => {
  await transport.close()
  await upstream.close()
})

const complete = (more: Partial<ProviderCall> = {}): ReturnType<Provider['complete']> =>
  provider.complete(providerCall(tinyPrompt('hello'), runtime, more))
const stream = (more: Partial<ProviderCall> = {}): ReturnType<Provider['stream']> =>
  provider.stream(providerCall(tinyPrompt('hello', { stream: true }), runtime, more))

const json = (value: unknown): Reply => ({ kind: 'json', value })
const events = (...items: readonly StreamItem[]): Reply => ({ kind: 'events', items })
const say = (text: string): StreamItem => ({ data: JSON.stringify({ text }) })
const done: StreamItem = { data: '[DONE]' }

function expectNoSecrets(failure: Error): void {
  expect(failure.message).not.toContain('127.0.0.1')
  expect(failure.message).not.toContain(secret)
  expect(failure.message).toContain('tiny')
}

describe('a whole answer', () => {
  it('contains the parsed answer and its unchanged text', async () => {
    const body = '{ "text" : "Grüße",\n "more": 1.0 }'
    upstream.reply = () => ({ kind: 'body', body })
    const { response, ignored } = await complete()
    expect(textOfCompletion(response)).toBe('Grüße')
    expect(response.native?.text).toBe(body)
    expect(ignored).toEqual(['seed'])
    expect(upstream.last.body).toEqual({ model: 'model', stream: false, question: 'tiny' })
    expect(runtime.pending()).toBe(0)
  })

  it('is requested with credentials and only the caller headers of the format', async () => {
    upstream.reply = () => json({ text: 'x' })
    await complete({ headers: { 'x-version': 'theirs', 'x-beta': 'b', cookie: 'c', authorization: 'Bearer caller' } })
    const { host: _host, connection: _connection, ...headers } = upstream.last.headers
    expect(headers).toEqual({
      'content-type': 'application/json',
      'content-length': String(upstream.last.text.length),
      accept: 'application/json',
      'accept-encoding': 'identity',
      authorization: `Bearer ${secret}`,
      'x-version': 'theirs',
      'x-beta': 'b',
    })
  })

  it('ignores the key __proto__', async () => {
    upstream.reply = () => ({
      kind: 'body',
      body: '{"__proto__":{"polluted":true},"text":"x","constructor":{"prototype":{}}}',
    })
    expect(textOfCompletion((await complete()).response)).toBe('x')
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined()
  })

  it.each([
    ['an HTML page', { kind: 'body', body: '<html>Bad gateway</html>', headers: { 'content-type': 'text/html' } }],
    ['cut JSON', { kind: 'body', body: '{"text":"x' }],
    ['an empty body', { kind: 'body', body: '' }],
    ['null', json(null)],
    ['an array', json([])],
    ['a number', json(1)],
    ['an object that is no answer', json({ choices: [] })],
    ['wrong types', json({ text: 5 })],
    [
      'JSON that is 100,000 deep',
      { kind: 'body', body: `{"text":"x","a":${'['.repeat(100_000)}${']'.repeat(100_000)}}` },
    ],
    ['a cut connection', { kind: 'cut' }],
    ['bytes that are no HTTP', { kind: 'socket', bytes: 'nonsense\r\n\r\n' }],
    [
      'a body shorter than announced',
      { kind: 'socket', bytes: 'HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{"text":"x"}' },
    ],
    ['a compressed body', { kind: 'body', body: gzipSync('{"text":"x"}'), headers: { 'content-encoding': 'gzip' } }],
    [
      '1,000 content codings',
      { kind: 'body', body: 'x', headers: { 'content-encoding': Array(1000).fill('gzip').join(',') } },
    ],
    ['200 KB of headers', { kind: 'body', body: '{"text":"x"}', headers: { 'x-flood': 'x'.repeat(200_000) } }],
    ['a redirect', { kind: 'body', body: '', status: 307, headers: { location: '/elsewhere' } }],
    ...[101, 199, 201, 204, 205, 304, 600, 999].map((status): [string, Reply] => [
      `status ${status}`,
      { kind: 'socket', bytes: `HTTP/1.1 ${status} Odd\r\ncontent-length: 0\r\n\r\n` },
    ]),
  ] satisfies readonly (readonly [string, Reply])[])('throws upstream for %s', async (_name, reply) => {
    upstream.reply = () => reply
    const failure = await failureOf(complete())
    expect(failure.kind).toBe('upstream')
    expect(failure.message).not.toContain('127.0.0.1')
    expect(upstream.requests).toHaveLength(1)
    expect(runtime.pending()).toBe(0)
  })

  it('throws upstream above 32 MiB, without reading the rest', async () => {
    const piece = ' '.repeat(1024 * 1024)
    let written = 0
    const pour = function* (): Generator<string> {
      for (; written < 200; written += 1) yield piece
    }
    upstream.reply = () => ({ kind: 'events', items: pour() })
    const failure = await failureOf(complete())
    expect([failure.kind, failure.message]).toEqual([
      'upstream',
      'The provider "tiny" sent a response larger than 32 MiB.',
    ])
    await upstream.last.aborted
    expect(written).toBeLessThan(60)
  })

  it('throws upstream if the upstream is unreachable', async () => {
    await upstream.close()
    const failure = await failureOf(complete())
    expect(failure.kind).toBe('upstream')
    expectNoSecrets(failure)
  })
})

describe('an error status', () => {
  it('is parsed by the format, with Retry-After of the upstream', async () => {
    upstream.reply = () => ({
      kind: 'json',
      value: { message: 'slow down' },
      status: 429,
      headers: { 'retry-after': '7', 'retry-after-ms': '6500', 'x-should-retry': 'true', 'set-cookie': 'a=b' },
    })
    const failure = await failureOf(complete())
    expect([failure.kind, failure.message]).toEqual(['upstream-rate-limited', 'slow down'])
    expect(failure.details).toEqual({
      advice: { retryAfter: '7', retryAfterMs: '6500', shouldRetry: 'true' },
      retryAfterSeconds: 7,
    })
  })

  it('may contain Retry-After as a date', async () => {
    const at = new Date(runtime.now() + 90_000).toUTCString()
    upstream.reply = () => ({ kind: 'failure', status: 503, headers: { 'retry-after': at } })
    const failure = await failureOf(stream())
    expect(failure.kind).toBe('overloaded')
    expect(failure.details).toEqual({ advice: { retryAfter: at }, retryAfterSeconds: 90 })
  })

  it('determines the failure if its body is HTML, incomplete, endless or too deep', async () => {
    const bodies: readonly Reply[] = [
      { kind: 'body', body: '<html>', status: 503 },
      { kind: 'socket', bytes: 'HTTP/1.1 503 No\r\ncontent-length: 50\r\n\r\n{"mess' },
      { kind: 'body', body: 'x'.repeat(200_000), status: 503 },
      { kind: 'body', body: '['.repeat(10_000), status: 503 },
    ]
    for (const reply of bodies) {
      upstream.reply = () => reply
      const failure = await failureOf(complete())
      expect([failure.kind, failure.message]).toEqual(['overloaded', 'The upstream answered with status 503.'])
    }
  })

  it('does not expose the key', async () => {
    upstream.reply = () => ({ kind: 'json', value: { message: `Incorrect API key provided: ${secret}` }, status: 400 })
    expect((await failureOf(complete())).message).toBe('Incorrect API key provided: [removed]')
  })

  it('does not expose the key in an error of status 200', async () => {
    upstream.reply = () => json({ error: { code: 400, message: 'The account northwind cannot send images.' } })
    provider = create({ format: { dialect: 'chat', load: async () => chatUpstream }, secrets: () => ['northwind'] })
    const prompt = chatClient.readPrompt({ model: 'tiny/small', messages: [{ role: 'user', content: 'hello' }] })
    const failure = await failureOf(provider.complete(providerCall(prompt, runtime)))
    expect([failure.kind, failure.message]).toEqual(['upstream-rejected', 'The account [removed] cannot send images.'])
  })
})

describe('a stream', () => {
  it('yields the steps as they arrive, until the last event', async () => {
    const { opened, open } = gate()
    upstream.reply = () => events(': hello\n\n', say('Grü'), opened, say('ße'), done, say('dropped'))
    const { response, ignored } = await stream()
    const steps = readChunks(response)
    expect(textOf([(await steps.next()).value])).toBe('Grü')
    open()
    expect(textOf([(await steps.next()).value])).toBe('ße')
    expect((await steps.next()).value).toEqual({ parts: [{ type: 'done' }] })
    expect((await steps.next()).done).toBe(true)
    expect(ignored).toEqual(['seed'])
    expect(upstream.last.body['stream']).toBe(true)
    expect(upstream.last.headers['accept']).toBe('text/event-stream')
  })

  it('releases its connection after the last event', async () => {
    upstream.reply = () => events(say('x'), done)
    for (let round = 0; round < 8; round += 1) await collectChunks((await stream()).response)
    expect(upstream.connectionsOpened).toBeLessThanOrEqual(2)
    expect(upstream.requests.some((request) => request.isAborted)).toBe(false)
  })

  it('forwards all of 50,000 events in chunks of one byte and of many events', async () => {
    const text = Array.from({ length: 50_000 }, (_, index) => `data: {"text":"é${index} "}\n\n`).join('')
    const bytes = Buffer.from(text)
    upstream.reply = () =>
      events(...Array.from(bytes.subarray(0, 300), (_, at) => bytes.subarray(at, at + 1)), bytes.subarray(300), done)
    const said = textOf(await collectChunks((await stream()).response))
    expect(said).toBe(Array.from({ length: 50_000 }, (_, index) => `é${index} `).join(''))
  })

  it('may contain an event of nearly 32 MiB, such as an image', async () => {
    const image = 'aGk='.repeat(6 * 1024 * 1024)
    upstream.reply = () => events(say(image), say('after'), done)
    const said = textOf(await collectChunks((await stream()).response))
    expect(said.length).toBe(image.length + 'after'.length)
    expect(said.endsWith('aGk=after')).toBe(true)
  })

  it('without its last event is complete only if the format reports that nothing else is missing', async () => {
    upstream.reply = () => events(say('x'), { data: '{"finish":true}' })
    const chunks = await collectChunks((await stream()).response)
    expect(chunks.at(-1)).toEqual({ parts: [{ type: 'done' }] })
    expect(runtime.pending()).toBe(0)
  })

  it.each([
    ['ends without its last event', [say('x')]],
    ['is cut', [say('x'), CUT]],
    ['is cut after the finish reason', [{ data: '{"finish":true}' }, CUT]],
    ['is cut within an event', [say('x'), 'data: {"te', CUT]],
    ['ends within an event', [say('x'), 'data: {"te']],
    ['holds an event that is no JSON', [say('x'), { data: 'nonsense' }, done]],
    ['holds an error event', [say('x'), { data: '{"error":{}}' }, done]],
    ['holds an event that is too deep', [say('x'), { data: '['.repeat(5000) + ']'.repeat(5000) }, done]],
    ['holds a line of more than 32 MiB', [say('x'), ...Array.from({ length: 33 }, () => 'x'.repeat(1024 * 1024))]],
    ['is only [DONE]', [done]],
    ['is empty', []],
  ] satisfies readonly (readonly [string, readonly StreamItem[]])[])(
    'that %s throws during the stream',
    async (_name, items) => {
      upstream.reply = () => events(...items)
      const { response } = await stream()
      const failure = await failureOf(collectChunks(response))
      expect(failure.kind).toBe('upstream')
      expect(failure.message).not.toContain('127.0.0.1')
      expect(runtime.pending()).toBe(0)
    },
  )

  it.each([
    ['JSON', json({ text: 'x' })],
    ['HTML', { kind: 'body', body: '<html>', headers: { 'content-type': 'text/html' } }],
    ['a refusal', { kind: 'failure', status: 500 }],
    ['a redirect', { kind: 'body', body: '', status: 301, headers: { location: '/' } }],
    ['a cut connection', { kind: 'cut' }],
  ] satisfies readonly (readonly [string, Reply])[])(
    'answered by %s rejects before the stream begins',
    async (_name, reply) => {
      upstream.reply = () => reply
      expect((await failureOf(stream())).kind).toBe('upstream')
      expect(runtime.pending()).toBe(0)
    },
  )

  it('is closed at the upstream when its reader cancels', async () => {
    upstream.reply = () => events(say('x'), HANG)
    for await (const chunk of readChunks((await stream()).response)) {
      expect(textOf([chunk])).toBe('x')
      break
    }
    await upstream.last.aborted
    expect(runtime.pending()).toBe(0)
  })

  it('is closed at the upstream when its reader cancels before the first step', async () => {
    upstream.reply = () => events(HANG)
    await readChunks((await stream()).response).return?.()
    await upstream.last.aborted
    expect(runtime.pending()).toBe(0)
  })

  it('is closed at the upstream when its reader cancels while waiting for a step', async () => {
    upstream.reply = () => events(say('x'), HANG)
    const steps = readChunks((await stream()).response)
    await steps.next()
    const waiting = steps.next()
    await steps.return?.()
    expect((await waiting).done).toBe(true)
    await upstream.last.aborted
  })
})

describe('a caller who disconnects', () => {
  it.each([
    ['before the answer', { kind: 'hang' }],
    ['within the answer', { kind: 'events', items: ['{"te', HANG] }],
  ] satisfies readonly (readonly [string, Reply])[])(
    '%s rejects with the reason of the cancellation',
    async (_name, reply) => {
      upstream.reply = () => reply
      const controller = new AbortController()
      const response = complete({ signal: controller.signal })
      response.catch(() => {})
      await upstream.waitForRequest(1)
      controller.abort(new Error('gone'))
      await expect(response).rejects.toThrow('gone')
      await upstream.last.aborted
      expect(runtime.pending()).toBe(0)
    },
  )

  it('ends a stream with the reason of the cancellation, for a hundred streams', async () => {
    upstream.reply = () => events(say('x'), HANG)
    const controllers = Array.from({ length: 100 }, () => new AbortController())
    const streams = await Promise.all(controllers.map(({ signal }) => stream({ signal })))
    const readings = streams.map(({ response }) => failureOf(collectChunks(response)))
    for (const controller of controllers) controller.abort(new Error('gone'))
    for (const failure of await Promise.all(readings)) expect(failure.message).toBe('gone')
    await Promise.all(upstream.requests.map((request) => request.aborted))
    expect(runtime.pending()).toBe(0)
  })

  it('before the call prevents the call', async () => {
    await expect(complete({ signal: AbortSignal.abort(new Error('gone')) })).rejects.toThrow('gone')
    expect(upstream.requests).toHaveLength(0)
    expect(runtime.pending()).toBe(0)
  })
})

describe('deadlines', () => {
  it('a stream that does not begin ends after the first-byte timeout', async () => {
    upstream.reply = () => ({ kind: 'hang' })
    const failure = failureOf(stream())
    const request = await upstream.waitForRequest(1)
    runtime.advance(timeouts.firstByteMs - 1)
    expect(request.isAborted).toBe(false)
    runtime.advance(1)
    expect(await failure).toMatchObject({
      kind: 'upstream-timeout',
      message: 'The provider "tiny" did not begin to respond within 120 seconds.',
    })
    await request.aborted
    expect(runtime.pending()).toBe(0)
  })

  it('a whole answer may begin at any time within the total timeout', async () => {
    upstream.reply = () => ({ kind: 'hang' })
    const failure = failureOf(complete())
    const request = await upstream.waitForRequest(1)
    runtime.advance(timeouts.totalMs - 1)
    expect(request.isAborted).toBe(false)
    runtime.advance(1)
    expect(await failure).toMatchObject({
      kind: 'upstream-timeout',
      message: 'The provider "tiny" did not finish its response within 600 seconds.',
      details: {},
    })
    await request.aborted
    expect(runtime.pending()).toBe(0)
  })

  it('a whole answer may pause at any time within the total timeout', async () => {
    const { opened, open } = gate()
    upstream.reply = () => events('{"text":', opened, '"late"}')
    const { transport, begun } = reportResponseHeaders(undiciTransport())
    provider = create({ transport })
    const response = complete()
    await begun
    runtime.advance(timeouts.totalMs - 1)
    open()
    expect(textOfCompletion((await response).response)).toBe('late')
    expect(runtime.pending()).toBe(0)
    await transport.close()
  })

  it('the total timeout of a call that had begun to answer is not attributed to the upstream', async () => {
    upstream.reply = () => events('{"te', HANG)
    const { transport, begun } = reportResponseHeaders(undiciTransport())
    provider = create({ transport })
    const failure = failureOf(complete())
    await begun
    runtime.advance(timeouts.totalMs)
    expect(await failure).toMatchObject({ kind: 'upstream-timeout', details: { isLocalFault: true } })
    await transport.close()
  })

  it('connecting is limited by the rest of the total timeout', async () => {
    const waits: unknown[] = []
    provider = create({
      transport: (request, handler) => {
        waits.push(request.connectMs)
        return noNetwork(request, handler)
      },
    })
    await failureOf(complete({ timeouts: { ...timeouts, totalMs: 700 } }))
    await failureOf(complete())
    expect(waits).toEqual([700, timeouts.connectMs])
  })

  it('a stream that stalls ends after the idle timeout, counted from the last read', async () => {
    upstream.reply = () => events(say('x'), say('y'), HANG)
    const steps = readChunks((await stream()).response)
    await steps.next()
    runtime.advance(timeouts.idleMs * 3)
    expect(textOf([(await steps.next()).value])).toBe('y')
    const failure = failureOf(steps.next())
    runtime.advance(timeouts.idleMs - 1)
    expect(upstream.last.isAborted).toBe(false)
    runtime.advance(timeouts.idleMs)
    expect(await failure).toMatchObject({
      kind: 'upstream-timeout',
      message: 'The provider "tiny" did not send more data within 60 seconds.',
    })
    await upstream.last.aborted
    expect(runtime.pending()).toBe(0)
  })

  it('a stream that never ends is aborted after the total timeout', async () => {
    upstream.reply = () => events(say('x'), HANG)
    const steps = readChunks((await stream()).response)
    await steps.next()
    runtime.advance(timeouts.totalMs)
    expect(await failureOf(steps.next())).toMatchObject({
      kind: 'upstream-timeout',
      message: 'The provider "tiny" did not finish its response within 600 seconds.',
    })
    await upstream.last.aborted
  })

  it('a connect timeout is an upstream timeout', async () => {
    provider = create({
      transport: (request, handler) => {
        handler.onError(Object.assign(new Error(`to ${request.url}`), { code: 'UND_ERR_CONNECT_TIMEOUT' }))
        return noNetwork(request, { ...handler, onError: () => {} })
      },
    })
    const failure = await failureOf(complete())
    expect([failure.kind, failure.message]).toEqual([
      'upstream-timeout',
      'The provider "tiny" did not accept a connection within 10 seconds.',
    ])
  })
})

describe('other endpoints', () => {
  it('count_tokens sends only the fields of the prompt', async () => {
    upstream.reply = () => json({ input_tokens: 42 })
    const call = providerCall(tinyPrompt('x', { maxTokens: 9 }), runtime)
    expect(await provider.countTokens?.(call)).toBe(42)
    expect([upstream.last.path, upstream.last.body]).toEqual(['/count', { model: 'model', question: 'tiny' }])
    upstream.reply = () => json({ input_tokens: 'many' })
    expect((await failureOf(provider.countTokens?.(call) ?? Promise.resolve())).kind).toBe('upstream')
  })

  it('ping resolves if the upstream answers without a server error', async () => {
    const call = providerCall(tinyPrompt('x'), runtime)
    await provider.ping?.(call)
    expect(upstream.last).toMatchObject({ method: 'GET', path: '/models' })
    upstream.reply = () => ({ kind: 'failure', status: 401 })
    await provider.ping?.(call)
    upstream.reply = () => ({ kind: 'failure', status: 503 })
    expect((await failureOf(provider.ping?.(call) ?? Promise.resolve())).kind).toBe('upstream')
    expect(runtime.pending()).toBe(0)
  })

  it('behaves identically with a plain fetch', async () => {
    provider = create({ transport: fetchTransport((url, init) => fetch(url, init)) })
    upstream.reply = (request) => (request.stream ? events(say('streamed'), done) : json({ text: 'whole' }))
    expect(textOfCompletion((await complete()).response)).toBe('whole')
    expect(textOf(await collectChunks((await stream()).response))).toBe('streamed')
    upstream.reply = () => ({ kind: 'body', body: '', status: 302, headers: { location: '/' } })
    expect((await failureOf(complete())).kind).toBe('upstream')
  })
})

/** Creates a transport that reports when the headers of the first response have arrived. */
function reportResponseHeaders(inner: ClosableTransport): { transport: ClosableTransport; begun: Promise<void> } {
  const { opened, open } = gate()
  const transport: ClosableTransport = Object.assign(
    (request: TransportRequest, handler: TransportHandler) =>
      inner(request, {
        onHead: (status, header) => {
          handler.onHead(status, header)
          open()
        },
        onData: (bytes) => handler.onData(bytes),
        onEnd: () => handler.onEnd(),
        onError: (error) => handler.onError(error),
      }),
    { close: inner.close },
  )
  return { transport, begun: opened }
}
