import { afterEach, describe, expect, it } from 'vitest'
import { createGateway, openaiCompatible, type Gateway } from '../../src/index.ts'

const gateways: Gateway[] = []
afterEach(async () => {
  for (const gateway of gateways.splice(0)) await gateway.close()
})

const MIB = 1024 * 1024
const ENOUGH_MIB = 40

interface Vendors {
  readonly fetch: typeof fetch
  /** The hosts that were called. */
  readonly calls: string[]
  readonly sentMib: () => number
}

/** Vendors that send 40 MiB to each call unless it is aborted. */
function createVendors(): Vendors {
  const calls: string[] = []
  const bytes = new Uint8Array(MIB).fill(0x20)
  let sentMib = 0
  const response: typeof fetch = async (input) => {
    calls.push(new URL(input instanceof Request ? input.url : input).host)
    let left = ENOUGH_MIB
    const pull = (controller: ReadableStreamDefaultController<Uint8Array>): void => {
      if (left === 0) return controller.close()
      left -= 1
      sentMib += 1
      controller.enqueue(bytes)
    }
    return new Response(new ReadableStream({ pull }), { headers: { 'content-type': 'application/json' } })
  }
  return { fetch: response, calls, sentMib: () => sentMib }
}

const messages = [{ role: 'user', content: 'Hello?' }]

describe.each([
  { name: 'a response', path: 'chat/completions', body: { model: 'large', messages } },
  { name: 'embeddings', path: 'embeddings', body: { model: 'embed', input: 'Hello?' } },
])('$name of more than 32 MiB', ({ path, body }) => {
  it('is read once: neither its vendor nor another one is called again', async () => {
    const { fetch, calls, sentMib } = createVendors()
    const models = [
      { id: 'large', price: { input: 1, output: 2 }, contextWindowTokens: 100_000, maxOutputTokens: 1000 },
      { id: 'embed', kind: 'embedding', price: { input: 1, output: 0 }, contextWindowTokens: 8000, maxOutputTokens: 1 },
    ] as const
    const vendor = (name: string) => openaiCompatible({ name, baseUrl: `http://${name}.test/v1`, models })
    const gateway = createGateway({
      providers: [vendor('one'), vendor('two')],
      runtime: { random: () => 0, fetch },
      cache: false,
    })
    gateways.push(gateway)
    const key = await gateway.keys.create({ name: 'key' })
    const response = await gateway.fetch(`http://gateway/v1/${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key.value}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })

    expect(await response.text()).toContain('larger than 32 MiB')
    expect(response.status).toBe(502)
    expect(response.headers.get('x-should-retry')).toBe('false')
    expect(calls).toEqual(['one.test'])
    expect(sentMib()).toBeLessThanOrEqual(35)
  })
})
