import { createServer, type Server } from 'node:net'
import type { AddressInfo, Socket } from 'node:net'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { ClosableTransport, TransportCall, TransportRequest } from '../../src/core/ports.ts'
import { fetchTransport } from '../../src/http/transport-fetch.ts'
import { undiciTransport } from '../../src/http/transport-undici.ts'
import { PullQueue } from '../support/pull-queue.ts'
import { CUT, gate, HANG, startUpstream, type Upstream } from '../support/upstream.ts'

let upstream: Upstream
let transport: ClosableTransport

beforeEach(async () => {
  upstream = await startUpstream()
})

afterEach(async () => {
  await transport.close()
  await upstream.close()
})

interface Received {
  readonly status: number
  readonly header: (name: string) => string | undefined
  /** Yields the body in pieces. The call is paused while no reader waits. */
  readonly body: AsyncIterableIterator<Uint8Array>
}

interface Sent {
  readonly call: TransportCall
  /** Rejects with an error that occurs before the response headers. */
  readonly response: Promise<Received>
  /** Names of the handler methods in call order. */
  readonly events: readonly string[]
}

/** Sends a request through the transport. Throws when the transport violates the handler contract. */
function send(request: TransportRequest): Sent {
  const pieces = new PullQueue<Uint8Array>()
  const events: string[] = []
  let settle: { readonly resolve: (response: Received) => void; readonly reject: (error: unknown) => void }
  const response = new Promise<Received>((resolve, reject) => {
    settle = { resolve, reject }
  })
  response.catch(() => {})
  const note = (event: string): void => {
    const last = events.at(-1)
    const isOver = last === 'end' || last === 'error'
    const isInOrder = event === 'head' ? last === undefined : event === 'error' || last !== undefined
    if (isOver || !isInOrder) throw new Error(`${event} after ${events.join(', ')}`)
    events.push(event)
  }
  const call = transport(request, {
    onHead: (status, header) => {
      note('head')
      settle.resolve({ status, header, body: pieces.iterate(() => call.abort()) })
    },
    onData: (bytes) => {
      note('data')
      pieces.push(bytes)
    },
    onEnd: () => {
      note('end')
      pieces.end()
    },
    onError: (error) => {
      note('error')
      settle.reject(error)
      pieces.break(error)
    },
  })
  pieces.onDemand = (isWanted) => (isWanted ? call.resume() : call.pause())
  return { call, response, events }
}

const start = (path = '/'): Sent => send({ method: 'GET', url: upstream.url + path, headers: {} })
const get = (path = '/'): Promise<Received> => start(path).response

async function textOf(response: Received): Promise<string> {
  const pieces: Uint8Array[] = []
  for await (const piece of response.body) pieces.push(piece)
  return Buffer.concat(pieces).toString()
}

/** Sends other requests. Their responses show that the event loop has processed earlier work. */
async function sendOtherRequests(count = 5): Promise<void> {
  for (let round = 0; round < count; round += 1)
    await fetch(`${upstream.url}/v1/models`).then((other) => other.body?.cancel())
}

