import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { anthropic, openai, openaiCompatible } from '../../src/index.ts'
import { fc } from '../support/properties.ts'
import { post } from '../support/read-stream.ts'
import { CHAT_MODEL, MESSAGE_MODEL, PRICE, startStage, type Stage } from '../support/stage.ts'
import { startUpstream, type Reply, type Upstream, type UpstreamRequest } from '../support/upstream.ts'

/** Every name of a margin, a theoretical or actual cost, or a saving in a response. */
const HIDDEN =
  /x-svc-(?:savings-usd|theoretical-cost|actual-cost|profit-margin)|"(?:theoretical|actual|savings|margin|original_cost|your_cost|profit)\w*"/i

const NATIVE_RESPONSE = {
  id: 'resp_upstream',
  object: 'response',
  status: 'completed',
  model: 'gpt-5-mini',
  output: [
    {
      type: 'message',
      id: 'msg_1',
      status: 'completed',
      role: 'assistant',
      content: [{ type: 'output_text', text: 'Yes.', annotations: [] }],
    },
  ],
  usage: { input_tokens: 10, output_tokens: 5, total_tokens: 15 },
}

function replyTo(request: UpstreamRequest): Reply {
  if (request.text.includes('broken')) return { kind: 'failure', status: 400, failure: { message: 'Refused.' } }
  if (request.path.endsWith('/embeddings')) {
    const data = [{ object: 'embedding', index: 0, embedding: [0.1, 0.2] }]
    const usage = { prompt_tokens: 3, total_tokens: 3 }
    return { kind: 'json', value: { object: 'list', model: 'text-embedding-3-small', data, usage } }
  }
  if (request.path.endsWith('/compact')) {
    const output = [{ id: 'cmp_1', type: 'compaction', encrypted_content: 'x' }]
    return { kind: 'json', value: { ...NATIVE_RESPONSE, object: 'response.compaction', output } }
  }
  if (request.path.endsWith('/images/generations')) return { kind: 'json', value: { created: 1, data: [{ url: 'u' }] } }
  if (request.path.endsWith('/audio/speech'))
    return { kind: 'body', body: 'sound', headers: { 'content-type': 'audio/mpeg' } }
  if (request.path.endsWith('/responses')) {
    if (!request.stream) return { kind: 'json', value: NATIVE_RESPONSE }
    const completed = { type: 'response.completed', sequence_number: 0, response: NATIVE_RESPONSE }
    return { kind: 'events', items: [{ event: completed.type, data: JSON.stringify(completed) }] }
  }
  return 'A sluice is a gate.'
}

let upstream: Upstream
let stage: Stage

beforeAll(async () => {
  upstream = await startUpstream({ reply: replyTo })
  const models = ['large', 'small'].map((id) => ({
    id,
    price: PRICE,
    contextWindowTokens: 200_000,
    maxOutputTokens: 1000,
    ...(id === 'large' && { small: 'small' }),
  }))
  const apiKey = 'sk-upstream'
  const price = () => 0.01
  stage = await startStage({
    providers: [
      openaiCompatible({ name: 'chat', baseUrl: upstream.baseUrl, apiKey, models }),
      anthropic({ baseUrl: upstream.url, apiKey, models }),
      openai({ baseUrl: upstream.baseUrl, apiKey }),
    ],
    headers: { margin: false },
    margin: 3.25,
    passthrough: { images: { priceUsd: price }, audio: { priceUsd: price } },
    cache: {},
    savings: { thresholdTokens: { vanishing: 500, recursive: 500, family: 500 } },
    key: { name: 'caller' },
  })
})

afterAll(async () => {
  await stage?.close()
  await upstream?.close()
})

async function expectHidden(response: Response): Promise<string> {
  const text = await response.text()
  const headers = JSON.stringify([...response.headers])
  expect(`${headers}\n${text}`).not.toMatch(HIDDEN)
  return text
}

const question = fc.constantFrom(
  'What is a sluice?',
  'Is it closed?',
  'broken',
  `Long: ${'the harbour has boats. '.repeat(400)}`,
)

const PATHS = [
  '/v1/chat/completions',
  '/v1/messages',
  '/v1/responses',
  '/v1/responses/compact',
  '/v1/messages/count_tokens',
  '/v1/responses/input_tokens',
  '/v1/embeddings',
  '/v1/images/generations',
  '/v1/audio/speech',
]

function get(path: string): Promise<Response> {
  return stage.gateway.fetch(new Request(`http://gateway${path}`, { headers: { 'x-api-key': stage.secret } }))
}

/** Undefined in three of four cases. */
const rarely = (...values: readonly string[]): fc.Arbitrary<string | undefined> =>
  fc.oneof({ weight: 3, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: fc.constantFrom(...values) })

