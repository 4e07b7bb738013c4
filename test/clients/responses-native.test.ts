import OpenAI from 'openai'
import { afterEach, describe, expect, it } from 'vitest'
import type { SseEvent } from '../../src/core/completion.ts'
import type { JsonObject } from '../../src/core/json.ts'
import { openaiCompatible, type Gateway, type LogRecord } from '../../src/index.ts'
import { PRICE, startStage, type Stage, type StageOptions } from '../support/stage.ts'
import { startUpstream, type Reply, type UpstreamRequest } from '../support/upstream.ts'

const stages: Stage[] = []
const closing: (() => Promise<void>)[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((openStage) => openStage.close()))
  await Promise.all(closing.splice(0).map((close) => close()))
})

interface NativeStage extends Stage {
  /** The requests that the vendor of the responses format received. */
  readonly requests: readonly UpstreamRequest[]
}

type VendorReply = (request: UpstreamRequest) => Reply | Promise<Reply>

/** Starts a stage with a vendor of the responses format and the default chat provider. */
async function stage(reply: VendorReply, options: StageOptions = {}): Promise<NativeStage> {
  const vendor = await startUpstream({ reply })
  closing.push(vendor.close)
  const models = [{ id: 'gpt-x', price: PRICE, contextWindowTokens: 100_000, maxOutputTokens: 1000 }]
  const started = await startStage({
    providers: [
      openaiCompatible({
        name: 'native',
        baseUrl: vendor.baseUrl,
        apiKey: 'sk-vendor-secret',
        models,
        responses: true,
      }),
      openaiCompatible({ name: 'chat', baseUrl: vendor.baseUrl, models: [{ id: 'plain', price: PRICE }] }),
    ],
    ...options,
  })
  stages.push(started)
  return Object.assign(started, { requests: vendor.requests })
}

const MODEL = 'native/gpt-x'
const USAGE = {
  input_tokens: 100,
  input_tokens_details: { cached_tokens: 0 },
  output_tokens: 50,
  output_tokens_details: { reasoning_tokens: 20 },
  total_tokens: 150,
}

function response(fields: JsonObject = {}): JsonObject {
  return {
    id: 'resp_vendor1',
    object: 'response',
    created_at: 1_760_000_000,
    status: 'completed',
    error: null,
    incomplete_details: null,
    model: 'gpt-x-2026',
    vendor_field: [1e-7, { deep: true }],
    output: [
      { id: 'rs_v1', type: 'reasoning', summary: [], encrypted_content: 'c2VhbGVk' },
      { id: 'ws_v1', type: 'web_search_call', status: 'completed', action: { type: 'search', query: 'rivers' } },
      {
        id: 'msg_v1',
        type: 'message',
        role: 'assistant',
        status: 'completed',
        content: [
          { type: 'output_text', text: 'The Rhine.', annotations: [{ type: 'url_citation', url: 'https://a.b' }] },
        ],
      },
    ],
    usage: USAGE,
    ...fields,
  }
}

const createReply = (fields: JsonObject = {}): Reply => ({ kind: 'json', value: response(fields) })

/** Fields of the format that the canonical prompt does not have. */
const FULL_BODY: JsonObject = {
  model: MODEL,
  input: [
    { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Name a river.' }] },
    { type: 'reasoning', summary: [], encrypted_content: 'Y2lwaGVy' },
    { type: 'custom_tool_call', call_id: 'c1', name: 'shell', input: 'ls' },
    { type: 'custom_tool_call_output', call_id: 'c1', output: 'README' },
    { type: 'additional_tools', role: 'developer', tools: [{ type: 'function', name: 'later', parameters: null }] },
  ],
  instructions: 'Be brief.',
  tools: [
    { type: 'web_search', search_context_size: 'low' },
    { type: 'file_search', vector_store_ids: ['vs_1'] },
    { type: 'code_interpreter', container: { type: 'auto' } },
    { type: 'mcp', server_label: 's', server_url: 'https://mcp.example' },
    { type: 'image_generation' },
    { type: 'computer' },
    { type: 'custom', name: 'shell', format: { type: 'text' } },
    { type: 'namespace', name: 'files', description: 'Files', tools: [{ type: 'function', name: 'read' }] },
    { type: 'tool_search', execution: 'client' },
  ],
  tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'web_search' }] },
  include: ['reasoning.encrypted_content', 'web_search_call.action.sources'],
  client_metadata: { session: 'abc' },
  prompt_cache_key: 'k',
  service_tier: 'auto',
  max_tool_calls: 3,
  text: { verbosity: 'low' },
  reasoning: { effort: 'xhigh', summary: 'auto' },
  store: true,
  unknown_field: { kept: [1.5, null] },
}

