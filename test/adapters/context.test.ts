import express from 'express'
import fastify from 'fastify'
import { createServer } from 'node:http'
import { afterEach, describe, expect, it } from 'vitest'
import { toExpress } from '../../src/express.ts'
import { toFastify } from '../../src/fastify.ts'
import { findContext } from '../../src/kernel/find-context.ts'
import { createGateway, type CallerContext, type Gateway } from '../../src/index.ts'
import { toNext } from '../../src/next.ts'
import { serve, toNodeHandler } from '../../src/node.ts'
import { extractive } from '../../src/testing.ts'
import { listen } from './listen.ts'
import type { Running } from './suite.ts'
import { webServer } from './web-server.ts'

type FindByHeaders = (headerOf: (name: string) => string | undefined) => Promise<CallerContext | undefined>

type Start = (gateway: Gateway, find: FindByHeaders) => Promise<Running>

const nodeHeader =
  ({ headers }: { readonly headers: Readonly<Record<string, string | readonly string[] | undefined>> }) =>
  (name: string): string | undefined => {
    const value = headers[name]
    return typeof value === 'string' ? value : undefined
  }

const ADAPTERS: readonly (readonly [string, Start])[] = [
  [
    'toExpress',
    (gateway, find) => {
      const context = (request: express.Request) => find((name) => request.get(name))
      return listen(createServer(express().use(toExpress(gateway, { context }))))
    },
  ],
  [
    'toFastify',
    async (gateway, find) => {
      const app = fastify()
      app.register(toFastify(gateway, { context: (request) => find(nodeHeader(request)) }))
      const url = await app.listen({ port: 0, host: '127.0.0.1' })
      return {
        url,
        close: async () => {
          app.server.closeAllConnections()
          await app.close()
        },
      }
    },
  ],
  [
    'toNext',
    (gateway, find) => {
      const { POST } = toNext(gateway, {
        context: ({ headers }) => find((name) => headers.get(name) ?? undefined),
      })
      return listen(webServer(POST))
    },
  ],
  [
    'toNodeHandler',
    (gateway, find) =>
      listen(createServer(toNodeHandler(gateway, { context: (incoming) => find(nodeHeader(incoming)) }))),
  ],
  [
    'serve',
    (gateway, find) =>
      serve(gateway, {
        port: 0,
        hostname: '127.0.0.1',
        drainMs: 0,
        context: (incoming) => find(nodeHeader(incoming)),
      }),
  ],
]

const ADMIN_KEY = 'an-admin-key-of-this-test'

const closers: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

