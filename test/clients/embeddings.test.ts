import { createOpenAI } from '@ai-sdk/openai'
import { embedMany } from 'ai'
import OpenAI from 'openai'
import { afterEach, describe, expect, it } from 'vitest'
import { anthropic, openaiCompatible } from '../../src/index.ts'
import { extractive } from '../../src/testing.ts'
import { PRICE, startStage, type Stage, type StageOptions } from '../support/stage.ts'
import { startUpstream, type Reply, type Upstream, type UpstreamRequest } from '../support/upstream.ts'

const closers: (() => Promise<void>)[] = []
afterEach(async () => {
  await Promise.all(closers.splice(0).map((close) => close()))
})

const MODEL = 'chat/vectors'
const VECTORS = [
  [0.5, -0.25, 0.125],
  [1, 0, -1],
]

/** Starts a gateway with an upstream that embeds, one that does not, and the offline provider. */
async function openStage(reply: Upstream['reply'] = embeds(), options: StageOptions = {}): Promise<Stage> {
  const upstream = await startUpstream({ reply })
  const started = await startStage({
    providers: [
      openaiCompatible({
        name: 'chat',
        baseUrl: upstream.baseUrl,
        apiKey: 'sk-upstream-secret',
        models: [
          { id: 'vectors', kind: 'embedding', price: { input: 1, output: 0 } },
          { id: 'large', kind: 'chat', price: PRICE },
          { id: 'unknown', price: PRICE },
        ],
      }),
      anthropic({ baseUrl: upstream.url, apiKey: 'k', models: [{ id: 'large', price: PRICE }] }),
      extractive(),
    ],
    ...options,
  })
  closers.push(started.close, upstream.close)
  return { ...started, upstream }
}

/** Responses in the requested encoding, or always in one. */
function embeds(always?: 'float' | 'base64', usage: unknown = { prompt_tokens: 100, total_tokens: 100 }) {
  return ({ body }: UpstreamRequest): Reply => {
    const count = Array.isArray(body['input']) && typeof body['input'][0] !== 'number' ? body['input'].length : 1
    const encoding = always ?? body['encoding_format']
    const data = VECTORS.slice(0, count).map((vector, index) => ({
      object: 'embedding',
      index,
      embedding: encoding === 'base64' ? Buffer.from(Float32Array.from(vector).buffer).toString('base64') : vector,
    }))
    // The order of the vectors is defined by `index` only.
    return { kind: 'json', value: { object: 'list', model: 'vectors', data: data.toReversed(), usage } }
  }
}

