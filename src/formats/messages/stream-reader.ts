import type { AnswerEvent, Frame, Step, StepReader } from '../../core/answer.ts'
import { GatewayError } from '../../core/errors.ts'
import { asObject, asString, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import { objectOf, stringAt, upstreamComplaint } from './checks.ts'
import { errorEvent } from './upstream-failure.ts'
import { fillEventCallId } from '../call-ids.ts'
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
 * Reads the events of one upstream stream. A frame keeps its data unchanged, under the event name in its data. Events
 * after `message_stop` are dropped. Throws `upstream` for events of another format, and the failure of an `error`
 * event.
 */
export function stepReader(): StepReader {
  const reading: Reading = { blocks: blockReader(), usage: {}, started: false, finished: false, over: false }
  return (frame) => {
    if (reading.over || frame.data.trim() === '') return NOTHING
    const received = parseEvent(frame.data)
    const data = fillEventCallId(received)
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

/** The output tokens of a start event are a placeholder. A stream without a later count must not be billed by it. */
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

/** Counts are cumulative, and only the start event describes cache writes, so the fields of all events are merged. */
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

type BlockEvent = 'content_block_start' | 'content_block_delta' | 'content_block_stop'

/** Reads the events of content blocks, which belong together by their index. */
type BlockReader = (event: BlockEvent, data: JsonObject) => readonly AnswerEvent[]

interface ToolBlock {
  readonly kind: 'tool'
  readonly index: number
  /** The input in the start event, for upstreams that do not stream it. */
  readonly input: Json | undefined
  streamed: boolean
}

/** A block that only this format has. It is emitted when it is complete. */
interface OpaqueBlock {
  readonly kind: 'opaque'
  block: JsonObject
  readonly input: string[]
}

type OpenBlock = ToolBlock | OpaqueBlock | { readonly kind: 'known' }

function blockReader(): BlockReader {
  const open = new Map<unknown, OpenBlock>()
  let calls = 0
  return (event, data) => {
    const at = data['index']
    if (event === 'content_block_start') {
      const block = objectOf(data['content_block'], 'content_block', upstreamComplaint)
      const opened = openBlock(block, calls)
      if (opened.kind === 'tool') calls++
      open.set(at, opened)
      return startEvents(block, opened)
    }
    if (event === 'content_block_stop') {
      const closed = open.get(at)
      open.delete(at)
      return closed === undefined ? [] : stopEvents(closed)
    }
    return deltaEvents(objectOf(data['delta'], 'delta', upstreamComplaint), open.get(at))
  }
}

function openBlock(block: JsonObject, calls: number): OpenBlock {
  switch (stringAt(block, 'type', 'content_block', upstreamComplaint)) {
    case 'text':
    case 'thinking':
    case 'redacted_thinking':
      return { kind: 'known' }
    case 'tool_use':
      return { kind: 'tool', index: calls, input: block['input'], streamed: false }
    default:
      return { kind: 'opaque', block, input: [] }
  }
}

function startEvents(block: JsonObject, opened: OpenBlock): readonly AnswerEvent[] {
  if (opened.kind === 'opaque') return []
  if (opened.kind === 'tool') {
    const id = stringAt(block, 'id', 'content_block', upstreamComplaint)
    const name = stringAt(block, 'name', 'content_block', upstreamComplaint)
    return [{ type: 'tool-call-start', index: opened.index, id, name }]
  }
  if (block['type'] === 'redacted_thinking') {
    return [{ type: 'thinking-start', redacted: stringAt(block, 'data', 'content_block', upstreamComplaint) }]
  }
  if (block['type'] === 'thinking') {
    const thought = asString(block['thinking']) ?? ''
    const signature = asString(block['signature']) ?? ''
    const events: AnswerEvent[] = [{ type: 'thinking-start' }]
    if (thought !== '') events.push({ type: 'thinking-delta', text: thought })
    if (signature !== '') events.push({ type: 'thinking-delta', signature })
    return events
  }
  const text = asString(block['text']) ?? ''
  return text === '' ? [{ type: 'text-start' }] : [{ type: 'text-start' }, { type: 'text-delta', text }]
}

function deltaEvents(delta: JsonObject, block: OpenBlock | undefined): readonly AnswerEvent[] {
  switch (delta['type']) {
    case 'text_delta':
      return [{ type: 'text-delta', text: stringAt(delta, 'text', 'delta', upstreamComplaint) }]
    case 'thinking_delta':
      return [{ type: 'thinking-delta', text: stringAt(delta, 'thinking', 'delta', upstreamComplaint) }]
    case 'signature_delta':
      return [{ type: 'thinking-delta', signature: stringAt(delta, 'signature', 'delta', upstreamComplaint) }]
    case 'input_json_delta':
      return inputEvents(stringAt(delta, 'partial_json', 'delta', upstreamComplaint), block)
    default:
      if (block?.kind !== 'opaque') return [{ type: 'opaque', native: { dialect: 'anthropic', value: delta } }]
      block.block = grown(block.block, delta)
      return []
  }
}

/** Applies an unknown delta to an unknown block: strings are appended, other fields replaced. */
function grown(block: JsonObject, delta: JsonObject): JsonObject {
  const fields = Object.entries(delta).filter(([name]) => name !== 'type')
  return fields.reduce((whole, [name, value]) => {
    const before = whole[name]
    const joined = typeof before === 'string' && typeof value === 'string' ? before + value : value
    return { ...whole, [name]: joined }
  }, block)
}

function inputEvents(input: string, block: OpenBlock | undefined): readonly AnswerEvent[] {
  if (block?.kind === 'opaque') block.input.push(input)
  if (block?.kind !== 'tool' || input === '') return []
  block.streamed = true
  return [{ type: 'tool-call-delta', index: block.index, input }]
}

function stopEvents(block: OpenBlock): readonly AnswerEvent[] {
  if (block.kind === 'opaque') return [{ type: 'opaque', native: { dialect: 'anthropic', value: wholeBlock(block) } }]
  if (block.kind === 'known' || block.streamed) return []
  return [{ type: 'tool-call-delta', index: block.index, input: JSON.stringify(block.input ?? {}) }]
}

/** Returns the block as in an answer without streaming. */
function wholeBlock({ block, input }: OpaqueBlock): JsonObject {
  if (input.length === 0) return block
  try {
    const value: unknown = JSON.parse(input.join(''))
    return isJsonObject(value) ? { ...block, input: value } : block
  } catch {
    return block
  }
}
