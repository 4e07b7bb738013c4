import { asArray, asObject, isJsonObject, type Json, type JsonObject } from '../../../src/core/json.ts'
import type { Reply, UpstreamRequest } from '../../support/upstream.ts'

/** Text in each result of a tool, by which a test finds the results. */
export const OUTPUT = 'The log of the harbour.'
/** `recorded.ts` adds the number of the repetition, so that no two items of a session are equal. */
const saidAt = (index: number, isLast: boolean): string =>
  isLast ? `Both files are read, step ${index}.` : `I look at the files, step ${index}.`

/**
 * Calls the first tool of the request twice, then once more, then answers, after each user message. Answers with
 * reasoning in the responses format, and in the messages format if the request asks for it.
 */
export function toolLoop({ path, body, index, stream }: UpstreamRequest): Reply {
  const name = firstTool(body)
  const done = resultsOfTurn(body)
  const files = name === undefined || done >= 3 ? [] : done === 0 ? ['a.ts', 'b.ts'] : ['c.ts']
  const calls = files.map((file, at) => ({ id: `${index}_${at}`, input: JSON.stringify({ path: file }) }))
  if (path.startsWith('/v1/responses')) {
    const items = responseItems(body, index, name ?? '', calls)
    return stream ? { kind: 'events', items: responseEvents(index, items) } : whole(index, items)
  }
  const isMessages = path.includes('/messages')
  return {
    ...(isMessages && isJsonObject(body['thinking']) && { thinking: `Which file, at ${index}?` }),
    text: saidAt(index, calls.length === 0),
    toolCalls: calls.map(({ id, input }) => ({
      id: `${isMessages ? 'toolu' : 'call'}_${id}`,
      name: name ?? '',
      input,
    })),
  }
}

/** Responses with edits of the file `note.txt`, as agents without native tools expect them. */
export function editLoop({ index }: UpstreamRequest): Reply {
  const edit = ['<<<<<<< SEARCH', `line ${index}`, '=======', `line ${index + 1}`, '>>>>>>> REPLACE'].join('\n')
  return `I change the line.\n\nnote.txt\n\`\`\`\n${edit}\n\`\`\`\n`
}

/** Responses with arguments that do not match the schema, then with some that do. */
export function placeLoop({ body, index }: UpstreamRequest): Reply {
  const input = resultsOfTurn(body) === 0 ? { city: OUTPUT } : { city: OUTPUT, degrees: 21 }
  return { toolCalls: [{ id: `call_${index}`, name: firstTool(body) ?? '', input: JSON.stringify(input) }] }
}

function firstTool(body: JsonObject): string | undefined {
  const tool = asObject(asArray(body['tools'])[0])
  const name = tool?.['name'] ?? asObject(tool?.['function'])?.['name']
  return typeof name === 'string' ? name : undefined
}

const typeOf = (value: Json): Json | undefined => (isJsonObject(value) ? value['type'] : undefined)

/** Counts the results of tools after the last user message. */
export function resultsOfTurn(body: JsonObject): number {
  const results = [...asArray(body['messages']), ...asArray(body['input'])].filter(isJsonObject).map((item) => {
    const found = asArray(item['content']).filter((block) => typeOf(block) === 'tool_result').length
    const isResult = item['role'] === 'tool' || String(item['type']).endsWith('_call_output')
    return { count: isResult ? 1 : found, isUser: item['role'] === 'user' && found === 0 }
  })
  const last = results.findLastIndex(({ isUser }) => isUser)
  return results.slice(last + 1).reduce((sum, { count }) => sum + count, 0)
}

function responseItems(
  body: JsonObject,
  index: number,
  name: string,
  calls: readonly { readonly id: string; readonly input: string }[],
): readonly JsonObject[] {
  const isEncrypted = asArray(body['include']).includes('reasoning.encrypted_content')
  const content = [{ type: 'output_text', text: saidAt(index, calls.length === 0), annotations: [] }]
  return [
    { type: 'reasoning', id: `rs_${index}`, summary: [], ...(isEncrypted && { encrypted_content: `gAAAA${index}` }) },
    { type: 'message', id: `msg_${index}`, role: 'assistant', status: 'completed', content },
    ...calls.map(({ id, input }) => ({
      type: 'function_call',
      id: `fc_${id}`,
      call_id: `call_${id}`,
      name,
      arguments: input,
      status: 'completed',
    })),
  ]
}

function responseOf(index: number, items: readonly JsonObject[]): JsonObject {
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
    output: items,
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

/** Responses with a text in the responses format. */
export function responseReply({ index, stream }: UpstreamRequest, text: string): Reply {
  const content = [{ type: 'output_text', text, annotations: [] }]
  const items = [{ type: 'message', id: `msg_${index}`, role: 'assistant', status: 'completed', content }]
  return stream ? { kind: 'events', items: responseEvents(index, items) } : whole(index, items)
}

const whole = (index: number, items: readonly JsonObject[]): Reply => ({
  kind: 'json',
  value: responseOf(index, items),
})

export function responseEvents(
  index: number,
  items: readonly JsonObject[],
): readonly { readonly event: string; readonly data: string }[] {
  const response = responseOf(index, items)
  const events: readonly JsonObject[] = [
    { type: 'response.created', response: { ...response, status: 'in_progress', output: [], usage: null } },
    ...items.flatMap((item, output_index) => [
      { type: 'response.output_item.added', output_index, item },
      { type: 'response.output_item.done', output_index, item },
    ]),
    { type: 'response.completed', response },
  ]
  return events.map((event, number) => ({
    event: String(event['type']),
    data: JSON.stringify({ ...event, sequence_number: number }),
  }))
}