const modelRequest = fc.record({
  path: fc.constantFrom(...PATHS),
  model: fc.constantFrom(CHAT_MODEL, MESSAGE_MODEL, 'openai/gpt-5-mini'),
  text: question,
  stream: fc.boolean(),
  isRepeatable: rarely('true'),
  headers: fc.record({
    'x-svc-explain': rarely('true'),
    'x-savings-level': rarely('off', 'min', 'med', 'max', 'extreme'),
    'x-vanishing-context': rarely('true'),
    'x-svc-detach': rarely('true'),
    'cache-control': rarely('no-cache', 'no-store'),
    'anthropic-version': rarely('2023-06-01'),
  }),
})

function bodyOf({ path, model, text, stream }: { path: string; model: string; text: string; stream: boolean }): object {
  if (path === '/v1/embeddings') return { model: 'openai/text-embedding-3-small', input: text }
  if (path.startsWith('/v1/images')) return { model: 'openai/gpt-image-1.5', prompt: text }
  if (path.startsWith('/v1/audio')) return { model: 'openai/tts-1', input: text, voice: 'alloy' }
  if (path.startsWith('/v1/responses'))
    return { model, input: text, max_output_tokens: 20, ...(path === '/v1/responses' && { stream }) }
  const messages = [{ role: 'user', content: text }]
  return path.endsWith('count_tokens') ? { model, messages } : { model, messages, max_tokens: 20, stream }
}

describe('with headers: { margin: false }', () => {
  it('no response to a virtual key contains a margin, a theoretical or actual cost, or a saving', async () => {
    const responded = new Set<string>()
    const run = async (
      request: typeof modelRequest extends fc.Arbitrary<infer Value> ? Value : never,
    ): Promise<void> => {
      const body = bodyOf(request)
      const key =
        request.isRepeatable === undefined
          ? {}
          : { 'idempotency-key': request.path + JSON.stringify(body).slice(0, 150) }
      const headers = JSON.parse(JSON.stringify({ ...request.headers, ...key })) as Record<string, string>
      const response = await post(stage, request.path, { body, headers })
      const text = await expectHidden(response)
      if (response.status !== 200) return
      responded.add(`${request.path}${headers['x-svc-explain'] === 'true' ? ' explain' : ''}`)
      if (response.headers.get('x-svc-cache') === 'HIT') responded.add('hit')
      if (response.headers.has('idempotency-replayed')) responded.add('replayed')
      if (response.headers.get('content-type')?.startsWith('text/event-stream') === true)
        responded.add(`${request.path} stream`)
      const id = /"(msg_[\w-]+|resp_[\w-]+)"/.exec(text)?.[1]
      if (id?.startsWith('msg_') === true) {
        const replayed = await post(stage, `/v1/messages/${id}/streams`, { headers: { 'last-event-id': '0' } })
        if (replayed.status === 200) responded.add('resumed')
        await expectHidden(replayed)
      }
      if (id?.startsWith('resp_') === true) {
        const stored = await get(`/v1/responses/${id}`)
        if (stored.status === 200) responded.add('stored')
        await expectHidden(stored)
        await expectHidden(await get(`/v1/responses/${id}/input_items`))
      }
    }
    await fc.assert(fc.asyncProperty(modelRequest, run), { numRuns: 400, seed: 26 })

    for (const name of ['hit', 'replayed', 'resumed', 'stored', ...PATHS]) expect(responded).toContain(name)
    for (const path of PATHS.slice(0, 3)) {
      expect(responded).toContain(`${path} stream`)
      expect(responded).toContain(`${path} explain`)
    }
  })

  it('the endpoints that a virtual key can read contain none either', async () => {
    for (const path of [
      '/v1/models',
      '/v1/models/chat/large',
      '/api/governance/virtual-keys/limits',
      '/health',
      '/ready',
    ])
      await expectHidden(await get(path))
    for (const path of ['/metrics', '/metrics/cache', `/api/governance/virtual-keys/${stage.keyId}/usage`])
      expect((await get(path)).status).toBeGreaterThanOrEqual(401)
  })

  it('the results of a message batch contain none', async () => {
    const params = { model: CHAT_MODEL, max_tokens: 20, messages: [{ role: 'user', content: 'Batched?' }] }
    const created = await post(stage, '/v1/messages/batches', { body: { requests: [{ custom_id: 'a', params }] } })
    const { id } = JSON.parse(await expectHidden(created)) as { readonly id: string }
    await stage.gateway.batches.work()
    await expectHidden(await get(`/v1/messages/batches/${id}`))

    const results = await expectHidden(await get(`/v1/messages/batches/${id}/results`))

    expect(results).toContain('"svc_metrics":{"billed_amount":')
  })
})
