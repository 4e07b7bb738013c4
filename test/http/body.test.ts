import { describe, expect, it } from 'vitest'
import { GatewayError } from '../../src/core/errors.ts'
import type { BodyLimits } from '../../src/core/http.ts'
import { checkJsonHeaders } from '../../src/http/body.ts'
import { createServer } from 'node:http'
import { once } from 'node:events'
import { toNodeHandler } from '../../src/http/node-server.ts'
import { toFetch } from '../../src/http/web-handler.ts'
import { waitUntil } from '../support/wait-until.ts'

const limits: BodyLimits = { maxBytes: 10, readMs: 1000, after: () => () => {} }

/** Reads the body of a web request as the gateway does: the headers first, then the bytes. */
function readBody(request: Request, given = limits): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const handle = toFetch({
      handle: (incoming, sink) => {
        sink.send(204, {}, '')
        try {
          checkJsonHeaders(incoming, given.maxBytes)
          resolve(incoming.body(given))
        } catch (error) {
          reject(error)
        }
      },
    })
    void handle(request)
  })
}

function request(body: BodyInit, headers: Record<string, string> = { 'content-type': 'application/json' }): Request {
  return new Request('http://gateway.test/', { method: 'POST', body, headers, duplex: 'half' } as RequestInit)
}

function chunked(...pieces: readonly string[]): ReadableStream<Uint8Array> {
  return new ReadableStream({
    start(controller) {
      for (const piece of pieces) controller.enqueue(new TextEncoder().encode(piece))
      controller.close()
    },
  })
}

async function kindOf(promise: Promise<unknown>): Promise<string> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  )
  return GatewayError.is(error) ? error.kind : 'no failure'
}

describe('reading a body', () => {
  it.each<[string, (given: Request) => unknown]>([
    ['that was read', (given) => given.text()],
    ['that was read as JSON', (given) => given.json()],
    ['whose stream is locked', (given) => given.body?.getReader()],
    ['whose stream was canceled', (given) => given.body?.cancel()],
  ])('%s fails as an invalid request', async (_state, consume) => {
    const consumed = request('{"a":1}')
    await consume(consumed)
    expect(await kindOf(readBody(consumed))).toBe('invalid-request')
  })

  it('reads the original after a clone of it was read', async () => {
    const original = request('{"a":1}')
    await original.clone().text()
    expect(new TextDecoder().decode(await readBody(original))).toBe('{"a":1}')
  })

  it('joins its pieces', async () => {
    expect(new TextDecoder().decode(await readBody(request(chunked('{"a"', ':1', '}')), limits))).toBe('{"a":1}')
  })

  it('accepts a body of exactly the maximum size', async () => {
    expect((await readBody(request('0123456789'), limits)).byteLength).toBe(10)
  })

  it('stops reading after its deadline', async () => {
    let isLate = (): void => {}
    let pieces = 0
    const endless = new ReadableStream<Uint8Array>(
      {
        pull: (controller) => {
          pieces += 1
          if (pieces === 1) controller.enqueue(new Uint8Array(1))
        },
      },
      { highWaterMark: 0 },
    )
    const reading = readBody(request(endless), { ...limits, after: (_, callback) => ((isLate = callback), () => {}) })
    await waitUntil(() => pieces === 2)
    isLate()
    expect(await kindOf(reading)).toBe('request-timeout')
    expect([pieces, endless.locked]).toEqual([2, false])
  })

  it('rejects a larger body, with or without content-length', async () => {
    expect(await kindOf(readBody(request(chunked('0123456', '7890')), limits))).toBe('too-large')
    const announced = request('01234567890', { 'content-type': 'application/json', 'content-length': '11' })
    expect(await kindOf(readBody(announced, limits))).toBe('too-large')
  })

  it('rejects compressed bodies and bodies that are not JSON', async () => {
    const gzip = request('x', { 'content-type': 'application/json', 'content-encoding': 'gzip' })
    expect(await kindOf(readBody(gzip, limits))).toBe('unsupported-media')
    expect(await kindOf(readBody(request('x', { 'content-type': 'text/html' }), limits))).toBe('unsupported-media')
    expect(await kindOf(readBody(request('x', { 'content-type': 'application/vnd.api+json' }), limits))).toBe(
      'no failure',
    )
  })

  it('rejects a body that does not arrive in time', async () => {
    const late = { ...limits, after: (_: number, callback: () => void) => (callback(), () => {}) }
    expect(await kindOf(readBody(request(new ReadableStream()), late))).toBe('request-timeout')
  })

  it('reports a fault of the caller when the body breaks off', async () => {
    const broken = new ReadableStream({ pull: (controller) => controller.error(new Error('reset')) })
    expect(await kindOf(readBody(request(broken), limits))).toBe('invalid-request')
  })
})

describe('a body of node:http', () => {
  it.each([1_000, 3_000_000])('of %i bytes is read as bytes that Node decodes without a copy', async (size) => {
    let read: Promise<Uint8Array> = Promise.resolve(new Uint8Array(0))
    const handle = toNodeHandler({
      handle: (incoming, sink) => {
        read = Promise.resolve(incoming.body({ ...limits, maxBytes: size }))
        void read.then(() => sink.send(200, {}, ''))
      },
    })
    const server = createServer((incoming, outgoing) => void handle(incoming, outgoing)).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const address = server.address()
    const port = typeof address === 'object' && address !== null ? address.port : 0
    await fetch(`http://127.0.0.1:${port}`, { method: 'POST', body: 'x'.repeat(size) })
    server.close()

    expect(Buffer.isBuffer(await read)).toBe(true)
    expect((await read).byteLength).toBe(size)
  })
})
