import type { SseEvent } from '../../src/core/answer.ts'
import type { JsonObject } from '../../src/core/json.ts'
import type { Dialect } from '../../src/core/prompt.ts'

/** An answer that the upstream writes in the format of the request, whole or streamed. */
export interface Answer {
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

interface AnsweredRequest {
  readonly index: number
  readonly text: string
  readonly body: JsonObject
  readonly dialect: Dialect
}

/** Returns an answer as a JSON body in the format of the request. */
export function buildBody(request: AnsweredRequest, answer: Answer): JsonObject {
  return request.dialect === 'messages' ? buildMessage(request, answer) : buildCompletion(request, answer)
}

/** Returns an answer as the events of a stream in the format of the request, including the terminal event. */
export function buildEvents(request: AnsweredRequest, answer: Answer): readonly SseEvent[] {
  return request.dialect === 'messages' ? buildMessageEvents(request, answer) : buildChunks(request, answer)
}

/** Returns an error body in the format. */
export function buildErrorBody(dialect: Dialect, status: number, failure: Failure = {}): JsonObject {
  const message = failure.message ?? `The upstream refuses with ${status}.`
  const { type = 'invalid_request_error', code, param, details } = failure
  if (dialect === 'messages') return { type: 'error', error: { type, message, details }, request_id: 'req_upstream' }
  return { error: { message, type, param: param ?? null, code: code ?? null, details } }
}

function buildCompletion(request: AnsweredRequest, answer: Answer): JsonObject {
  const calls = chatCalls(answer)
  const usage = chatUsage(request, answer)
  return {
    id: answer.id ?? `chatcmpl-${request.index}`,
    object: 'chat.completion',
    created: 1_760_000_000,
    model: modelOf(request, answer),
    choices: [
      {
        index: 0,
        message: {
          role: 'assistant',
          content: calls.length > 0 && joinText(answer) === '' ? null : joinText(answer),
          ...(calls.length > 0 && { tool_calls: calls }),
        },
        finish_reason: answer.finish ?? (calls.length > 0 ? 'tool_calls' : 'stop'),
      },
    ],
    ...(usage !== null && { usage }),
  }
}

function buildChunks(request: AnsweredRequest, answer: Answer): readonly SseEvent[] {
  const head = {
    id: answer.id ?? `chatcmpl-${request.index}`,
    object: 'chat.completion.chunk',
    created: 1_760_000_000,
    model: modelOf(request, answer),
  }
  const options = request.body['stream_options'] as JsonObject | undefined
  const usage = options?.['include_usage'] === true ? chatUsage(request, answer) : null
  const chunk = (delta: JsonObject, finish: string | null = null): SseEvent =>
    data({ ...head, choices: [{ index: 0, delta, finish_reason: finish }] })
  const calls = chatCalls(answer)
  return [
    chunk({ role: 'assistant', content: '' }),
    ...splitText(answer).map((content) => chunk({ content })),
    ...calls.flatMap((call, index) => [
      chunk({
        tool_calls: [{ index, id: call.id, type: 'function', function: { name: call.function.name, arguments: '' } }],
      }),
      ...splitInHalf(call.function.arguments).map((text) =>
        chunk({ tool_calls: [{ index, function: { arguments: text } }] }),
      ),
    ]),
    chunk({}, answer.finish ?? (calls.length > 0 ? 'tool_calls' : 'stop')),
    ...(usage === null ? [] : [data({ ...head, choices: [], usage })]),
    { data: '[DONE]' },
  ]
}

function chatCalls(
  answer: Answer,
): readonly { id: string; type: 'function'; function: { name: string; arguments: string } }[] {
  return (answer.toolCalls ?? []).map((call, index) => ({
    id: call.id ?? `call_${index}`,
    type: 'function',
    function: { name: call.name, arguments: call.input },
  }))
}

function chatUsage(request: AnsweredRequest, answer: Answer): JsonObject | null {
  if (answer.usage !== undefined) return answer.usage
  const prompt = estimateTokens(request.text)
  const completion = outputTokens(answer)
  return { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion }
}

function buildMessage(request: AnsweredRequest, answer: Answer): JsonObject {
  const usage = answer.usage === undefined ? messageUsage(request, answer) : answer.usage
  return {
    id: answer.id ?? `msg_${request.index}`,
    type: 'message',
    role: 'assistant',
    model: modelOf(request, answer),
    content: [
      ...(answer.thinking === undefined
        ? []
        : [{ type: 'thinking', thinking: answer.thinking, signature: 'c2lnbmVk' }]),
      ...(joinText(answer) === '' ? [] : [{ type: 'text', text: joinText(answer) }]),
      ...(answer.toolCalls ?? []).map((call, index) => ({
        type: 'tool_use',
        id: call.id ?? `toolu_${index}`,
        name: call.name,
        input: JSON.parse(call.input) as JsonObject,
      })),
    ],
    stop_reason: stopReason(answer),
    stop_sequence: null,
    ...(usage !== null && { usage }),
  }
}

function buildMessageEvents(request: AnsweredRequest, answer: Answer): readonly SseEvent[] {
  const usage = answer.usage === undefined ? messageUsage(request, answer) : (answer.usage ?? {})
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
      ...buildMessage(request, answer),
      content: [],
      stop_reason: null,
      usage: { ...input, output_tokens: 1 },
    },
  })
  add('ping', {})
  if (answer.thinking !== undefined) {
    block({ type: 'thinking', thinking: '' }, [
      { type: 'thinking_delta', thinking: answer.thinking },
      { type: 'signature_delta', signature: 'c2lnbmVk' },
    ])
  }
  if (joinText(answer) !== '')
    block(
      { type: 'text', text: '' },
      splitText(answer).map((text) => ({ type: 'text_delta', text })),
    )
  for (const [order, call] of (answer.toolCalls ?? []).entries()) {
    const deltas = splitInHalf(call.input).map((text) => ({ type: 'input_json_delta', partial_json: text }))
    block({ type: 'tool_use', id: call.id ?? `toolu_${order}`, name: call.name, input: {} }, deltas)
  }
  add('message_delta', {
    delta: { stop_reason: stopReason(answer), stop_sequence: null },
    ...(answer.usage !== null && { usage: { ...input, output_tokens: output } }),
  })
  add('message_stop', {})
  return events
}

