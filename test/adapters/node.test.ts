import { createServer } from 'node:http'
import { connect, type Socket } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import { serve, toNodeHandler, type HttpHandler, type RunningServer, type ServeOptions } from '../../src/node.ts'
import { toFetch } from '../../src/http/web-handler.ts'
import { listen } from './listen.ts'
import { promise, testAdapter } from './suite.ts'

testAdapter({
  name: 'toNodeHandler',
  mountedAt: '',
  start: (gateway) => listen(createServer(toNodeHandler(gateway))),
})

testAdapter({
  name: 'serve',
  mountedAt: '',
  start: (gateway) => serve(gateway, { port: 0, hostname: '127.0.0.1', drainMs: 0 }),
})

testAdapter({
  name: 'toNodeHandler of a fetch handler',
  isChunked: true,
  mountedAt: '',
  start: (gateway) => listen(createServer(toNodeHandler({ fetch: toFetch(gateway) }))),
})

testAdapter({
  name: 'serve of a fetch handler',
  isChunked: true,
  mountedAt: '',
  start: (gateway) => serve({ fetch: toFetch(gateway) }, { port: 0, hostname: '127.0.0.1', drainMs: 0 }),
})

/** Waits enough event-loop turns for a server to read the data sent so far. */
async function waitTurns(): Promise<void> {
  for (let turn = 0; turn < 10; turn++) await new Promise((resolve) => setImmediate(resolve))
}

function connected({ port }: RunningServer): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => resolve(socket))
    socket.once('error', reject)
  })
}

/** Sends a request and resolves with all data received until the connection closes. */
function exchange(socket: Socket, request: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = ''
    socket.setEncoding('utf8')
    socket.on('data', (piece: string) => (text += piece))
    socket.once('error', reject)
    socket.once('close', () => resolve(text))
    socket.write(request)
  })
}

describe('serve', () => {
  const running: RunningServer[] = []
  afterEach(async () => {
    for (const server of running.splice(0)) await server.close()
  })

  const ok: HttpHandler = (_request, sink) => sink.send(200, {}, 'ok')

  const start = async (handle: HttpHandler, options: Partial<ServeOptions> = {}): Promise<RunningServer> => {
    const server = await serve({ handle }, { port: 0, hostname: '127.0.0.1', drainMs: 0, ...options })
    running.push(server)
    return server
  }

  it('returns the port on which it listens', async () => {
    const server = await start(ok)

    expect(server.port).toBeGreaterThan(0)
    expect(server.url).toBe(`http://127.0.0.1:${server.port}`)
  })

  it('writes an IPv6 address in brackets', async () => {
    const server = await start(ok, { hostname: '::1' })

    expect(await fetch(server.url).then((response) => response.text())).toBe('ok')
  })

  it('rejects when the port is in use', async () => {
    const { port } = await start(ok)

    await expect(start(ok, { port })).rejects.toThrow(/EADDRINUSE/)
  })

  it('finishes a running stream during close, and accepts no new connections', async () => {
    const release = promise<void>()
    const handle: HttpHandler = async (_request, sink) => {
      sink.begin(200, {})
      sink.write('one ')
      await release.settled
      sink.write('two')
      sink.end()
    }
    const server = await start(handle, { drainMs: 60_000 })

    const response = await fetch(server.url)
    const closed = server.close()
    await waitTurns()
    await expect(fetch(server.url)).rejects.toThrow()
    release.resolve()

    expect(await response.text()).toBe('one two')
    await closed
  })

  it('answers requests of unread connections during close', async () => {
    const server = await start(ok, { drainMs: 60_000 })
    const sockets = await Promise.all(Array.from({ length: 50 }, () => connected(server)))

    const responses = sockets.map((socket) => exchange(socket, 'GET / HTTP/1.1\r\nhost: a\r\n\r\n'))
    await server.close()

    for (const response of await Promise.all(responses)) expect(response).toMatch(/^HTTP\/1\.1 200 OK[^]*\r\n\r\nok$/)
  })

  it('answers the first request of a connection that arrives shortly after close', async () => {
    const server = await start(ok, { drainMs: 60_000 })
    const socket = await connected(server)

    const closed = server.close()
    await waitTurns()
    const response = await exchange(socket, 'GET / HTTP/1.1\r\nhost: a\r\n\r\n')

    expect(response).toMatch(/^HTTP\/1\.1 200 OK[^]*\r\nconnection: close\r\n[^]*ok$/i)
    await closed
  })

  it.each([
    [undefined, 75],
    [120_000, 120],
  ])('keeps an idle connection with keepAliveMs %s for %d s', async (keepAliveMs, seconds) => {
    const server = await start(ok, keepAliveMs === undefined ? {} : { keepAliveMs })

    const { headers } = await fetch(server.url)

    expect(headers.get('keep-alive')).toBe(`timeout=${seconds}`)
  })

  it('keeps an idle connection without a limit with keepAliveMs false', async () => {
    const server = await start(ok, { keepAliveMs: false })

    const { headers } = await fetch(server.url)

    expect(headers.get('connection')).toBe('keep-alive')
    expect(headers.get('keep-alive')).toBeNull()
  })

  it.each([
    [{ keepAliveMs: -1 }, 'keepAliveMs'],
    [{ keepAliveMs: 0 }, 'keepAliveMs'],
    [{ keepAliveMs: Number.NaN }, 'keepAliveMs'],
    [{ drainMs: 1.5 }, 'drainMs'],
  ])('rejects the options %j', async (options, param) => {
    await expect(start(ok, options)).rejects.toMatchObject({ details: { param } })
  })

  it('ends unfinished responses at the deadline of close', async () => {
    const server = await start((_request, sink) => sink.begin(200, {}), { drainMs: 1 })

    const response = await fetch(server.url)
    await server.close()

    await expect(response.text()).rejects.toThrow()
  })

  it('can be closed twice', async () => {
    const server = await start(ok)

    await Promise.all([server.close(), server.close()])

    await expect(fetch(server.url)).rejects.toThrow()
  })

  it('sends connection: close on kept-alive connections while the server drains', async () => {
    const release = promise<void>()
    const server = await start(
      async (request, sink) => {
        if (request.path.endsWith('/slow')) await release.settled
        sink.send(200, {}, 'ok')
      },
      { drainMs: 60_000 },
    )
    const socket = connect(server.port, '127.0.0.1')
    const ended = new Promise((resolve) => socket.once('close', resolve))
    socket.write('GET /slow HTTP/1.1\r\nhost: a\r\n\r\n')
    socket.resume()
    await new Promise((resolve) => socket.once('ready', resolve))
    await fetch(server.url)

    const closed = server.close()
    release.resolve()

    await closed
    await ended
  })

  it('passes at most 240 of 400 headers to the gateway: older Node versions drop the rest, newer ones reject the request', async () => {
    const reached: number[] = []
    const server = await start((request, sink) => {
      reached.push([...request.headerNames()].length)
      sink.send(200, {}, 'ok')
    })
    const headers = Object.fromEntries(Array.from({ length: 400 }, (_, index) => [`x-${index}`, '1']))

    const { status } = await fetch(server.url, { headers })

    expect([200, 431]).toContain(status)
    expect(Math.max(...reached, 0)).toBeLessThan(240)
  })
})
