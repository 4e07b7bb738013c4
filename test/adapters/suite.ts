import { Agent, request as httpRequest, type IncomingMessage, type RequestOptions } from 'node:http'
import { connect } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { afterEach, describe, expect, it } from 'vitest'
import { createGateway } from '../../src/index.ts'
import { extractive } from '../../src/testing.ts'
import type { BodyLimits, HttpHandler, HttpHandling, HttpRequest, ResponseSink } from '../../src/core/http.ts'

/** A server that passes its requests to a handler. */
export interface Running {
  /** Base URL without a trailing slash. The handler sees the rest of the path after `mountedAt`. */
  readonly url: string
  readonly close: () => Promise<void>
}

export interface Adapter {
  readonly name: string
  /** The path prefix that the handler sees before each path of the suite. */
  readonly mountedAt: string
  readonly start: (gateway: HttpHandling) => Promise<Running>
  /** True for handlers of web requests, which do not control their connections. @default false */
  readonly isWeb?: boolean
  /** True if complete bodies are also sent without Content-Length. @default the value of isWeb */
  readonly isChunked?: boolean
}

/** Declares the tests that every server-side adapter must pass. Each test runs over a real connection. */
export function testAdapter(adapter: Adapter): void {
  const closers: (() => Promise<void>)[] = []
  afterEach(async () => {
    for (const close of closers.splice(0)) await close()
  })

  const start = async (handle: HttpHandler): Promise<string> => {
    const running = await adapter.start({ handle })
    closers.push(running.close)
    return running.url
  }

  describe(`${adapter.name}: requests`, () => {
    it('pass the method, the full path, the query and the headers to the handler', async () => {
      const url = await start((request, sink) => {
        const { method, path, query } = request
        const names = [...request.headerNames()]
        sendJson(sink, [
          method,
          path,
          query,
          request.header('x-mark'),
          request.header('x-none'),
          names.includes('x-mark'),
        ])
      })

      const response = await fetch(`${url}/v1/models/a%2Fb?limit=2&after=x`, { headers: { 'x-mark': 'y' } })

      const path = `${adapter.mountedAt}/v1/models/a%2Fb`
      expect(await response.json()).toEqual(['GET', path, 'limit=2&after=x', 'y', null, true])
    })

    it('pass the address that the client sent', async () => {
      const url = await start((request, sink) => sendJson(sink, request.origin))

      const response = await fetch(`${url}/v1/models`)

      expect(await response.json()).toBe(new URL(url).origin)
    })

    it.each(['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])('%s reaches the handler', async (method) => {
      const url = await start((request, sink) => sendJson(sink, request.method))

      const response = await fetch(`${url}/v1/models`, { method })

      expect(await response.json()).toBe(method)
    })

    const echo: HttpHandler = async (request, sink) => sink.send(200, {}, await readBody(request))

    it('deliver a body byte for byte', async () => {
      const body = new Uint8Array(200_000).map((_, index) => index % 251)
      const url = await start(echo)

      const response = await post(url, body, 'application/octet-stream')

      expect(Buffer.compare(Buffer.from(await response.arrayBuffer()), body)).toBe(0)
    })

    it('deliver a body without Content-Length completely', async () => {
      const url = await start(echo)
      const pieces = ['{"text":', '"caf\u00e9 ', '\u6f22"}']

      const response = await fetch(`${url}/echo`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: new Blob(pieces).stream(),
        duplex: 'half',
      } as RequestInit)

      expect(await response.text()).toBe(pieces.join(''))
    })

    it('deliver an empty body as empty', async () => {
      const url = await start(async (request, sink) => sendJson(sink, (await readBody(request)).byteLength))

      const response = await fetch(`${url}/v1/x`, { method: 'POST', headers: { 'content-type': 'application/json' } })

      expect(await response.json()).toBe(0)
    })

    it('deliver malformed JSON unchanged', async () => {
      const url = await start(async (request, sink) => sink.send(400, {}, await readBody(request)))

      const response = await post(url, '{"model": ')

      expect([response.status, await response.text()]).toEqual([400, '{"model": '])
    })

    it('deliver a body of 5 MB', async () => {
      const url = await start(async (request, sink) => sendJson(sink, (await readBody(request)).byteLength))

      const response = await post(url, JSON.stringify('a'.repeat(5_000_000)))

      expect(await response.json()).toBe(5_000_002)
    })

    const kindOfBody =
      (limits: Partial<BodyLimits>): HttpHandler =>
      (request, sink) => {
        const send = (kind: string): void => sendJson(sink, kind, 413)
        readBody(request, limits).then(
          () => send('whole'),
          (error: { readonly kind: string }) => send(error.kind),
        )
      }

    it('accept a body of exactly the maximum size, and reject a larger one with too-large', async () => {
      const url = await start(kindOfBody({ maxBytes: 100_000 }))

      const whole = await post(url, 'x'.repeat(100_000))
      const larger = await post(url, 'x'.repeat(100_001))

      expect([await whole.json(), await larger.json()]).toEqual(['whole', 'too-large'])
    })

    it('reject a body that does not arrive in time with request-timeout', async () => {
      const fireImmediately: BodyLimits['after'] = (_ms, callback) => {
        queueMicrotask(callback)
        return () => {}
      }
      const url = await start(kindOfBody({ after: fireImmediately }))
      const endless = new ReadableStream<Uint8Array>({ start: (controller) => controller.enqueue(new Uint8Array(10)) })
      const caller = new AbortController()

      const response = await fetch(`${url}/v1/x`, {
        method: 'POST',
        body: endless,
        duplex: 'half',
        signal: caller.signal,
      } as RequestInit)

      expect(await response.json()).toBe('request-timeout')
      caller.abort()
    })

    it.skipIf(adapter.isWeb)(
      'receive a response sent before the body has arrived, and then the connection closes',
      async () => {
        const url = await start((_request, sink) => sendJson(sink, { error: 'too large' }, 413))

        const received = await exchange(url, undefined, (path, host) => [
          `POST ${path}/v1/x HTTP/1.1\r\nhost: ${host}\r\ncontent-type: application/json\r\ncontent-length: 20000000\r\n\r\n`,
          'x'.repeat(20_000_000),
        ])

        expect(received).toMatch(/^HTTP\/1\.1 413 /)
        expect(received).toContain('{"error":"too large"}')
        expect(received).toMatch(/\r\nconnection: close\r\n/i)
      },
    )

    it('receive the complete response to a body that never ends', async () => {
      const url = await start((_request, sink) => sendJson(sink, { error: 'no key' }, 401))

      const received = await exchange(url, '}', (path, host) => [
        `POST ${path}/v1/x HTTP/1.1\r\nhost: ${host}\r\ncontent-type: application/json\r\ncontent-length: 20000000\r\n\r\n`,
        'x'.repeat(1_000_000),
      ])

      expect(received).toContain('{"error":"no key"}')
    })

    it.skipIf(adapter.isWeb)('ignore an invalid Host header in the address', async () => {
      const url = await start((request, sink) => sendJson(sink, [request.origin, request.path]))

      const received = await exchange(url, undefined, (path) => [
        `GET ${path}/v1/x HTTP/1.1\r\nhost: evil/..\\@example.com\r\nconnection: close\r\n\r\n`,
      ])

      expect(received).not.toContain('example.com')
    })
  })

  describe(`${adapter.name}: responses`, () => {
    it.each([
      ['text', '{"caf\u00e9":"\u6f22"}'],
      ['bytes', new TextEncoder().encode('{"caf\u00e9":"\u6f22"}')],
    ])('have the status, the headers and a body of %s', async (_kind, body) => {
      const url = await start((_request, sink) => sink.send(429, { 'retry-after': '7' }, body))

      const response = await fetch(`${url}/v1/x`)

      expect([response.status, response.headers.get('retry-after')]).toEqual([429, '7'])
      expect(await response.text()).toBe('{"caf\u00e9":"\u6f22"}')
    })

    it.skipIf(adapter.isWeb)('keep the connection open when sent immediately to a request without a body', async () => {
      const url = await start((_request, sink) => sink.send(200, {}, 'ok'))

      const response = await fetch(`${url}/v1/x`)

      expect([response.headers.get('connection'), await response.text()]).toEqual(['keep-alive', 'ok'])
    })

    it('have no body when the handler sends none', async () => {
      const url = await start((_request, sink) => sink.send(204, {}, ''))

      const response = await fetch(`${url}/v1/x`, { method: 'DELETE' })

      expect([response.status, await response.text()]).toEqual([204, ''])
    })

    it('contain only the headers of a complete response to HEAD', async () => {
      const url = await start((_request, sink) => sink.send(200, { 'x-mark': 'y' }, 'not for HEAD'))

      const response = await fetch(`${url}/v1/x`, { method: 'HEAD' })

      expect([response.status, response.headers.get('x-mark'), await response.text()]).toEqual([200, 'y', ''])
    })

    it('contain only the headers of a stream to HEAD, and the stream may continue writing', async () => {
      const url = await start((_request, sink) => {
        sink.begin(200, { 'x-mark': 'y' })
        for (let count = 0; count < 100; count += 1) expect(sink.write('x'.repeat(64 * 1024))).toBe(true)
        sink.end()
      })

      const response = await fetch(`${url}/v1/x`, { method: 'HEAD' })

      expect([response.status, response.headers.get('x-mark'), await response.text()]).toEqual([200, 'y', ''])
    })

    it.each(['whole', 'begin'] as const)('are 500 if a header is invalid in HTTP (%s)', async (kind) => {
      const url = await start((_request, sink) => {
        if (kind === 'whole') return sink.send(200, { 'x-model': 'a\nb' }, 'body')
        sink.begin(200, { 'x-model': 'a\nb' })
        sink.write('body')
        sink.end()
      })

      const response = await fetch(`${url}/v1/x`)

      expect(response.status).toBe(500)
      expect(await response.json()).toMatchObject({ type: 'error', error: { type: 'api_error' } })
    })

    it('continue after failures', async () => {
      const url = await start((request, sink) => {
        if (request.path.endsWith('bad')) return sink.send(200, { 'x-bad': 'a\nb' }, '')
        sink.send(200, {}, 'good')
      })

      await fetch(`${url}/bad`).then((response) => response.text())
      const response = await fetch(`${url}/good`)

      expect(await response.text()).toBe('good')
    })
  })

  describe(`${adapter.name}: a WebSocket upgrade`, () => {
    it('is refused with 426 and a JSON error, and the connection still serves requests', async () => {
      const gateway = createGateway({ providers: [extractive()], basePath: adapter.mountedAt })
      const url = await start(gateway.handle)

      const agent = new Agent({ keepAlive: true, maxSockets: 1 })
      const headers = { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': '13' }
      const refusal = await openResponse(`${url}/v1/responses`, { agent, headers })
      const error: unknown = JSON.parse(await readText(refusal))
      const next = await openResponse(`${url}/health`, { agent })
      await readText(next)
      agent.destroy()

      expect([refusal.statusCode, refusal.headers.upgrade, refusal.headers.connection]).toEqual([
        426,
        'HTTP/1.1',
        'Upgrade',
      ])
      expect(error).toMatchObject({ error: { type: 'invalid_request_error', code: 'websocket_not_supported' } })
      expect(next.statusCode).toBe(200)
    })
  })

  describe(`${adapter.name}: streams`, () => {
    /** Starts a stream and returns its sink. */
    const startStream = async (): Promise<{ url: string; begun: Promise<ResponseSink>; left: Promise<void> }> => {
      const begun = promise<ResponseSink>()
      const left = promise<void>()
      const url = await start((request, sink) => {
        request.onDisconnect(() => left.resolve())
        sink.begin(200, { 'content-type': 'text/event-stream' })
        begun.resolve(sink)
      })
      return { url, begun: begun.settled, left: left.settled }
    }

    it('send the headers before the first piece', async () => {
      const { url, begun } = await startStream()

      const response = await fetch(`${url}/v1/x`)
      const sink = await begun
      sink.write('data: 1\n\n')
      sink.end()

      expect(response.headers.get('content-type')).toBe('text/event-stream')
      expect(await response.text()).toBe('data: 1\n\n')
    })

    it('send each piece when it is written', async () => {
      const { url, begun } = await startStream()

      const response = await fetch(`${url}/v1/x`)
      const reader = response.body!.getReader()
      const sink = await begun
      sink.write('data: one\n\n')
      const first = await reader.read()
      sink.write(new TextEncoder().encode('data: two\n\n'))
      const second = await reader.read()
      sink.end()
      const last = await reader.read()

      expect([text(first.value), text(second.value), last.done]).toEqual(['data: one\n\n', 'data: two\n\n', true])
    })

    it('break the connection when destroyed in the middle', async () => {
      const { url, begun } = await startStream()

      const response = await fetch(`${url}/v1/x`)
      const reader = response.body!.getReader()
      const sink = await begun
      sink.write('data: one\n\n')
      await reader.read()
      sink.destroy()

      await expect(reader.read()).rejects.toThrow()
    })

    it('break the connection when destroyed before the first piece', async () => {
      const { url, begun } = await startStream()

      const response = await fetch(`${url}/v1/x`)
      ;(await begun).destroy()

      await expect(response.text()).rejects.toThrow()
    })

    it('use chunked encoding, and complete bodies have Content-Length', async () => {
      const url = await start((request, sink) => {
        if (request.path.endsWith('/whole')) return sink.send(200, {}, 'caf\u00e9')
        sink.begin(200, {})
        writePieces(sink, 10, 3)
      })

      const whole = await fetch(`${url}/whole`)
      const stream = await fetch(`${url}/stream`)

      if ((adapter.isChunked ?? adapter.isWeb) !== true) expect(whole.headers.get('content-length')).toBe('5')
      expect(await whole.text()).toBe('caf\u00e9')
      expect([stream.headers.get('transfer-encoding'), (await stream.arrayBuffer()).byteLength]).toEqual([
        'chunked',
        30,
      ])
    })

    const size = 64 * 1024
    const count = 2_000
    const startEndlessStream = async (): Promise<{ url: string; written: () => number; left: Promise<void> }> => {
      let written = (): number => 0
      const left = promise<void>()
      const url = await start((request, sink) => {
        request.onDisconnect(() => left.resolve())
        sink.begin(200, {})
        written = writePieces(sink, size, count)
      })
      return { url, written: () => written(), left: left.settled }
    }

    it('apply backpressure for a slow reader, which then receives all data', async () => {
      const { url, written } = await startEndlessStream()

      const incoming = await openResponse(`${url}/v1/x`)
      await waitUntilConstant(written)
      const before = written()
      let received = 0
      for await (const chunk of incoming) received += (chunk as Buffer).byteLength

      expect(before).toBeLessThan(count / 2)
      expect(received).toBe(size * count)
    })

    it('stop when the caller disconnects while the connection is full', async () => {
      const { url, written, left } = await startEndlessStream()

      const incoming = await openResponse(`${url}/v1/x`)
      await waitUntilConstant(written)
      incoming.destroy()

      await left
      expect(written()).toBeLessThan(count / 2)
    })

    it('discard data written after the caller has disconnected', async () => {
      const { url, begun, left } = await startStream()

      const caller = new AbortController()
      const response = await fetch(`${url}/v1/x`, { signal: caller.signal })
      const reader = response.body!.getReader()
      const sink = await begun
      sink.write('data: one\n\n')
      await reader.read()
      caller.abort()
      await left

      expect([sink.write('data: two\n\n'), sink.write(new Uint8Array(100_000))]).toEqual([true, true])
      sink.end()
      sink.end()
      sink.destroy()
      await expect(reader.read()).rejects.toThrow()
    })
  })

  describe(`${adapter.name}: disconnects`, () => {
    it('notify the handler once before the first byte', async () => {
      const arrived = promise<void>()
      const left = promise<void>()
      let count = 0
      const url = await start(async (request, sink) => {
        await readBody(request)
        request.onDisconnect(() => {
          count += 1
          left.resolve()
        })
        arrived.resolve()
        await left.settled
        sink.send(200, {}, 'too late')
      })

      const caller = new AbortController()
      const asking = post(url, '{}', 'application/json', caller.signal).catch((error: Error) => error.name)
      await arrived.settled
      caller.abort()

      expect(await asking).toBe('AbortError')
      await left.settled
      await nextTurn()
      expect(count).toBe(1)
    })

    it('notify a handler that starts to listen later', async () => {
      const arrived = promise<HttpRequest>()
      const gone = promise<void>()
      const url = await start((request) => {
        request.body(LIMITS)
        arrived.resolve(request)
      })
      const caller = new AbortController()
      const asking = post(url, '{}', 'application/json', caller.signal).catch(() => gone.resolve())
      const request = await arrived.settled
      caller.abort()
      await asking
      for (let turn = 0; turn < 100; turn += 1) await nextTurn()

      await new Promise<void>((resolve) => request.onDisconnect(resolve))
    })

    it('reject reading the body in the middle of a request', async () => {
      const failed = promise<string>()
      const url = await start((request) => {
        readBody(request).catch((error: { readonly kind: string }) => failed.resolve(error.kind))
      })

      const socket = await dial(url)
      socket.write(`POST ${new URL(url).pathname.replace(/\/$/, '')}/v1/x HTTP/1.1\r\nhost: a\r\n`)
      socket.write('content-type: application/json\r\ncontent-length: 100\r\n\r\n{"half":')
      await nextTurn()
      socket.destroy()

      expect(await failed.settled).toBe('invalid-request')
    })

    it('are not reported for a completed request', async () => {
      let left = 0
      const url = await start((request, sink) => {
        request.onDisconnect(() => (left += 1))
        sink.send(200, {}, 'done')
      })

      await fetch(`${url}/v1/x`).then((response) => response.text())
      await fetch(`${url}/v1/x`).then((response) => response.text())
      await nextTurn()

      expect(left).toBe(0)
    })
  })
}

