import { createServer, type IncomingHttpHeaders, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { verifyWebhook, webhook } from '../../../src/billing.ts'
import { createGateway, memoryStore } from '../../../src/index.ts'
import { extractive } from '../../../src/testing.ts'

const SECRET = 'a secret of 16 characters'

interface Received {
  readonly headers: IncomingHttpHeaders
  readonly body: string
}

type Reply = number | 'hang' | 'redirect'

const servers: Server[] = []
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections()
    server.close()
  }
})

/** Answers the requests in order. Later requests get the last reply. */
async function receive(replies: readonly Reply[]) {
  const received: Received[] = []
  const server = createServer((request, response) => {
    void text(request).then((body) => {
      const reply = replies[Math.min(received.length, replies.length - 1)] ?? 200
      received.push({ headers: request.headers, body })
      if (reply === 'hang') return
      if (reply === 'redirect') response.writeHead(302, { location: '/elsewhere' }).end()
      else response.writeHead(reply).end('x'.repeat(1_000_000))
    })
  })
  servers.push(server)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/budgets`, received }
}

async function spendBudget(url: string): Promise<() => Promise<void>> {
  const gateway = createGateway({
    providers: [extractive({ price: { input: 500, output: 2_000 } })],
    store: memoryStore(),
    margin: 1,
    cache: false,
    budgetWarnings: [0.01],
    plugins: [webhook({ url, secret: SECRET, timeoutMs: 200 })],
    runtime: { random: () => 0 },
    log: () => {},
  })
  const { value } = await gateway.keys.create({ name: 'app', budgetLimitCents: 100 })
  const response = await gateway.fetch('http://gateway/v1/chat/completions', {
    method: 'POST',
    headers: { authorization: `Bearer ${value}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      model: 'extractive/extractive',
      max_tokens: 16,
      messages: [{ role: 'user', content: 'Hello there.' }],
    }),
  })
  expect(response.status).toBe(200)
  return () => gateway.close()
}

describe('webhook', () => {
  it('posts a signed event, and repeats it until the receiver accepts it', async () => {
    const { url, received } = await receive([500, 'hang', 'redirect', 200])
    const close = await spendBudget(url)
    await vi.waitFor(() => expect(received).toHaveLength(4), { timeout: 15_000 })
    await close()
    const ids = received.map(({ body }) => (JSON.parse(body) as { readonly id: string }).id)
    expect(new Set(ids).size).toBe(1)
    for (const { headers, body } of received) {
      expect(headers['content-type']).toBe('application/json')
      expect(await verifyWebhook(body, String(headers['x-svc-signature']), SECRET)).toBe(true)
    }
  }, 30_000)

  it.each([
    'http://example.com/hook',
    'ftp://example.com',
    'https://user:password@example.com/',
    'http://127.0.0.1.example.com/',
    'hook',
  ])('refuses the URL %s', (url) => {
    expect(() => webhook({ url, secret: SECRET })).toThrow('webhook: url: expected')
  })

  it('refuses a short secret', () => {
    expect(() => webhook({ url: 'https://example.com', secret: 'short' })).toThrow('webhook: secret: expected')
  })
})

describe('verifyWebhook', () => {
  const body = '{"id":"1"}'
  // echo -n '1700000000.{"id":"1"}' | openssl dgst -sha256 -hmac 'a secret of 16 characters'
  const header = 't=1700000000,v1=4b546230291282df8bc3ff2b4255dd8e065ce65e273c0b564d8e27d38ec8fcac'
  const now = (): number => 1_700_000_000_000

  it('accepts the body, the secret and the time of the signature only', async () => {
    expect(await verifyWebhook(body, header, SECRET, { now })).toBe(true)
    expect(await verifyWebhook(`${body} `, header, SECRET, { now })).toBe(false)
    expect(await verifyWebhook(body, header, `${SECRET}!`, { now })).toBe(false)
    expect(await verifyWebhook(body, header.replace('1700000000', '1700000001'), SECRET, { now })).toBe(false)
    expect(await verifyWebhook(body, header, SECRET, { now: () => 1_700_000_301_000 })).toBe(false)
    expect(await verifyWebhook(body, header, SECRET, { now: () => 1_700_000_301_000, toleranceSeconds: 400 })).toBe(
      true,
    )
  })

  it.each([null, undefined, '', 't=1,v1=', 'v1=ab,t=1', `t=1,v1=${'g'.repeat(64)}`])(
    'refuses the header %j',
    async (value) => {
      expect(await verifyWebhook(body, value, SECRET, { now: () => 1_000 })).toBe(false)
    },
  )
})
