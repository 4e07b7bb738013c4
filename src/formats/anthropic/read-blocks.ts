import { isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { DocumentPart, Native, Part, Source, ToolResultPart } from '../../core/prompt.ts'
import { arrayOf, isAbsent, objectOf, stringAt, type Complaint } from './checks.ts'

/** The greatest number of blocks in one message. */
const MOST_BLOCKS = 1_000

/** The content of a message: a string is one text, an array is read block by block. */
export function readContent(content: Json | undefined, path: string, complain: Complaint): readonly Part[] {
  if (typeof content === 'string') return [{ type: 'text', text: content }]
  if (!Array.isArray(content)) throw complain(path, content, 'a string or an array of content blocks')
  return readBlocks(arrayOf(content, path, complain, MOST_BLOCKS), path, complain)
}

/** Content blocks as parts, each with the block it was read from. */
export function readBlocks(blocks: readonly Json[], path: string, complain: Complaint): readonly Part[] {
  return blocks.map((block, index) => readBlock(block, `${path}[${index}]`, complain))
}

function readBlock(value: Json, path: string, complain: Complaint): Part {
  const block = objectOf(value, path, complain)
  const native: Native = { dialect: 'anthropic', value: block }
  switch (stringAt(block, 'type', path, complain)) {
    case 'text':
      return { type: 'text', text: stringAt(block, 'text', path, complain), native }
    case 'image':
      return readImage(block, path, complain)
    case 'document':
      return readDocument(block, path, complain)
    case 'tool_use':
      return {
        type: 'tool-call',
        id: stringAt(block, 'id', path, complain),
        name: stringAt(block, 'name', path, complain),
        input: JSON.stringify(objectOf(block['input'], `${path}.input`, complain)),
        native,
      }
    case 'tool_result':
      return readToolResult(block, path, complain)
    case 'thinking':
      return {
        type: 'thinking',
        text: stringAt(block, 'thinking', path, complain),
        ...(typeof block['signature'] === 'string' ? { signature: block['signature'] } : {}),
        native,
      }
    case 'redacted_thinking':
      return { type: 'thinking', text: stringAt(block, 'data', path, complain), redacted: true, native }
    default:
      return { type: 'opaque', native }
  }
}

function readImage(block: JsonObject, path: string, complain: Complaint): Part {
  const native: Native = { dialect: 'anthropic', value: block }
  const source = readSource(block, path, complain)
  return source === undefined ? { type: 'opaque', native } : { type: 'image', source, native }
}

function readDocument(block: JsonObject, path: string, complain: Complaint): Part {
  const native: Native = { dialect: 'anthropic', value: block }
  const source = readTextSource(block, path, complain) ?? readSource(block, path, complain)
  if (source === undefined) return { type: 'opaque', native }
  const title = typeof block['title'] === 'string' ? { title: block['title'] } : {}
  return { type: 'document', source, ...title, native }
}

/** A source that is words: plain text, or content that holds nothing but text blocks. */
function readTextSource(block: JsonObject, path: string, complain: Complaint): DocumentPart['source'] | undefined {
  const source = objectOf(block['source'], `${path}.source`, complain)
  if (source['type'] === 'text') return { type: 'text', text: stringAt(source, 'data', `${path}.source`, complain) }
  if (source['type'] !== 'content') return undefined
  const parts = readContent(source['content'], `${path}.source.content`, complain)
  const texts = parts.flatMap((part) => (part.type === 'text' ? [part.text] : []))
  return texts.length === parts.length ? { type: 'text', text: texts.join('\n') } : undefined
}

/** Undefined for a kind of source that this library does not know. */
function readSource(block: JsonObject, path: string, complain: Complaint): Source | undefined {
  const sourcePath = `${path}.source`
  const source = objectOf(block['source'], sourcePath, complain)
  switch (stringAt(source, 'type', sourcePath, complain)) {
    case 'base64':
      return {
        type: 'base64',
        mediaType: stringAt(source, 'media_type', sourcePath, complain),
        data: stringAt(source, 'data', sourcePath, complain),
      }
    case 'url':
      return { type: 'url', url: stringAt(source, 'url', sourcePath, complain) }
    case 'file':
      return { type: 'file', id: stringAt(source, 'file_id', sourcePath, complain) }
    default:
      return undefined
  }
}

function readToolResult(block: JsonObject, path: string, complain: Complaint): ToolResultPart {
  const content = isAbsent(block['content']) ? [] : readContent(block['content'], `${path}.content`, complain)
  return {
    type: 'tool-result',
    callId: stringAt(block, 'tool_use_id', path, complain),
    content,
    failed: block['is_error'] === true,
    native: { dialect: 'anthropic', value: block },
  }
}

/**
 * The arguments of a tool call as the object that the message format demands. Models do write broken JSON, and
 * conversations hold it: such a text is carried as `{ "raw": "<text>" }` rather than lost or refused.
 */
export function readToolInput(text: string): JsonObject {
  if (text.trim() === '') return {}
  try {
    const value: unknown = JSON.parse(text)
    return isJsonObject(value) ? value : { raw: text }
  } catch {
    return { raw: text }
  }
}