describe.each([
  ['undici', (): ClosableTransport => undiciTransport()],
  ['fetch', (): ClosableTransport => fetchTransport((url, init) => fetch(url, init))],
])('the transport over %s', (name, create) => {
  beforeEach(() => {
    transport = create()
  })

  it.each([
    ['text', '{"a":"ü"}'],
    ['bytes', new TextEncoder().encode('{"a":"ü"}')],
  ])('sends a body of %s with the given headers and reads the answer', async (_kind, body) => {
    upstream.reply = () => ({
      kind: 'body',
      body: 'grüße',
      status: 418,
      headers: { 'x-one': 'a', 'x-two': ['b', 'c'] },
    })
    const { response: sent } = send({
      method: 'POST',
      url: `${upstream.url}/v1/path?query=1`,
      headers: { 'content-type': 'application/json', 'x-own': 'yes' },
      body,
    })
    const response = await sent
    expect(response.status).toBe(418)
    expect(response.header('x-one')).toBe('a')
    expect(response.header('x-two')).toBe('b, c')
    expect(response.header('x-none')).toBeUndefined()
    expect(await textOf(response)).toBe('grüße')
    expect(upstream.last).toMatchObject({ method: 'POST', path: '/v1/path?query=1', text: '{"a":"ü"}' })
    expect(upstream.last.headers).toMatchObject({ 'x-own': 'yes', 'content-length': '10' })
    expect(upstream.last.headers).not.toHaveProperty('cookie')
  })

  it('forwards the pieces of a body as they arrive', async () => {
    const { opened, open } = gate()
    upstream.reply = () => ({ kind: 'events', items: ['one', opened, 'two'] })
    const response = await get()
    const pieces = response.body[Symbol.asyncIterator]()
    expect(Buffer.from((await pieces.next()).value).toString()).toBe('one')
    open()
    expect(Buffer.from((await pieces.next()).value).toString()).toBe('two')
    expect((await pieces.next()).done).toBe(true)
  })

  it('does not follow a redirect', async () => {
    upstream.reply = () => ({ kind: 'body', body: '', status: 302, headers: { location: '/elsewhere' } })
    expect((await get()).status).toBe(302)
    expect(upstream.requests).toHaveLength(1)
  })

  it.each([204, 205, 304, 600, 999])(
    'status %i is an answer or a rejection, never a crash or a hang',
    async (status) => {
      upstream.reply = () => ({ kind: 'socket', bytes: `HTTP/1.1 ${status} Odd\r\ncontent-length: 0\r\n\r\n` })
      const seen = await get().then(
        (response) => response.status,
        () => 'rejected',
      )
      expect([status, 'rejected']).toContain(seen)
    },
  )

  it.each(['HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n', 'garbage\r\n\r\n', ''])(
    'an answer of %j and then nothing rejects',
    async (bytes) => {
      upstream.reply = () => ({ kind: 'socket', bytes })
      await expect(get()).rejects.toThrow()
    },
  )

  it('an informational answer is skipped', async () => {
    upstream.reply = () => ({
      kind: 'socket',
      bytes: 'HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok',
    })
    const response = await get()
    expect([response.status, await textOf(response)]).toEqual([200, 'ok'])
  })

  it('response headers of more than 16 KiB reject', async () => {
    upstream.reply = () => ({ kind: 'body', body: '', headers: { 'x-flood': 'x'.repeat(40_000) } })
    await expect(get()).rejects.toThrow()
  })

  it('a body that breaks off rejects after the received part', async () => {
    upstream.reply = () => ({ kind: 'events', items: ['part', CUT] })
    const response = await get()
    const pieces = response.body[Symbol.asyncIterator]()
    expect(Buffer.from((await pieces.next()).value).toString()).toBe('part')
    await expect(pieces.next()).rejects.toThrow()
  })

  it('a refused connection rejects', async () => {
    await upstream.close()
    await expect(get()).rejects.toThrow()
  })

  it('an immediate abort sends nothing and does not call the handler', async () => {
    const { call, events } = start('/never')
    call.abort()
    await sendOtherRequests()
    expect(upstream.requests.filter(({ path }) => path === '/never')).toHaveLength(0)
    expect(events).toEqual([])
  })

  it('an abort before the answer closes the connection, and the handler is not called', async () => {
    upstream.reply = ({ path }) => (path === '/' ? { kind: 'hang' } : 'Another request.')
    const { call, events } = start()
    const request = await upstream.waitForRequest(1)
    call.abort()
    call.abort()
    await request.aborted
    await sendOtherRequests()
    expect(events).toEqual([])
  })

  it('an abort during the body closes the connection, and the handler is not called again', async () => {
    upstream.reply = ({ path }) => (path === '/' ? { kind: 'events', items: ['part', HANG] } : 'Another request.')
    const { call, response, events } = start()
    await (await response).body.next()
    call.abort()
    await upstream.last.aborted
    await sendOtherRequests()
    expect(events).toEqual(['head', 'data'])
  })

  it('an abort within a call of the handler ends the request', async () => {
    const many = Array.from({ length: 50 }, () => 'x'.repeat(64 * 1024))
    upstream.reply = ({ path }) => (path === '/' ? { kind: 'events', items: [...many, HANG] } : 'Another request.')
    let pieces = 0
    const call = transport(
      { method: 'GET', url: `${upstream.url}/`, headers: {} },
      {
        onHead: () => {},
        onData: () => {
          pieces += 1
          call.abort()
        },
        onEnd: () => expect.unreachable(),
        onError: () => expect.unreachable(),
      },
    )
    await (
      await upstream.waitForRequest(1)
    ).aborted
    await sendOtherRequests()
    expect(pieces).toBe(1)
  })

  it('an abort while the body is paused closes the connection', async () => {
    upstream.reply = () => ({ kind: 'events', items: ['part', HANG] })
    const { call, response } = start()
    await response
    call.pause()
    call.abort()
    await upstream.last.aborted
  })

  it('pause and resume after the end, or after an abort, do nothing', async () => {
    upstream.reply = () => 'Whole.'
    const { call, response, events } = start()
    await textOf(await response)
    const before = [...events]
    call.resume()
    call.pause()
    call.abort()
    call.resume()
    await sendOtherRequests()
    expect(events).toEqual(before)
  })

  it('ending the loop closes the connection', async () => {
    upstream.reply = () => ({ kind: 'events', items: ['part', HANG] })
    for await (const piece of (await get()).body) {
      expect(Buffer.from(piece).toString()).toBe('part')
      break
    }
    await upstream.last.aborted
  })

  it('a slow reader pauses the upstream and receives everything', async () => {
    let written = 0
    const piece = 'x'.repeat(64 * 1024)
    const pour = function* (): Generator<string> {
      for (; written < 400; written += 1) yield piece
    }
    upstream.reply = ({ path }) => (path === '/' ? { kind: 'events', items: pour() } : 'Another request.')
    const pieces = (await get()).body[Symbol.asyncIterator]()
    let size = (await pieces.next()).value.byteLength
    // The kernel buffers far less than the 25 MiB of the response. Other requests show that the event loop is not blocked.
    await sendOtherRequests()
    expect(written).toBeLessThan(400)
    for (let next = await pieces.next(); next.done !== true; next = await pieces.next()) size += next.value.byteLength
    expect(size).toBe(400 * piece.length)
  })

  it('reuses connections', async () => {
    for (let round = 0; round < 8; round += 1) await textOf(await get(`/${name}`))
    // The second request may start before the first connection is marked as free.
    expect(upstream.connectionsOpened).toBeLessThanOrEqual(2)
  })
})

