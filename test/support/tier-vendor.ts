import type { JsonObject } from '../../src/core/json.ts'
import type { Reply, UpstreamRequest } from './upstream.ts'

/** What the vendor of the tests reports: its tiers, and 100 prompt and 200 output tokens unless `usage` replaces them. */
export interface Report {
  readonly tiers?: JsonObject
  readonly prompt?: number
  readonly output?: number
}

/** A format of the gateway, with a request body and the fields that select a tier. */
export interface TierFormat {
  readonly name: string
  readonly path: string
  readonly body: JsonObject
}

const question = [{ role: 'user', content: 'Hello?' }]

export const TIER_FORMATS: readonly TierFormat[] = [
  { name: 'chat', path: '/v1/chat/completions', body: { model: 'chat/large', messages: question, max_tokens: 500 } },
  { name: 'responses', path: '/v1/responses', body: { model: 'chat/large', input: 'Hello?', max_output_tokens: 500 } },
  { name: 'messages', path: '/v1/messages', body: { model: 'anthropic/large', messages: question, max_tokens: 500 } },
]

/** Replies in the format of the request. The tiers are where the vendors of the format report them. */
export function tierReply({ path, stream }: UpstreamRequest, report: Report): Reply {
  if (path.includes('/count_tokens')) return { kind: 'json', value: { input_tokens: report.prompt ?? 100 } }
  if (path.endsWith('/responses')) return responsesReply(stream, report)
  return path.endsWith('/messages') ? messagesReply(stream, report) : chatReply(stream, report)
}

function chatReply(stream: boolean, { tiers = {}, prompt = 100, output = 200 }: Report): Reply {
  const head = { id: 'chatcmpl-1', created: 1_760_000_000, model: 'large', ...tiers }
  const usage = { prompt_tokens: prompt, completion_tokens: output, total_tokens: prompt + output }
  const message = { role: 'assistant', content: 'Hello.' }
  if (!stream) {
    const choices = [{ index: 0, message, finish_reason: 'stop' }]
    return { kind: 'json', value: { ...head, object: 'chat.completion', choices, usage } }
  }
  const chunks = [
    { choices: [{ index: 0, delta: message, finish_reason: null }] },
    { choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] },
    { choices: [], usage },
  ]
  const data = chunks.map((chunk) => JSON.stringify({ ...head, object: 'chat.completion.chunk', ...chunk }))
  return { kind: 'events', items: [...data, '[DONE]'].map((text) => ({ data: text })) }
}

function responsesReply(stream: boolean, { tiers = {}, prompt = 100, output = 200 }: Report): Reply {
  const item = {
    type: 'message',
    id: 'msg_1',
    role: 'assistant',
    status: 'completed',
    content: [{ type: 'output_text', text: 'Hello.', annotations: [] }],
  }
  const usage = { input_tokens: prompt, output_tokens: output, total_tokens: prompt + output }
  const head = { id: 'resp_1', object: 'response', created_at: 1_760_000_000, model: 'large' }
  const response = { ...head, status: 'completed', output: [item], usage, ...tiers }
  if (!stream) return { kind: 'json', value: response }
  const created = { ...head, status: 'in_progress', output: [], service_tier: 'auto' }
  const events: readonly JsonObject[] = [
    { type: 'response.created', response: created },
    { type: 'response.output_item.added', output_index: 0, item: { ...item, status: 'in_progress', content: [] } },
    { type: 'response.output_text.delta', output_index: 0, content_index: 0, item_id: 'msg_1', delta: 'Hello.' },
    { type: 'response.output_item.done', output_index: 0, item },
    { type: 'response.completed', response },
  ]
  return {
    kind: 'events',
    items: events.map((event, sequence_number) => ({
      event: String(event['type']),
      data: JSON.stringify({ ...event, sequence_number }),
    })),
  }
}

function messagesReply(stream: boolean, { tiers = {}, prompt = 100, output = 200 }: Report): Reply {
  const message = { id: 'msg_1', type: 'message', role: 'assistant', model: 'large' }
  const usage = { input_tokens: prompt, output_tokens: output, ...tiers }
  if (!stream) {
    const content = [{ type: 'text', text: 'Hello.' }]
    return { kind: 'json', value: { ...message, content, stop_reason: 'end_turn', stop_sequence: null, usage } }
  }
  const started = { ...message, content: [], usage: { ...usage, output_tokens: 1 } }
  const events: readonly JsonObject[] = [
    { type: 'message_start', message: started },
    { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
    { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'Hello.' } },
    { type: 'content_block_stop', index: 0 },
    {
      type: 'message_delta',
      delta: { stop_reason: 'end_turn', stop_sequence: null },
      usage: { output_tokens: output },
    },
    { type: 'message_stop' },
  ]
  return {
    kind: 'events',
    items: events.map((event) => ({ event: String(event['type']), data: JSON.stringify(event) })),
  }
}
