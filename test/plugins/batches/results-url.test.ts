import Anthropic from '@anthropic-ai/sdk'
import { afterEach, describe, expect, it } from 'vitest'
import { createGateway, type Gateway, type GatewayOptions } from '../../../src/index.ts'
import { extractive } from '../../../src/testing.ts'
import { serve } from '../../../src/node.ts'
import { sendRawBytes, sendRequest, type Reply } from '../../support/send-request.ts'
import { completeBatch, createCluster, createItems, createRequest, type Cluster } from './cluster.ts'

const closers: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

interface EndedBatch {
  readonly gateway: Gateway
  readonly secret: string
  readonly id: string
  readonly cluster: Cluster
}

/** Batches are created and completed through a gateway without the options. */
async function createEndedBatch(options: Partial<GatewayOptions> = {}): Promise<EndedBatch> {
  const cluster = createCluster()
  const worker = cluster.startGateway()
  const { value: secret } = await worker.keys.create({ name: 'k' })
  const created = await worker.fetch(createRequest(secret, 'POST', '', createItems(2)))
  const { id } = (await created.json()) as { readonly id: string }
  await completeBatch(cluster, secret, id, worker)
  return { gateway: cluster.startGateway(cluster.store, options), secret, id, cluster }
}

async function resultsUrl({ gateway, secret }: EndedBatch, url: string, headers: object = {}): Promise<unknown> {
  const response = await gateway.fetch(new Request(url, { headers: { 'x-api-key': secret, ...headers } }))
  const body = (await response.json()) as { readonly results_url?: unknown; readonly data?: readonly object[] }
  return body.data === undefined ? body.results_url : body.data.map((batch) => Object(batch).results_url)
}

async function readWithClient(
  { secret, id }: EndedBatch,
  { baseURL, fetch }: { readonly baseURL: string; readonly fetch?: Gateway['fetch'] },
): Promise<readonly string[]> {
  const client = new Anthropic({ baseURL, apiKey: secret, maxRetries: 0, ...(fetch !== undefined && { fetch }) })
  const lines = []
  for await (const line of await client.messages.batches.results(id)) lines.push(line.custom_id)
  return lines.toSorted()
}

async function serveOnLoopback({ gateway }: EndedBatch): Promise<{ readonly url: string }> {
  const server = await serve(gateway, { port: 0 })
  closers.push(() => server.close())
  return server
}

function sendOverNode(ended: EndedBatch, url: string, headers: Record<string, string>): Promise<Reply> {
  const path = `/v1/messages/batches/${ended.id}`
  return sendRequest({ url, secret: ended.secret }, undefined, { method: 'GET', path, headers })
}

