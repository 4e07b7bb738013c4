import express from 'express'
import { createServer } from 'node:http'
import { describe, expect, it } from 'vitest'
import { toExpress, type HttpHandling } from '../../src/express.ts'
import { toFetch } from '../../src/http/web-handler.ts'
import { listen } from './listen.ts'
import { post, readBody, sendJson, testAdapter, type Running } from './suite.ts'

testAdapter({
  name: 'toExpress as the whole application',
  mountedAt: '',
  start: (gateway) => listen(createServer(express().use(toExpress(gateway)))),
})

testAdapter({
  name: 'toExpress under a path',
  mountedAt: '/deep/ai',
  start: (gateway) => {
    const router = express.Router().use('/ai', toExpress(gateway))
    return listen(createServer(express().use('/deep', router)), '/deep/ai')
  },
})

testAdapter({
  name: 'toExpress of a fetch handler',
  isChunked: true,
  mountedAt: '/ai',
  start: (gateway) => listen(createServer(express().use('/ai', toExpress({ fetch: toFetch(gateway) }))), '/ai'),
})

const echo: HttpHandling = {
  handle: (request, sink) => {
    readBody(request).then(
      (body) =>
        sendJson(sink, { text: Buffer.from(body).toString(), mark: request.header('x-mark'), path: request.path }),
      (error: { readonly kind: string; readonly message: string }) =>
        sendJson(sink, error.message, STATUSES[error.kind]),
    )
  },
}

const STATUSES: Readonly<Record<string, number>> = { 'invalid-request': 400, internal: 500 }

async function withServer(app: express.Express, use: (running: Running) => Promise<void>): Promise<void> {
  const running = await listen(createServer(app))
  try {
    await use(running)
  } finally {
    await running.close()
  }
}

describe('toExpress behind a body parser', () => {
  const parsers: readonly (readonly [string, express.RequestHandler])[] = [
    ['express.json()', express.json()],
    ['express.text()', express.text({ type: '*/*' })],
    ['express.raw()', express.raw({ type: '*/*' })],
  ]

  it.each(parsers)('receives the body after %s', async (_name, parser) => {
    const app = express().use(parser).use('/ai', toExpress(echo))
    await withServer(app, async ({ url }) => {
      const body = '{"model":"caf\u00e9","n":1.5,"nested":{"list":[1,null,"\u6f22"]}}'

      const response = await post(`${url}/ai`, body)

      expect(await response.json()).toMatchObject({ text: body, path: '/ai/v1/x' })
    })
  })

  it('receives a decompressed body decompressed', async () => {
    const app = express().use(express.json()).use(toExpress(echo))
    await withServer(app, async ({ url }) => {
      const packed = new Blob(['{"a":1}']).stream().pipeThrough(new CompressionStream('gzip'))

      const response = await fetch(`${url}/v1/x`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'content-encoding': 'gzip', 'x-mark': 'y' },
        body: await new Response(packed).bytes(),
      })

      expect(await response.json()).toMatchObject({ text: '{"a":1}', mark: 'y' })
    })
  })

  it('uses the raw bytes if the parser has kept them', async () => {
    const keep = express.json({ verify: (request, _response, bytes) => Object.assign(request, { rawBody: bytes }) })
    await withServer(express().use(keep, toExpress(echo)), async ({ url }) => {
      const response = await post(url, '{ "a" : 1.0 }')

      expect(await response.json()).toMatchObject({ text: '{ "a" : 1.0 }' })
    })
  })

  it('reads a body that the parser did not read', async () => {
    await withServer(express().use(express.json(), toExpress(echo)), async ({ url }) => {
      const response = await post(url, 'plain', 'text/plain')

      expect(await response.json()).toMatchObject({ text: 'plain' })
    })
  })

  it('receives an empty body as empty', async () => {
    await withServer(express().use(express.raw({ type: '*/*' }), toExpress(echo)), async ({ url }) => {
      const response = await fetch(`${url}/v1/x`, {
        method: 'POST',
        body: new Blob([]).stream(),
        duplex: 'half',
      } as RequestInit)

      expect(await response.json()).toMatchObject({ text: '' })
    })
  })

  it('answers a body that is too deep to serialize with 400', async () => {
    await withServer(express().use(express.json(), toExpress(echo)), async ({ url }) => {
      const response = await post(url, `${'['.repeat(40_000)}${']'.repeat(40_000)}`)

      expect(response.status).toBe(400)
      expect(await response.text()).toContain('nested too deeply')
    })
  })

  it('answers a body that cannot be restored with 400 and a remedy', async () => {
    const app = express().use((request, _response, next) => void request.resume().once('end', next), toExpress(echo))
    await withServer(app, async ({ url }) => {
      const response = await post(url, '{"a":1}')

      expect(response.status).toBe(400)
      expect(await response.text()).toContain('Mount the gateway before')
    })
  })

  it('notices a disconnect after the body was parsed', async () => {
    let aborted: (() => void) | undefined
    const left = new Promise<void>((resolve) => {
      aborted = resolve
    })
    const caller = new AbortController()
    const waiting: HttpHandling = {
      handle: (request) => {
        request.onDisconnect(() => aborted?.())
        caller.abort()
      },
    }
    await withServer(express().use(express.json(), toExpress(waiting)), async ({ url }) => {
      await expect(post(url, '{"a":1}', 'application/json', caller.signal)).rejects.toThrow()
      await left
    })
  })
})

describe('toExpress with other middleware', () => {
  it('keeps headers and cookies that were set before', async () => {
    const app = express().use((_request, response, next) => {
      response.setHeader('access-control-allow-origin', '*')
      response.cookie('before', '1')
      next()
    })
    app.use(toExpress({ handle: (_request, sink) => sink.send(200, { 'x-own': 'a' }, 'ok') }))
    await withServer(app, async ({ url }) => {
      const response = await fetch(url)

      expect(response.headers.getSetCookie()).toEqual(['before=1; Path=/'])
      expect(response.headers.get('x-own')).toBe('a')
      expect(response.headers.get('access-control-allow-origin')).toBe('*')
    })
  })

  it('leaves routes outside the mount path unchanged', async () => {
    const app = express().use('/ai', toExpress(echo))
    app.get('/hello', (_request, response) => void response.send('hello'))
    await withServer(app, async ({ url }) => {
      expect(await fetch(`${url}/hello`).then((response) => response.text())).toBe('hello')
    })
  })
})
