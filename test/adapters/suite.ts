import { request as httpRequest, type IncomingMessage } from 'node:http'
import { connect } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { afterEach, describe, expect, it } from 'vitest'
import type { BodyLimits, HttpHandler, HttpHandling, HttpRequest, ResponseSink } from '../../src/core/http.ts'

/** A server that gives its requests to a handler. */
export interface Running {
  /** Without a slash at the end; what follows is the path that the handler sees after `mountedAt`. */
  readonly url: string
  readonly close: () => Promise<void>
}

export interface Adapter {
  readonly name: string
  /** The path that the handler sees before each path of the suite. */
  readonly mountedAt: string
  readonly start: (gateway: HttpHandling) => Promise<Running>
  /** True for handlers of web requests, whose connections belong to somebody else. @default false */
  readonly isWeb?: boolean
}

/** What every server-side adapter must do. Each test runs over a real connection. */
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
    it('the handler sees the method, the whole path, the query and the headers', async () => {
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

    it('the handler sees the address that the client wrote', async () => {
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

    it('a body arrives byte for byte', async () => {
      const body = new Uint8Array(200_000).map((_, index) => index % 251)
      const url = await start(echo)

      const response = await post(url, body, 'application/octet-stream')

      expect(Buffer.compare(Buffer.from(await response.arrayBuffer()), body)).toBe(0)
    })

    it('a body without a length arrives whole', async () => {
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

    it('an empty body is empty', async () => {
      const url = await start(async (request, sink) => sendJson(sink, (await readBody(request)).byteLength))

      const response = await fetch(`${url}/v1/x`, { method: 'POST', headers: { 'content-type': 'application/json' } })

      expect(await response.json()).toBe(0)
    })

    it('broken JSON is for the handler to judge', async () => {
      const url = await start(async (request, sink) => sink.send(400, {}, await readBody(request)))

      const response = await post(url, '{"model": ')

      expect([response.status, await response.text()]).toEqual([400, '{"model": '])
    })

    it('a body of 5 MB passes', async () => {
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

    it('a body of exactly the maximum is read, and a larger one is rejected with too-large', async () => {
      const url = await start(kindOfBody({ maxBytes: 100_000 }))

      const whole = await post(url, 'x'.repeat(100_000))
      const larger = await post(url, 'x'.repeat(100_001))

      expect([await whole.json(), await larger.json()]).toEqual(['whole', 'too-large'])
    })

    it('a body that does not arrive in time is rejected with request-timeout', async () => {
      const atOnce: BodyLimits['after'] = (_ms, callback) => {
        queueMicrotask(callback)
        return () => {}
      }
      const url = await start(kindOfBody({ after: atOnce }))
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
      'an answer that comes before the body has arrived reaches its caller, and then the connection ends',
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

    it('an answer to a body that never ends reaches its caller whole', async () => {
      const url = await start((_request, sink) => sendJson(sink, { error: 'no key' }, 401))

      const received = await exchange(url, '}', (path, host) => [
        `POST ${path}/v1/x HTTP/1.1\r\nhost: ${host}\r\ncontent-type: application/json\r\ncontent-length: 20000000\r\n\r\n`,
        'x'.repeat(1_000_000),
      ])

      expect(received).toContain('{"error":"no key"}')
    })

    it.skipIf(adapter.isWeb)('a hostile Host header does not become the address', async () => {
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
    ])('status, headers and a body of %s arrive', async (_kind, body) => {
      const url = await start((_request, sink) => sink.send(429, { 'retry-after': '7' }, body))

      const response = await fetch(`${url}/v1/x`)

      expect([response.status, response.headers.get('retry-after')]).toEqual([429, '7'])
      expect(await response.text()).toBe('{"caf\u00e9":"\u6f22"}')
    })

    it.skipIf(adapter.isWeb)(
      'an answer that comes at once keeps the connection of a request without a body',
      async () => {
        const url = await start((_request, sink) => sink.send(200, {}, 'ok'))

        const response = await fetch(`${url}/v1/x`)

        expect([response.headers.get('connection'), await response.text()]).toEqual(['keep-alive', 'ok'])
      },
    )

    it('an answer without a body has none', async () => {
      const url = await start((_request, sink) => sink.send(204, {}, ''))

      const response = await fetch(`${url}/v1/x`, { method: 'DELETE' })

      expect([response.status, await response.text()]).toEqual([204, ''])
    })

    it('HEAD gets the headers of a whole answer alone', async () => {
      const url = await start((_request, sink) => sink.send(200, { 'x-mark': 'y' }, 'not for HEAD'))

      const response = await fetch(`${url}/v1/x`, { method: 'HEAD' })

      expect([response.status, response.headers.get('x-mark'), await response.text()]).toEqual([200, 'y', ''])
    })

    it('HEAD gets the headers of a stream alone, which may go on writing', async () => {
      const url = await start((_request, sink) => {
        sink.begin(200, { 'x-mark': 'y' })
        for (let count = 0; count < 100; count += 1) expect(sink.write('x'.repeat(64 * 1024))).toBe(true)
        sink.end()
      })

      const response = await fetch(`${url}/v1/x`, { method: 'HEAD' })

      expect([response.status, response.headers.get('x-mark'), await response.text()]).toEqual([200, 'y', ''])
    })

    it.each(['whole', 'begin'] as const)(
      'a header that HTTP does not allow is answered with 500 instead of silence (%s)',
      async (kind) => {
        const url = await start((_request, sink) => {
          if (kind === 'whole') return sink.send(200, { 'x-model': 'a\nb' }, 'body')
          sink.begin(200, { 'x-model': 'a\nb' })
          sink.write('body')
          sink.end()
        })

        const response = await fetch(`${url}/v1/x`)

        expect(response.status).toBe(500)
        expect(await response.json()).toMatchObject({ type: 'error', error: { type: 'api_error' } })
      },
    )

    it('the server goes on after failures', async () => {
      const url = await start((request, sink) => {
        if (request.path.endsWith('bad')) return sink.send(200, { 'x-bad': 'a\nb' }, '')
        sink.send(200, {}, 'good')
      })

      await fetch(`${url}/bad`).then((response) => response.text())
      const response = await fetch(`${url}/good`)

      expect(await response.text()).toBe('good')
    })
  })

  describe(`${adapter.name}: streams`, () => {
    /** Begins a stream and hands out its sink. */
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

    it('the headers arrive before the first piece does', async () => {
      const { url, begun } = await startStream()

      const response = await fetch(`${url}/v1/x`)
      const sink = await begun
      sink.write('data: 1\n\n')
      sink.end()

      expect(response.headers.get('content-type')).toBe('text/event-stream')
      expect(await response.text()).toBe('data: 1\n\n')
    })

    it('each piece arrives when it is written, not at the end', async () => {
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

    it('a stream that is broken off in the middle breaks the connection', async () => {
      const { url, begun } = await startStream()

      const response = await fetch(`${url}/v1/x`)
      const reader = response.body!.getReader()
      const sink = await begun
      sink.write('data: one\n\n')
      await reader.read()
      sink.destroy()

      await expect(reader.read()).rejects.toThrow()
    })

    it('a stream that is broken off before its first piece breaks the connection', async () => {
      const { url, begun } = await startStream()

      const response = await fetch(`${url}/v1/x`)
      ;(await begun).destroy()

      await expect(response.text()).rejects.toThrow()
    })

    it('a body that is whole is sent with its length, and a stream in chunks', async () => {
      const url = await start((request, sink) => {
        if (request.path.endsWith('/whole')) return sink.send(200, {}, 'caf\u00e9')
        sink.begin(200, {})
        pour(sink, 10, 3)
      })

      const whole = await fetch(`${url}/whole`)
      const stream = await fetch(`${url}/stream`)

      if (adapter.isWeb !== true) expect(whole.headers.get('content-length')).toBe('5')
      expect(await whole.text()).toBe('caf\u00e9')
      expect([stream.headers.get('transfer-encoding'), (await stream.arrayBuffer()).byteLength]).toEqual([
        'chunked',
        30,
      ])
    })

    const size = 64 * 1024
    const count = 2_000
    const startPouring = async (): Promise<{ url: string; written: () => number; left: Promise<void> }> => {
      let written = (): number => 0
      const left = promise<void>()
      const url = await start((request, sink) => {
        request.onDisconnect(() => left.resolve())
        sink.begin(200, {})
        written = pour(sink, size, count)
      })
      return { url, written: () => written(), left: left.settled }
    }

    it('a slow reader holds the writer back, and then gets everything', async () => {
      const { url, written } = await startPouring()

      const incoming = await open(`${url}/v1/x`)
      await stalls(written)
      const before = written()
      let received = 0
      for await (const chunk of incoming) received += (chunk as Buffer).byteLength

      expect(before).toBeLessThan(count / 2)
      expect(received).toBe(size * count)
    })

    it('a caller who leaves while the connection is full is noticed, and nothing more is asked for', async () => {
      const { url, written, left } = await startPouring()

      const incoming = await open(`${url}/v1/x`)
      await stalls(written)
      incoming.destroy()

      await left
      expect(written()).toBeLessThan(count / 2)
    })

    it('what is written after the caller has left is dropped', async () => {
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

  describe(`${adapter.name}: callers who leave`, () => {
    it('before the first byte: the handler is notified once', async () => {
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

    it('before the handler listens: it is notified all the same', async () => {
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

    it('in the middle of the request: reading its body fails', async () => {
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

    it('a caller who stays until the end is not reported as gone', async () => {
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

/** Writes `count` equal pieces as fast as the sink takes them, and then ends. Counts the pieces that were written. */
function pour(sink: ResponseSink, size: number, count: number): () => number {
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

/** The whole body of a request. */
export async function readBody(request: HttpRequest, limits: Partial<BodyLimits> = {}): Promise<Uint8Array> {
  return await request.body({ ...LIMITS, ...limits })
}

/** Answers with a value as JSON. */
export function sendJson(sink: ResponseSink, value: unknown, status = 200): void {
  sink.send(status, { 'content-type': 'application/json' }, JSON.stringify(value))
}

/** Resolves when a count has begun to grow and then stood still for many turns of the event loop. */
async function stalls(count: () => number): Promise<void> {
  let last = -1
  for (let still = 0; still < 500; still = count() === last && last > 0 ? still + 1 : 0) {
    last = count()
    await nextTurn()
  }
}

/** The response to a GET, of which nothing is read until the test does. */
function open(url: string): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    httpRequest(url, resolve).on('error', reject).end()
  })
}

async function dial(url: string): Promise<ReturnType<typeof connect>> {
  const { port } = new URL(url)
  const socket = connect(Number(port), '127.0.0.1')
  await new Promise((resolve) => socket.once('connect', resolve))
  return socket
}

/** Sends raw text and answers what comes back, up to a sign or the end of the connection. */
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
