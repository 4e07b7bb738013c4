import express from 'express'
import { createServer, request as httpRequest } from 'node:http'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { toExpress } from '../../src/express.ts'
import { toFastify } from '../../src/fastify.ts'
import { createGateway } from '../../src/index.ts'
import { extractive } from '../../src/testing.ts'
import { toNext } from '../../src/next.ts'
import { serve, toNodeHandler, type FetchHandling, type Served } from '../../src/node.ts'
import { listen } from './listen.ts'
import { promise, type Running } from './suite.ts'

const closers: (() => Promise<void>)[] = []
afterEach(async () => {
  vi.restoreAllMocks()
  for (const close of closers.splice(0)) await close()
})

async function start(served: Served): Promise<string> {
  return track(await serve(served, { port: 0, hostname: '127.0.0.1', drainMs: 0 }))
}

function track(running: Running): string {
  closers.push(running.close)
  return running.url
}

const gateway = createGateway({ providers: [extractive()] })
const guarded = (): Promise<Response> => Promise.resolve(new Response('Log in first.', { status: 401 }))

describe('the adapters', () => {
  const adapters: Readonly<Record<string, (served: Served) => unknown>> = {
    serve: (served) => serve(served, { port: 0 }),
    toNodeHandler: async (served) => toNodeHandler(served),
    toExpress: async (served) => toExpress(served),
    toFastify: async (served) => toFastify(served),
    toNext: async (served) => toNext(served),
  }
  const values: readonly (readonly [unknown, string])[] = [
    [undefined, 'undefined'],
    [null, 'null'],
    [gateway.fetch, 'a function'],
    [{ fetch: 'https://example.com' }, 'an object'],
    [Promise.resolve(gateway), 'an object'],
    [express(), 'a function'],
  ]
  const cases = Object.entries(adapters).flatMap(([name, adapt]) =>
    values.map(([value, shown]) => [name, shown, value, adapt] as const),
  )

  it.each(cases)('%s refuses at once what cannot be served: %s', async (name, shown, value, adapt) => {
    await expect(adapt(value as Served)).rejects.toMatchObject({
      name: 'GatewayError',
      message: `${name}: expected a gateway, or an object with the function fetch: (request) => Response, got ${shown}.`,
    })
  })

  it.each([
    ['an object with only fetch', { fetch: guarded }],
    ['a copy of a gateway with another fetch', { ...gateway, fetch: guarded }],
    ['an object whose handle has other parameters', { fetch: guarded, handle: guarded }],
  ])('call the fetch of %s', async (_case, served) => {
    const url = await start(served)
    const { GET } = toNext(served)

    expect((await fetch(`${url}/health`)).status).toBe(401)
    expect((await GET(new Request('http://localhost/health'))).status).toBe(401)
  })

  it.each([
    ['a gateway', gateway],
    ['the fetch of a gateway', { fetch: gateway.fetch }],
  ])('serve %s', async (_case, served) => {
    const url = await start(served)
    const { GET } = toNext(served)

    expect((await fetch(`${url}/health`)).status).toBe(200)
    expect((await GET(new Request('http://localhost/health'))).status).toBe(200)
  })

  it('call the handle of a copy of a gateway with another handle', async () => {
    const url = await start({ ...gateway, handle: (_request, sink) => sink.send(418, {}, '') })

    expect((await fetch(url)).status).toBe(418)
  })
})

