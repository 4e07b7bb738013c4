import { request as httpRequest, type IncomingMessage } from 'node:http'
import { connect } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { afterEach, describe, expect, it } from 'vitest'
import type { Fetcher } from '../../src/http/fetcher.ts'

/** A server that gives its requests to a fetcher. */
export interface Running {
  /** Without a slash at the end; what follows is the path that the fetcher sees after `mountedAt`. */
  readonly url: string
  readonly close: () => Promise<void>
}

export interface Adapter {
  readonly name: string
  /** The path that the fetcher sees before each path of the suite. */
  readonly mountedAt: string
  readonly start: (fetcher: Fetcher) => Promise<Running>
}

/** What every server-side adapter must do. Each test runs over a real connection. */
export function testAdapter(adapter: Adapter): void {
  const closers: (() => Promise<void>)[] = []
  afterEach(async () => {
    for (const close of closers.splice(0)) await close()
  })

  const start = async (fetch: Fetcher['fetch']): Promise<string> => {
    const running = await adapter.start({ fetch })
    closers.push(running.close)
    return running.url
  }

  describe(`${adapter.name}: requests`, () => {
    it('the fetcher sees the method, the whole path, the query and the headers', async () => {
      const url = await start(async (request) => {
        const { pathname, search } = new URL(request.url)
        return Response.json([request.method, pathname, search, request.headers.get('x-mark')])
      })

      const response = await fetch(`${url}/v1/models/a%2Fb?limit=2&after=x`, { headers: { 'x-mark': 'y' } })

      expect(await response.json()).toEqual(['GET', `${adapter.mountedAt}/v1/models/a%2Fb`, '?limit=2&after=x', 'y'])
    })

    it.each(['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])('%s reaches the fetcher', async (method) => {
      const url = await start(async (request) => Response.json(request.method))

      const response = await fetch(`${url}/v1/models`, { method })

      expect(await response.json()).toBe(method)
    })

    it.each(readers)('a body arrives byte for byte when it is read with %s', async (_name, read) => {
      const body = new Uint8Array(200_000).map((_, index) => index % 128)
      const url = await start(async (request) => new Response(await read(request)))

      const response = await post(url, body, 'application/octet-stream')

      expect(Buffer.compare(await response.bytes(), body)).toBe(0)
    })

    it('a body without a length arrives whole', async () => {
      const url = await start(async (request) => new Response(await request.arrayBuffer()))
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
      const url = await start(async (request) => Response.json((await request.arrayBuffer()).byteLength))

      const response = await fetch(`${url}/v1/x`, { method: 'POST', headers: { 'content-type': 'application/json' } })

      expect(await response.json()).toBe(0)
    })

    it('broken JSON is for the fetcher to judge', async () => {
      const url = await start(async (request) => new Response(await request.text(), { status: 400 }))

      const response = await post(url, '{"model": ')

      expect([response.status, await response.text()]).toEqual([400, '{"model": '])
    })

    it('a body may be read by a clone and once more', async () => {
      const url = await start(async (request) => {
        const copy = await request.clone().text()
        return Response.json([copy, await request.text()])
      })

      const response = await post(url, '{"a":1}')

      expect(await response.json()).toEqual(['{"a":1}', '{"a":1}'])
    })

    it('a body of 5 MB passes', async () => {
      const url = await start(async (request) => Response.json((await request.arrayBuffer()).byteLength))

      const response = await post(url, JSON.stringify('a'.repeat(5_000_000)))

      expect(await response.json()).toBe(5_000_002)
    })

    it('an answer that comes before the body has arrived reaches its caller, and then the connection ends', async () => {
      const url = await start(async (request) => {
        await request.body?.cancel()
        return Response.json({ error: 'too large' }, { status: 413 })
      })

      const received = await exchange(url, undefined, (path, host) => [
        `POST ${path}/v1/x HTTP/1.1\r\nhost: ${host}\r\ncontent-type: application/json\r\ncontent-length: 20000000\r\n\r\n`,
        'x'.repeat(20_000_000),
      ])

      expect(received).toMatch(/^HTTP\/1\.1 413 /)
      expect(received).toContain('{"error":"too large"}')
      expect(received).toMatch(/\r\nconnection: close\r\n/i)
    })

    it('an answer to a body that never ends reaches its caller whole', async () => {
      const url = await start(async () => Response.json({ error: 'no key' }, { status: 401 }))

      const received = await exchange(url, '}', (path, host) => [
        `POST ${path}/v1/x HTTP/1.1\r\nhost: ${host}\r\ncontent-type: application/json\r\ncontent-length: 20000000\r\n\r\n`,
        'x'.repeat(1_000_000),
      ])

      expect(received).toContain('{"error":"no key"}')
    })

    it('a hostile Host header does not become the address', async () => {
      const url = await start(async (request) => Response.json(new URL(request.url).pathname))

      const received = await exchange(url, undefined, (path) => [
        `GET ${path}/v1/x HTTP/1.1\r\nhost: evil/..\\@example.com\r\nconnection: close\r\n\r\n`,
      ])

      expect(received).not.toContain('example.com')
    })
  })

  describe(`${adapter.name}: responses`, () => {
    it('status, headers and body arrive', async () => {
      const url = await start(
        async () => new Response('{"caf\u00e9":"\u6f22"}', { status: 429, headers: { 'retry-after': '7' } }),
      )

      const response = await fetch(`${url}/v1/x`)

      expect([response.status, response.headers.get('retry-after')]).toEqual([429, '7'])
      expect(await response.text()).toBe('{"caf\u00e9":"\u6f22"}')
    })

    it('every set-cookie header arrives', async () => {
      const headers = new Headers([
        ['set-cookie', 'a=1; Path=/'],
        ['set-cookie', 'b=2; Expires=Wed, 21 Oct 2026 07:28:00 GMT'],
      ])
      const url = await start(async () => new Response('ok', { headers }))

      const response = await fetch(`${url}/v1/x`)

      expect(response.headers.getSetCookie()).toEqual(['a=1; Path=/', 'b=2; Expires=Wed, 21 Oct 2026 07:28:00 GMT'])
    })

    it('an answer without a body has none', async () => {
      const url = await start(async () => new Response(null, { status: 204 }))

      const response = await fetch(`${url}/v1/x`, { method: 'DELETE' })

      expect([response.status, await response.text()]).toEqual([204, ''])
    })

    it('HEAD gets the headers alone, and the body behind them is cancelled', async () => {
      const cancelled = promise<void>()
      const body = new ReadableStream({ cancel: () => cancelled.resolve() })
      const url = await start(async () => new Response(body, { headers: { 'x-mark': 'y' } }))

      const response = await fetch(`${url}/v1/x`, { method: 'HEAD' })

      expect([response.status, response.headers.get('x-mark'), await response.text()]).toEqual([200, 'y', ''])
      await cancelled.settled
    })

    it('a fetcher that throws is answered with 500 and a JSON error without its secret', async () => {
      const url = await start(async () => {
        throw new Error('secret-password')
      })

      const response = await post(url, '{}')

      expect(response.status).toBe(500)
      expect(await response.json()).toMatchObject({ type: 'error', error: { type: 'api_error' } })
    })

    it('a fetcher that throws at once, without a promise, is answered with 500', async () => {
      const url = await start(() => {
        throw new Error('at once')
      })

      const response = await fetch(`${url}/v1/x`)

      expect(response.status).toBe(500)
      expect(await response.text()).not.toContain('at once')
    })

    it('a header that HTTP does not allow is answered with 500 instead of silence', async () => {
      const url = await start(async () => new Response('body', { headers: { 'x-model': 'a\u0001b' } }))

      const response = await fetch(`${url}/v1/x`)

      expect(response.status).toBe(500)
    })

    it('a response whose body was read already is answered with 500', async () => {
      const url = await start(async () => {
        const spent = new Response('once')
        await spent.text()
        return spent
      })

      const response = await fetch(`${url}/v1/x`)

      expect(response.status).toBe(500)
    })

    it('the server goes on after failures', async () => {
      const url = await start(async (request) => {
        if (request.url.endsWith('bad')) throw new Error('bad')
        return new Response('good')
      })

      await fetch(`${url}/bad`).then((response) => response.text())
      const response = await fetch(`${url}/good`)

      expect(await response.text()).toBe('good')
    })
  })

  describe(`${adapter.name}: streams`, () => {
    it('the headers arrive before the first piece does', async () => {
      const release = promise<void>()
      const url = await start(async () => {
        const body = new ReadableStream({
          async start(controller) {
            await release.settled
            controller.enqueue(new TextEncoder().encode('data: 1\n\n'))
            controller.close()
          },
        })
        return new Response(body, { headers: { 'content-type': 'text/event-stream' } })
      })

      const response = await fetch(`${url}/v1/x`)
      release.resolve()

      expect(await response.text()).toBe('data: 1\n\n')
    })

    it('each piece arrives when it is written, not at the end', async () => {
      const source = pieces()
      const url = await start(async () => new Response(source.stream))

      const response = await fetch(`${url}/v1/x`)
      const reader = response.body!.getReader()
      source.write('data: one\n\n')
      const first = await reader.read()
      source.write('data: two\n\n')
      const second = await reader.read()
      source.end()
      const last = await reader.read()

      expect([text(first.value), text(second.value), last.done]).toEqual(['data: one\n\n', 'data: two\n\n', true])
    })

    it('a body that fails in the middle breaks the connection', async () => {
      const source = pieces()
      const url = await start(async () => new Response(source.stream))

      const response = await fetch(`${url}/v1/x`)
      const reader = response.body!.getReader()
      source.write('data: one\n\n')
      await reader.read()
      source.fail(undefined)

      await expect(reader.read()).rejects.toThrow()
    })

    it('a body that fails before anything was sent is answered with 500', async () => {
      const body = new ReadableStream({ pull: () => Promise.reject(new Error('secret')) })
      const url = await start(async () => new Response(body))

      const response = await fetch(`${url}/v1/x`)

      expect(response.status).toBe(500)
      expect(await response.text()).not.toContain('secret')
    })

    it('a body that fails after its headers were sent breaks the connection', async () => {
      const source = pieces()
      const url = await start(async () => new Response(source.stream))

      const response = await fetch(`${url}/v1/x`)
      source.fail(new Error('too late'))

      await expect(response.text()).rejects.toThrow()
    })

    it('a body that is whole is sent with its length, and a stream in chunks', async () => {
      const url = await start(async (request) =>
        request.url.endsWith('/whole') ? new Response('caf\u00e9') : new Response(counted(10, 3).stream),
      )

      const whole = await fetch(`${url}/whole`)
      const stream = await fetch(`${url}/stream`)

      expect([whole.headers.get('content-length'), await whole.text()]).toEqual(['5', 'caf\u00e9'])
      expect([stream.headers.get('transfer-encoding'), (await stream.bytes()).byteLength]).toEqual(['chunked', 30])
    })

    it('a slow reader holds the source back, and then gets everything', async () => {
      const size = 64 * 1024
      const count = 2_000
      const source = counted(size, count)
      const url = await start(async () => new Response(source.stream))

      const incoming = await open(`${url}/v1/x`)
      await stalls(source.produced)
      const produced = source.produced()
      let received = 0
      for await (const chunk of incoming) received += (chunk as Buffer).byteLength

      expect(produced).toBeLessThan(count / 2)
      expect(received).toBe(size * count)
    })
  })

  describe(`${adapter.name}: callers who leave`, () => {
    it('before the first byte: the signal of the request is aborted', async () => {
      const arrived = promise<void>()
      const aborted = promise<void>()
      const url = await start(async (request) => {
        await request.text()
        request.signal.addEventListener('abort', () => aborted.resolve())
        arrived.resolve()
        await aborted.settled
        return new Response('too late')
      })

      const caller = new AbortController()
      const asking = post(url, '{}', 'application/json', caller.signal).catch((error: Error) => error.name)
      await arrived.settled
      caller.abort()

      expect(await asking).toBe('AbortError')
      await aborted.settled
    })

    it('before the first byte: a body that comes too late is cancelled', async () => {
      const cancelled = promise<void>()
      const arrived = promise<void>()
      const url = await start(async (request) => {
        const left = promise<void>()
        request.signal.addEventListener('abort', () => left.resolve())
        arrived.resolve()
        await left.settled
        return new Response(new ReadableStream({ cancel: () => cancelled.resolve() }))
      })

      const caller = new AbortController()
      const asking = fetch(`${url}/v1/x`, { signal: caller.signal }).catch(() => undefined)
      await arrived.settled
      caller.abort()

      await asking
      await cancelled.settled
    })

    it('in the middle of a stream: the signal is aborted and the body is cancelled', async () => {
      const aborted = promise<void>()
      const source = pieces()
      const url = await start(async (request) => {
        request.signal.addEventListener('abort', () => aborted.resolve())
        return new Response(source.stream)
      })

      const caller = new AbortController()
      const response = await fetch(`${url}/v1/x`, { signal: caller.signal })
      const reader = response.body!.getReader()
      source.write('data: one\n\n')
      await reader.read()
      caller.abort()

      await aborted.settled
      await source.cancelled
      await expect(reader.read()).rejects.toThrow()
    })

    it('while the connection is full: the body is cancelled', async () => {
      const source = counted(64 * 1024, 2_000)
      const url = await start(async () => new Response(source.stream))

      const incoming = await open(`${url}/v1/x`)
      await stalls(source.produced)
      incoming.destroy()

      await source.cancelled
      expect(source.produced()).toBeLessThan(1_000)
    })

    it('in the middle of the request: reading its body fails', async () => {
      const failed = promise<string>()
      const url = await start(async (request) => {
        await request.arrayBuffer().catch(() => failed.resolve('failed'))
        return new Response('too late')
      })

      const socket = await dial(url)
      socket.write(`POST ${new URL(url).pathname.replace(/\/$/, '')}/v1/x HTTP/1.1\r\nhost: a\r\n`)
      socket.write('content-type: application/json\r\ncontent-length: 100\r\n\r\n{"half":')
      await nextTurn()
      socket.destroy()

      expect(await failed.settled).toBe('failed')
    })

    it('a caller who stays until the end does not abort the signal', async () => {
      const signals: AbortSignal[] = []
      const url = await start(async (request) => {
        signals.push(request.signal)
        return new Response('done')
      })

      await fetch(`${url}/v1/x`).then((response) => response.text())
      await fetch(`${url}/v1/x`).then((response) => response.text())

      expect(signals.map((signal) => signal.aborted)).toEqual([false, false])
    })
  })
}