describe('results_url', () => {
  it('has the origin of the request, in a batch and in the list', async () => {
    const ended = await createEndedBatch()
    const path = `/v1/messages/batches/${ended.id}`

    expect(await resultsUrl(ended, `https://ai.example:8443${path}`)).toBe(`https://ai.example:8443${path}/results`)
    expect(await resultsUrl(ended, 'http://other.example/v1/messages/batches')).toEqual([
      `http://other.example${path}/results`,
    ])
  })

  it('includes the path under which the gateway is mounted', async () => {
    const ended = await createEndedBatch({ basePath: '/ai' })

    expect(await resultsUrl(ended, `https://a.example/ai/v1/messages/batches/${ended.id}`)).toBe(
      `https://a.example/ai/v1/messages/batches/${ended.id}/results`,
    )
  })

  it.each(['https://example.com/tools/ai', 'https://example.com/tools/ai/'])(
    'begins with publicUrl %s, which replaces the origin and basePath',
    async (publicUrl) => {
      const ended = await createEndedBatch({ publicUrl, basePath: '/internal' })

      expect(await resultsUrl(ended, `http://10.0.0.1/internal/v1/messages/batches/${ended.id}`)).toBe(
        `https://example.com/tools/ai/v1/messages/batches/${ended.id}/results`,
      )
    },
  )

  it('is read by the official client from a server', async () => {
    const ended = await createEndedBatch()
    const { url } = await serveOnLoopback(ended)

    expect(await readWithClient(ended, { baseURL: url })).toEqual(['item-0', 'item-1'])
  })

  it('is read by the official client under a mount path', async () => {
    const ended = await createEndedBatch({ basePath: '/ai' })
    const { url } = await serveOnLoopback(ended)

    expect(await readWithClient(ended, { baseURL: `${url}/ai` })).toEqual(['item-0', 'item-1'])
  })

  it('is read by the official client behind a proxy that strips the path prefix, with publicUrl', async () => {
    const ended = await createEndedBatch({ publicUrl: 'https://example.com/tools/ai' })
    const proxied: Gateway['fetch'] = async (url: Request | string | URL, init?: unknown) => {
      const { pathname, search, host } = new URL(url instanceof Request ? url.url : url)
      if (host !== 'example.com' || !pathname.startsWith('/tools/ai/')) return new Response('{}', { status: 404 })
      return ended.gateway.fetch(
        new Request(`http://10.0.0.1${pathname.slice('/tools/ai'.length)}${search}`, Object(init)),
      )
    }

    expect(await readWithClient(ended, { baseURL: 'https://example.com/tools/ai', fetch: proxied })).toEqual([
      'item-0',
      'item-1',
    ])
  })

  it('does not follow X-Forwarded headers', async () => {
    const ended = await createEndedBatch()
    const path = `/v1/messages/batches/${ended.id}`
    const forwarded = {
      'x-forwarded-host': 'evil.example',
      'x-forwarded-proto': 'gopher',
      'x-forwarded-prefix': '/evil',
      forwarded: 'host=evil.example',
      'x-original-host': 'evil.example',
    }
    const { url } = await serveOnLoopback(ended)

    expect(await resultsUrl(ended, `http://a.example${path}`, forwarded)).toBe(`http://a.example${path}/results`)
    expect((await sendOverNode(ended, url, forwarded)).body['results_url']).toBe(`${url}${path}/results`)
  })

  it('never contains a host that another request sent', async () => {
    const cluster = createCluster()
    const gateway = cluster.startGateway()
    const { value: secret } = await gateway.keys.create({ name: 'k' })
    const forged = new Request(
      'https://evil.example/v1/messages/batches',
      createRequest(secret, 'POST', '', createItems(1)),
    )
    const { id } = (await (await gateway.fetch(forged)).json()) as { readonly id: string }
    await completeBatch(cluster, secret, id, gateway)
    const ended = { cluster, gateway, secret, id }
    const path = `/v1/messages/batches/${id}`

    expect(await resultsUrl(ended, `https://evil.example${path}`)).toBe(`https://evil.example${path}/results`)
    expect(await resultsUrl(ended, `https://good.example${path}`)).toBe(`https://good.example${path}/results`)
    for (const prefix of ['batch', 'idempotency', 'recording', 'turn']) {
      for (const name of await cluster.store.list(prefix, { limit: 100 }))
        expect(await cluster.store.get(name)).not.toContain('evil.example')
    }
  })

  it.each(['evil.example/path?', 'user@evil.example', 'a b', 'evil.example#'])(
    'is a path if the Host header is %s',
    async (host) => {
      const ended = await createEndedBatch()
      const { url } = await serveOnLoopback(ended)

      const { body } = await sendOverNode(ended, url, { host })

      expect(body['results_url']).toBe(`/v1/messages/batches/${ended.id}/results`)
    },
  )

  it('is a path if the request has no Host header, which clients resolve against their base URL', async () => {
    const ended = await createEndedBatch({ basePath: '/ai' })
    const { url } = await serveOnLoopback(ended)
    const head = `GET /ai/v1/messages/batches/${ended.id} HTTP/1.0\r\nx-api-key: ${ended.secret}\r\n\r\n`

    expect(await sendRawBytes({ url }, [head])).toContain(`"results_url":"/v1/messages/batches/${ended.id}/results"`)
  })
})

describe('createGateway with publicUrl', () => {
  it.each([
    'example.com',
    '/ai',
    'ftp://example.com',
    'https://',
    'https://user:pw@example.com',
    'https://example.com?a=1',
    'https://example.com/ai#top',
    'https://example.com/a b',
    'https://example.com\\ai',
    'https://exa mple.com',
    'https://example.com:99999',
    '',
    7,
  ])('rejects %s', (publicUrl) => {
    expect(() => createGateway({ providers: [extractive()], publicUrl: publicUrl as string })).toThrow(
      /createGateway: publicUrl: expected an absolute URL/,
    )
  })

  it.each(['http://localhost:8787', 'https://example.com/', 'https://[::1]:8443/a/b', 'https://bücher.example/ai'])(
    'accepts %s',
    async (publicUrl) => {
      const gateway = createGateway({ providers: [extractive()], publicUrl })
      await gateway.close()
    },
  )
})
