import { NO_USAGE, type Completion } from '../../core/answer.ts'
import { asObject, asString, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { Part } from '../../core/prompt.ts'
import type { SvcMetrics } from '../format.ts'
import { upstreamComplaint } from './checks.ts'
import { errorEvent } from './upstream-failure.ts'
import { fillMessageCallIds } from '../call-ids.ts'
import { readBlocks, readToolInput } from './blocks.ts'
import { readStopReason, readUsage, totalTokens, writeStopReason, writeUsage } from './usage.ts'

/** Reads an upstream's message as an answer. Throws `upstream` when the body is not a message. */
export function readCompletion(received: JsonObject, text?: string): Completion {
  if (received['type'] === 'error') throw errorEvent(received)
  const body = fillMessageCallIds(received)
  const { content } = body
  if (!Array.isArray(content)) throw upstreamComplaint('content', content, 'an array of content blocks')
  const usage = asObject(body['usage'])
  const stopSequence = asString(body['stop_sequence'])
  return {
    id: asString(body['id']) ?? '',
    model: asString(body['model']) ?? '',
    parts: readBlocks(content as readonly Json[], 'content', upstreamComplaint),
    finish: readStopReason(asString(body['stop_reason']) ?? ''),
    ...(stopSequence === undefined ? {} : { stopSequence }),
    ...(usage === undefined ? {} : { usage: { ...NO_USAGE, ...readUsage(usage) } }),
    native: { dialect: 'anthropic', value: body, ...(text === undefined || body !== received ? {} : { text }) },
  }
}

/** The JSON text of a message with its bill. An upstream's own message keeps all its fields. */
export function writeCompletion(completion: Completion, metrics: SvcMetrics): string {
  const message = completion.native?.dialect === 'anthropic' ? completion.native.value : newMessage(completion)
  const usage = { ...asObject(message['usage']), total_tokens: totalTokens(completion.usage ?? NO_USAGE) }
  return JSON.stringify({ ...message, usage, svc_metrics: writeMetrics(metrics) })
}

/** The bill as this format shows it. */
export function writeMetrics(metrics: SvcMetrics): JsonObject {
  return {
    savings_percent: metrics.savingsPercent,
    original_cost: metrics.originalCost,
    your_cost: metrics.yourCost,
  }
}

/** Returns an id with the prefix that clients of this format expect. Equal for the same answer. */
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
    usage: writeUsage(completion.usage ?? NO_USAGE),
  }
}

/**
 * The parts of an answer as content blocks. What only another vendor's format knows has no words here; a delta that
 * was collected on its own (a citation) goes back into the text it belongs to.
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

/** Returns true for an opaque value that is a delta of a block, not a block. */
export function isDelta(value: JsonObject): boolean {
  return typeof value['type'] === 'string' && value['type'].endsWith('_delta')
}

function citationOf(part: Part): JsonObject | undefined {
  if (part.type !== 'opaque' || part.native.dialect !== 'anthropic') return undefined
  const { type, citation } = part.native.value
  return type === 'citations_delta' && isJsonObject(citation) ? citation : undefined
}

function withCitation(block: JsonObject, citation: JsonObject): JsonObject {
  const before = Array.isArray(block['citations']) ? (block['citations'] as readonly Json[]) : []
  return { ...block, citations: [...before, citation] }
}
