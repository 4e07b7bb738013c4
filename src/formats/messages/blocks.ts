import { exactText, parseExactObject } from '../../core/exact-json.ts'
import { asArray, asString, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type {
  DocumentPart,
  ImagePart,
  Message,
  Native,
  Part,
  Source,
  TextSource,
  ToolResultPart,
} from '../../core/prompt.ts'
import { GatewayError } from '../../core/errors.ts'
import { readContentParts } from '../format.ts'
import { fieldError, isAbsent, objectAt, stringAt } from '../parse-body.ts'

export function readMessage(value: Json, path: string): Message {
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

export function readSystem(value: Json | undefined): Message | undefined {
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

function readContent(content: Json | undefined, path: string): readonly Part[] {
  return readContentParts(content, path, readBlock)
}

export function readBlocks(blocks: readonly Json[], path: string): readonly Part[] {
  return blocks.map((block, index) => readBlock(block, `${path}[${index}]`))
}

function readBlock(value: Json, path: string): Part {
  const block = objectAt(value, path)
  const native: Native = { dialect: 'anthropic', value: block }
  switch (stringAt(block['type'], `${path}.type`)) {
    case 'text':
      return { type: 'text', text: stringAt(block['text'], `${path}.text`), native }
    case 'image': {
      const source = readSource(block, path)
      return source === undefined ? { type: 'opaque', native } : { type: 'image', source, native }
    }
    case 'document':
      return readDocument(native, path)
    case 'tool_use':
      return {
        type: 'tool-call',
        id: stringAt(block['id'], `${path}.id`),
        name: stringAt(block['name'], `${path}.name`),
        input: exactText(objectAt(block['input'], `${path}.input`)),
        native,
      }
    case 'tool_result': {
      const content = isAbsent(block['content']) ? [] : readContent(block['content'], `${path}.content`)
      const callId = stringAt(block['tool_use_id'], `${path}.tool_use_id`)
      return { type: 'tool-result', callId, content, failed: block['is_error'] === true, native }
    }
    case 'thinking':
      return {
        type: 'thinking',
        text: stringAt(block['thinking'], `${path}.thinking`),
        ...(typeof block['signature'] === 'string' ? { signature: block['signature'] } : {}),
        native,
      }
    case 'redacted_thinking':
      return { type: 'thinking', text: stringAt(block['data'], `${path}.data`), redacted: true, native }
    default:
      return { type: 'opaque', native }
  }
}

function readDocument(native: Native, path: string): Part {
  const source = readTextSource(native.value, path) ?? readSource(native.value, path)
  if (source === undefined) return { type: 'opaque', native }
  const title = asString(native.value['title'])
  return { type: 'document', source, ...(title !== undefined && { title }), native }
}

function readTextSource(block: JsonObject, path: string): DocumentPart['source'] | undefined {
  const source = objectAt(block['source'], `${path}.source`)
  if (source['type'] === 'text') return { type: 'text', text: stringAt(source['data'], `${path}.source.data`) }
  if (source['type'] !== 'content') return undefined
  const parts = readContent(source['content'], `${path}.source.content`)
  const texts = parts.flatMap((part) => (part.type === 'text' ? [part.text] : []))
  return texts.length === parts.length ? { type: 'text', text: texts.join('\n') } : undefined
}

function readSource(block: JsonObject, path: string): Source | undefined {
  const sourcePath = `${path}.source`
  const source = objectAt(block['source'], sourcePath)
  switch (stringAt(source['type'], `${sourcePath}.type`)) {
    case 'base64':
      return {
        type: 'base64',
        mediaType: stringAt(source['media_type'], `${sourcePath}.media_type`),
        data: stringAt(source['data'], `${sourcePath}.data`),
      }
    case 'url':
      return { type: 'url', url: stringAt(source['url'], `${sourcePath}.url`) }
    case 'file':
      return { type: 'file', id: stringAt(source['file_id'], `${sourcePath}.file_id`) }
    default:
      return undefined
  }
}

/** The format requires an object, but models sometimes write other text. */
export function readToolInput(text: string): JsonObject {
  return text.trim() === '' ? {} : (parseExactObject(text) ?? { raw: text })
}

/** Returns undefined for blank text and unsigned thinking, which the format rejects. */
function writeBlock(part: Part, path: string): JsonObject | undefined {
  if (part.native?.dialect === 'anthropic') return part.native.value
  switch (part.type) {
    case 'text':
      return part.text.trim() === '' ? undefined : { type: 'text', text: part.text, ...cacheControlOf(part) }
    case 'image':
      return { type: 'image', source: writeSource(part.source, path), ...cacheControlOf(part) }
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

export function writeBlocks(parts: readonly Part[], path: string): readonly JsonObject[] {
  return parts
    .map((part, index) => writeBlock(part, `${path}.content[${index}]`))
    .filter((block) => block !== undefined)
}

export function blocksOf(message: Message, path: string): readonly Json[] {
  if (message.native?.dialect !== 'anthropic') return writeBlocks(message.parts, path)
  const content = message.native.value['content']
  if (typeof content === 'string') return content === '' ? [] : [{ type: 'text', text: content }]
  return asArray(content)
}

/** Chat clients send the same field for prompt caching. */
function cacheControlOf(part: Exclude<Part, { readonly type: 'opaque' }>): JsonObject {
  const cacheControl = part.native?.value['cache_control']
  return cacheControl === undefined || cacheControl === null ? {} : { cache_control: cacheControl }
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
      throw unsupportedBlockError(path, 'a file stored by another vendor', 'Send the content of the file instead.')
  }
}

function writeDocument(part: DocumentPart, path: string): JsonObject {
  const title = part.title === undefined ? {} : { title: part.title }
  return { type: 'document', source: writeDocumentSource(part.source, path), ...title, ...cacheControlOf(part) }
}

function writeDocumentSource(source: Source | TextSource, path: string): JsonObject {
  if (source.type === 'text') return { type: 'text', media_type: 'text/plain', data: source.text }
  if (source.type !== 'base64' || source.mediaType === 'application/pdf') return writeSource(source, path)
  if (!source.mediaType.startsWith('text/')) {
    throw unsupportedBlockError(path, `a file of type ${source.mediaType.slice(0, 100)}`, 'Send a PDF or plain text.')
  }
  return { type: 'text', media_type: 'text/plain', data: decodeText(source.data, path) }
}

function decodeText(base64: string, path: string): string {
  try {
    const binary = atob(base64)
    const bytes = new Uint8Array(binary.length)
    for (let index = 0; index < binary.length; index++) bytes[index] = binary.charCodeAt(index)
    return new TextDecoder().decode(bytes)
  } catch {
    throw new GatewayError('invalid-request', `${path} is a file whose data is not base64. Send valid base64.`, {
      param: path,
    })
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

function writeOpaque(value: JsonObject, path: string): JsonObject | undefined {
  if (value['type'] !== 'refusal' || typeof value['refusal'] !== 'string') {
    throw unsupportedBlockError(path, 'a content part of another format', 'Remove it or send it as text.')
  }
  return value['refusal'].trim() === '' ? undefined : { type: 'text', text: value['refusal'] }
}

function unsupportedBlockError(path: string, content: string, remedy: string): GatewayError {
  return new GatewayError(
    'invalid-request',
    `${path} is ${content}, which models that use the messages format do not support. ${remedy}`,
    { param: path },
  )
}

/** Citations arrive as separate deltas and are added to their text. */
export function writeAnswerBlocks(parts: readonly Part[]): readonly JsonObject[] {
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

export function isDelta(value: JsonObject): boolean {
  return typeof value['type'] === 'string' && value['type'].endsWith('_delta')
}