describe('the transport over undici', () => {
  let silent: Server

  afterEach(() => {
    silent?.close()
  })

  it('stops connecting after the connect timeout of the request', async () => {
    transport = undiciTransport()
    // Accepts the connection and never answers the TLS handshake, which counts as connecting.
    silent = createServer(() => {})
    await new Promise<void>((resolve) => {
      silent.listen(0, '127.0.0.1', resolve)
    })
    const url = `https://127.0.0.1:${(silent.address() as AddressInfo).port}`
    const { response } = send({ method: 'GET', url, headers: {}, connectMs: 30 })
    await expect(response).rejects.toMatchObject({ code: 'UND_ERR_CONNECT_TIMEOUT' })
  })

  it('an abort while connecting closes the connection, and the handler is not called', async () => {
    transport = undiciTransport()
    silent = createServer(() => {})
    await new Promise<void>((resolve) => {
      silent.listen(0, '127.0.0.1', resolve)
    })
    const connected = new Promise<Socket>((resolve) => {
      silent.once('connection', resolve)
    })
    const url = `https://127.0.0.1:${(silent.address() as AddressInfo).port}`
    const { call, events } = send({ method: 'GET', url, headers: {}, connectMs: 30 })
    const socket = await connected
    const closed = new Promise((resolve) => {
      socket
        .once('close', resolve)
        .on('error', () => {})
        .resume()
    })
    call.abort()
    await closed
    await sendOtherRequests()
    expect(events).toEqual([])
  })

  it('closing ends running requests, and the transport can be used again', async () => {
    transport = undiciTransport()
    upstream.reply = () => ({ kind: 'hang' })
    const response = get()
    response.catch(() => {})
    await upstream.waitForRequest(1)
    await transport.close()
    await expect(response).rejects.toThrow()
    upstream.reply = () => ({ kind: 'body', body: 'again' })
    expect(await textOf(await get())).toBe('again')
  })
})

describe('the transport over fetch', () => {
  it('reports nothing after an abort, although the fetch or its body ignores the signal', async () => {
    let cancelled = 0
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(new Uint8Array(1)),
      cancel: () => {
        cancelled += 1
      },
    })
    let response: (response: Response) => void = () => {}
    const late = new Promise<Response>((resolve) => {
      response = resolve
    })
    transport = fetchTransport((url) => (url.endsWith('/late') ? late : Promise.resolve(new Response(body))))
    const deaf = start('/late')
    const read = start('/body')
    await (await read.response).body.next()
    deaf.call.abort()
    read.call.abort()
    response(new Response(new ReadableStream({ cancel: () => void (cancelled += 1) })))
    await sendOtherRequests()
    expect([deaf.events, read.events, cancelled]).toEqual([[], ['head', 'data'], 2])
  })

  it('omits the encoding that the platform has already decoded', async () => {
    transport = fetchTransport(async () => new Response('x', { headers: { 'content-encoding': 'gzip', 'x-a': 'b' } }))
    const response = await get()
    expect([response.header('content-encoding'), response.header('x-a')]).toEqual([undefined, 'b'])
  })
})
