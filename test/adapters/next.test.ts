import { setImmediate as nextTurn } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import type { HttpRequest, ResponseSink } from '../../src/core/http.ts'
import { toFetch } from '../../src/http/web-handler.ts'
import { toNext, type NextHandler, type NextMethod } from '../../src/next.ts'
import { createGateway } from '../../src/index.ts'
import { extractive } from '../../src/testing.ts'
import { listen } from './listen.ts'
import { promise, testAdapter } from './suite.ts'
import { webServer } from './web-server.ts'

testAdapter({
  name: 'toNext behind a server that calls route handlers',
  mountedAt: '/ai',
  isWeb: true,
  start: (gateway) => {
    const routes: Readonly<Record<string, NextHandler | undefined>> = toNext(gateway)
    const missing: NextHandler = async () => new Response('', { status: 405 })
    return listen(
      webServer((request) => (routes[request.method] ?? missing)(request)),
      '/ai',
    )
  },
})

testAdapter({
  name: 'toFetch behind a server of web handlers',
  mountedAt: '',
  isWeb: true,
  start: (gateway) => listen(webServer(toFetch(gateway))),
})

const address = 'https://example.com/api/v1/models'

describe('toNext', () => {
  it('has a handler for each method that Next supports', () => {
    const routes = toNext({ handle: (_request, sink) => sink.send(200, {}, '') })
    const methods: readonly NextMethod[] = ['DELETE', 'GET', 'HEAD', 'OPTIONS', 'PATCH', 'POST', 'PUT']

    expect(Object.keys(routes).toSorted()).toEqual(methods)
  })

  it('uses the URL of the request', async () => {
    const { GET } = toNext({
      handle: ({ origin, path, query }, sink) => sink.send(200, {}, JSON.stringify([origin, path, query])),
    })

    const response = await GET(new Request(`${address}?a=1`))

    expect(await response.json()).toEqual(['https://example.com', '/api/v1/models', 'a=1'])
  })
})

