import { createServer, type Server } from 'node:net'
import type { AddressInfo } from 'node:net'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { ClosableTransport, TransportResponse } from '../../src/core/ports.ts'
import { fetchTransport } from '../../src/http/transport-fetch.ts'
import { undiciTransport } from '../../src/http/transport-undici.ts'
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

async function textOf(response: TransportResponse): Promise<string> {
  const pieces: Uint8Array[] = []
  for await (const piece of response.body) pieces.push(piece)
  return Buffer.concat(pieces).toString()
}

const get = (path = '/', signal = new AbortController().signal): Promise<TransportResponse> =>
  transport({ method: 'GET', url: upstream.url + path, headers: {}, signal })

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
    const response = await transport({
      method: 'POST',
      url: `${upstream.url}/v1/path?query=1`,
      headers: { 'content-type': 'application/json', 'x-own': 'yes' },
      body,
      signal: new AbortController().signal,
    })
    expect(response.status).toBe(418)
    expect(response.header('x-one')).toBe('a')
    expect(response.header('x-two')).toBe('b, c')
    expect(response.header('x-none')).toBeUndefined()
    expect(await textOf(response)).toBe('grüße')
    expect(upstream.last).toMatchObject({ method: 'POST', path: '/v1/path?query=1', text: '{"a":"ü"}' })
    expect(upstream.last.headers).toMatchObject({ 'x-own': 'yes', 'content-length': '10' })
    expect(upstream.last.headers).not.toHaveProperty('cookie')
  })

  it('brings the pieces of a body as they come', async () => {
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

  it('a body that is cut off rejects after what came', async () => {
    upstream.reply = () => ({ kind: 'events', items: ['part', CUT] })
    const response = await get()
    const pieces = response.body[Symbol.asyncIterator]()
    expect(Buffer.from((await pieces.next()).value).toString()).toBe('part')
    await expect(pieces.next()).rejects.toThrow()
  })

  it('nobody listening rejects', async () => {
    await upstream.close()
    await expect(get()).rejects.toThrow()
  })

  it('a signal that has fired already means that nothing is sent', async () => {
    await expect(get('/', AbortSignal.abort(new Error('gone')))).rejects.toThrow('gone')
    expect(upstream.requests).toHaveLength(0)
  })

  it('an abort before the answer rejects with its reason and closes the connection', async () => {
    upstream.reply = () => ({ kind: 'hang' })
    const controller = new AbortController()
    const response = get('/', controller.signal)
    const request = await upstream.arrival(1)
    controller.abort(new Error('left'))
    await expect(response).rejects.toThrow('left')
    await request.leaving
  })

  it('an abort during the body rejects the read that is under way and closes the connection', async () => {
    upstream.reply = () => ({ kind: 'events', items: ['part', HANG] })
    const controller = new AbortController()
    const pieces = (await get('/', controller.signal)).body[Symbol.asyncIterator]()
    await pieces.next()
    const waiting = pieces.next()
    controller.abort(new Error('left'))
    await expect(waiting).rejects.toThrow('left')
    await upstream.last.leaving
  })

  it('an abort after the head closes the connection although nobody reads the body', async () => {
    upstream.reply = () => ({ kind: 'events', items: ['part', HANG] })
    const controller = new AbortController()
    await get('/', controller.signal)
    controller.abort()
    await upstream.last.leaving
  })

  it('leaving the loop closes the connection', async () => {
    upstream.reply = () => ({ kind: 'events', items: ['part', HANG] })
    for await (const piece of (await get()).body) {
      expect(Buffer.from(piece).toString()).toBe('part')
      break
    }
    await upstream.last.leaving
  })

  it('a slow reader slows the upstream, and gets everything', async () => {
    let written = 0
    const piece = 'x'.repeat(64 * 1024)
    const pour = function* (): Generator<string> {
      for (; written < 400; written += 1) yield piece
    }
    upstream.reply = ({ path }) => (path === '/' ? { kind: 'events', items: pour() } : 'Another request.')
    const pieces = (await get()).body[Symbol.asyncIterator]()
    let size = (await pieces.next()).value.byteLength
    // What the kernel buffers is far less than the 25 MiB of the answer; other requests show that the loop is free.
    for (let round = 0; round < 5; round += 1)
      await fetch(`${upstream.url}/v1/models`).then((other) => other.body?.cancel())
    expect(written).toBeLessThan(400)
    for (let next = await pieces.next(); next.done !== true; next = await pieces.next()) size += next.value.byteLength
    expect(size).toBe(400 * piece.length)
  })

  it('uses connections again', async () => {
    for (let round = 0; round < 8; round += 1) await textOf(await get(`/${name}`))
    // The second request may start before the first connection has noticed that it is free.
    expect(upstream.connectionsOpened).toBeLessThanOrEqual(2)
  })
})

describe('the transport over undici', () => {
  let silent: Server

  afterEach(() => {
    silent?.close()
  })

  it('gives up connecting after the time that the request allows', async () => {
    transport = undiciTransport()
    // Takes the connection and never answers the TLS greeting, which belongs to connecting.
    silent = createServer(() => {})
    await new Promise<void>((resolve) => {
      silent.listen(0, '127.0.0.1', resolve)
    })
    const url = `https://127.0.0.1:${(silent.address() as AddressInfo).port}`
    const request = { method: 'GET', url, headers: {}, connectMs: 30, signal: new AbortController().signal } as const
    await expect(transport(request)).rejects.toMatchObject({ code: 'UND_ERR_CONNECT_TIMEOUT' })
  })

  it('an abort while connecting rejects at once', async () => {
    transport = undiciTransport()
    silent = createServer(() => {})
    await new Promise<void>((resolve) => {
      silent.listen(0, '127.0.0.1', resolve)
    })
    const controller = new AbortController()
    const connected = new Promise((resolve) => {
      silent.once('connection', resolve)
    })
    const url = `https://127.0.0.1:${(silent.address() as AddressInfo).port}`
    const response = transport({ method: 'GET', url, headers: {}, signal: controller.signal })
    response.catch(() => {})
    await connected
    controller.abort(new Error('left'))
    await expect(response).rejects.toThrow('left')
  })

  it('closing ends what is under way, and the transport can be used again', async () => {
    transport = undiciTransport()
    upstream.reply = () => ({ kind: 'hang' })
    const response = get()
    response.catch(() => {})
    await upstream.arrival(1)
    await transport.close()
    await expect(response).rejects.toThrow()
    upstream.reply = () => ({ kind: 'body', body: 'again' })
    expect(await textOf(await get())).toBe('again')
  })
})

describe('the transport over fetch', () => {
  it('ends although the fetch, or its body, ignores the signal', async () => {
    const body = new ReadableStream<Uint8Array>({ start: (controller) => controller.enqueue(new Uint8Array(1)) })
    transport = fetchTransport((url) =>
      url.endsWith('/deaf') ? new Promise(() => {}) : Promise.resolve(new Response(body)),
    )
    const controller = new AbortController()
    const deaf = get('/deaf', controller.signal)
    const pieces = (await get('/body', controller.signal)).body[Symbol.asyncIterator]()
    await pieces.next()
    const waiting = pieces.next()
    controller.abort(new Error('left'))
    await expect(deaf).rejects.toThrow('left')
    await expect(waiting).rejects.toThrow('left')
  })

  it('hides the encoding that the platform has undone already', async () => {
    transport = fetchTransport(async () => new Response('x', { headers: { 'content-encoding': 'gzip', 'x-a': 'b' } }))
    const response = await get()
    expect([response.header('content-encoding'), response.header('x-a')]).toEqual([undefined, 'b'])
  })
})
