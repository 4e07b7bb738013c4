import type { SseEvent } from '../../src/core/completion.ts'
import type { JsonObject } from '../../src/core/json.ts'
import type { Dialect } from '../../src/core/prompt.ts'

/** A response that the upstream writes in the format of the request, whole or streamed. */
export interface ModelResponse {
  /** Streamed as one delta per text of a list, or per word of a string. @default '' */
  readonly text?: string | readonly string[]
  readonly thinking?: string
  readonly toolCalls?: readonly { readonly id?: string; readonly name: string; readonly input: string }[]
  /** `finish_reason` or `stop_reason` in the spelling of the format. @default derived from the content */
  readonly finish?: string
  /** Usage object of the format; `null` omits it. @default estimated at four characters per token */
  readonly usage?: JsonObject | null
  /** @default `chatcmpl-<index>` or `msg_<index>`, with the index of the request */
  readonly id?: string
  /** @default the requested model */
  readonly model?: string
}

/** Fields of an upstream's error body. */
export interface Failure {
  /** @default 'The upstream refuses with <status>.' */
  readonly message?: string
  readonly type?: string
  readonly code?: string
  readonly param?: string
  readonly details?: JsonObject
}

interface RespondedRequest {
  readonly index: number
  readonly text: string
  readonly body: JsonObject
  readonly dialect: Dialect
}

/** Returns a response as a JSON body in the format of the request. */
export function buildBody(request: RespondedRequest, response: ModelResponse): JsonObject {
  return request.dialect === 'messages' ? buildMessage(request, response) : buildCompletion(request, response)
}

/** Returns a response as the events of a stream in the format of the request, including the terminal event. */
export function buildEvents(request: RespondedRequest, response: ModelResponse): readonly SseEvent[] {
  return request.dialect === 'messages' ? buildMessageEvents(request, response) : buildChunks(request, response)
}

/** Returns an error body in the format. */
export function buildErrorBody(dialect: Dialect, status: number, failure: Failure = {}): JsonObject {
  const message = failure.message ?? `The upstream refuses with ${status}.`
  const { type = 'invalid_request_error', code, param, details } = failure
  if (dialect === 'messages') return { type: 'error', error: { type, message, details }, request_id: 'req_upstream' }
  return { error: { message, type, param: param ?? null, code: code ?? null, details } }
}

function buildCompletion(request: RespondedRequest, response: ModelResponse): JsonObject {
  const calls = chatCalls(response)
  const usage = chatUsage(request, response)
  return {
    id: response.id ?? `chatcmpl-${request.index}`,
    object: 'chat.completion',
    created: 1_760_000_000,
    model: modelOf(request, response),
    choices: [
      {
        index: 0,
        message: {
          role: 'assistant',
          content: calls.length > 0 && joinText(response) === '' ? null : joinText(response),
          ...(calls.length > 0 && { tool_calls: calls }),
        },
        finish_reason: response.finish ?? (calls.length > 0 ? 'tool_calls' : 'stop'),
      },
    ],
    ...(usage !== null && { usage }),
  }
}

function buildChunks(request: RespondedRequest, response: ModelResponse): readonly SseEvent[] {
  const head = {
    id: response.id ?? `chatcmpl-${request.index}`,
    object: 'chat.completion.chunk',
    created: 1_760_000_000,
    model: modelOf(request, response),
  }
  const options = request.body['stream_options'] as JsonObject | undefined
  const usage = options?.['include_usage'] === true ? chatUsage(request, response) : null
  const chunk = (delta: JsonObject, finish: string | null = null): SseEvent =>
    data({ ...head, choices: [{ index: 0, delta, finish_reason: finish }] })
  const calls = chatCalls(response)
  return [
    chunk({ role: 'assistant', content: '' }),
    ...splitText(response).map((content) => chunk({ content })),
    ...calls.flatMap((call, index) => [
      chunk({
        tool_calls: [{ index, id: call.id, type: 'function', function: { name: call.function.name, arguments: '' } }],
      }),
      ...splitInHalf(call.function.arguments).map((text) =>
        chunk({ tool_calls: [{ index, function: { arguments: text } }] }),
      ),
    ]),
    chunk({}, response.finish ?? (calls.length > 0 ? 'tool_calls' : 'stop')),
    ...(usage === null ? [] : [data({ ...head, choices: [], usage })]),
    { data: '[DONE]' },
  ]
}

function chatCalls(
  response: ModelResponse,
): readonly { id: string; type: 'function'; function: { name: string; arguments: string } }[] {
  return (response.toolCalls ?? []).map((call, index) => ({
    id: call.id ?? `call_${index}`,
    type: 'function',
    function: { name: call.name, arguments: call.input },
  }))
}

