import fastify, { type FastifyInstance } from 'fastify'
import { describe, expect, it } from 'vitest'
import { toFastify, type HttpHandling } from '../../src/fastify.ts'
import { toFetch } from '../../src/http/web-handler.ts'
import { post, readBody, testAdapter, type Running } from './suite.ts'

async function listen(app: FastifyInstance, path = ''): Promise<Running> {
  const url = await app.listen({ port: 0, host: '127.0.0.1' })
  return {
    url: `${url}${path}`,
    close: async () => {
      app.server.closeAllConnections()
      await app.close()
    },
  }
}

testAdapter({
  name: 'toFastify as the whole application',
  mountedAt: '',
  start: async (gateway) => {
    const app = fastify()
    app.register(toFastify(gateway))
    return listen(app)
  },
})

testAdapter({
  name: 'toFastify under a prefix',
  mountedAt: '/deep/ai',
  start: async (gateway) => {
    const app = fastify({ bodyLimit: 1_000 })
    app.register(
      async (scope) => {
        scope.register(toFastify(gateway), { prefix: '/ai' })
      },
      { prefix: '/deep' },
    )
    return listen(app, '/deep/ai')
  },
})

testAdapter({
  name: 'toFastify of a fetch handler',
  isChunked: true,
  mountedAt: '/ai',
  start: async (gateway) => {
    const app = fastify()
    app.register(toFastify({ fetch: toFetch(gateway) }), { prefix: '/ai' })
    return listen(app, '/ai')
  },
})

const echo: HttpHandling = { handle: async (request, sink) => sink.send(200, {}, await readBody(request)) }

async function withServer(app: FastifyInstance, use: (url: string) => Promise<void>): Promise<void> {
  const running = await listen(app)
  try {
    await use(running.url)
  } finally {
    await running.close()
  }
}

describe('toFastify with other plugins', () => {
  it('leaves body parsers outside the prefix unchanged', async () => {
    const app = fastify()
    app.register(toFastify(echo), { prefix: '/ai' })
    app.post('/own', (request, reply) => void reply.send({ got: request.body }))
    await withServer(app, async (url) => {
      const init = { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"a":1}' }

      expect(await fetch(`${url}/own`, init).then((response) => response.json())).toEqual({ got: { a: 1 } })
      expect(await post(`${url}/ai`, '{ "a": 1 }').then((response) => response.text())).toBe('{ "a": 1 }')
    })
  })

  it('receives the body despite a parser of the application', async () => {
    const app = fastify()
    app.addContentTypeParser('application/x-own', { parseAs: 'string' }, async () => 'parsed')
    app.register(toFastify(echo), { prefix: '/ai' })
    await withServer(app, async (url) => {
      const response = await post(`${url}/ai`, 'as it came', 'application/x-own')

      expect(await response.text()).toBe('as it came')
    })
  })

  it('keeps the headers of hooks', async () => {
    const app = fastify()
    app.addHook('onRequest', async (_request, reply) => {
      reply.header('access-control-allow-origin', '*').header('set-cookie', 'before=1')
    })
    app.register(toFastify({ handle: (_request, sink) => sink.send(200, { 'x-own': 'a' }, 'ok') }))
    await withServer(app, async (url) => {
      const response = await fetch(`${url}/v1/x`)

      expect(response.headers.get('access-control-allow-origin')).toBe('*')
      expect(response.headers.getSetCookie()).toEqual(['before=1'])
      expect(response.headers.get('x-own')).toBe('a')
    })
  })

  it('reports its status to hooks that run after the response', async () => {
    const app = fastify()
    const seen = new Promise<number>((resolve) => {
      app.addHook('onResponse', async (_request, reply) => resolve(reply.raw.statusCode))
    })
    app.register(toFastify({ handle: (_request, sink) => sink.send(402, {}, 'no') }))
    await withServer(app, async (url) => {
      await fetch(`${url}/v1/x`)

      expect(await seen).toBe(402)
    })
  })
})
