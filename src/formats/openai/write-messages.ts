import type { JsonObject } from '../../core/json.ts'
import type { Message, ToolCallPart, ToolResultPart } from '../../core/prompt.ts'
import { cannotCarry, nativeOf, writeContent, type ContentPart } from './write-content.ts'

/** Messages as this dialect writes them: unchanged ones leave as they came. */
export function writeMessages(messages: readonly Message[], paramOf: (index: number) => string): readonly JsonObject[] {
  return messages.flatMap((message, index) => {
    const native = nativeOf(message.native)
    return native === undefined ? writeMessage(message, paramOf(index)) : [native]
  })
}

function writeMessage(message: Message, param: string): readonly JsonObject[] {
  switch (message.role) {
    case 'system':
      return [{ role: 'system', content: writeContent(contentOf(message), param) }]
    case 'assistant':
      return writeAssistant(message, param)
    case 'user':
    case 'tool':
      return writeTurn(message, param)
  }
}

/** Thoughts are sealed for the model that had them: they never become content of another. */
function writeAssistant(message: Message, param: string): readonly JsonObject[] {
  const content = contentOf(message)
  const calls = message.parts.filter((part) => part.type === 'tool-call')
  if (content.length === 0 && calls.length === 0) return []
  const said = content.length === 0 ? null : writeContent(content, param)
  if (calls.length === 0) return [{ role: 'assistant', content: said }]
  return [{ role: 'assistant', content: said, tool_calls: calls.map(writeCall) }]
}

/** A tool call of an answer or of a message. */
export function writeCall(part: ToolCallPart): JsonObject {
  const native = nativeOf(part.native)
  if (native !== undefined) return native
  const input = part.input.trim() === '' ? '{}' : part.input
  return { id: part.id, type: 'function', function: { name: part.name, arguments: input } }
}

/** The results of tools come first, each in a message of its own; images of results follow in the user's message. */
function writeTurn(message: Message, param: string): readonly JsonObject[] {
  const results = message.parts.filter((part) => part.type === 'tool-result')
  const moved = results.flatMap(attachmentsOf)
  const content = [...moved, ...contentOf(message)]
  const tools = results.map((result) => writeResult(result, param))
  if (content.length === 0 && tools.length > 0) return tools
  return [...tools, { role: 'user', content: writeContent(content, param) }]
}

function writeResult(result: ToolResultPart, param: string): JsonObject {
  const texts = result.content.flatMap((part) => {
    if (part.type === 'text') return [part.text]
    if (part.type === 'opaque' && nativeOf(part.native) === undefined) {
      throw cannotCarry(param, `a ${String(part.native.value['type'])} block in a tool result`)
    }
    return []
  })
  const text = texts.length === 0 && attachmentsOf(result).length > 0 ? 'See the next user message.' : texts.join('\n')
  return { role: 'tool', tool_call_id: result.callId, content: result.failed ? asFailed(text) : text }
}

/** This dialect has no mark for a failed call, so the words must say it. */
function asFailed(text: string): string {
  if (text === '') return 'Error'
  return /^\W*error/i.test(text) ? text : `Error: ${text}`
}

/** What this dialect does not allow in a tool's message, with a line that says where it belongs. */
function attachmentsOf(result: ToolResultPart): readonly ContentPart[] {
  const attached = result.content.filter((part) => part.type === 'image' || part.type === 'document')
  if (attached.length === 0) return []
  return [{ type: 'text', text: `Result of the tool call ${result.callId}:` }, ...attached]
}

function contentOf(message: Message): readonly ContentPart[] {
  return message.parts.filter(
    (part) => part.type === 'text' || part.type === 'image' || part.type === 'document' || part.type === 'opaque',
  )
}
