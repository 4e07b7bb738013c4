import type { Completion } from '../../core/answer.ts'
import { NO_USAGE } from '../../core/money.ts'
import { asArray, asObject, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { ClientFormat, WriteMetrics } from '../format.ts'
import { totalTokens, WIRE_REASONS, writeMessageUsage } from '../usage.ts'
import { createMessage, isDelta, messageId, MessageStreamWriter, toSseEvent } from './stream-writer.ts'
import type { Message, Part, Prompt, ReceivedBody } from '../../core/prompt.ts'
import { readBlocks, readContent, readToolInput } from './blocks.ts'
import { fieldError, booleanAt, isAbsent, readMessageList, readModelName, objectAt } from '../fields.ts'
import { readSettings, readTools, requireMaxTokens } from './upstream.ts'
import { writeMessageFailure, writeMessageFailureEvent } from '../failures.ts'

function writeCompletion(completion: Completion, writeMetrics: WriteMetrics): string {
  const message = completion.native?.dialect === 'anthropic' ? completion.native.value : messageOf(completion)
  const usage = { ...asObject(message['usage']), total_tokens: totalTokens(completion.usage ?? NO_USAGE) }
  return JSON.stringify({ ...message, usage, svc_metrics: writeMetrics('summary') })
}

function messageOf(completion: Completion): JsonObject {
  return createMessage(completion, {
    content: writeAnswerBlocks(completion.parts),
    stop_reason: WIRE_REASONS[completion.finish].message,
    stop_sequence: completion.stopSequence ?? null,
    usage: writeMessageUsage(completion.usage ?? NO_USAGE),
  })
}

/** Citations arrive as separate deltas and are added to their text. */
function writeAnswerBlocks(parts: readonly Part[]): readonly JsonObject[] {
  const blocks: JsonObject[] = []
  for (const part of parts) {
    const block = writeAnswerBlock(part)
    const last = blocks.at(-1)
    if (block !== undefined && !isDelta(block)) blocks.push(block)
    if (block?.['type'] === 'citations_delta' && isJsonObject(block['citation']) && last?.['type'] === 'text')
      blocks[blocks.length - 1] = { ...last, citations: [...asArray(last['citations']), block['citation']] }
  }
  return blocks
}

function writeAnswerBlock(part: Part): JsonObject | undefined {
  if (part.native?.dialect === 'anthropic') return part.native.value
  switch (part.type) {
    case 'text':
      return part.text === '' ? undefined : { type: 'text', text: part.text }
    case 'tool-call':
      return { type: 'tool_use', id: part.id, name: part.name, input: readToolInput(part.input) }
    case 'thinking':
      return part.redacted === true
        ? { type: 'redacted_thinking', data: part.text }
        : { type: 'thinking', thinking: part.text, signature: part.signature ?? '' }
    default:
      return undefined
  }
}

export function readPrompt(body: JsonObject, received?: ReceivedBody): Prompt {
  const model = readModelName(body['model'])
  requireMaxTokens(body)
  const settings = readSettings(body)
  const messages = readMessageList(body['messages'], readMessage)
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
  createStreamWriter: () => new MessageStreamWriter(),
  writeFailure: writeMessageFailure,
  writeFailureEvent: writeMessageFailureEvent,
  heartbeat: toSseEvent({ type: 'ping' }),
  answerId: messageId,
}