describe.each(ADAPTERS)('the option context of %s', (_name, start) => {
  const run = async () => {
    const log: object[] = []
    const gateway = createGateway({
      providers: [extractive()],
      cache: false,
      log: (record) => void log.push(record),
      plans: { free: { budgets: [{ limitUsd: 0, window: '1d' }] }, pro: {} },
      customers: { defaultPlan: 'pro', autoCreate: false },
      governance: { customers: [{ id: 'acme' }, { id: 'poor', plan: 'free' }] },
    })
    const { url, close } = await start(gateway, async (headerOf) => {
      const login = headerOf('x-login')
      await new Promise((resolve) => setImmediate(resolve))
      if (login === undefined) return undefined
      if (login === 'broken') throw new Error('The database at postgres://admin:hunter2@db refused the login.')
      if (login === 'invalid') return { customer: 'a b' }
      return { customer: login }
    })
    closers.push(close, () => gateway.close())
    const ask = async (path: string, login?: string) => {
      const response = await fetch(`${url}${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...(login !== undefined && { 'x-login': login }) },
        body: JSON.stringify({
          model: 'extractive/extractive-small',
          max_tokens: 20,
          messages: [{ role: 'user', content: 'Hello' }],
        }),
      })
      return { status: response.status, body: await response.json() }
    }
    return { ask, log }
  }

  it('identifies the customer of each request', async () => {
    const { ask } = await run()
    const answered = await ask('/v1/chat/completions', 'acme')
    expect(answered.status, JSON.stringify(answered.body)).toBe(200)
    expect(await ask('/v1/messages', 'poor')).toMatchObject({ status: 402 })
    expect(await ask('/v1/chat/completions', 'unknown')).toMatchObject({ status: 403 })
  })

  it('leaves a request without a context to its key', async () => {
    const { ask } = await run()
    expect(await ask('/v1/chat/completions')).toMatchObject({
      status: 401,
      body: { error: { message: expect.stringContaining('no key') as string } },
    })
  })

  it.each(['broken', 'invalid'])('refuses with 401 in the format of the path if the login is %s', async (login) => {
    const { ask, log } = await run()
    const chat = await ask('/v1/chat/completions', login)
    const messages = await ask('/v1/messages', login)
    expect(chat).toMatchObject({ status: 401, body: { error: { code: 'invalid_api_key' } } })
    expect(messages).toMatchObject({ status: 401, body: { type: 'error', error: { type: 'authentication_error' } } })
    expect(JSON.stringify([chat, messages])).not.toMatch(/hunter2|postgres|a b/)
    const events = log.filter((record) => JSON.stringify(record).includes('the caller of a request was not identified'))
    expect(events).toHaveLength(2)
    expect(JSON.stringify(events)).not.toContain('hunter2')
  })
})

describe('the option context', () => {
  it.each(ADAPTERS)('of %s is asked only where a request has a caller', async (_name, start) => {
    const gateway = createGateway({ providers: [extractive()], log: () => {}, admin: { key: ADMIN_KEY } })
    let asked = 0
    const { url, close } = await start(gateway, async () => {
      asked += 1
      throw new Error('The login has failed.')
    })
    closers.push(close, () => gateway.close())
    const statusOf = async (path: string): Promise<number> =>
      (await fetch(`${url}${path}`, { headers: { 'x-admin-key': ADMIN_KEY } })).status
    for (const path of ['/health', '/metrics', '/metrics/cache', '/api/governance/customers', '/api/governance/usage'])
      expect([path, await statusOf(path)]).toEqual([path, 200])
    expect(await statusOf('/unknown')).toBe(404)
    expect(asked).toBe(0)
    expect(await statusOf('/v1/models')).toBe(401)
    expect(asked).toBe(1)
  })

  it('is refused for what takes no context', () => {
    const gateway = createGateway({ providers: [extractive()] })
    const context = () => ({ customer: 'acme' })
    const expected = 'expected a gateway, because only a gateway takes a context'
    for (const served of [gateway.with({ customer: 'a' }), { ...gateway, fetch: async () => new Response() }]) {
      expect(() => toExpress(served, { context })).toThrow(expected)
      expect(() => toFastify(served, { context })).toThrow(expected)
      expect(() => toNext(served, { context })).toThrow(expected)
      expect(() => toNodeHandler(served, { context })).toThrow(expected)
    }
    expect(() => toExpress(gateway, { contxt: context } as object)).toThrow('Did you mean context?')
  })

  it.each([
    ['a message that is not a string', { message: 5 }],
    ['no stack', { stack: null }],
    ['a name that is a symbol', { name: Symbol('name') }],
  ])('refuses with 401 if it throws an error with %s', async (_, fields) => {
    const gateway = createGateway({ providers: [extractive()], log: () => {} })
    const handle = toNext(gateway, {
      context: () => {
        throw Object.assign(new Error('The login has failed.'), fields)
      },
    })
    expect((await handle.GET(new Request('http://gateway/v1/models'))).status).toBe(401)
  })

  it('has 10 seconds', async () => {
    const timers: (readonly [number, () => void])[] = []
    const causes: unknown[] = []
    const runtime = {
      now: () => 0,
      random: () => 0,
      uuid: () => '',
      transport: () => ({ pause: () => {}, resume: () => {}, abort: () => {} }),
      after: (ms: number, callback: () => void) => {
        timers.push([ms, callback])
        return () => {}
      },
    }
    const log = { failure: (_event: string, cause: unknown) => void causes.push(cause), warning() {}, info() {} }
    const found = findContext(() => new Promise(() => {}), { runtime, log }, 'req_1')
    const refused = expect(found).rejects.toMatchObject({ kind: 'unauthenticated' })
    const [timer] = timers
    expect(timer?.[0]).toBe(10_000)
    timer?.[1]()
    await refused
    expect(causes).toMatchObject([{ message: 'The option context returned nothing within 10000 ms.' }])
  })
})
