import { eventData } from '../answer-fields.ts'
import {
  type StreamPart,
  type Completion,
  type FinishReason,
  type SseEvent,
  NO_USAGE,
  type Usage,
} from '../../core/answer.ts'
import { asArray, asObject, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { ClientFormat, StreamWriter, SvcMetrics } from '../format.ts'
import { totalTokens, writeMessageUsage, writeStopReason } from '../usage.ts'
import { createBlockWriter, type BlockWriter, toSseEvent, isDelta } from './block-writer.ts'
import type { Message, Part, Prompt, ReceivedBody } from '../../core/prompt.ts'
import { readBlocks, readContent, readToolInput } from './blocks.ts'
import { arrayAt, fieldError, booleanAt, isAbsent, readModelName, objectAt } from '../fields.ts'
import { readSettings, readTools, requireMaxTokens } from './upstream.ts'
import { writeMessageFailure, writeMessageFailureEvent } from '../failures.ts'

interface WriterState {
  readonly blocks: BlockWriter
  isStarted: boolean
  usage: Usage
  finish: FinishReason
  stopSequence: string | undefined
  /** The upstream's last events, held until the bill is known. */
  heldDelta: SseEvent | undefined
  heldStop: SseEvent | undefined
}

/** Forwards events of this format. Holds the last `message_delta` until the bill is known. */
function createStreamWriter(): StreamWriter {
  const state: WriterState = {
    blocks: createBlockWriter(),
    isStarted: false,
    usage: NO_USAGE,
    finish: 'stop',
    stopSequence: undefined,
    heldDelta: undefined,
    heldStop: undefined,
  }
  return {
    write: (chunk) => {
      for (const part of chunk.parts) observePart(state, part)
      if (chunk.native?.dialect === 'anthropic') return forwardEvent(state, chunk.native.event)
      return chunk.parts.flatMap((part) => writePart(state, part))
    },
    end: (metrics) => writeEnd(state, metrics),
  }
}

function observePart(state: WriterState, part: StreamPart): void {
  if (part.type === 'usage') state.usage = { ...state.usage, ...part.usage }
  if (part.type !== 'answer-end') return
  state.finish = part.finish
  state.stopSequence = part.stopSequence
}

/**
 * If an event other than `ping` or `message_stop` follows a held `message_delta`, that delta was not the last one and
 * is sent unchanged.
 */
function forwardEvent(state: WriterState, event: SseEvent): readonly SseEvent[] {
  if (event.event === 'ping') return [event]
  state.isStarted = true
  if (event.event === 'message_stop') {
    state.heldStop = event
    return []
  }
  const released = state.heldDelta === undefined ? [] : [state.heldDelta]
  state.heldDelta = event.event === 'message_delta' ? event : undefined
  return state.heldDelta === undefined ? [...released, event] : released
}

function writePart(state: WriterState, part: StreamPart): readonly SseEvent[] {
  switch (part.type) {
    case 'answer-start':
      return writeStart(state, part.id, part.model)
    case 'usage':
    case 'answer-end':
    case 'done':
      return []
    default:
      return [...writeStart(state), ...state.blocks.write(part)]
  }
}

/** The counts are zero, because `message_delta` contains the actual counts and some clients add both. */
function writeStart(state: WriterState, id = '', model = ''): readonly SseEvent[] {
  if (state.isStarted) return []
  state.isStarted = true
  const message: JsonObject = {
    id: messageId(id),
    type: 'message',
    role: 'assistant',
    model,
    content: [],
    stop_reason: null,
    stop_sequence: null,
    usage: { input_tokens: 0, output_tokens: 0 },
  }
  return [toSseEvent({ type: 'message_start', message })]
}

function writeEnd(state: WriterState, metrics: SvcMetrics): readonly SseEvent[] {
  const opening = writeStart(state)
  const closing = state.blocks.finish()
  const stop = state.heldStop ?? toSseEvent({ type: 'message_stop' })
  return [...opening, ...closing, writeLastDelta(state, metrics), stop]
}

function writeLastDelta(state: WriterState, metrics: SvcMetrics): SseEvent {
  const { heldDelta, usage } = state
  const svc_metrics = writeMetrics(metrics)
  if (heldDelta === undefined) {
    const delta = { stop_reason: writeStopReason(state.finish), stop_sequence: state.stopSequence ?? null }
    return toSseEvent({ type: 'message_delta', delta, usage: writeMessageUsage(usage), svc_metrics })
  }
  const data = eventData(heldDelta)
  const usageWithTotal = { ...asObject(data['usage']), total_tokens: totalTokens(usage) }
  return { ...heldDelta, data: JSON.stringify({ ...data, usage: usageWithTotal, svc_metrics }) }
}

/** Forwards an answer received in this format with all its fields. Adds the token total and `svc_metrics`. */
function writeCompletion(completion: Completion, metrics: SvcMetrics): string {
  const message = completion.native?.dialect === 'anthropic' ? completion.native.value : createMessage(completion)
  const usage = { ...asObject(message['usage']), total_tokens: totalTokens(completion.usage ?? NO_USAGE) }
  return JSON.stringify({ ...message, usage, svc_metrics: writeMetrics(metrics) })
}

function writeMetrics(metrics: SvcMetrics): JsonObject {
  return {
    savings_percent: metrics.savingsPercent,
    original_cost: metrics.originalCost,
    your_cost: metrics.yourCost,
  }
}

/** Returns the id with the prefix that clients expect. Idempotent. */
export function messageId(id: string): string {
  return id.startsWith('msg_') ? id : `msg_${id.replace(/^chatcmpl-/, '')}`
}

function createMessage(completion: Completion): JsonObject {
  return {
    id: messageId(completion.id),
    type: 'message',
    role: 'assistant',
    model: completion.model,
    content: writeAnswerBlocks(completion.parts),
    stop_reason: writeStopReason(completion.finish),
    stop_sequence: completion.stopSequence ?? null,
    usage: writeMessageUsage(completion.usage ?? NO_USAGE),
  }
}

/** Omits content that only another format supports. Adds citations, which arrive as separate deltas, to their text. */
function writeAnswerBlocks(parts: readonly Part[]): readonly JsonObject[] {
  const blocks: JsonObject[] = []
  for (const part of parts) {
    const citation = citationOf(part)
    const last = blocks.at(-1)
    if (citation === undefined) blocks.push(...(writeAnswerBlock(part) ?? []))
    else if (last?.['type'] === 'text') blocks[blocks.length - 1] = addCitation(last, citation)
  }
  return blocks
}

function writeAnswerBlock(part: Part): readonly JsonObject[] | undefined {
  if (part.native?.dialect === 'anthropic') return isDelta(part.native.value) ? undefined : [part.native.value]
  switch (part.type) {
    case 'text':
      return part.text === '' ? undefined : [{ type: 'text', text: part.text }]
    case 'tool-call':
      return [{ type: 'tool_use', id: part.id, name: part.name, input: readToolInput(part.input) }]
    case 'thinking':
      return [writeThinkingBlock(part)]
    default:
      return undefined
  }
}

function writeThinkingBlock(part: Extract<Part, { readonly type: 'thinking' }>): JsonObject {
  return part.redacted === true
    ? { type: 'redacted_thinking', data: part.text }
    : { type: 'thinking', thinking: part.text, signature: part.signature ?? '' }
}

function citationOf(part: Part): JsonObject | undefined {
  if (part.type !== 'opaque' || part.native.dialect !== 'anthropic') return undefined
  const { type, citation } = part.native.value
  return type === 'citations_delta' && isJsonObject(citation) ? citation : undefined
}

function addCitation(block: JsonObject, citation: JsonObject): JsonObject {
  return { ...block, citations: [...asArray(block['citations']), citation] }
}

const MAX_MESSAGES = 10_000

export function readPrompt(body: JsonObject, received?: ReceivedBody): Prompt {
  const model = readModelName(body['model'])
  requireMaxTokens(body)
  const settings = readSettings(body)
  const messages = readMessages(body['messages'])
  const system = readSystem(body['system'])
  return {
    native: { dialect: 'anthropic', value: body, received, settings },
    model,
    messages: system === undefined ? messages : [system, ...messages],
    settings,
    tools: readTools(body['tools']),
    stream: booleanAt(body['stream'], 'stream') ?? false,
  }
}

function readMessages(value: Json | undefined): readonly Message[] {
  const items = arrayAt(value, 'messages', MAX_MESSAGES)
  if (items.length === 0) throw fieldError('messages', value, 'at least one message')
  return items.map((item, index) => readMessage(item, `messages[${index}]`))
}

function readMessage(value: Json, path: string): Message {
  const message = objectAt(value, path)
  return {
    role: readRole(message['role'], `${path}.role`),
    parts: readContent(message['content'], `${path}.content`),
    native: { dialect: 'anthropic', value: message },
  }
}

function readRole(value: Json | undefined, path: string): 'user' | 'assistant' | 'system' {
  if (value === 'user' || value === 'assistant' || value === 'system') return value
  throw fieldError(path, value, 'user, assistant or system')
}

function readSystem(value: Json | undefined): Message | undefined {
  if (isAbsent(value)) return undefined
  const native = { dialect: 'anthropic', value: { role: 'system', content: value } } as const
  if (typeof value === 'string') return { role: 'system', parts: [{ type: 'text', text: value }], native }
  if (!Array.isArray(value)) throw fieldError('system', value, 'a string or an array of text blocks')
  const parts = readBlocks(value as readonly Json[], 'system')
  parts.forEach((part, index) => {
    if (part.type !== 'text') throw fieldError(`system[${index}].type`, part.native?.value['type'], "'text'")
  })
  return { role: 'system', parts, native }
}

export const messagesClient: ClientFormat = {
  dialect: 'anthropic',
  readPrompt,
  writeCompletion,
  createStreamWriter,
  writeFailure: writeMessageFailure,
  writeFailureEvent: writeMessageFailureEvent,
  heartbeat: toSseEvent({ type: 'ping' }),
  answerId: messageId,
}
