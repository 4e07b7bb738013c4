import { eventData } from '../answer-fields.ts'
import {
  type StreamPart,
  type FinishReason,
  type SseEvent,
  NO_USAGE,
  type Usage,
  type Completion,
} from '../../core/answer.ts'
import { asObject, type JsonObject, type Json } from '../../core/json.ts'
import type { SvcMetrics, StreamWriter, WriteContext } from '../format.ts'
import { writeMetrics } from '../chat/answer-writer.ts'
import { writeResponseFailureEvent } from '../failures.ts'
import { writeResponseStatus, RESPONSE_USAGE_FIELDS, writeUsage } from '../usage.ts'
import { createOutputWriter, type OutputWriter, type ResponseEvent } from './output-items.ts'
import { LAST_EVENTS } from './answer-reader.ts'
import { collectToolset, type OriginalTool } from '../portable.ts'
import { responseId, idStem } from './items.ts'
import { toStreamChunks } from '../../core/stream-chunks.ts'

/**
 * Writes named events with sequence numbers. Forwards events of this format unchanged, except that the last event is
 * held until the bill is known.
 */
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
    end: (metrics) => {
      if (heldEvent === undefined) return writer.end(metrics).map(toSseEvent)
      const data = eventData(heldEvent)
      const response = { ...asObject(data['response']), svc_metrics: writeMetrics(metrics) }
      return [{ ...heldEvent, data: JSON.stringify({ ...data, response }) }]
    },
    fail: (failure) => [writeResponseFailureEvent(failure, sequence)],
  }
}

interface WriterState {
  started: { readonly response: JsonObject; readonly output: OutputWriter } | undefined
  usage: Partial<Usage> | undefined
  finish: FinishReason
}

function createResponseWriter(context: WriteContext) {
  const state: WriterState = { started: undefined, usage: undefined, finish: 'stop' }

  const startResponse = (id: string, model: string): NonNullable<WriterState['started']> => {
    const stem = idStem(context.requestId ?? id)
    return {
      response: echoedFields(context, responseId(stem), model),
      output: createOutputWriter(stem, customAndNamespacedTools(context)),
    }
  }
  const writeOpening = (id = '', model = context.prompt.model): readonly ResponseEvent[] => {
    if (state.started !== undefined) return []
    state.started = startResponse(id, model)
    const progress = { status: 'in_progress', incomplete_details: null, output: [], usage: null }
    const response = { ...state.started.response, ...progress }
    return [
      { type: 'response.created', response },
      { type: 'response.in_progress', response },
    ]
  }

  return {
    write: (part: StreamPart): readonly ResponseEvent[] => {
      if (part.type === 'answer-start') return writeOpening(part.id, part.model)
      if (part.type === 'usage') state.usage = { ...state.usage, ...part.usage }
      if (part.type === 'answer-end') state.finish = part.finish
      if (part.type === 'usage' || part.type === 'answer-end' || part.type === 'done') return []
      return [...writeOpening(), ...(state.started?.output.writePart(part) ?? [])]
    },
    end: (metrics: SvcMetrics): readonly [...ResponseEvent[], ResponseEvent] => {
      const opening = writeOpening()
      const { response: requestFields, output } = state.started ?? startResponse('', context.prompt.model)
      // A refusal is a complete answer in this format.
      const finalStatus = writeResponseStatus(
        state.finish === 'filtered' && output.hasRefusal() ? 'stop' : state.finish,
      )
      const closing = output.finish(finalStatus.status)
      const usage =
        state.usage === undefined ? null : writeUsage({ ...NO_USAGE, ...state.usage }, RESPONSE_USAGE_FIELDS)
      const svc_metrics = writeMetrics(metrics)
      const response = { ...requestFields, ...finalStatus, output: output.items(), usage, svc_metrics }
      return [...opening, ...closing, { type: `response.${finalStatus.status}`, response }]
    },
  }
}

/** Returns the tools whose calls are not written as plain function calls: custom tools, and tools in a namespace. */
function customAndNamespacedTools({ prompt }: WriteContext): ReadonlyMap<string, OriginalTool> {
  const { originalsByName } = collectToolset(prompt)
  return new Map([...originalsByName].filter(([, { isCustom, namespace }]) => isCustom || namespace !== undefined))
}

/** Returns the request fields that a response echoes, with the vendor's defaults. */
function echoedFields(context: WriteContext, id: string, model: string): JsonObject {
  const body = context.requestBody ?? context.prompt.native.value
  const { settings } = context.prompt
  const echo = (field: string, fallback: Json): Json => body[field] ?? fallback
  return {
    id,
    object: 'response',
    created_at: context.createdSeconds,
    background: false,
    error: null,
    instructions: echo('instructions', null),
    max_output_tokens: echo('max_output_tokens', null),
    max_tool_calls: echo('max_tool_calls', null),
    metadata: echo('metadata', body['client_metadata'] ?? {}),
    model,
    parallel_tool_calls: echo('parallel_tool_calls', true),
    previous_response_id: echo('previous_response_id', null),
    reasoning: echo('reasoning', { effort: null, summary: null }),
    store: echo('store', true),
    temperature: settings.temperature ?? null,
    text: echo('text', { format: { type: 'text' } }),
    tool_choice: echo('tool_choice', 'auto'),
    tools: echo('tools', []),
    top_p: settings.topP ?? null,
    truncation: echo('truncation', 'disabled'),
    user: echo('user', null),
  }
}

/**
 * Forwards an answer received in this format with all its fields. Other answers are written like the last event of a
 * stream, so that streamed and non-streamed answers are the same.
 */
export function writeCompletion(completion: Completion, metrics: SvcMetrics, context: WriteContext): string {
  const { native } = completion
  if (native?.dialect === 'responses') return JSON.stringify({ ...native.value, svc_metrics: writeMetrics(metrics) })
  const writer = createResponseWriter(context)
  for (const chunk of toStreamChunks(completion)) for (const part of chunk.parts) writer.write(part)
  return JSON.stringify(writer.end(metrics).at(-1)?.['response'])
}
