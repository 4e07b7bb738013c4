import { parseFrame } from '../stream-events.ts'
import { NO_USAGE, type AnswerEvent, type Finish, type Frame, type Usage, type Completion } from '../../core/answer.ts'
import { asArray, asObject, type JsonObject, isJsonObject } from '../../core/json.ts'
import type { SvcMetrics, StepWriter } from '../format.ts'
import { totalTokens, writeStopReason, writeMessageUsage } from '../usage.ts'
import { blockWriter, frameOf, type BlockWriter, isDelta } from './block-writer.ts'
import type { Part } from '../../core/prompt.ts'
import { readToolInput } from './blocks.ts'

interface Writing {
  readonly blocks: BlockWriter
  isStarted: boolean
  usage: Usage
  finish: Finish
  stopSequence: string | undefined
  /** The upstream's `message_delta` and `message_stop`, which are sent last, with the bill. */
  heldDelta: Frame | undefined
  heldStop: Frame | undefined
}

/**
 * Writes one stream. Frames of this format are sent unchanged, but the last `message_delta` is held back for the bill.
 * Steps of other formats are written in the event order of this format.
 */
export function stepWriter(): StepWriter {
  const writing: Writing = {
    blocks: blockWriter(),
    isStarted: false,
    usage: NO_USAGE,
    finish: 'stop',
    stopSequence: undefined,
    heldDelta: undefined,
    heldStop: undefined,
  }
  return {
    write: (step) => {
      for (const event of step.events) note(writing, event)
      if (step.native?.dialect === 'anthropic') return passOn(writing, step.native.frame)
      return step.events.flatMap((event) => writeEvent(writing, event))
    },
    end: (metrics) => end(writing, metrics),
  }
}

function note(writing: Writing, event: AnswerEvent): void {
  if (event.type === 'usage') writing.usage = { ...writing.usage, ...event.usage }
  if (event.type !== 'answer-end') return
  writing.finish = event.finish
  writing.stopSequence = event.stopSequence
}

/**
 * Forwards a frame. If a frame other than a ping follows the held frame, the held frame was not the last and is sent
 * unchanged.
 */
function passOn(writing: Writing, frame: Frame): readonly Frame[] {
  if (frame.event === 'ping') return [frame]
  writing.isStarted = true
  if (frame.event === 'message_stop') {
    writing.heldStop = frame
    return []
  }
  const before = writing.heldDelta === undefined ? [] : [writing.heldDelta]
  writing.heldDelta = frame.event === 'message_delta' ? frame : undefined
  return writing.heldDelta === undefined ? [...before, frame] : before
}

function writeEvent(writing: Writing, event: AnswerEvent): readonly Frame[] {
  switch (event.type) {
    case 'answer-start':
      return writeStart(writing, event.id, event.model)
    case 'usage':
    case 'answer-end':
    case 'done':
      return []
    default:
      return [...writeStart(writing), ...writing.blocks.take(event)]
  }
}

/** Writes the start with zero counts, because `message_delta` contains the actual counts and some clients add both. */
function writeStart(writing: Writing, id = '', model = ''): readonly Frame[] {
  if (writing.isStarted) return []
  writing.isStarted = true
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
  return [frameOf({ type: 'message_start', message })]
}

function end(writing: Writing, metrics: SvcMetrics): readonly Frame[] {
  const opening = writeStart(writing)
  const closing = writing.blocks.finish()
  const stop = writing.heldStop ?? frameOf({ type: 'message_stop' })
  return [...opening, ...closing, writeLastDelta(writing, metrics), stop]
}

function writeLastDelta(writing: Writing, metrics: SvcMetrics): Frame {
  const { heldDelta, usage } = writing
  const svc_metrics = writeMetrics(metrics)
  if (heldDelta === undefined) {
    const delta = { stop_reason: writeStopReason(writing.finish), stop_sequence: writing.stopSequence ?? null }
    return frameOf({ type: 'message_delta', delta, usage: writeMessageUsage(usage), svc_metrics })
  }
  const data = parseFrame(heldDelta)
  const counted = { ...asObject(data['usage']), total_tokens: totalTokens(usage) }
  return { ...heldDelta, data: JSON.stringify({ ...data, usage: counted, svc_metrics }) }
}

/** Returns the JSON text of a message with its bill. All fields of a message of this format are retained. */
export function writeCompletion(completion: Completion, metrics: SvcMetrics): string {
  const message = completion.native?.dialect === 'anthropic' ? completion.native.value : newMessage(completion)
  const usage = { ...asObject(message['usage']), total_tokens: totalTokens(completion.usage ?? NO_USAGE) }
  return JSON.stringify({ ...message, usage, svc_metrics: writeMetrics(metrics) })
}

/** Returns the bill in the fields of this format. */
export function writeMetrics(metrics: SvcMetrics): JsonObject {
  return {
    savings_percent: metrics.savingsPercent,
    original_cost: metrics.originalCost,
    your_cost: metrics.yourCost,
  }
}

/** Returns an id with the prefix that clients of this format expect. The same answer always has the same id. */
export function messageId(id: string): string {
  return id.startsWith('msg_') ? id : `msg_${id.replace(/^chatcmpl-/, '')}`
}

function newMessage(completion: Completion): JsonObject {
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

/**
 * Writes the parts of an answer as content blocks. Content that only another format supports is omitted. A citation,
 * which is collected as a separate delta, is added to its text.
 */
function writeAnswerBlocks(parts: readonly Part[]): readonly JsonObject[] {
  const blocks: JsonObject[] = []
  for (const part of parts) {
    const citation = citationOf(part)
    const last = blocks.at(-1)
    if (citation === undefined) blocks.push(...(writeAnswerBlock(part) ?? []))
    else if (last?.['type'] === 'text') blocks[blocks.length - 1] = withCitation(last, citation)
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
      return [writeThought(part)]
    default:
      return undefined
  }
}

function writeThought(part: Extract<Part, { readonly type: 'thinking' }>): JsonObject {
  return part.redacted === true
    ? { type: 'redacted_thinking', data: part.text }
    : { type: 'thinking', thinking: part.text, signature: part.signature ?? '' }
}

function citationOf(part: Part): JsonObject | undefined {
  if (part.type !== 'opaque' || part.native.dialect !== 'anthropic') return undefined
  const { type, citation } = part.native.value
  return type === 'citations_delta' && isJsonObject(citation) ? citation : undefined
}

function withCitation(block: JsonObject, citation: JsonObject): JsonObject {
  return { ...block, citations: [...asArray(block['citations']), citation] }
}