describe('toFetch', () => {
  it('accepts the arguments of the global fetch', async () => {
    const fetch = toFetch({
      handle: async (request, sink) => {
        const body = await request.body({ maxBytes: 10, readMs: 1000, after: () => () => {} })
        sink.send(200, {}, `${request.method} ${request.path} ${new TextDecoder().decode(body)}`)
      },
    })
    const init = { method: 'POST', body: 'x' }

    const replies = [
      fetch(address, init),
      fetch(new URL(address), init),
      fetch(new Request(address, init)),
      fetch(address, new Request('https://other.example.com', init)),
      fetch(address, Object.assign(Object.create(null) as RequestInit, init)),
    ]

    for (const reply of replies) expect(await (await reply).text()).toBe('POST /api/v1/models x')
    await expect(fetch('no address')).rejects.toThrow(TypeError)
  })

  class Server {
    readonly url = new URL('https://server.example.com/')
    readonly method = 'PUT'
    readonly signal = AbortSignal.abort()
  }

  it.each([
    ['the server, as Bun does', new Server()],
    ['bindings with names of fetch options, as Workers do', { method: 'PUT', body: 'y', headers: 'z', signal: 'on' }],
    ['the client, as Deno does', { remoteAddr: { hostname: '::1' }, completed: Promise.resolve() }],
    ['a text', 'text'],
    ['a number', 1],
    ['null', null],
    ['a list', []],
    ['a function', () => {}],
  ])('ignores what a server passes after the request: %s', async (_case, context) => {
    const fetch = toFetch({
      handle: async (request, sink) => sink.send(200, {}, [request.method, request.path, request.header('x-a')].join()),
    })
    const request = new Request(address, { method: 'POST', body: 'x', headers: { 'x-a': 'b' } })

    expect(await (await fetch(request, context)).text()).toBe('POST,/api/v1/models,b')
  })

  it('fits the types of servers and of clients', async () => {
    const { fetch } = createGateway({ providers: [extractive()] })
    const bun: { readonly fetch: (request: Request, server: Server) => Promise<Response> } = { fetch }
    const worker: {
      readonly fetch: (request: Request, bindings: { readonly KEY: string }, context: object) => Promise<Response>
    } = { fetch }
    const client: typeof globalThis.fetch = fetch
    const request = new Request('https://example.com/health')

    const responses = [bun.fetch(request, new Server()), worker.fetch(request, { KEY: '' }, {}), client(request.url)]

    expect((await Promise.all(responses)).map(({ status }) => status)).toEqual([200, 200, 200])
  })

  it('accepts a request of another package', async () => {
    const fetch = toFetch({ handle: ({ method, path }, sink) => sink.send(200, {}, `${method} ${path}`) })
    const { method, url, headers, signal, body } = new Request(address, { method: 'DELETE' })
    const foreign = { method, url, headers, signal, body } as Request

    expect(await (await fetch(foreign)).text()).toBe('DELETE /api/v1/models')
  })

  it('a signal after a request cancels it', async () => {
    const left = promise<void>()
    const fetch = toFetch({ handle: (request) => request.onDisconnect(left.resolve) })
    const caller = new AbortController()

    void fetch(new Request(address, { method: 'POST', body: 'x' }), { signal: caller.signal })
    caller.abort()

    await left.settled
  })

  it('notifies the handler of a signal that has fired already', async () => {
    const left = promise<void>()
    const fetch = toFetch({
      handle: (request, sink) => {
        request.onDisconnect(() => {
          left.resolve()
          sink.send(499, {}, '')
        })
      },
    })

    const response = await fetch(address, { signal: AbortSignal.abort() })

    await left.settled
    expect(response.status).toBe(499)
  })

  it('notifies the handler once when the body is cancelled and the signal fires', async () => {
    let left = 0
    const begun = promise<readonly [HttpRequest, ResponseSink]>()
    const fetch = toFetch({
      handle: (request, sink) => {
        request.onDisconnect(() => (left += 1))
        sink.begin(200, {})
        begun.resolve([request, sink])
      },
    })
    const caller = new AbortController()

    const response = await fetch(address, { signal: caller.signal })
    const [, sink] = await begun.settled
    sink.write('one')
    await response.body?.cancel()
    caller.abort()

    expect(left).toBe(1)
    expect(sink.write('two')).toBe(true)
    sink.end()
  })

  it('ends the body with the reason of the signal when it fires while a reader waits', async () => {
    const fetch = toFetch({
      handle: (request, sink) => {
        request.onDisconnect(() => {})
        sink.begin(200, {})
        sink.write('one')
      },
    })
    const caller = new AbortController()
    const reader = (await fetch(address, { signal: caller.signal })).body!.getReader()
    await reader.read()
    const waiting = reader.read()
    caller.abort(new Error('gone'))

    await expect(waiting).rejects.toThrow('gone')
  })

  it('leaves the body to a server that cancels it when the signal fires, as Deno does', async () => {
    const left = promise<void>()
    const fetch = toFetch({
      handle: (request, sink) => {
        request.onDisconnect(left.resolve)
        sink.begin(200, {})
      },
    })
    const caller = new AbortController()
    const body = (await fetch(address, { signal: caller.signal })).body!
    const cancelled = new Promise((resolve) => {
      caller.signal.addEventListener('abort', () => resolve(body.cancel()))
    })
    caller.abort()

    // Deno prints the error of a body that fails first.
    expect(await cancelled).toBeUndefined()
    await left.settled
  })

  it('pulls more data only when the reader reads', async () => {
    let drained = 0
    const begun = promise<ResponseSink>()
    const fetch = toFetch({
      handle: (_request, sink) => {
        sink.begin(200, {})
        sink.onDrain(() => (drained += 1))
        begun.resolve(sink)
      },
    })
    const reader = (await fetch(address)).body!.getReader()
    const sink = await begun.settled
    while (sink.write('piece'));
    const before = drained
    expect(sink.write('piece')).toBe(false)
    expect(drained).toBe(before)
    await reader.read()
    await reader.read()
    await nextTurn()

    expect(drained).toBeGreaterThan(before)
  })
})