describe('a fetch handler on Node', () => {
  it.each([
    ['throws', () => Promise.reject(new Error('database is down at 10.0.0.1'))],
    ['returns no Response', () => Promise.resolve({ status: 200 } as Response)],
  ])('that %s is a 500 and a line on stderr', async (_case, handler) => {
    const report = vi.spyOn(process.stderr, 'write').mockReturnValue(true)
    const url = await start({ fetch: handler })

    const response = await fetch(url)

    expect(response.status).toBe(500)
    expect(await response.text()).not.toContain('10.0.0.1')
    expect(report).toHaveBeenCalledExactlyOnceWith(expect.stringContaining('sluice: the fetch handler failed: '))
  })

  it('is reported on one line without secrets, and at most ten times per minute', async () => {
    const report = vi.spyOn(process.stderr, 'write').mockReturnValue(true)
    const cause = new Error('connect to postgres://app:hunter22@db.example/main failed')
    const fail = (): Promise<Response> =>
      Promise.reject(new Error('The lookup of "alice@example.com"\nfailed with token=hunter22', { cause }))
    const url = await start({ fetch: fail })

    for (let count = 0; count < 12; count += 1) expect((await fetch(url)).status).toBe(500)

    const lines = report.mock.calls.map(([text]) => String(text))
    expect(lines).toHaveLength(10)
    expect(lines[0]).toMatch(
      /sluice: the fetch handler failed: Error: The lookup of "\[removed\]" failed with .* at .*served\.test/,
    )
    expect(lines.join('')).not.toMatch(/hunter22|alice/)
    expect(lines.every((line) => line.indexOf('\n') === line.length - 1)).toBe(true)
  })

  it('breaks the connection when its body fails in the middle', async () => {
    const body = new ReadableStream({
      start: (controller) => controller.enqueue(new TextEncoder().encode('one')),
      pull: (controller) => controller.error(new Error('lost')),
    })
    const url = await start({ fetch: () => new Response(body) })

    await expect(fetch(url).then((response) => response.text())).rejects.toThrow()
  })

  it('receives the method, the URL, the headers and the body', async () => {
    const url = await start({
      fetch: async (request) =>
        Response.json([request.method, request.url, request.headers.get('x-mark'), await request.text()]),
    })

    const response = await fetch(`${url}/a%2Fb?c=d`, { method: 'PUT', body: 'café', headers: { 'x-mark': 'y' } })

    expect(await response.json()).toEqual(['PUT', `${url}/a%2Fb?c=d`, 'y', 'café'])
  })

  it('receives the body after a body parser', async () => {
    const echo: FetchHandling = { fetch: async (request) => new Response(await request.text()) }
    const url = track(await listen(createServer(express().use(express.json(), toExpress(echo)))))

    const headers = { 'content-type': 'application/json' }
    const response = await fetch(url, { method: 'POST', body: '{"a": 1}', headers })

    expect(await response.text()).toBe('{"a":1}')
  })

  it('that wraps a gateway reports a body that cannot be restored with 400 and a remedy', async () => {
    const wrapped: FetchHandling = { fetch: (request) => gateway.fetch(request) }
    const app = express().use((request, _response, next) => void request.resume().once('end', next), toExpress(wrapped))
    const url = track(await listen(createServer(app)))
    const key = await gateway.keys.create({ name: 'test' })

    const response = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      body: '{"a":1}',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${key.value}` },
    })

    expect([response.status, await response.text()]).toEqual([400, expect.stringContaining('Mount the gateway before')])
  })

  it('keeps each cookie, also those that were set before', async () => {
    const app = express().use((_request, response, next) => {
      response.cookie('before', '1')
      next()
    })
    const headers = [
      ['set-cookie', 'a=1'],
      ['set-cookie', 'b=2'],
    ] satisfies HeadersInit
    app.use(toExpress({ fetch: () => new Response('ok', { headers }) }))
    const url = track(await listen(createServer(app)))

    expect((await fetch(url)).headers.getSetCookie()).toEqual(['before=1; Path=/', 'a=1', 'b=2'])
  })

  it.each([
    [204, 'GET', ''],
    [304, 'GET', ''],
    [302, 'GET', ''],
    [200, 'HEAD', ''],
  ])('sends %d to %s without a body', async (status, method, text) => {
    const url = await start({ fetch: () => new Response(null, { status, headers: { 'x-mark': 'y' } }) })

    const response = await fetch(url, { method, redirect: 'manual' })

    expect([response.status, response.headers.get('x-mark'), await response.text()]).toEqual([status, 'y', text])
  })

  it('is not called for methods that a Request cannot have', async () => {
    const handler = vi.fn(guarded)
    const url = await start({ fetch: handler })

    const status = await new Promise((resolve, reject) => {
      httpRequest(url, { method: 'TRACE' }, (incoming) => resolve(incoming.resume().statusCode))
        .on('error', reject)
        .end()
    })

    expect([status, handler.mock.calls]).toEqual([400, []])
  })

  it('has a signal that fires when the client disconnects', async () => {
    const arrived = promise<void>()
    const left = promise<void>()
    const url = await start({
      fetch: ({ signal }) => {
        signal.addEventListener('abort', () => left.resolve())
        arrived.resolve()
        return new Promise(() => {})
      },
    })
    const caller = new AbortController()

    const asking = fetch(url, { signal: caller.signal }).catch(() => 'aborted')
    await arrived.settled
    caller.abort()

    await left.settled
    expect(await asking).toBe('aborted')
  })

  it('reads a large upload only as fast as the handler', async () => {
    const release = promise<void>()
    const first = promise<void>()
    let received = 0
    const url = await start({
      fetch: async ({ body }) => {
        for await (const chunk of body ?? []) {
          received += chunk.byteLength
          first.resolve()
          await release.settled
        }
        return new Response(String(received))
      },
    })
    let sent = 0
    const size = 64 * 1024
    const body = new ReadableStream<Uint8Array>({
      pull: (controller) => {
        if (sent === 1_000) return controller.close()
        sent++
        controller.enqueue(new Uint8Array(size))
      },
    })

    const asking = fetch(url, { method: 'POST', body, duplex: 'half' } as RequestInit)
    await first.settled
    for (let turn = 0; turn < 2_000; turn++) await new Promise((resolve) => setImmediate(resolve))
    const before = sent
    release.resolve()

    expect(before).toBeLessThan(500)
    expect(await (await asking).text()).toBe(String(1_000 * size))
  })
})