function chatUsage(request: RespondedRequest, response: ModelResponse): JsonObject | null {
  if (response.usage !== undefined) return response.usage
  const prompt = estimateTokens(request.text)
  const completion = outputTokens(response)
  return { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion }
}

function buildMessage(request: RespondedRequest, response: ModelResponse): JsonObject {
  const usage = response.usage === undefined ? messageUsage(request, response) : response.usage
  return {
    id: response.id ?? `msg_${request.index}`,
    type: 'message',
    role: 'assistant',
    model: modelOf(request, response),
    content: [
      ...(response.thinking === undefined
        ? []
        : [{ type: 'thinking', thinking: response.thinking, signature: 'c2lnbmVk' }]),
      ...(joinText(response) === '' ? [] : [{ type: 'text', text: joinText(response) }]),
      ...(response.toolCalls ?? []).map((call, index) => ({
        type: 'tool_use',
        id: call.id ?? `toolu_${index}`,
        name: call.name,
        input: JSON.parse(call.input) as JsonObject,
      })),
    ],
    stop_reason: stopReason(response),
    stop_sequence: null,
    ...(usage !== null && { usage }),
  }
}

function buildMessageEvents(request: RespondedRequest, response: ModelResponse): readonly SseEvent[] {
  const usage = response.usage === undefined ? messageUsage(request, response) : (response.usage ?? {})
  const { output_tokens: output, ...input } = usage
  const events: SseEvent[] = []
  const add = (type: string, value: JsonObject): void => {
    events.push({ event: type, data: JSON.stringify({ type, ...value }) })
  }
  let index = 0
  const block = (start: JsonObject, deltas: readonly JsonObject[]): void => {
    add('content_block_start', { index, content_block: start })
    for (const delta of deltas) add('content_block_delta', { index, delta })
    add('content_block_stop', { index })
    index += 1
  }
  add('message_start', {
    message: {
      ...buildMessage(request, response),
      content: [],
      stop_reason: null,
      usage: { ...input, output_tokens: 1 },
    },
  })
  add('ping', {})
  if (response.thinking !== undefined) {
    block({ type: 'thinking', thinking: '' }, [
      { type: 'thinking_delta', thinking: response.thinking },
      { type: 'signature_delta', signature: 'c2lnbmVk' },
    ])
  }
  if (joinText(response) !== '')
    block(
      { type: 'text', text: '' },
      splitText(response).map((text) => ({ type: 'text_delta', text })),
    )
  for (const [order, call] of (response.toolCalls ?? []).entries()) {
    const deltas = splitInHalf(call.input).map((text) => ({ type: 'input_json_delta', partial_json: text }))
    block({ type: 'tool_use', id: call.id ?? `toolu_${order}`, name: call.name, input: {} }, deltas)
  }
  add('message_delta', {
    delta: { stop_reason: stopReason(response), stop_sequence: null },
    ...(response.usage !== null && { usage: { ...input, output_tokens: output } }),
  })
  add('message_stop', {})
  return events
}

function messageUsage(request: RespondedRequest, response: ModelResponse): JsonObject {
  return { input_tokens: estimateTokens(request.text), output_tokens: outputTokens(response) }
}

function stopReason(response: ModelResponse): string {
  return response.finish ?? ((response.toolCalls ?? []).length > 0 ? 'tool_use' : 'end_turn')
}

function modelOf(request: RespondedRequest, response: ModelResponse): string {
  return response.model ?? String(request.body['model'] ?? 'unknown')
}

function outputTokens(response: ModelResponse): number {
  const calls = (response.toolCalls ?? []).map((call) => call.name + call.input)
  return estimateTokens([joinText(response), response.thinking ?? '', ...calls].join(''))
}

function estimateTokens(text: string): number {
  return Math.ceil(text.length / 4)
}

function joinText(response: ModelResponse): string {
  return typeof response.text === 'string' ? response.text : (response.text ?? []).join('')
}

function splitText(response: ModelResponse): readonly string[] {
  if (typeof response.text !== 'string') return response.text ?? []
  return response.text.match(/\s*\S+\s*$|\s*\S+/g) ?? (response.text === '' ? [] : [response.text])
}

function splitInHalf(text: string): readonly string[] {
  const middle = Math.floor(text.length / 2)
  return middle === 0 ? [text] : [text.slice(0, middle), text.slice(middle)]
}

function data(value: JsonObject): SseEvent {
  return { data: JSON.stringify(value) }
}
