import { createServer } from 'node:http'
import { describe, expect, it } from 'vitest'
import { toNext, type NextMethod } from '../../src/next.ts'
import { toNodeHandler } from '../../src/node.ts'
import { listen } from './listen.ts'
import { testAdapter } from './suite.ts'

testAdapter({
  name: 'toNext behind a server that calls route handlers',
  mountedAt: '/ai',
  start: (fetcher) => {
    const routes = toNext(fetcher)
    const server = createServer(toNodeHandler({ fetch: (request) => routes[request.method as NextMethod](request) }))
    return listen(server, '/ai')
  },
})

describe('toNext', () => {
  it('has a handler for every method that Next knows', () => {
    const routes = toNext({ fetch: async () => new Response() })

    expect(Object.keys(routes).toSorted()).toEqual(['DELETE', 'GET', 'HEAD', 'OPTIONS', 'PATCH', 'POST', 'PUT'])
  })

  it('hands over the very request that Next gives', async () => {
    const seen: Request[] = []
    const { POST } = toNext({
      fetch: async (request) => {
        seen.push(request)
        return new Response('ok')
      },
    })
    const request = new Request('https://example.com/api/v1/messages', { method: 'POST', body: '{}' })

    await POST(request)

    expect(seen[0]).toBe(request)
  })

  it('hands back the very response of the gateway', async () => {
    const response = new Response('ok')
    const { GET } = toNext({ fetch: async () => response })

    expect(await GET(new Request('https://example.com/api/v1/models'))).toBe(response)
  })

  it('answers a gateway that throws with 500 and JSON', async () => {
    const { GET } = toNext({ fetch: () => Promise.reject(new Error('secret')) })

    const response = await GET(new Request('https://example.com/api/v1/models'))

    expect(response.status).toBe(500)
    expect(await response.text()).not.toContain('secret')
  })

  it('passes the signal of the caller on', async () => {
    const caller = new AbortController()
    const { GET } = toNext({ fetch: async (request) => Response.json(request.signal.aborted) })

    caller.abort()
    const response = await GET(new Request('https://example.com/api/v1/models', { signal: caller.signal }))

    expect(await response.json()).toBe(true)
  })
})