interface Settling<value> {
  readonly settled: Promise<value>
  readonly resolve: (value: value) => void
}

export function promise<value>(): Settling<value> {
  let resolve: (value: value) => void = () => undefined
  const settled = new Promise<value>((done) => {
    resolve = done
  })
  return { settled, resolve }
}

function text(bytes: Uint8Array | undefined): string {
  return new TextDecoder().decode(bytes)
}

export function post(
  url: string,
  body: string | Uint8Array<ArrayBuffer>,
  type = 'application/json',
  signal?: AbortSignal,
): Promise<Response> {
  const init: RequestInit = { method: 'POST', headers: { 'content-type': type }, body }
  return fetch(`${url}/v1/x`, signal === undefined ? init : { ...init, signal })
}

/** Writes `count` equal pieces as fast as the sink accepts them, then ends. Counts the pieces written. */
function writePieces(sink: ResponseSink, size: number, count: number): () => number {
  let written = 0
  const fill = (): void => {
    while (written < count) {
      written += 1
      if (!sink.write(new Uint8Array(size)) && written < count) return
    }
    sink.end()
  }
  sink.onDrain(fill)
  fill()
  return () => written
}

const LIMITS: BodyLimits = {
  maxBytes: 32 * 1024 * 1024,
  readMs: 60_000,
  after: (ms, callback) => {
    const timer = setTimeout(callback, ms)
    return () => clearTimeout(timer)
  },
}

