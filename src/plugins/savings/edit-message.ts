import type { Json, JsonObject } from '../../core/json.ts'
import type { Message, Part, ToolResultPart } from '../../core/prompt.ts'
import { nativeOf } from '../../core/messages.ts'

/**
 * Returns false for messages that are sent whole or not at all: a response with parts of other types, whose order
 * matters, and a response with reasoning in the responses format, whose ids the vendor checks.
 */
export function isEditable({ role, parts }: Message): boolean {
  if (role !== 'assistant') return true
  return !parts.some(
    ({ type, native }) => type === 'opaque' || (type === 'thinking' && native?.dialect === 'responses'),
  )
}

/** Keeps the fields of a received chat message, such as `name` and `reasoning_content`. */
export function editMessage({ role, native }: Message, parts: readonly Part[]): Message {
  if (native?.dialect !== 'chat') return { role, parts }
  return { role, parts, native: { ...native, value: { ...native.value, content: chatContent(parts) } } }
}

function chatContent(parts: readonly Part[]): Json {
  const pieces = parts.flatMap((part) => (part.type === 'tool-result' ? part.content : [part]))
  const content = pieces.filter(({ type }) => type !== 'tool-call' && type !== 'thinking')
  const [first] = content
  if (first === undefined) return null
  return content.length === 1 && first.type === 'text' && first.native === undefined ? first.text : blocksOf(content)
}

function blocksOf(parts: readonly Part[]): readonly JsonObject[] {
  return parts.flatMap((part): readonly JsonObject[] => {
    if (part.native !== undefined) return [part.native.value]
    return part.type === 'text' ? [{ type: 'text', text: part.text }] : []
  })
}

/** Keeps the fields of a received result, such as its type and a marker of the vendor's prompt cache. */
export function editResult(part: ToolResultPart, content: readonly Part[]): ToolResultPart {
  const { callId, failed, native } = part
  const edited: ToolResultPart = { type: 'tool-result', callId, content, failed }
  switch (native?.dialect) {
    case 'messages':
      return { ...edited, native: nativeOf(native, { ...native.value, content: blocksOf(content) }) }
    case 'responses':
      return { ...edited, native: nativeOf(native, { ...native.value, output: outputOf(content) }) }
    default:
      return edited
  }
}

function outputOf(content: readonly Part[]): Json {
  const texts = content.flatMap((part) => (part.type === 'text' ? [part.text] : []))
  if (texts.length === content.length) return texts.join('\n')
  return content.flatMap((part): readonly JsonObject[] => {
    if (part.native !== undefined) return [part.native.value]
    return part.type === 'text' ? [{ type: 'input_text', text: part.text }] : []
  })
}
