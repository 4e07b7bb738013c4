import { textOfPart, type DocumentPart, type Message, type Part, type Tool } from '../core/prompt.ts'
import type { Json, JsonObject } from '../core/json.ts'

/** Tokens of the frame of each message (role and separators), and of each tool call. */
const MESSAGE_FRAME = 4
const TOOL_CALL_FRAME = 4
export const TOOL_FRAME = 8
/** An image of 1,092 × 1,092 pixels in the message format; about a 1,024 × 2,048 one in the chat format. */
export const IMAGE_TOKENS = 1600
/** A page of a document is about 50 KB of base64 and, with its picture, 2,500 tokens. */
const PAGE_TOKENS = 2500
const PAGE_CHARACTERS = 50_000
/** Maximum length of an unknown part's JSON that counts as text. The rest counts as encoded bytes. */
const MAX_UNKNOWN_LENGTH = 8000

/** The text of a message that is counted as text; the other parts count by `fixedTokens`. */
export function countedText(message: Message): string {
  return message.parts.map(textOfCounted).join('\n')
}

function textOfCounted(part: Part): string {
  if (part.type === 'opaque') return jsonOf(part.native.value).slice(0, MAX_UNKNOWN_LENGTH)
  if (part.type === 'tool-result') return part.content.map(textOfCounted).join('\n')
  return textOfPart(part)
}

/** Returns the tokens of a message besides its text: frame, calls, images and documents. */
export function fixedTokens(message: Message, imageTokens: number): number {
  return message.parts.reduce((sum, part) => sum + fixedTokensOfPart(part, imageTokens), MESSAGE_FRAME)
}

function fixedTokensOfPart(part: Part, imageTokens: number): number {
  switch (part.type) {
    case 'text':
      return 0
    case 'thinking':
      return part.redacted === true ? Math.ceil(part.text.length / 4) : 0
    case 'image':
      return imageTokens
    case 'document':
      return documentTokens(part.source)
    case 'tool-call':
      return TOOL_CALL_FRAME
    case 'tool-result':
      return part.content.reduce((sum, inner) => sum + fixedTokensOfPart(inner, imageTokens), 0)
    case 'opaque':
      return Math.ceil(
        Math.max(0, jsonOf(part.native.value).length - MAX_UNKNOWN_LENGTH) / (PAGE_CHARACTERS / PAGE_TOKENS),
      )
  }
}

function documentTokens(source: DocumentPart['source']): number {
  if (source.type === 'text') return 0
  if (source.type !== 'base64') return PAGE_TOKENS
  if (source.mediaType.startsWith('text/')) return Math.ceil(source.data.length / 3)
  return Math.ceil(source.data.length / PAGE_CHARACTERS) * PAGE_TOKENS
}

/** The text by which the definition of a tool is counted. */
export function toolText(tool: Tool): string {
  return jsonOf(tool.native.value)
}

function jsonOf(value: unknown): string {
  return JSON.stringify(value) ?? ''
}

/** The longest head of a data URL: `data:image/png;base64,`. */
const MAX_HEAD = 200

/**
 * A body as the texts that a tokenizer would see, in pieces: each element of a list at the top is a piece of its own.
 * Strings are written unescaped, as the templates of vendors write them. The base64 text of images is left out.
 */
export function* rawPieces(body: JsonObject, images: ReadonlyMap<JsonObject, string>): Generator<string> {
  for (const [name, value] of Object.entries(body)) {
    if (!Array.isArray(value)) yield rawText({ [name]: value }, images)
    else for (const element of value as readonly Json[]) yield rawText(element, images)
  }
}

function rawText(value: Json | undefined, images: ReadonlyMap<JsonObject, string>): string {
  const pieces: string[] = []

  const write = (item: Json | undefined): void => {
    if (typeof item === 'string') pieces.push('"', item, '"')
    else if (Array.isArray(item)) writeList(item as readonly Json[])
    else if (typeof item === 'object' && item !== null) writeObject(item as JsonObject)
    else pieces.push(String(item))
  }

  const writeList = (items: readonly Json[]): void => {
    pieces.push('[')
    for (const item of items) {
      write(item)
      pieces.push(',')
    }
    pieces.push(']')
  }

  const writeObject = (fields: JsonObject): void => {
    const data = images.get(fields)
    pieces.push('{')
    for (const [name, field] of Object.entries(fields)) {
      pieces.push('"', name, '":')
      write(data === undefined ? field : withoutImage(field, data))
      pieces.push(',')
    }
    pieces.push('}')
  }

  write(value)
  return pieces.join('')
}

/** The field of an image's block that holds its base64 text, bare, in a data URL or in an object of its own. */
function withoutImage(field: Json | undefined, data: string): Json | undefined {
  if (typeof field === 'string') {
    const isImage = field.length - data.length <= MAX_HEAD && field.endsWith(data)
    return isImage ? field.slice(0, field.length - data.length) : field
  }
  if (typeof field !== 'object' || field === null || Array.isArray(field)) return field
  const entries = Object.entries(field as JsonObject).map(([name, inner]) => [name, withoutImage(inner, data)])
  return Object.fromEntries(entries)
}
