import { GatewayError } from '../../core/errors.ts'
import type { Json, JsonObject } from '../../core/json.ts'
import type { ImagePart, Message, Part, ToolResultPart } from '../../core/prompt.ts'
import { itemsOf } from './items.ts'
import { sealThought } from './seal.ts'

/** Messages as items of this format: unchanged ones leave as they came. */
export function writeItems(messages: readonly Message[], pathOf: (index: number) => string): readonly JsonObject[] {
  return messages.flatMap((message, index) => {
    const items = itemsOf(message)
    return items.length > 0 ? items : writeMessage(message, pathOf(index))
  })
}

/** Results come first, as in the turn that they were read from; what is said, called and thought keeps its order. */
function writeMessage(message: Message, path: string): readonly JsonObject[] {
  const items: JsonObject[] = []
  let content: Part[] = []
  const flush = (): void => {
    if (content.length > 0) items.push(writeWords(message, content, path))
    content = []
  }
  for (const part of message.parts) {
    const item = writeItem(part, path)
    if (item === undefined) content.push(part)
    else {
      flush()
      items.push(...item)
    }
  }
  flush()
  return items
}

/** The parts that are items of their own; undefined for parts of the content of a message. */
function writeItem(part: Part, path: string): readonly JsonObject[] | undefined {
  switch (part.type) {
    case 'tool-call':
      return [nativeOf(part) ?? { type: 'function_call', call_id: part.id, name: part.name, arguments: inputOf(part) }]
    case 'tool-result':
      return [nativeOf(part) ?? { type: 'function_call_output', call_id: part.callId, output: writeOutput(part, path) }]
    case 'thinking':
      return writeThinking(part)
    case 'opaque': {
      const native = nativeOf(part)
      if (native === undefined) throw cannotCarry(path, `a ${String(part.native.value['type'])} block`)
      return isContent(native) ? undefined : [native]
    }
    default:
      return undefined
  }
}

function isContent(block: JsonObject): boolean {
  return String(block['type']).startsWith('input_')
}

/** Thoughts of another vendor are sealed for its own models: they never become words of this one. */
function writeThinking(part: Extract<Part, { readonly type: 'thinking' }>): readonly JsonObject[] {
  const native = nativeOf(part)
  return native === undefined ? [] : [native]
}

function inputOf({ input }: Extract<Part, { readonly type: 'tool-call' }>): string {
  return input.trim() === '' ? '{}' : input
}

function writeWords({ role }: Message, parts: readonly Part[], path: string): JsonObject {
  const speaker = role === 'tool' ? 'user' : role
  const [only] = parts
  if (parts.length === 1 && only?.type === 'text' && nativeOf(only) === undefined) {
    return { role: speaker, content: only.text }
  }
  return { role: speaker, content: parts.map((part) => writeBlock(part, speaker, path)) }
}

function writeBlock(part: Part, role: string, path: string): JsonObject {
  const native = nativeOf(part)
  if (native !== undefined) return native
  switch (part.type) {
    case 'text':
      return { type: role === 'assistant' ? 'output_text' : 'input_text', text: part.text }
    case 'image':
      return { type: 'input_image', image_url: addressOf(part.source, path), detail: 'auto' }
    case 'document':
      return writeDocument(part, path)
    default:
      throw cannotCarry(path, `a ${part.type} in this place`)
  }
}

function writeDocument({ source, title }: Extract<Part, { readonly type: 'document' }>, path: string): JsonObject {
  if (source.type === 'text') {
    return { type: 'input_text', text: title === undefined ? source.text : `${title}\n\n${source.text}` }
  }
  if (source.type === 'url') return { type: 'input_file', file_url: source.url }
  return { type: 'input_file', filename: title ?? 'document', file_data: addressOf(source, path) }
}

function addressOf(source: ImagePart['source'], path: string): string {
  switch (source.type) {
    case 'base64':
      return `data:${source.mediaType};base64,${source.data}`
    case 'url':
      return source.url
    case 'file':
      throw cannotCarry(path, 'a file id of another vendor')
  }
}

/** This format has no mark for a failed call, so the words must say it. */
function writeOutput(result: ToolResultPart, path: string): Json {
  const said = result.failed ? [{ type: 'text', text: 'Error: ' } as const, ...result.content] : result.content
  if (said.every((part) => part.type === 'text')) return said.map((part) => part.text).join(result.failed ? '' : '\n')
  return said.map((part) => writeBlock(part, 'user', path))
}

function nativeOf(part: Part): JsonObject | undefined {
  return part.native?.dialect === 'responses' ? part.native.value : undefined
}

/** A thought as the item that carries it to the next request. */
export function reasoningItem(id: string, text: string, seal: Parameters<typeof sealThought>[0]): JsonObject {
  const sealed = sealThought(seal)
  return {
    id,
    type: 'reasoning',
    summary: text === '' ? [] : [{ type: 'summary_text', text }],
    ...(sealed === undefined ? {} : { encrypted_content: sealed }),
  }
}

/** Content that cannot be carried over is reported, never silently lost. */
export function cannotCarry(param: string, what: string, details?: Json): GatewayError {
  return new GatewayError(
    'invalid-request',
    `${param}: ${what} cannot be sent to a model of the responses format. Remove it, or choose a model that knows it.`,
    { param, ...(details === undefined ? {} : { details }) },
  )
}
