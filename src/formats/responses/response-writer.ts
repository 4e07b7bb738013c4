import {
  type Completion,
  type StreamPart,
  type FinishReason,
  type SseEvent,
  toStreamChunks,
} from '../../core/completion.ts'
import { NO_USAGE, type Usage } from '../../core/money.ts'
import { type JsonObject, asArray, asObject, isJsonObject, type Json } from '../../core/json.ts'
import { memberText, setMembers } from '../../core/splice-json.ts'
import { writeResponseFailureEvent } from '../failures.ts'
import type { WriteContext, WriteMetrics, StreamWriter } from '../format.ts'
import { writeResponseStatus, RESPONSE_USAGE_FIELDS, writeUsage } from '../usage.ts'
import { LAST_EVENTS } from './response-reader.ts'
import { responseId, idStem } from './items.ts'
import { customAndNamespacedTools, OutputWriter, type ResponseEvent } from './output-items.ts'

export function createStreamWriter(context: WriteContext): StreamWriter {
  const writer = createResponseWriter(context)
  let sequence = 0
  let heldEvent: SseEvent | undefined
  const toSseEvent = (event: ResponseEvent): SseEvent => {
    const { type, ...fields } = event
    return { event: type, data: JSON.stringify({ type, sequence_number: sequence++, ...fields }) }
  }
  return {
    write: (chunk) => {
      const event = chunk.native?.dialect === 'responses' ? chunk.native.event : undefined
      if (event === undefined) return chunk.parts.flatMap((part) => writer.write(part)).map(toSseEvent)
      sequence++
      if (!LAST_EVENTS.has(event.event ?? '')) return [event]
      heldEvent = event
      return []
    },
    observeForwarded: (events) => {
      for (let end = events.find('\n\n'); end !== -1; end = events.find('\n\n', end + 2)) sequence++
    },
    end: (writeMetrics) => {
      if (heldEvent === undefined) return writer.end(writeMetrics).map(toSseEvent)
      const { data } = heldEvent
      const svc_metrics = JSON.stringify(writeMetrics('details'))
      const response = setMembers(memberText(data, 'response') ?? '{}', { svc_metrics })
      return [{ ...heldEvent, data: setMembers(data, { response }) }]
    },
    fail: (failure) => [writeResponseFailureEvent(failure, sequence)],
  }
}

function secondsAt({ now, createdSeconds }: WriteContext): number {
  return now === undefined ? createdSeconds : Math.floor(now() / 1000)
}

interface OpenedResponse {
  readonly requestFields: JsonObject
  readonly output: OutputWriter
}

function createResponseWriter(context: WriteContext) {
  let opened: OpenedResponse | undefined
  let usage: Usage | undefined
  let finish: FinishReason = 'stop'

  const open = (events: ResponseEvent[], id = '', model = context.prompt.model): OpenedResponse => {
    if (opened !== undefined) return opened
    const stem = idStem(context.requestId ?? id)
    const requestFields = echoedFields(context, responseId(stem), model)
    const response = { ...requestFields, status: 'in_progress', incomplete_details: null, output: [], usage: null }
    events.push({ type: 'response.created', response }, { type: 'response.in_progress', response })
    return (opened = { requestFields, output: new OutputWriter(stem, customAndNamespacedTools(context)) })
  }

  return {
    write: (part: StreamPart): readonly ResponseEvent[] => {
      const events: ResponseEvent[] = []
      if (part.type === 'response-start') open(events, part.id, part.model)
      else if (part.type === 'usage') usage = { ...NO_USAGE, ...usage, ...part.usage }
      else if (part.type === 'response-end') finish = part.finish
      else if (part.type !== 'done') {
        const { output } = open(events)
        events.push(...output.writePart(part))
      }
      return events
    },
    end: (writeMetrics: WriteMetrics): readonly ResponseEvent[] => {
      const events: ResponseEvent[] = []
      const { requestFields, output } = open(events)
      // A refusal is a complete response in this format.
      const finalStatus = writeResponseStatus(finish === 'filtered' && output.hasRefusal ? 'stop' : finish)
      events.push(...output.finish(finalStatus.status))
      const response = {
        ...requestFields,
        ...finalStatus,
        completed_at: finalStatus.status === 'completed' ? secondsAt(context) : null,
        output: output.items,
        usage: usage === undefined ? null : writeUsage(usage, RESPONSE_USAGE_FIELDS),
        svc_metrics: { ...writeMetrics('details'), ...(output.omitted.size > 0 && { ignored: [...output.omitted] }) },
      }
      return [...events, { type: `response.${finalStatus.status}`, response }]
    },
  }
}

/** A translated response is written as a stream, so that streamed and non-streamed responses are the same. */
export function writeCompletion(completion: Completion, writeMetrics: WriteMetrics, context: WriteContext): string {
  const { native } = completion
  if (native?.dialect === 'responses') {
    const id = completion.id === '' ? {} : { id: JSON.stringify(completion.id) }
    const text = native.text ?? JSON.stringify(native.value)
    return setMembers(text, { ...id, svc_metrics: JSON.stringify(writeMetrics('details')) })
  }
  const writer = createResponseWriter(context)
  for (const chunk of toStreamChunks(completion)) for (const part of chunk.parts) writer.write(part)
  return JSON.stringify(writer.end(writeMetrics).at(-1)?.['response'])
}

/** Required fields for which the caller set no value have the vendor's default. */
function echoedFields(context: WriteContext, id: string, model: string): JsonObject {
  const body = context.requestBody ?? context.prompt.native.value
  const { settings } = context.prompt
  const echo = (field: string, fallback: Json): Json => body[field] ?? fallback
  return {
    id,
    object: 'response',
    created_at: context.createdSeconds,
    completed_at: null,
    background: false,
    error: null,
    frequency_penalty: 0,
    instructions: echo('instructions', null),
    max_output_tokens: echo('max_output_tokens', null),
    max_tool_calls: echo('max_tool_calls', null),
    metadata: echo('metadata', body['client_metadata'] ?? {}),
    model,
    parallel_tool_calls: echo('parallel_tool_calls', true),
    presence_penalty: 0,
    previous_response_id: echo('previous_response_id', null),
    prompt_cache_key: echo('prompt_cache_key', null),
    reasoning: { effort: null, summary: null, ...asObject(body['reasoning']) },
    safety_identifier: echo('safety_identifier', null),
    service_tier: 'default',
    store: echo('store', true),
    temperature: settings.temperature ?? 1,
    text: echoedText(asObject(body['text'])),
    tool_choice: echo('tool_choice', 'auto'),
    tools: asArray(body['tools']).map(echoedTool),
    top_logprobs: 0,
    top_p: settings.topP ?? 1,
    truncation: echo('truncation', 'disabled'),
    user: echo('user', null),
  }
}

function echoedText(text: JsonObject = {}): JsonObject {
  const { format } = text
  if (!isJsonObject(format)) return { ...text, format: { type: 'text' } }
  if (format['type'] !== 'json_schema') return text
  const { description = null, schema = null, strict } = format
  return { ...text, format: { ...format, description, schema, strict: strict ?? false } }
}

function echoedTool(tool: Json): Json {
  if (!isJsonObject(tool) || tool['type'] !== 'function') return tool
  const { description = null, parameters = null, strict } = tool
  return { ...tool, description, parameters, strict: strict ?? false }
}