describe('a request to a vendor of the responses format', () => {
  it('is forwarded byte for byte except for the model, and the answer keeps every field', async () => {
    const { url, secret, requests } = await stage(() => createReply())
    const text = JSON.stringify(FULL_BODY, null, 1)

    const responded = await fetch(`${url}/v1/responses`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
      body: text,
    })
    const body = (await responded.json()) as JsonObject

    expect(responded.status).toBe(200)
    expect(requests[0]?.path).toBe('/v1/responses')
    expect(requests[0]?.text).toBe(text.replace(`"${MODEL}"`, '"gpt-x"'))
    expect(requests[0]?.headers['authorization']).toBe('Bearer sk-vendor-secret')
    expect(body).toMatchObject(response())
    expect(body['svc_metrics']).toMatchObject({ theoretical_cost: 0.0002, billed_amount: 0.0003 })
    expect(responded.headers.get('x-svc-billed-amount')).toBe('$0.000300')
    expect(responded.headers.get('x-svc-ignored')).toBeNull()
  })

  it('streams the events as received, with the bill on the last one', async () => {
    const events = streamOf('The Rhine.', 40)
    const { openai, requests } = await stage(() => ({ kind: 'events', items: events }))

    const stream = await openai.responses.create({ model: MODEL, input: 'Name a river.', stream: true })
    const got = []
    for await (const event of stream) got.push(event)

    expect(requests[0]?.body).toEqual({ model: 'gpt-x', input: 'Name a river.', stream: true })
    expect(got.slice(0, -1)).toEqual(events.slice(0, -1).map(({ data }) => JSON.parse(data) as unknown))
    expect(got.at(-1)).toMatchObject({
      type: 'response.completed',
      sequence_number: events.length - 1,
      response: { ...response(), svc_metrics: { billed_amount: 0.0003 } },
    })
  })

  it('that is streamed and breaks off ends with an error event with the next sequence number', async () => {
    const events = streamOf('The Rhine.', 40).slice(0, -3)
    const { url, secret } = await stage(() => ({ kind: 'events', items: events }))

    const responded = await fetch(`${url}/v1/responses`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: MODEL, input: 'x', stream: true }),
    })
    const last = (await responded.text()).trim().split('\n\n').at(-1) ?? ''

    expect(last).toMatch(/^event: error\n/)
    expect(JSON.parse(last.slice(last.indexOf('data: ') + 6))).toMatchObject({ sequence_number: events.length })
  })

  it('reserves the context window for tools that the vendor runs, and is rejected if that does not fit', async () => {
    // 100,000 tokens of context at $1 and 1,000 tokens of output at $2 per million, times 1.5.
    const { openai, requests } = await stage(() => createReply(), {
      key: { name: 'poor', budget_limit_cents: 15, budget_reset_duration: '1d' },
    })

    const plain = await openai.responses.create({ model: MODEL, input: 'x', max_output_tokens: 100 })
    const failure = await openai.responses
      .create({ model: MODEL, input: 'x', max_output_tokens: 100, tools: [{ type: 'web_search' }] })
      .catch((error: unknown) => error)

    expect(plain.output_text).toBe('The Rhine.')
    expect(failure).toMatchObject({ status: 402 })
    expect(requests).toHaveLength(1)
  })

  it('is answered from the cache under a new id', async () => {
    const output = [
      { type: 'message', id: 'msg_v', role: 'assistant', content: [{ type: 'output_text', text: 'The Rhine.' }] },
    ]
    const { openai, requests } = await stage(() => createReply({ output }), { cache: {} })

    const first = await openai.responses.create({ model: MODEL, input: 'Name a river.' })
    const second = await openai.responses.create({ model: MODEL, input: 'Name a river.' })

    expect(requests).toHaveLength(1)
    expect(first.id).toBe('resp_vendor1')
    expect(second.output_text).toBe('The Rhine.')
    expect(second.id).not.toBe(first.id)
    expect(second).toMatchObject({ svc_metrics: { cache: 'HIT', billed_amount: 0 } })
  })

  it('is rejected with the message of the vendor', async () => {
    const { openai } = await stage(() => ({
      kind: 'failure',
      status: 400,
      failure: { message: 'Unsupported tool.', code: 'bad_tool', param: 'tools[0]' },
    }))

    const failure = await openai.responses.create({ model: MODEL, input: 'x' }).catch((error: unknown) => error)

    expect(failure).toMatchObject({ status: 400, code: 'bad_tool', param: 'tools[0]' })
  })
})

