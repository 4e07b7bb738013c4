import { parseFrame } from '../answer-fields.ts'
import { type AnswerEvent, type Finish, type Frame, NO_USAGE, type Usage, type Completion } from '../../core/answer.ts'
import { asObject, type JsonObject, type Json } from '../../core/json.ts'
import type { SvcMetrics, StepWriter, WriteContext } from '../format.ts'
import { writeMetrics } from '../chat/answer-writer.ts'
import { writeResponseFailureFrame } from '../failures.ts'
import { writeResponseStatus, RESPONSE_COUNTS, writeUsage } from '../usage.ts'
import { outputWriter, type OutputWriter, type ResponseEvent } from './output-items.ts'
import { LAST_EVENTS } from './answer-reader.ts'
import { declaredTools, type CalledTool } from '../portable.ts'
import { responseId, stemOf } from './items.ts'
import { stepsOf } from '../../core/steps.ts'

/**
 * Writes named events with sequence numbers. Events of this format are forwarded unchanged, except for the last event,
 * which is delayed until the bill is known.
 */
export function stepWriter(context: WriteContext): StepWriter {
  const writer = responseWriter(context)
  let sequence = 0
  let held: Frame | undefined
  const frameOf = (event: ResponseEvent): Frame => {
    const { type, ...fields } = event
    return { event: type, data: JSON.stringify({ type, sequence_number: sequence++, ...fields }) }
  }
  return {
    write: (step) => {
      const frame = step.native?.dialect === 'responses' ? step.native.frame : undefined
      if (frame === undefined) return step.events.flatMap((event) => writer.take(event)).map(frameOf)
      sequence++
      if (!LAST_EVENTS.has(frame.event ?? '')) return [frame]
      held = frame
      return []
    },
    passed: (events) => {
      for (let at = events.find('\n\n'); at !== -1; at = events.find('\n\n', at + 2)) sequence++
    },
    end: (metrics) => {
      if (held === undefined) return writer.end(metrics).map(frameOf)
      const data = parseFrame(held)
      const response = { ...asObject(data['response']), svc_metrics: writeMetrics(metrics) }
      return [{ ...held, data: JSON.stringify({ ...data, response }) }]
    },
    fail: (failure) => [writeResponseFailureFrame(failure, sequence)],
  }
}

interface ResponseWriter {
  take(event: AnswerEvent): readonly ResponseEvent[]
  end(metrics: SvcMetrics): readonly [...ResponseEvent[], LastEvent]
}

type LastEvent = ResponseEvent & { readonly response: JsonObject }

interface Writing {
  head: { readonly frame: JsonObject; readonly output: OutputWriter } | undefined
  usage: Partial<Usage> | undefined
  finish: Finish
}

export function responseWriter(context: WriteContext): ResponseWriter {
  const writing: Writing = { head: undefined, usage: undefined, finish: 'stop' }

  const start = (id: string, model: string): NonNullable<Writing['head']> => {
    const stem = stemOf(context.requestId ?? id)
    return { frame: responseFrame(context, responseId(stem), model), output: outputWriter(stem, calledTools(context)) }
  }
  const begin = (id = '', model = context.prompt.model): readonly ResponseEvent[] => {
    if (writing.head !== undefined) return []
    writing.head = start(id, model)
    const response = { ...writing.head.frame, status: 'in_progress', incomplete_details: null, output: [], usage: null }
    return [
      { type: 'response.created', response },
      { type: 'response.in_progress', response },
    ]
  }

  return {
    take: (event) => {
      if (event.type === 'answer-start') return begin(event.id, event.model)
      if (event.type === 'usage') writing.usage = { ...writing.usage, ...event.usage }
      if (event.type === 'answer-end') writing.finish = event.finish
      if (event.type === 'usage' || event.type === 'answer-end' || event.type === 'done') return []
      const opening = begin()
      return [...opening, ...(writing.head?.output.take(event) ?? [])]
    },
    end: (metrics) => {
      const opening = begin()
      const { frame, output } = writing.head ?? start('', context.prompt.model)
      const ending = writeResponseStatus(writing.finish)
      const closing = output.finish(ending.status)
      const usage = writing.usage === undefined ? null : writeUsage({ ...NO_USAGE, ...writing.usage }, RESPONSE_COUNTS)
      const svc_metrics = writeMetrics(metrics)
      const response = { ...frame, ...ending, output: output.items(), usage, svc_metrics }
      return [...opening, ...closing, { type: `response.${ending.status}`, response }]
    },
  }
}

/** Returns the tools whose calls are not written as function calls. */
function calledTools({ prompt }: WriteContext): ReadonlyMap<string, CalledTool> {
  const { called } = declaredTools(prompt)
  return new Map([...called].filter(([, { isCustom, namespace }]) => isCustom || namespace !== undefined))
}

/** Returns the request fields that a response echoes, with the vendor's defaults. */
export function responseFrame(context: WriteContext, id: string, model: string): JsonObject {
  const body = context.requestBody ?? context.prompt.native.value
  const { settings } = context.prompt
  const echo = (field: string, otherwise: Json): Json => body[field] ?? otherwise
  return {
    id,
    object: 'response',
    created_at: context.created,
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
 * Returns the JSON of a response. A response of this format keeps all fields. Other answers are written like the last
 * event of a stream, so streamed and non-streamed results are the same.
 */
export function writeCompletion(completion: Completion, metrics: SvcMetrics, context: WriteContext): string {
  const { native } = completion
  if (native?.dialect === 'responses') return JSON.stringify({ ...native.value, svc_metrics: writeMetrics(metrics) })
  const writer = responseWriter(context)
  for (const step of stepsOf(completion)) for (const event of step.events) writer.take(event)
  return JSON.stringify(writer.end(metrics).at(-1)?.['response'])
}