/** Reads the complete body of a request. */
export async function readBody(request: HttpRequest, limits: Partial<BodyLimits> = {}): Promise<Uint8Array> {
  return await request.body({ ...LIMITS, ...limits })
}

/** Sends a value as JSON. */
export function sendJson(sink: ResponseSink, value: unknown, status = 200): void {
  sink.send(status, { 'content-type': 'application/json' }, JSON.stringify(value))
}

/** Resolves when a count has grown and then stayed constant for many event-loop turns. */
async function waitUntilConstant(count: () => number): Promise<void> {
  let last = -1
  for (let still = 0; still < 500; still = count() === last && last > 0 ? still + 1 : 0) {
    last = count()
    await nextTurn()
  }
}

/** Sends a GET and returns its response before any of the body is read. */
function openResponse(url: string, options: RequestOptions = {}): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    httpRequest(url, options, resolve).on('error', reject).end()
  })
}

async function readText(incoming: IncomingMessage): Promise<string> {
  return Buffer.concat((await incoming.toArray()) as Buffer[]).toString()
}

async function dial(url: string): Promise<ReturnType<typeof connect>> {
  const { port } = new URL(url)
  const socket = connect(Number(port), '127.0.0.1')
  await new Promise((resolve) => socket.once('connect', resolve))
  return socket
}

/** Sends raw text and returns the data received up to a marker or the end of the connection. */
async function exchange(
  url: string,
  sign: string | undefined,
  write: (path: string, host: string) => readonly string[],
): Promise<string> {
  const { pathname, host } = new URL(url)
  const socket = await dial(url)
  let received = ''
  const ended = new Promise((resolve) => {
    socket.once('close', resolve)
    socket.once('error', resolve)
  })
  socket.on('data', (chunk) => {
    received += chunk.toString()
    if (sign !== undefined && received.includes(sign)) socket.destroy()
  })
  for (const piece of write(pathname.replace(/\/$/, ''), host)) socket.write(piece)
  await ended
  return received
}