describe('a response that the vendor stores', () => {
  it('is continued, read, listed, cancelled and deleted by the key that created it', async () => {
    const { openai, requests } = await stage((request) => {
      if (request.path.includes('/input_items'))
        return { kind: 'json', value: { object: 'list', data: [{ id: 'msg_u' }], has_more: false } }
      if (request.method === 'DELETE')
        return { kind: 'json', value: { id: 'resp_vendor1', object: 'response', deleted: true } }
      return createReply()
    })
    const first = await openai.responses.create({ model: MODEL, input: 'Name a river.' })

    await openai.responses.create({ model: MODEL, previous_response_id: first.id, input: 'And its length?' })
    const read = await openai.responses.retrieve(first.id, { include: ['message.output_text.logprobs'] })
    const items = await openai.responses.inputItems.list(first.id, { limit: 5, order: 'asc' })
    await openai.responses.cancel(first.id)
    await openai.responses.delete(first.id)
    const gone = await openai.responses.retrieve(first.id).catch((error: unknown) => error)

    expect(requests[1]?.body).toEqual({
      model: 'gpt-x',
      previous_response_id: 'resp_vendor1',
      input: 'And its length?',
    })
    expect(read.id).toBe('resp_vendor1')
    expect(items.data).toEqual([{ id: 'msg_u' }])
    expect(requests.slice(2).map(({ method, path }) => `${method} ${decodeURIComponent(path)}`)).toEqual([
      'GET /v1/responses/resp_vendor1?include[]=message.output_text.logprobs',
      'GET /v1/responses/resp_vendor1/input_items?limit=5&order=asc',
      'POST /v1/responses/resp_vendor1/cancel',
      'DELETE /v1/responses/resp_vendor1',
    ])
    expect(gone).toMatchObject({ status: 404 })
  })

  it('does not exist for another key, nor do its items', async () => {
    const { openai, gateway, url, requests } = await stage(() => createReply())
    const first = await openai.responses.create({ model: MODEL, input: 'Name a river.' })
    const other = new OpenAI({
      baseURL: `${url}/v1`,
      apiKey: (await gateway.keys.create({ name: 'other' })).value,
      maxRetries: 0,
    })
    const failures = await Promise.all(
      [
        other.responses.retrieve(first.id),
        other.responses.inputItems.list(first.id),
        other.responses.cancel(first.id),
        other.responses.delete(first.id),
        other.responses.create({ model: MODEL, previous_response_id: first.id, input: 'x' }),
        other.responses.create({ model: MODEL, input: [{ type: 'item_reference', id: 'msg_v1' }] }),
      ].map((call) => call.then(() => 200).catch((error: { status: number }) => error.status)),
    )

    expect(failures).toEqual([404, 404, 404, 404, 400, 400])
    expect(requests).toHaveLength(1)
  })

  it('has items that later requests of the same key can refer to', async () => {
    const { openai, requests } = await stage(() => createReply())
    await openai.responses.create({ model: MODEL, input: 'Name a river.' })
    const input = [
      { type: 'item_reference' as const, id: 'msg_v1' },
      { role: 'user' as const, content: 'And?' },
    ]

    await openai.responses.create({ model: MODEL, input })

    expect(requests[1]?.body['input']).toEqual(input)
  })

  it('is not continued by a model of another provider', async () => {
    const { openai } = await stage(() => createReply())
    const first = await openai.responses.create({ model: MODEL, input: 'Name a river.' })

    const failure = await openai.responses
      .create({ model: 'chat/plain', previous_response_id: first.id, input: 'x' })
      .catch((error: unknown) => error)

    expect(failure).toMatchObject({ status: 400, code: 'previous_response_not_found' })
  })

  it('is not stored with store: false', async () => {
    const { openai } = await stage(() => createReply())
    const first = await openai.responses.create({ model: MODEL, input: 'Name a river.', store: false })

    const failure = await openai.responses.retrieve(first.id).catch((error: unknown) => error)

    expect(failure).toMatchObject({ status: 404 })
  })

  it('counts against the request limit each time it is read', async () => {
    const { openai } = await stage(() => createReply(), {
      key: { name: 'few', rate_limit_requests: 2, rate_limit_reset_duration: '1h' },
    })
    const first = await openai.responses.create({ model: MODEL, input: 'Name a river.' })

    await openai.responses.retrieve(first.id)
    const failure = await openai.responses.retrieve(first.id).catch((error: unknown) => error)

    expect(failure).toMatchObject({ status: 429 })
  })

  it('is a compacted conversation, billed by its usage', async () => {
    const { openai, requests } = await stage(() => ({
      kind: 'json',
      value: {
        id: 'resp_c',
        object: 'response.compaction',
        created_at: 1,
        output: [{ id: 'cmp_1', type: 'compaction', encrypted_content: 'x' }],
        usage: USAGE,
      },
    }))

    const { data, response: head } = await openai.responses
      .compact({ model: MODEL as never, input: 'A long talk.' })
      .withResponse()

    expect(requests[0]).toMatchObject({
      path: '/v1/responses/compact',
      body: { model: 'gpt-x', input: 'A long talk.' },
    })
    expect(data.output[0]).toMatchObject({ type: 'compaction' })
    expect(head.headers.get('x-svc-billed-amount')).toBe('$0.000300')
    const failure = await openai.responses
      .compact({ model: 'chat/plain' as never, input: 'x' })
      .catch((error: unknown) => error)
    expect(failure).toMatchObject({ status: 400, param: 'model' })
  })
})

