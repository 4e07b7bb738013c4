import { GatewayError } from '../../core/errors.ts'
import type { Json, JsonObject } from '../../core/json.ts'
import type { DocumentPart, ImagePart, Message, Part, Source, TextSource, ToolResultPart } from '../../core/prompt.ts'
import { readToolInput } from './read-blocks.ts'

/**
 * A part as a content block: its own block when it came from this format, else written from its fields. Undefined for what says
 * nothing: the format refuses texts without a visible character, and thoughts that no vendor has sealed. Throws
 * `invalid-request`, naming `path`, for what this format cannot say.
 */
export function writeBlock(part: Part, path: string): JsonObject | undefined {
  if (part.native?.dialect === 'anthropic') return part.native.value
  switch (part.type) {
    case 'text':
      return part.text.trim() === '' ? undefined : { type: 'text', text: part.text, ...cacheMark(part) }
    case 'image':
      return { type: 'image', source: writeSource(part.source, path), ...cacheMark(part) }
    case 'document':
      return writeDocument(part, path)
    case 'tool-call':
      return { type: 'tool_use', id: part.id, name: part.name, input: readToolInput(part.input) }
    case 'tool-result':
      return writeToolResult(part, path)
    case 'thinking':
      return writeThinking(part)
    case 'opaque':
      return writeOpaque(part.native.value, path)
  }
}

/** The parts of a message as content blocks; `path` is the message's. */
export function writeBlocks(parts: readonly Part[], path: string): readonly JsonObject[] {
  return parts
    .map((part, index) => writeBlock(part, `${path}.content[${index}]`))
    .filter((block) => block !== undefined)
}

/** The blocks of a message that a writer of this format may send as it came. */
export function blocksOf(message: Message, path: string): readonly Json[] {
  if (message.native?.dialect !== 'anthropic') return writeBlocks(message.parts, path)
  const content = message.native.value['content']
  if (typeof content === 'string') return content === '' ? [] : [{ type: 'text', text: content }]
  return Array.isArray(content) ? (content as readonly Json[]) : []
}

/** Chat clients that know of prompt caching mark a part in the way of this format. */
function cacheMark(part: Exclude<Part, { readonly type: 'opaque' }>): JsonObject {
  const mark = part.native?.value['cache_control']
  return mark === undefined || mark === null ? {} : { cache_control: mark }
}

function writeThinking(part: Extract<Part, { readonly type: 'thinking' }>): JsonObject | undefined {
  if (part.redacted === true) return { type: 'redacted_thinking', data: part.text }
  return part.signature === undefined ? undefined : { type: 'thinking', thinking: part.text, signature: part.signature }
}

function writeSource(source: ImagePart['source'], path: string): JsonObject {
  switch (source.type) {
    case 'base64':
      return { type: 'base64', media_type: source.mediaType, data: source.data }
    case 'url':
      return { type: 'url', url: source.url }
    case 'file':
      throw cannotSay(path, 'a file that was stored at another vendor; send its content instead')
  }
}

function writeDocument(part: DocumentPart, path: string): JsonObject {
  const title = part.title === undefined ? {} : { title: part.title }
  return { type: 'document', source: writeDocumentSource(part.source, path), ...title, ...cacheMark(part) }
}

function writeDocumentSource(source: Source | TextSource, path: string): JsonObject {
  if (source.type === 'text') return { type: 'text', media_type: 'text/plain', data: source.text }
  if (source.type !== 'base64' || source.mediaType === 'application/pdf') return writeSource(source, path)
  if (!source.mediaType.startsWith('text/')) {
    throw cannotSay(path, `a file of type ${source.mediaType.slice(0, 100)}; send a PDF or plain text`)
  }
  return { type: 'text', media_type: 'text/plain', data: decodeText(source.data, path) }
}

function decodeText(base64: string, path: string): string {
  try {
    const letters = atob(base64)
    const bytes = new Uint8Array(letters.length)
    for (let at = 0; at < letters.length; at++) bytes[at] = letters.charCodeAt(at)
    return new TextDecoder().decode(bytes)
  } catch {
    throw cannotSay(path, 'a file whose data is not base64')
  }
}

function writeToolResult(part: ToolResultPart, path: string): JsonObject {
  const content = writeBlocks(part.content, path)
  return {
    type: 'tool_result',
    tool_use_id: part.callId,
    ...(content.length === 0 ? {} : { content }),
    ...(part.failed ? { is_error: true } : {}),
  }
}

/** A refusal is what a model said; other parts of a foreign format have no words here. */
function writeOpaque(value: JsonObject, path: string): JsonObject | undefined {
  if (value['type'] !== 'refusal' || typeof value['refusal'] !== 'string') {
    throw cannotSay(path, 'a content part that the message format does not have')
  }
  return value['refusal'].trim() === '' ? undefined : { type: 'text', text: value['refusal'] }
}

function cannotSay(path: string, what: string): GatewayError {
  return new GatewayError(
    'invalid-request',
    `${path} is ${what}: it cannot be sent to a model that is reached in the message format.`,
    { param: path },
  )
}
