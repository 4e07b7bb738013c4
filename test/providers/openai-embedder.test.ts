import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { GatewayError } from '../../src/core/errors.ts'
import type { Transport } from '../../src/core/ports.ts'
import { embedTexts } from '../../src/providers/internal-calls.ts'
import { openaiEmbedder, type OpenaiEmbedderOptions } from '../../src/providers/main-providers.ts'
import { testEmbedder } from '../contract/embedder.ts'

interface Call {
  readonly url: string
  readonly headers: Headers
  readonly body: { readonly model: string; readonly input: readonly string[]; readonly dimensions: number }
}

let calls: Call[]
let answer: (call: Call) => Response | Promise<Response>

/** Counts letters by character code, which distinguishes the texts of these tests. */
function embeddingOf(text: string, dimensions: number): readonly number[] {
  const counts = Array.from({ length: dimensions }, () => 0)
  for (const char of text) counts[char.charCodeAt(0) % dimensions] = (counts[char.charCodeAt(0) % dimensions] ?? 0) + 1
  const length = Math.hypot(...counts)
  return counts.map((count) => count / length)
}

function respond({ body }: Call): Response {
  const data = body.input.map((text, index) => ({
    object: 'embedding',
    index,
    embedding: embeddingOf(text, body.dimensions),
  }))
  // The order of the array is irrelevant; `index` determines the position.
  return Response.json({ object: 'list', data: data.toReversed() })
}

function embedder(options: Partial<OpenaiEmbedderOptions> = {}): ReturnType<typeof openaiEmbedder> {
  const fetch: typeof globalThis.fetch = async (url, init) => {
    init?.signal?.throwIfAborted()
    const call = {
      url: String(url),
      headers: new Headers(init?.headers),
      body: JSON.parse(String(init?.body)) as Call['body'],
    }
    calls.push(call)
    return answer(call)
  }
  return openaiEmbedder({ baseUrl: 'https://embeddings.example/v1/', model: 'small', fetch, ...options })
}

beforeEach(() => {
  calls = []
  answer = respond
})

afterEach(() => {
  calls = []
})

testEmbedder("the embedder of OpenAI's format", () => {
  answer = respond
  return embedder({ dimensions: 64 })
})

describe("the embedder of OpenAI's format", () => {
  it('requests 1024 dimensions with the key', async () => {
    const [vector] = await embedder({ apiKey: 'sk-test-12345678', headers: { 'x-team': 'a' } }).embed(['hello'])

    expect(vector).toHaveLength(1024)
    expect(calls[0]?.url).toBe('https://embeddings.example/v1/embeddings')
    expect(calls[0]?.headers.get('authorization')).toBe('Bearer sk-test-12345678')
    expect(calls[0]?.headers.get('x-team')).toBe('a')
    expect(calls[0]?.body).toEqual({ model: 'small', input: ['hello'], dimensions: 1024, encoding_format: 'float' })
  })

  it('sends many texts in several calls', async () => {
    const texts = Array.from({ length: 600 }, (_, index) => `text ${index}`)
    const vectors = await embedder({ dimensions: 32 }).embed(texts)

    expect(vectors).toHaveLength(600)
    expect(calls.map((call) => call.body.input.length)).toEqual([256, 256, 88])
    expect(Array.from(vectors[599] ?? [])[1]).toBeCloseTo(embeddingOf('text 599', 32)[1] ?? 9, 5)
  })

  it.each<[string, () => Response]>([
    ['another status', () => new Response('{"error":{}}', { status: 500 })],
    ['a redirect', () => new Response('', { status: 302, headers: { location: 'https://elsewhere.example' } })],
    ['no JSON', () => new Response('<html>')],
    ['nothing', () => new Response('')],
    ['no data', () => Response.json({})],
    ['too few vectors', () => Response.json({ data: [] })],
    ['a shorter vector', () => Response.json({ data: [{ index: 0, embedding: [1] }] })],
    ['words', () => Response.json({ data: [{ index: 0, embedding: ['1', '0', '0', '0'] }] })],
    ['null', () => Response.json({ data: [{ index: 0, embedding: [1, null, 0, 0] }] })],
    ['another index', () => Response.json({ data: [{ index: 7, embedding: [1, 0, 0, 0] }] })],
    ['a hundred levels', () => new Response('['.repeat(5000))],
  ])('rejects with upstream for an answer with %s', async (_, response) => {
    answer = response

    await expect(embedder({ dimensions: 4 }).embed(['hello'])).rejects.toSatisfy(
      (error) => GatewayError.is(error) && error.kind === 'upstream',
    )
  })

  it('exposes neither its address nor its key when it fails', async () => {
    answer = () => new Response('sk-test-12345678', { status: 401 })
    const failure = await Promise.resolve(embedder({ apiKey: 'sk-test-12345678' }).embed(['hello'])).catch(
      (error: unknown) => String(error),
    )

    expect(failure).toContain('401')
    expect(failure).not.toMatch(/sk-test|embeddings\.example/)
  })

  it('stops when its caller cancels', async () => {
    await expect(embedder().embed(['hello'], AbortSignal.abort(new Error('gone')))).rejects.toThrow('gone')
    expect(calls).toEqual([])
  })

  it('waits for a connection as long as for the answer', async () => {
    const connectLimits: unknown[] = []
    const transport: Transport = (request, handler) => {
      connectLimits.push(request.connectMs)
      handler.onError(Object.assign(new Error('connect timeout'), { code: 'UND_ERR_CONNECT_TIMEOUT' }))
      return { pause() {}, resume() {}, abort() {} }
    }
    const endpoint = {
      url: 'https://embeddings.example/v1/embeddings',
      model: 'small',
      dimensions: 3,
      headers: {},
      timeoutMs: 30_000,
      transport,
    }
    await expect(embedTexts(endpoint, ['text'], undefined)).rejects.toThrow('within 30 seconds')
    expect(connectLimits).toEqual([30_000])
  })

  it('names the unit of an invalid timeout', () => {
    expect(() => embedder({ timeoutMs: 0 })).toThrow(/timeoutMs: expected .*millisecond/)
  })

  it('stops after its timeout', async () => {
    answer = () => new Promise<Response>(() => {})

    await expect(embedder({ timeoutMs: 5 }).embed(['hello'])).rejects.toMatchObject({
      kind: 'upstream-timeout',
    })
  })

  it.each<[string, Partial<OpenaiEmbedderOptions>]>([
    ['baseUrl', { baseUrl: 'embeddings.example' }],
    ['model', { model: '' }],
    ['dimensions', { dimensions: 0 }],
    ['timeoutMs', { timeoutMs: 1.5 }],
    ['apiKey', { apiKey: 'a b' }],
  ])('throws for an invalid %s at creation', (option, options) => {
    expect(() => embedder(options)).toThrow(`openaiEmbedder: ${option}: expected`)
  })
})