const readers: readonly (readonly [string, (request: Request) => Promise<BodyInit>])[] = [
  ['arrayBuffer', (request) => request.arrayBuffer()],
  ['bytes', (request) => request.bytes()],
  ['blob', (request) => request.blob()],
  ['body', async (request) => request.body ?? ''],
  ['a loop over body', async (request) => new Blob(await collect(request.body))],
  ['text', async (request) => Uint8Array.from(await request.text(), (letter) => letter.charCodeAt(0))],
]

async function collect(body: AsyncIterable<Uint8Array<ArrayBuffer>> | null): Promise<Uint8Array<ArrayBuffer>[]> {
  const chunks: Uint8Array<ArrayBuffer>[] = []
  for await (const chunk of body ?? []) chunks.push(chunk)
  return chunks
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

/** A stream that the test writes by hand. */
function pieces(): {
  readonly stream: ReadableStream<Uint8Array>
  readonly write: (piece: string) => void
  readonly end: () => void
  readonly fail: (error: unknown) => void
  readonly cancelled: Promise<void>
} {
  const left = promise<void>()
  let controller: ReadableStreamDefaultController<Uint8Array> | undefined
  const stream = new ReadableStream<Uint8Array>({
    start: (given) => {
      controller = given
    },
    cancel: () => left.resolve(),
  })
  return {
    stream,
    write: (piece) => controller?.enqueue(new TextEncoder().encode(piece)),
    end: () => controller?.close(),
    fail: (error) => controller?.error(error),
    cancelled: left.settled,
  }
}

/** A stream of many equal chunks that tells how many were asked for. */
function counted(
  size: number,
  count: number,
): { readonly stream: ReadableStream<Uint8Array>; readonly produced: () => number; readonly cancelled: Promise<void> } {
  const left = promise<void>()
  let produced = 0
  const stream = new ReadableStream<Uint8Array>({
    pull: (controller) => {
      if (produced === count) return controller.close()
      produced += 1
      controller.enqueue(new Uint8Array(size))
    },
    cancel: () => left.resolve(),
  })
  return { stream, produced: () => produced, cancelled: left.settled }
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