describe('embeddings of the official client', () => {
  it('are decoded from base64, the default of the client', async () => {
    const { openai, upstream } = await openStage()

    const { data, response } = await openai.embeddings
      .create({ model: MODEL, input: ['one', 'two'], dimensions: 3, user: 'u' })
      .withResponse()

    expect(data.data.map(({ index, embedding }) => [index, [...embedding]])).toEqual([
      [0, VECTORS[0]],
      [1, VECTORS[1]],
    ])
    expect(data.usage).toEqual({ prompt_tokens: 100, total_tokens: 100 })
    expect(upstream.last.path).toBe('/v1/embeddings')
    expect(upstream.last.body).toEqual({
      model: 'vectors',
      input: ['one', 'two'],
      dimensions: 3,
      user: 'u',
      encoding_format: 'base64',
    })
    expect(upstream.last.headers['authorization']).toBe('Bearer sk-upstream-secret')
    expect(Object.fromEntries(response.headers)).toMatchObject({
      'x-svc-original-tokens': '100',
      'x-svc-optimized-tokens': '100',
      'x-svc-tokens-saved': '0',
      'x-svc-strategy': 'Passthrough (no optimization needed)',
      'x-svc-theoretical-cost': '$0.000100',
      'x-svc-actual-cost': '$0.000100',
      'x-svc-billed-amount': '$0.000150',
      'x-svc-profit-margin': '1.5x',
      'x-svc-cache': 'MISS',
    })
  })

  it('are numbers if requested', async () => {
    const { openai } = await openStage()

    const { data } = await openai.embeddings.create({ model: MODEL, input: 'one', encoding_format: 'float' })

    expect(data).toEqual([{ object: 'embedding', index: 0, embedding: VECTORS[0] }])
  })

  it.each([
    ['float', 'base64'],
    ['base64', 'float'],
  ] as const)('are returned as %s also by an upstream that only supports %s', async (asked, known) => {
    const { openai } = await openStage(embeds(known))

    const { data } = await openai.embeddings.create({ model: MODEL, input: 'one', encoding_format: asked })

    const embedding: unknown = data[0]?.embedding
    const numbers = typeof embedding === 'string' ? decodeVector(embedding) : embedding
    expect(typeof embedding).toBe(asked === 'base64' ? 'string' : 'object')
    expect(numbers).toEqual(VECTORS[0])
  })

  it('accept the tokens of one text, and of several', async () => {
    const { openai, upstream } = await openStage()

    await openai.embeddings.create({ model: MODEL, input: [1, 2, 3] })
    expect(upstream.last.body['input']).toEqual([1, 2, 3])
    const { data } = await openai.embeddings.create({ model: MODEL, input: [[1, 2], [3]] })
    expect(data).toHaveLength(2)
  })

  it('are billed by the count of the gateway if the upstream reports none', async () => {
    const { openai } = await openStage(embeds(undefined, null))

    const { data, response } = await openai.embeddings.create({ model: MODEL, input: [[1, 2, 3, 4, 5]] }).withResponse()

    expect(response.headers.get('x-svc-estimated')).toBe('true')
    expect(data.usage.prompt_tokens).toBeGreaterThanOrEqual(5)
  })

  it.each([
    [{ input: '' }, 'input'],
    [{ input: [] }, 'input'],
    [{ input: ['a', ''] }, 'input[1]'],
    [{ input: [1, -1] }, 'input[1]'],
    [{ input: [[]] }, 'input[0]'],
    [{ input: Array.from({ length: 2049 }, () => 'a') }, 'input'],
    [{ input: 7 }, 'input'],
    [{ dimensions: 0 }, 'dimensions'],
    [{ encoding_format: 'hex' }, 'encoding_format'],
    [{ model: '' }, 'model'],
  ])('reject %j', async (fields, param) => {
    const { openai, upstream } = await openStage()
    const body = { model: MODEL, input: 'one', ...fields } as OpenAI.EmbeddingCreateParams

    const error = await openai.embeddings.create(body).catch((reason: unknown) => reason)

    expect(error).toBeInstanceOf(OpenAI.BadRequestError)
    expect(error).toMatchObject({ param, type: 'invalid_request_error' })
    expect(upstream.requests).toHaveLength(0)
  })

  it.each([
    ['a model that answers', 'chat/large', 400],
    ['a provider that does not embed', 'anthropic/large', 400],
    ['an unknown model', 'chat/none', 404],
  ])('reject %s with a hint', async (_what, model, status) => {
    const { openai, upstream } = await openStage()

    const error = await openai.embeddings.create({ model, input: 'one' }).catch((reason: unknown) => reason)

    expect(error).toMatchObject({ status, code: 'invalid_model', param: 'model' })
    expect(upstream.requests).toHaveLength(0)
  })

  it('are requested from a model of unknown kind', async () => {
    const { openai } = await openStage()

    expect((await openai.embeddings.create({ model: 'chat/unknown', input: 'one' })).data).toHaveLength(1)
  })

  it('are rejected as answers: a prompt for an embedding model is rejected', async () => {
    const { openai } = await openStage()

    await expect(
      openai.chat.completions.create({ model: MODEL, messages: [{ role: 'user', content: 'Hello?' }] }),
    ).rejects.toMatchObject({ status: 400, code: 'invalid_model', param: 'model' })
  })

  it.each([
    ['too few vectors', { kind: 'json', value: { data: [] } }],
    ['words', { kind: 'json', value: { data: [{ index: 0, embedding: ['a'] }] } }],
    ['base64 that is none', { kind: 'json', value: { data: [{ index: 0, embedding: '%%%' }] } }],
    ['no JSON', { kind: 'body', body: '<html>' }],
    ['an error of its own', { kind: 'failure', status: 500 }],
  ] as const)('fail with 502 when the upstream sends %s, and nothing is billed', async (_what, reply) => {
    const { openai, gateway, keyId } = await openStage(() => reply as Reply)

    const error = await openai.embeddings
      .create({ model: MODEL, input: 'one', encoding_format: 'float' })
      .catch((reason: unknown) => reason)

    expect(error).toMatchObject({ status: 502, type: 'upstream_error' })
    expect(await gateway.keys.usage(keyId)).toMatchObject({ cost: { billedUsd: 0 } })
  })
})

describe('the body of an embeddings request', () => {
  it('is forwarded byte for byte except for the model', async () => {
    const { url, secret, upstream } = await openStage()
    const sent = '{ "input":"\\u00e9",\t"model":"chat\\/vectors", "x":1.0e3 }'
    const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' }

    const response = await fetch(`${url}/v1/embeddings`, { method: 'POST', headers, body: sent })

    expect(response.status).toBe(200)
    expect(upstream.last.text).toBe(sent.replace('"chat\\/vectors"', '"vectors"'))
  })
})

