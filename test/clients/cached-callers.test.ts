import { afterEach, describe, expect, it } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import { anthropic, openaiCompatible } from '../../src/index.ts'
import { PRICE, startStage, type Stage } from '../support/stage.ts'
import { startUpstream, type Reply, type UpstreamRequest } from '../support/upstream.ts'

const closing: (() => Promise<void>)[] = []
afterEach(async () => {
  await Promise.all(closing.splice(0).map((close) => close()))
})

const FIELDS = ['metadata', 'user', 'safety_identifier', 'prompt_cache_key'] as const

/** A response that repeats the fields of its request, as the responses format requires and any vendor may do. */
function echo({ path, body }: UpstreamRequest): Reply {
  const echoed = Object.fromEntries(FIELDS.map((name) => [name, body[name] ?? null]))
  const usage = { input_tokens: 10, output_tokens: 5, prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 }
  if (path.endsWith('/responses')) {
    const content = [{ type: 'output_text', text: 'A gate.', annotations: [] }]
    const output = [{ type: 'message', id: 'msg_1', role: 'assistant', status: 'completed', content }]
    const response = { id: 'resp_1', object: 'response', status: 'completed', model: 'm', output, usage, ...echoed }
    if (body['stream'] !== true) return { kind: 'json', value: response }
    const events = [
      { type: 'response.created', response: { ...response, status: 'in_progress', output: [] } },
      { type: 'response.output_item.added', output_index: 0, item: { ...output[0], content: [] } },
      { type: 'response.output_text.delta', output_index: 0, content_index: 0, item_id: 'msg_1', delta: 'A gate.' },
      { type: 'response.output_item.done', output_index: 0, item: output[0] },
      { type: 'response.completed', response },
    ]
    return { kind: 'events', items: events.map((event) => ({ event: event.type, data: JSON.stringify(event) })) }
  }
  if (path.endsWith('/messages')) {
    const content = [{ type: 'text', text: 'A gate.' }]
    const message = { id: 'msg_1', type: 'message', role: 'assistant', model: 'm', content, stop_reason: 'end_turn' }
    return { kind: 'json', value: { ...message, usage, ...echoed } }
  }
  const choices = [{ index: 0, message: { role: 'assistant', content: 'A gate.' }, finish_reason: 'stop' }]
  return { kind: 'json', value: { id: 'c', object: 'chat.completion', model: 'm', choices, usage, ...echoed } }
}

async function stage(): Promise<Stage & { readonly vendorRequests: readonly UpstreamRequest[] }> {
  const vendor = await startUpstream({ reply: echo })
  const models = [{ id: 'm', price: PRICE, contextWindowTokens: 100_000, maxOutputTokens: 1000 }]
  const connection = { baseUrl: vendor.baseUrl, apiKey: 'sk-vendor-secret', models }
  const started = await startStage({
    cache: {},
    providers: [
      openaiCompatible({ name: 'native', ...connection, responses: true }),
      openaiCompatible({ name: 'chat', ...connection }),
      anthropic({ ...connection, baseUrl: vendor.url }),
    ],
  })
  closing.push(started.close, vendor.close)
  return Object.assign(started, { vendorRequests: vendor.requests })
}

const callerOf = (name: string): JsonObject => ({
  metadata: { user_id: name },
  user: name,
  safety_identifier: name,
  prompt_cache_key: name,
})
const messages = [{ role: 'user', content: 'What is a sluice?' }]

interface Format {
  readonly path: string
  readonly body: JsonObject
  readonly fieldsOf: (name: string) => JsonObject
}

const FORMATS: Readonly<Record<string, Format>> = {
  chat: { path: '/v1/chat/completions', body: { model: 'chat/m', messages }, fieldsOf: callerOf },
  messages: {
    path: '/v1/messages',
    body: { model: 'anthropic/m', max_tokens: 50, messages },
    fieldsOf: (name) => ({ metadata: { user_id: name } }),
  },
  responses: { path: '/v1/responses', body: { model: 'native/m', input: 'What is a sluice?' }, fieldsOf: callerOf },
}

describe.each(Object.entries(FORMATS))('a stored answer in the format %s', (name, { path, body, fieldsOf }) => {
  const streamedPairs = [false, true].flatMap((first) => [false, true].map((second) => [first, second] as const))
  const pairs = streamedPairs.filter(([first]) => !first || name === 'responses')

  it.each(pairs)('has the fields of its own caller only (stream: %s, then %s)', async (first, second) => {
    const { url, secret, vendorRequests } = await stage()
    const send = async (fields: JsonObject, stream: boolean): Promise<string> => {
      const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' }
      const init = { method: 'POST', headers, body: JSON.stringify({ ...body, ...fields, stream }) }
      const response = await fetch(`${url}${path}`, init)
      const text = await response.text()
      expect(response.status, text).toBe(200)
      return text
    }

    const stored = await send(fieldsOf('first-caller'), first)
    const replayed = await send(fieldsOf('second-caller'), second)
    const unnamed = await send({}, second)

    expect(stored).toContain('first-caller')
    expect(vendorRequests).toHaveLength(1)
    expect([replayed, unnamed].map((text) => text.includes('first-caller'))).toEqual([false, false])
    expect([replayed, unnamed].map((text) => text.includes('A gate.'))).toEqual([true, true])
    expect(unnamed).not.toContain('second-caller')
    if (name === 'responses') expect(replayed.match(/second-caller/g)?.length).toBeGreaterThanOrEqual(4)
  })
})
