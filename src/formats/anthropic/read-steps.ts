import type { AnswerEvent, Frame, Step } from '../../core/answer.ts'
import { GatewayError } from '../../core/errors.ts'
import { asObject, asString, isJsonObject, type JsonObject } from '../../core/json.ts'
import type { StepReader } from '../../core/answer-source.ts'
import { objectOf, upstreamComplaint } from './checks.ts'
import { errorEvent } from './failure.ts'
import { fillCallIdOfEvent } from './fill-call-ids.ts'
import { blockReader, type BlockReader } from './read-block-events.ts'
import { readStopReason, readUsage } from './usage.ts'

interface Reading {
  readonly blocks: BlockReader
  /** All usage fields seen so far; the last value of each wins. */
  usage: JsonObject
  started: boolean
  finished: boolean
  over: boolean
}

const NOTHING: Step = { events: [] }

/**
 * Reads the events of one upstream stream. A frame keeps its data word for word, under the event name that its data
 * has; what comes after `message_stop` is dropped. Throws `upstream` for events that are not of this format, and the
 * failure of an `error` event.
 */
export function stepReader(): StepReader {
  const reading: Reading = { blocks: blockReader(), usage: {}, started: false, finished: false, over: false }
  return (frame) => {
    if (reading.over || frame.data.trim() === '') return NOTHING
    const received = parseEvent(frame.data)
    const data = fillCallIdOfEvent(received)
    const type = asString(data['type']) ?? ''
    const text = data === received ? frame.data : JSON.stringify(data)
    const native = { dialect: 'anthropic', frame: { ...frame, event: type, data: text } } as const
    return { events: readEvent(reading, type, data), native }
  }
}

function parseEvent(text: Frame['data']): JsonObject {
  let data: unknown
  try {
    data = JSON.parse(text)
  } catch (cause) {
    throw new GatewayError('upstream', "The upstream's stream holds an event that is not JSON.", { cause })
  }
  if (isJsonObject(data) && typeof data['type'] === 'string') return data
  if (isJsonObject(data) && isJsonObject(data['error'])) throw errorEvent(data)
  throw new GatewayError('upstream', "The upstream's stream holds an event without a type.")
}

function readEvent(reading: Reading, type: string, data: JsonObject): readonly AnswerEvent[] {
  switch (type) {
    case 'message_start':
      return readStart(reading, objectOf(data['message'], 'message_start.message', upstreamComplaint))
    case 'content_block_start':
    case 'content_block_delta':
    case 'content_block_stop':
      return reading.blocks(type, data)
    case 'message_delta':
      return readEnd(reading, data)
    case 'message_stop':
      return readStop(reading)
    case 'error':
      throw errorEvent(data)
    default:
      return []
  }
}

/** The output tokens in a start event are not a count yet: a stream without a later one must not pass for a single token. */
function readStart(reading: Reading, message: JsonObject): readonly AnswerEvent[] {
  reading.started = true
  const usage = asObject(message['usage'])
  const start: AnswerEvent = {
    type: 'answer-start',
    id: asString(message['id']) ?? '',
    model: asString(message['model']) ?? '',
  }
  return [start, ...readNewUsage(reading, usage && { ...usage, output_tokens: null })]
}

function readEnd(reading: Reading, data: JsonObject): readonly AnswerEvent[] {
  const usage = readNewUsage(reading, asObject(data['usage']))
  const delta = asObject(data['delta'])
  const reason = asString(delta?.['stop_reason'])
  if (reason === undefined) return usage
  reading.finished = true
  const stopSequence = asString(delta?.['stop_sequence'])
  return [
    ...usage,
    { type: 'answer-end', finish: readStopReason(reason), ...(stopSequence === undefined ? {} : { stopSequence }) },
  ]
}

/** The counts are cumulative, and only the start states how the cache was written: the fields are joined first. */
function readNewUsage(reading: Reading, counts: JsonObject | undefined): readonly AnswerEvent[] {
  if (counts === undefined) return []
  const present = Object.entries(counts).filter(([, value]) => value !== null)
  reading.usage = { ...reading.usage, ...Object.fromEntries(present) }
  return [{ type: 'usage', usage: readUsage(reading.usage) }]
}

function readStop(reading: Reading): readonly AnswerEvent[] {
  if (!reading.started) throw new GatewayError('upstream', "The upstream's stream ended before it began.")
  reading.over = true
  const end: readonly AnswerEvent[] = reading.finished ? [] : [{ type: 'answer-end', finish: 'stop' }]
  return [...end, { type: 'done' }]
}