describe('a failed response', () => {
  it.each([false, true])('has the code with which the vendor rejects the prompt (stream: %s)', async (stream) => {
    const error = { code: 'context_length_exceeded', message: 'Your input exceeds the context window.' }
    const failed = response({ status: 'failed', output: [], error })
    const { openai, requests } = await stage(() =>
      stream
        ? {
            kind: 'events',
            items: ['created', 'failed'].map((name, index) => ({
              event: `response.${name}`,
              data: JSON.stringify({ type: `response.${name}`, sequence_number: index, response: failed }),
            })),
          }
        : { kind: 'json', value: failed },
    )

    const failure = await openai.responses
      .create({ model: MODEL, input: 'x', stream })
      .catch((thrown: unknown) => thrown)

    expect(failure).toBeInstanceOf(OpenAI.BadRequestError)
    expect(failure).toMatchObject({ ...error, message: `400 ${error.message}`, type: 'invalid_request_error' })
    expect(requests).toHaveLength(1)
  })
})

describe('a background response', () => {
  it('is answered immediately and settled when the vendor has finished it', async () => {
    let looks = 0
    const { openai, gateway, keyId, requests } = await stage((request) => {
      if (request.method === 'POST') return createReply({ status: 'queued', output: [], usage: null })
      looks += 1
      return looks === 1 ? createReply({ status: 'in_progress', output: [], usage: null }) : createReply()
    })

    const queued = await openai.responses.create({ model: MODEL, input: 'Think long.', background: true })
    expect(queued.status).toBe('queued')
    expect(await billed(gateway, keyId)).toBe(0)

    await expect.poll(() => billed(gateway, keyId), { timeout: 20_000 }).toBe(0.0003)
    expect(requests.map(({ method }) => method)).toEqual(['POST', 'GET', 'GET'])
    expect((await openai.responses.retrieve(queued.id)).output_text).toBe('The Rhine.')
  }, 60_000)

  it('is cancelled at the vendor when the gateway closes, and billed by what was used', async () => {
    const lines: LogRecord[] = []
    const { openai, gateway, requests } = await stage(
      (request) => {
        if (request.path.endsWith('/cancel')) return createReply({ status: 'cancelled', output: [] })
        return createReply({ status: 'queued', output: [], usage: null })
      },
      { log: (line) => lines.push(line) },
    )
    await openai.responses.create({ model: MODEL, input: 'Think long.', background: true })

    await gateway.close()

    expect(requests.at(-1)?.path).toBe('/v1/responses/resp_vendor1/cancel')
    expect(lines.filter((line) => line.event === undefined)).toMatchObject([{ billed_usd: 0.0003 }])
  })
})

async function billed(gateway: Gateway, keyId: string): Promise<unknown> {
  return (await gateway.keys.usage(keyId)).cost.billedUsd
}

/** A stream of the vendor with one text in several deltas. */
function streamOf(text: string, deltas: number): readonly SseEvent[] {
  const message = { id: 'msg_v1', type: 'message', role: 'assistant' }
  const inMessage = { item_id: 'msg_v1', output_index: 0, content_index: 0 }
  const begun = response({ status: 'in_progress', output: [], usage: null })
  const events: JsonObject[] = [
    { type: 'response.created', response: begun },
    { type: 'response.output_item.added', output_index: 0, item: { ...message, status: 'in_progress', content: [] } },
    { type: 'response.content_part.added', ...inMessage, part: { type: 'output_text', text: '', annotations: [] } },
    ...Array.from({ length: deltas }, () => ({ type: 'response.output_text.delta', ...inMessage, delta: text })),
    { type: 'response.output_text.done', ...inMessage, text: text.repeat(deltas) },
    { type: 'response.output_item.done', output_index: 0, item: { ...message, status: 'completed', content: [] } },
    { type: 'response.completed', response: response() },
  ]
  return events.map((event, index) => ({
    event: String(event['type']),
    data: JSON.stringify({ ...event, sequence_number: index }),
  }))
}
