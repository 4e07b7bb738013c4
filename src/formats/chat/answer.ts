import type { Completion } from '../../core/answer.ts'
import { GatewayError } from '../../core/errors.ts'
import { asArray, asObject, asString, type Json, type JsonObject } from '../../core/json.ts'
import { textOfPart, type Native, type Part, type ToolCallPart } from '../../core/prompt.ts'
import type { SvcMetrics, WriteContext } from '../format.ts'
import { fillChatCallIds } from '../call-ids.ts'
import { readFinish, readUsage, writeFinish, writeUsage } from './usage.ts'

/**
 * Reads an upstream's answer loosely: only the fields that are used must be valid. Throws `upstream` when the body is
 * not an answer.
 */
export function readCompletion(received: JsonObject, text?: string): Completion {
  const body = fillChatCallIds(received)
  const choices = asArray(body['choices']).map(asObject)
  const choice = choices[0]
  const message = asObject(choice?.['message'])
  if (choice === undefined || message === undefined) {
    throw new GatewayError('upstream', 'The model provider sent no answer: its body has no choices with a message.')
  }
  const calls = callsOf(message)
  const refusal = asString(message['refusal']) ?? ''
  const parts = [...thinkingOf(message), ...contentOf(message['content']), ...refusalPart(refusal), ...calls]
  const usage = readUsage(body['usage'])
  const furtherText = choices.slice(1).map((further) => textOfMessage(asObject(further?.['message'])))
  return {
    id: asString(body['id']) ?? '',
    model: asString(body['model']) ?? '',
    parts,
    ...(furtherText.length > 0 && { furtherText: furtherText.join('') }),
    finish: readFinish(choice['finish_reason'], calls.length > 0, refusal !== ''),
    ...(usage === undefined ? {} : { usage }),
    native: { dialect: 'openai', value: body, ...(text === undefined || body !== received ? {} : { text }) },
  }
}

/** Returns all text of a message or delta: content, reasoning, refusals and tool calls. */
export function textOfMessage(message: JsonObject = {}): string {
  const calls = [message['function_call'], ...asArray(message['tool_calls'])].map((item) => {
    const call = asObject(item)
    const called = asObject(call?.['function']) ?? asObject(call?.['custom']) ?? call ?? {}
    return `${asString(called['name']) ?? ''}${inputOf(called)}`
  })
  const said = contentOf(message['content']).map(textOfPart)
  return [reasoningOf(message), ...said, asString(message['refusal']) ?? '', ...calls].join('')
}

function refusalPart(refusal: string): readonly Part[] {
  return refusal === '' ? [] : [{ type: 'text', text: refusal }]
}

/** Vendors use two names for this field. */
export function reasoningOf(message: JsonObject): string {
  return asString(message['reasoning_content']) ?? asString(message['reasoning']) ?? ''
}

function thinkingOf(message: JsonObject): readonly Part[] {
  const text = reasoningOf(message)
  return text === '' ? [] : [{ type: 'thinking', text }]
}

/** Reads a text or, with some vendors, an array of parts. */
export function contentOf(content: Json | undefined): readonly Part[] {
  if (typeof content === 'string') return content === '' ? [] : [{ type: 'text', text: content }]
  return asArray(content).flatMap((item): readonly Part[] => {
    const block = asObject(item)
    if (block === undefined) return []
    if (block['type'] === 'thinking') return [{ type: 'thinking', text: thoughtOf(block['thinking']) }]
    const text = asString(block['text'])
    if (text !== undefined) return [{ type: 'text', text }]
    return [{ type: 'opaque', native: { dialect: 'openai', value: block } }]
  })
}

function thoughtOf(thinking: Json | undefined): string {
  if (typeof thinking === 'string') return thinking
  return asArray(thinking)
    .map((piece) => asString(asObject(piece)?.['text']) ?? '')
    .join('')
}

function callsOf(message: JsonObject): readonly ToolCallPart[] {
  const old = asObject(message['function_call'])
  const called = asArray(message['tool_calls']).flatMap((item) => callOf(asObject(item)) ?? [])
  if (old === undefined) return called
  const name = asString(old['name']) ?? ''
  return [...called, { type: 'tool-call', id: name, name, input: asString(old['arguments']) ?? '' }]
}

function callOf(value: JsonObject | undefined): ToolCallPart | undefined {
  if (value === undefined) return undefined
  const called = asObject(value['function']) ?? asObject(value['custom'])
  const name = asString(called?.['name'])
  if (called === undefined || name === undefined) return undefined
  const id = asString(value['id']) ?? ''
  const native: Native = { dialect: 'openai', value }
  return { type: 'tool-call', id, name, input: inputOf(called), native }
}

/** Some servers send the arguments as an object instead of JSON text. */
function inputOf(called: JsonObject): string {
  const input = called['arguments'] ?? called['input'] ?? ''
  return typeof input === 'string' ? input : JSON.stringify(input)
}

/** An answer of this dialect leaves as it came, down to its text; any other is written in full. */
export function writeCompletion(completion: Completion, _metrics: SvcMetrics, context: WriteContext): string {
  const { native } = completion
  if (native?.dialect === 'openai') return native.text ?? JSON.stringify(native.value)
  return JSON.stringify({
    id: completion.id,
    object: 'chat.completion',
    created: context.created,
    model: completion.model,
    choices: [
      {
        index: 0,
        message: writeMessage(completion.parts),
        logprobs: null,
        finish_reason: writeFinish(completion.finish),
      },
    ],
    ...(completion.usage === undefined ? {} : { usage: writeUsage(completion.usage) }),
  })
}

/** Reasoning is written to a field of its own, which clients read or ignore, and never to the content. */
function writeMessage(parts: readonly Part[]): JsonObject {
  const texts = parts.flatMap((part) => (part.type === 'text' ? [part.text] : []))
  const thoughts = parts.flatMap((part) => (part.type === 'thinking' && part.redacted !== true ? [part.text] : []))
  const calls = parts.filter((part) => part.type === 'tool-call')
  const content = texts.length === 0 && calls.length > 0 ? null : texts.join('')
  return {
    role: 'assistant',
    content,
    refusal: null,
    ...(thoughts.length === 0 ? {} : { reasoning_content: thoughts.join('\n') }),
    ...(calls.length === 0 ? {} : { tool_calls: calls.map(writeCall) }),
  }
}

/** Writes a tool call of an answer or a message. */
export function writeCall(part: ToolCallPart): JsonObject {
  if (part.native?.dialect === 'openai') return part.native.value
  const input = part.input.trim() === '' ? '{}' : part.input
  return { id: part.id, type: 'function', function: { name: part.name, arguments: input } }
}
