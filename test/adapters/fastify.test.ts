import fastify, { type FastifyInstance } from 'fastify'
import { describe, expect, it } from 'vitest'
import { toFastify } from '../../src/fastify.ts'
import type { Fetcher } from '../../src/http/fetcher.ts'
import { post, testAdapter, type Running } from './suite.ts'

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
  start: async (fetcher) => {
    const app = fastify()
    app.register(toFastify(fetcher))
    return listen(app)
  },
})

testAdapter({
  name: 'toFastify under a prefix',
  mountedAt: '/deep/ai',
  start: async (fetcher) => {
    const app = fastify({ bodyLimit: 1_000 })
    app.register(
      async (scope) => {
        scope.register(toFastify(fetcher), { prefix: '/ai' })
      },
      { prefix: '/deep' },
    )
    return listen(app, '/deep/ai')
  },
})

const echo: Fetcher = { fetch: async (request) => new Response(await request.text()) }

async function withServer(app: FastifyInstance, use: (url: string) => Promise<void>): Promise<void> {
  const running = await listen(app)
  try {
    await use(running.url)
  } finally {
    await running.close()
  }
}

describe('toFastify beside other plugins', () => {
  it('body parsers outside the prefix still work', async () => {
    const app = fastify()
    app.register(toFastify(echo), { prefix: '/ai' })
    app.post('/own', (request, reply) => void reply.send({ got: request.body }))
    await withServer(app, async (url) => {
      const init = { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"a":1}' }

      expect(await fetch(`${url}/own`, init).then((response) => response.json())).toEqual({ got: { a: 1 } })
      expect(await post(`${url}/ai`, '{ "a": 1 }').then((response) => response.text())).toBe('{ "a": 1 }')
    })
  })

  it('a parser of the application does not take the body', async () => {
    const app = fastify()
    app.addContentTypeParser('application/x-own', { parseAs: 'string' }, async () => 'parsed')
    app.register(toFastify(echo), { prefix: '/ai' })
    await withServer(app, async (url) => {
      const response = await post(`${url}/ai`, 'as it came', 'application/x-own')

      expect(await response.text()).toBe('as it came')
    })
  })

  it('headers of hooks are kept', async () => {
    const app = fastify()
    app.addHook('onRequest', async (_request, reply) => {
      reply.header('access-control-allow-origin', '*').header('set-cookie', 'before=1')
    })
    const answer: Fetcher = { fetch: async () => new Response('ok', { headers: { 'set-cookie': 'a=1' } }) }
    app.register(toFastify(answer))
    await withServer(app, async (url) => {
      const response = await fetch(`${url}/v1/x`)

      expect(response.headers.get('access-control-allow-origin')).toBe('*')
      expect(response.headers.getSetCookie()).toEqual(['before=1', 'a=1'])
    })
  })

  it('hooks that run after the response see its status', async () => {
    const app = fastify()
    const seen = new Promise<number>((resolve) => {
      app.addHook('onResponse', async (_request, reply) => resolve(reply.raw.statusCode))
    })
    app.register(toFastify({ fetch: async () => new Response('no', { status: 402 }) }))
    await withServer(app, async (url) => {
      await fetch(`${url}/v1/x`)

      expect(await seen).toBe(402)
    })
  })
})