function messageUsage(request: AnsweredRequest, answer: Answer): JsonObject {
  return { input_tokens: estimateTokens(request.text), output_tokens: outputTokens(answer) }
}

function stopReason(answer: Answer): string {
  return answer.finish ?? ((answer.toolCalls ?? []).length > 0 ? 'tool_use' : 'end_turn')
}

function modelOf(request: AnsweredRequest, answer: Answer): string {
  return answer.model ?? String(request.body['model'] ?? 'unknown')
}

function outputTokens(answer: Answer): number {
  const calls = (answer.toolCalls ?? []).map((call) => call.name + call.input)
  return estimateTokens([joinText(answer), answer.thinking ?? '', ...calls].join(''))
}

function estimateTokens(text: string): number {
  return Math.ceil(text.length / 4)
}

function joinText(answer: Answer): string {
  return typeof answer.text === 'string' ? answer.text : (answer.text ?? []).join('')
}

function splitText(answer: Answer): readonly string[] {
  if (typeof answer.text !== 'string') return answer.text ?? []
  return answer.text.match(/\s*\S+\s*$|\s*\S+/g) ?? (answer.text === '' ? [] : [answer.text])
}

function splitInHalf(text: string): readonly string[] {
  const middle = Math.floor(text.length / 2)
  return middle === 0 ? [text] : [text.slice(0, middle), text.slice(middle)]
}

function data(value: JsonObject): SseEvent {
  return { data: JSON.stringify(value) }
}
