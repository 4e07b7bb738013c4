import { asArray, asObject, isJsonObject, type JsonObject } from '../../src/core/json.ts'
import type { Reply, UpstreamRequest } from './upstream.ts'

/** Final response of the vendor. */
export const WEATHER = 'It is 21 degrees in Paris.'

/**
 * Creates a reply for a conversation with one tool, in all three formats: a call of the first tool of the request, or
 * `WEATHER` if the request contains a tool result.
 */
export function weatherVendor(input: JsonObject = { city: 'Paris' }): (request: UpstreamRequest) => Reply {
  return (request) => {
    const { path, body, index, stream } = request
    const called = toolResults(body) > 0 ? undefined : firstTool(body)
    if (!path.startsWith('/v1/responses')) {
      return called === undefined ? WEATHER : { toolCalls: [{ name: called, input: JSON.stringify(input) }] }
    }
    const item: JsonObject =
      called === undefined
        ? {
            type: 'message',
            id: `msg_${index}`,
            role: 'assistant',
            status: 'completed',
            content: [{ type: 'output_text', text: WEATHER, annotations: [] }],
          }
        : {
            type: 'function_call',
            id: `fc_${index}`,
            call_id: `call_${index}`,
            name: called,
            arguments: JSON.stringify(input),
            status: 'completed',
          }
    return stream ? responseStream(index, item) : { kind: 'json', value: wholeResponse(index, item) }
  }
}

/** Counts the tool results in a request of any format. */
export function toolResults(body: JsonObject): number {
  const messages = asArray(body['messages']).filter(isJsonObject)
  const blocks = messages.flatMap(({ content }) => asArray(content))
  return [...messages, ...blocks, ...asArray(body['input'])].filter(
    (part) =>
      isJsonObject(part) &&
      (part['role'] === 'tool' || part['type'] === 'tool_result' || part['type'] === 'function_call_output'),
  ).length
}

function firstTool(body: JsonObject): string | undefined {
  const tool = asObject(asArray(body['tools'])[0])
  const name = tool?.['name'] ?? asObject(tool?.['function'])?.['name']
  return typeof name === 'string' ? name : undefined
}

function wholeResponse(index: number, item: JsonObject): JsonObject {
  return {
    id: `resp_${index}`,
    object: 'response',
    created_at: 1_760_000_000,
    status: 'completed',
    model: 'as-asked',
    error: null,
    incomplete_details: null,
    instructions: null,
    metadata: {},
    output: [item],
    parallel_tool_calls: true,
    temperature: 1,
    tool_choice: 'auto',
    tools: [],
    top_p: 1,
    usage: {
      input_tokens: 100,
      input_tokens_details: { cached_tokens: 0 },
      output_tokens: 10,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: 110,
    },
  }
}

/** Returns the events of a response with one item, in the order of the vendor. */
function responseStream(index: number, item: JsonObject): Reply {
  const whole = wholeResponse(index, item)
  const begun = { ...whole, status: 'in_progress', output: [], usage: null }
  const at = { output_index: 0, item_id: item['id'] }
  const text = { ...at, content_index: 0 }
  const written = asObject(asArray(item['content'])[0])
  const content: readonly JsonObject[] =
    written === undefined
      ? [
          { type: 'response.function_call_arguments.delta', ...at, delta: item['arguments'] },
          { type: 'response.function_call_arguments.done', ...at, name: item['name'], arguments: item['arguments'] },
        ]
      : [
          { type: 'response.content_part.added', ...text, part: { ...written, text: '' } },
          { type: 'response.output_text.delta', ...text, delta: written['text'], logprobs: [] },
          { type: 'response.output_text.done', ...text, text: written['text'], logprobs: [] },
          { type: 'response.content_part.done', ...text, part: written },
        ]
  const empty = written === undefined ? { arguments: '' } : { content: [] }
  const events: readonly JsonObject[] = [
    { type: 'response.created', response: begun },
    { type: 'response.output_item.added', output_index: 0, item: { ...item, ...empty, status: 'in_progress' } },
    ...content,
    { type: 'response.output_item.done', output_index: 0, item },
    { type: 'response.completed', response: whole },
  ]
  const items = events.map((event, number) => ({
    event: String(event['type']),
    data: JSON.stringify({ ...event, sequence_number: number }),
  }))
  return { kind: 'events', items }
}