describe('embeddings are governed', () => {
  it('by the key, its models and its limits, and are recorded like every request', async () => {
    const { openai, gateway, keyId, url } = await openStage(undefined, {
      key: {
        name: 'one',
        allowed_models: [MODEL],
        rate_limit_requests: 2,
        rate_limit_reset_duration: '1h',
        budget_limit_cents: 100,
        budget_reset_duration: '1d',
      },
    })
    const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'sk-bf-wrong', maxRetries: 0 })

    await expect(stranger.embeddings.create({ model: MODEL, input: 'a' })).rejects.toMatchObject({ status: 401 })
    await expect(
      openai.embeddings.create({ model: 'extractive/extractive-embedding', input: 'a' }),
    ).rejects.toMatchObject({ status: 403, code: 'model_not_allowed' })
    await openai.embeddings.create({ model: MODEL, input: 'a' })
    await openai.embeddings.create({ model: MODEL, input: 'b' })
    await expect(openai.embeddings.create({ model: MODEL, input: 'c' })).rejects.toMatchObject({
      status: 429,
      code: 'rate_limit_exceeded',
    })

    const usage = await gateway.keys.usage(keyId)
    expect(usage).toMatchObject({ cost: { billedUsd: 0.0003 }, tokens: { prompt: 200, completion: 0 } })
    const records = (await gateway.audit.read({ keyId })).records
    expect(records.filter((record) => record.tokensUsed === 100)).toHaveLength(2)
    expect(records.every((record) => record.keyId === keyId)).toBe(true)
  })

  it('by a budget that is reserved in advance', async () => {
    const { openai, upstream } = await openStage(undefined, {
      key: { name: 'one', budget_limit_cents: 0, budget_reset_duration: '1d' },
    })

    await expect(openai.embeddings.create({ model: MODEL, input: 'a' })).rejects.toMatchObject({
      status: 402,
      code: 'budget_exceeded',
    })
    expect(upstream.requests).toHaveLength(0)
  })

  it('by their Idempotency-Key: the same vectors again, free of charge', async () => {
    const { openai, upstream } = await openStage()
    const ask = () => openai.embeddings.create({ model: MODEL, input: 'a' }, { headers: { 'idempotency-key': 'k1' } })

    const first = await ask()
    const second = await ask()

    expect(second).toEqual(first)
    expect(upstream.requests).toHaveLength(1)
  })
})

describe('embeddings offline', () => {
  it('are the same for the same text, similar for similar texts, and of the requested length', async () => {
    const { openai } = await openStage()
    const model = 'extractive/extractive-embedding'

    const { data, usage } = await openai.embeddings.create({
      model,
      input: ['What is the capital of France?', 'What is the capital of France', 'Bake bread at home'],
    })
    const short = await openai.embeddings.create({ model, input: 'What is the capital of France?', dimensions: 64 })

    const [one, near, far] = data.map(({ embedding }) => [...embedding])
    expect(one).toHaveLength(1024)
    expect(dot(one, near)).toBeGreaterThan(0.95)
    expect(dot(one, far)).toBeLessThan(dot(one, near))
    expect(usage.prompt_tokens).toBeGreaterThan(0)
    expect(short.data[0]?.embedding).toHaveLength(64)
    expect(dot([...(short.data[0]?.embedding ?? [])], [...(short.data[0]?.embedding ?? [])])).toBeCloseTo(1)
    await expect(openai.embeddings.create({ model, input: 'a', dimensions: 2000 })).rejects.toMatchObject({
      status: 400,
      param: 'dimensions',
    })
  })
})

describe('the AI SDK', () => {
  it('embeds many texts by its default provider', async () => {
    const { url, secret } = await openStage()
    const provider = createOpenAI({ baseURL: `${url}/v1`, apiKey: secret })

    const { embeddings, usage } = await embedMany({
      model: provider.embedding(MODEL),
      values: ['one', 'two'],
      maxRetries: 0,
    })

    expect(embeddings).toEqual(VECTORS)
    expect(usage.tokens).toBe(100)
  })
})

function decodeVector(base64: string): readonly number[] {
  return [...new Float32Array(Uint8Array.from(Buffer.from(base64, 'base64')).buffer)]
}

function dot(one: readonly number[] = [], other: readonly number[] = []): number {
  return one.reduce((sum, value, index) => sum + value * (other[index] ?? 0), 0)
}

describe('large embeddings requests', () => {
  const post = ({ gateway, secret }: Stage, input: unknown) =>
    gateway.fetch(
      new Request('http://gateway/v1/embeddings', {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${secret}` },
        body: JSON.stringify({ model: MODEL, input }),
      }),
    )

  it('yield to the event loop while 2,048 texts are estimated', async () => {
    let turnsBeforeUpstream = 0
    let turns = 0
    let isDone = false
    const started = await openStage((request) => {
      turnsBeforeUpstream = turns
      const data = Array.from({ length: 2_048 }, (_, index) => ({ object: 'embedding', index, embedding: [0.5] }))
      return {
        kind: 'json',
        value: { object: 'list', model: 'vectors', data, usage: { prompt_tokens: request.index + 1 } },
      }
    })
    const turn = (): void => {
      turns += 1
      if (!isDone) setImmediate(turn)
    }
    setImmediate(turn)

    const response = await post(
      started,
      Array.from({ length: 2_048 }, (_, n) => `${n} `.repeat(2_000)),
    )
    isDone = true

    expect(response.status).toBe(200)
    expect(turnsBeforeUpstream).toBeGreaterThan(60)
  })

  it('are rejected if one text is longer than any embedding model accepts', async () => {
    const started = await openStage()

    const response = await post(started, ['short', 'x'.repeat(1_048_577)])

    expect(response.status).toBe(400)
    expect(await response.json()).toMatchObject({ error: { type: 'invalid_request_error', param: 'input[1]' } })
    expect(started.upstream.requests).toHaveLength(0)
  })
})
