import { parseEvent } from '../stream.ts'
import type { AnswerEvent, StepReader, ByteSearch } from '../../core/answer.ts'
import { asObject, asString, type JsonObject } from '../../core/json.ts'
import { failureOfResponse, readFinish, readUsage } from './usage.ts'
import { callIdFiller } from './call-ids.ts'
import { decodeReasoning } from './items.ts'
import { beginning, isEveryEventAnObject } from '../plain-events.ts'

/** The last event of an answer. */
export const LAST_EVENTS: ReadonlySet<string> = new Set(['response.completed', 'response.incomplete'])

interface Call {
  readonly index: number
  streamed: boolean
}

interface Reading {
  started: boolean
  refused: boolean
  /** By the output index of their items. */
  readonly calls: Map<unknown, Call>
}

/** Reads the events of one upstream stream. A frame keeps its data word for word, under the name that its data has. */
export function stepReader(): StepReader {
  const reading: Reading = { started: false, refused: false, calls: new Map() }
  const fillCallIds = callIdFiller()
  return (frame) => {
    const received = parseEvent(frame.data)
    const data = fillCallIds(received)
    const type = asString(data['type']) ?? ''
    const text = data === received ? frame.data : JSON.stringify(data)
    const native = { dialect: 'responses', frame: { ...frame, event: type, data: text } } as const
    return { events: readEvent(reading, type, data), native }
  }
}

function readEvent(reading: Reading, type: string, data: JsonObject): readonly AnswerEvent[] {
  if (LAST_EVENTS.has(type)) return readEnd(reading, data)
  switch (type) {
    case 'error':
    case 'response.failed':
      throw failureOfResponse(asObject(data['response']) ?? data)
    case 'response.created':
    case 'response.in_progress':
    case 'response.queued':
      return readStart(reading, data)
    case 'response.output_item.added':
      return readItemStart(reading, data)
    case 'response.output_item.done':
      return readItemEnd(reading, data)
    case 'response.content_part.added':
      return startsWords(data) ? [{ type: 'text-start' }] : []
    default:
      return readDelta(reading, type, data)
  }
}

function readDelta(reading: Reading, type: string, data: JsonObject): readonly AnswerEvent[] {
  const delta = asString(data['delta']) ?? ''
  if (delta === '') return []
  switch (type) {
    case 'response.refusal.delta':
      reading.refused = true
      return [{ type: 'text-delta', text: delta }]
    case 'response.output_text.delta':
      return [{ type: 'text-delta', text: delta }]
    case 'response.reasoning_summary_text.delta':
    case 'response.reasoning_text.delta':
      return [{ type: 'thinking-delta', text: delta }]
    case 'response.function_call_arguments.delta': {
      const call = reading.calls.get(data['output_index'])
      if (call === undefined) return []
      call.streamed = true
      return [{ type: 'tool-call-delta', index: call.index, input: delta }]
    }
    default:
      return []
  }
}

function startsWords(data: JsonObject): boolean {
  const type = asObject(data['part'])?.['type']
  return type === 'output_text' || type === 'refusal'
}

function readStart(reading: Reading, data: JsonObject): readonly AnswerEvent[] {
  if (reading.started) return []
  reading.started = true
  const response = asObject(data['response'])
  return [{ type: 'answer-start', id: asString(response?.['id']) ?? '', model: asString(response?.['model']) ?? '' }]
}

function readItemStart(reading: Reading, data: JsonObject): readonly AnswerEvent[] {
  const item = asObject(data['item'])
  if (item?.['type'] === 'reasoning') {
    const { redacted } = decodeReasoning(item['encrypted_content'])
    return [{ type: 'thinking-start', ...(redacted === undefined ? {} : { redacted }) }]
  }
  if (item?.['type'] !== 'function_call') return []
  const index = reading.calls.size
  reading.calls.set(data['output_index'], { index, streamed: false })
  const id = asString(item['call_id']) ?? ''
  return [{ type: 'tool-call-start', index, id, name: asString(item['name']) ?? '' }]
}

/** The end event of an item contains parts that were not streamed. */
function readItemEnd(reading: Reading, data: JsonObject): readonly AnswerEvent[] {
  const item = asObject(data['item'])
  if (item === undefined) return []
  switch (item['type']) {
    case 'message':
      return []
    case 'reasoning': {
      const { signature } = decodeReasoning(item['encrypted_content'])
      return signature === undefined ? [] : [{ type: 'thinking-delta', signature }]
    }
    case 'function_call': {
      const call = reading.calls.get(data['output_index'])
      const input = asString(item['arguments']) ?? ''
      return call === undefined || call.streamed || input === ''
        ? []
        : [{ type: 'tool-call-delta', index: call.index, input }]
    }
    default:
      return [{ type: 'opaque', native: { dialect: 'responses', value: item } }]
  }
}

function readEnd(reading: Reading, data: JsonObject): readonly AnswerEvent[] {
  const response = asObject(data['response']) ?? {}
  const usage = readUsage(response['usage'])
  const finish = readFinish(response, { calls: reading.calls.size > 0, refusal: reading.refused })
  return [
    ...readStart(reading, data),
    ...(usage === undefined ? [] : [{ type: 'usage', usage } as const]),
    { type: 'answer-end', finish },
    { type: 'done' },
  ]
}

/** Events that carry only a delta, which later events repeat as a whole. */
const DELTAS = [
  'response.output_text.delta',
  'response.reasoning_summary_text.delta',
  'response.reasoning_text.delta',
  'response.refusal.delta',
  'response.function_call_arguments.delta',
  'response.custom_tool_call_input.delta',
  'response.mcp_call_arguments.delta',
  'response.code_interpreter_call_code.delta',
  'response.output_text.annotation.added',
  'response.image_generation_call.partial_image',
]

const PLAIN = DELTAS.map((name) => beginning(`event: ${name}\ndata: {`))

/** Returns true for events that carry only content, judged by the event name, which equals the type in the data. */
export function isPlain(search: ByteSearch): boolean {
  return search.find('\r') === -1 && isEveryEventAnObject(search, PLAIN)
}
