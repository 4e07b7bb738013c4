import type { Completion, AnswerEvent, StepReader } from '../../core/answer.ts'
import { GatewayError } from '../../core/errors.ts'
import { asArray, asObject, asString, isJsonObject, type JsonObject } from '../../core/json.ts'
import type { Native, Part } from '../../core/prompt.ts'
import { responseFailure } from '../read-failure.ts'
import { readResponseFinish, RESPONSE_COUNTS, readUsage } from '../usage.ts'
import { fillResponseCallIds, identityOf, nativeAnswer, parseEvent, responseCallIdFiller } from '../answer-fields.ts'
import { readThought, decodeReasoning } from './items.ts'

/**
 * Parses a response body into an answer. Validates only required fields. Throws `upstream` for a body that is not a
 * response.
 */
export function readCompletion(received: JsonObject, text?: string): Completion {
  const body = fillResponseCallIds(received)
  if (body['status'] === 'failed' || asObject(body['error']) !== undefined) throw responseFailure(body)
  if (!Array.isArray(body['output'])) {
    throw new GatewayError('upstream', 'The model provider sent no answer: its body has no output.')
  }
  const items = asArray(body['output']).filter(isJsonObject)
  const usage = readUsage(body['usage'], RESPONSE_COUNTS)
  const calls = items.some((item) => item['type'] === 'function_call')
  const refusal = items.some((item) =>
    asArray(item['content']).some((block) => asObject(block)?.['type'] === 'refusal'),
  )
  return {
    ...identityOf(body),
    parts: items.flatMap(partsOf),
    finish: readResponseFinish(body, calls, refusal),
    ...(usage === undefined ? {} : { usage }),
    native: nativeAnswer('responses', body, received, text),
  }
}

function partsOf(item: JsonObject): readonly Part[] {
  const native: Native = { dialect: 'responses', value: item }
  switch (item['type']) {
    case 'message':
      return asArray(item['content']).flatMap((block) => textPartOf(asObject(block)))
    case 'function_call':
      return [
        {
          type: 'tool-call',
          id: asString(item['call_id']) ?? '',
          name: asString(item['name']) ?? '',
          input: asString(item['arguments']) ?? '',
          native,
        },
      ]
    case 'reasoning':
      return [readThought(item, native)]
    default:
      return [{ type: 'opaque', native }]
  }
}

function textPartOf(block: JsonObject | undefined): readonly Part[] {
  const text = asString(block?.['text']) ?? asString(block?.['refusal'])
  return block === undefined || text === undefined
    ? []
    : [{ type: 'text', text, native: { dialect: 'responses', value: block } }]
}

export const LAST_EVENTS: ReadonlySet<string> = new Set(['response.completed', 'response.incomplete'])

interface Call {
  readonly index: number
  streamed: boolean
}

interface Reading {
  started: boolean
  refused: boolean
  /** Calls by the output index of their items. */
  readonly calls: Map<unknown, Call>
}

/** Returns a reader that keeps the data of a frame and uses the type in the data as the event name. */
export function stepReader(): StepReader {
  const reading: Reading = { started: false, refused: false, calls: new Map() }
  const fillResponseCallIds = responseCallIdFiller()
  return (frame) => {
    const received = parseEvent(frame.data)
    const data = fillResponseCallIds(received)
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
      throw responseFailure(asObject(data['response']) ?? data)
    case 'response.created':
    case 'response.in_progress':
    case 'response.queued':
      return readStart(reading, data)
    case 'response.output_item.added':
      return readItemStart(reading, data)
    case 'response.output_item.done':
      return readItemEnd(reading, data)
    case 'response.content_part.added':
      return startsText(data) ? [{ type: 'text-start' }] : []
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

function startsText(data: JsonObject): boolean {
  const type = asObject(data['part'])?.['type']
  return type === 'output_text' || type === 'refusal'
}

function readStart(reading: Reading, data: JsonObject): readonly AnswerEvent[] {
  if (reading.started) return []
  reading.started = true
  return [{ type: 'answer-start', ...identityOf(asObject(data['response'])) }]
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

/** Reads the end event of an item, which contains the parts that were not streamed. */
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
  const usage = readUsage(response['usage'], RESPONSE_COUNTS)
  const finish = readResponseFinish(response, reading.calls.size > 0, reading.refused)
  return [
    ...readStart(reading, data),
    ...(usage === undefined ? [] : [{ type: 'usage', usage } as const]),
    { type: 'answer-end', finish },
    { type: 'done' },
  ]
}
