import { asArray, isJsonObject, type Json, type JsonObject } from '../core/json.ts'
import type { Model } from '../core/ports.ts'
import type { Part, Prompt } from '../core/prompt.ts'

/** Quantities for computing upper bounds on a prompt's tokens without a tokenizer. */
export interface PromptWeight {
  /** UTF-8 bytes of the body, without base64 images. A string never has more tokens than bytes. */
  readonly bytes: number
  readonly images: number
  /** Tokens that a vendor adds to the request, messages and tools, such as role markers. */
  readonly overhead: number
  /** Maximum number of tokens that a translation to another format adds. */
  readonly translation: number
}

/** Tokens that a vendor adds per request, message and tool. Some vendors add a line of text per request. */
const REQUEST_OVERHEAD = 64
const MESSAGE_OVERHEAD = 8
const TOOL_OVERHEAD = 16
const TOOL_INSTRUCTION_OVERHEAD = 1000
/**
 * Maximum number of tokens per image among the catalog's vendors. Models with a higher maximum set `Model.imageTokens`.
 */
const MAX_IMAGE_TOKENS = 9600
/** Tokens of braces, quotes and field names that another format adds to a part, a tool and the request. */
const TRANSLATED_PART_TOKENS = 32
const TRANSLATED_TOOL_TOKENS = 32
const TRANSLATED_REQUEST_TOKENS = 32
/** Tokens of an instruction that replaces a setting without an equivalent in the other format. */
const TRANSLATED_SHAPE_TOKENS = 128
const CUSTOM_TOOL_TOKENS = 160
/**
 * Maximum growth of decoded base64. Every 4 characters encode 3 bytes, and an invalid byte becomes a 3-byte character.
 */
const DECODED_GROWTH = 1.25
/** Maximum growth of a number with an exponent, in bytes. Such a number becomes at most 25 characters. */
const EXPONENT_GROWTH = 22
/**
 * Maximum growth per character of a call's name or id, in bytes. A translation writes it up to three times, with escapes
 * of 6 bytes.
 */
const NAME_GROWTH = 18

interface MutableWeight {
  bytes: number
  images: number
  translation: number
}

/** `bytes` is the size of the body. Reads the arguments of tool calls, but only the lengths of other strings. */
export function weighPrompt(prompt: Prompt, bytes: number): PromptWeight {
  const weight = { bytes, images: 0, overhead: REQUEST_OVERHEAD, translation: 0 }
  for (const message of prompt.messages) {
    weight.overhead += MESSAGE_OVERHEAD
    for (const part of message.parts) weighPart(part, weight)
  }
  if (prompt.tools.length > 0) weight.overhead += TOOL_INSTRUCTION_OVERHEAD
  weight.overhead += prompt.tools.length * TOOL_OVERHEAD
  weight.translation += TRANSLATED_REQUEST_TOKENS + prompt.tools.length * TRANSLATED_TOOL_TOKENS
  if (prompt.settings.shape?.type === 'json') weight.translation += TRANSLATED_SHAPE_TOKENS
  for (const { parameters, native } of prompt.tools) if (parameters === undefined) weighTool(native.value, weight, 0)
  return weight
}

/**
 * Adds the weight of a tool that is not a function, and of the tools in a group. Their translated names start with the
 * group's name.
 */
function weighTool(tool: JsonObject, weight: MutableWeight, groupNameLength: number): void {
  weight.translation += CUSTOM_TOOL_TOKENS + groupNameLength
  const nameLength = typeof tool['name'] === 'string' ? tool['name'].length : 0
  for (const nested of asArray(tool['tools'])) if (isJsonObject(nested)) weighTool(nested, weight, nameLength)
}

/** A custom call is translated to a function call with one JSON argument. */
function weighOpaque({ input, namespace, ...item }: JsonObject, weight: MutableWeight): void {
  if (typeof input === 'string') weight.translation += translatedInputGrowth(input)
  if (typeof namespace === 'string') weight.translation += namespace.length
  for (const tool of asArray(item['tools'])) if (isJsonObject(tool)) weighTool(tool, weight, 0)
}

function weighPart(part: Part, weight: MutableWeight): void {
  weight.translation += TRANSLATED_PART_TOKENS
  switch (part.type) {
    case 'image': {
      const data = imageData(part)
      if (data === undefined) return
      weight.images++
      weight.bytes -= data.length
      return
    }
    case 'document':
      if (part.source.type === 'base64' && part.source.mediaType.startsWith('text/')) {
        weight.bytes += Math.ceil(part.source.data.length * DECODED_GROWTH)
      }
      return
    case 'opaque':
      return weighOpaque(part.native.value, weight)
    case 'tool-call':
      if (typeof part.native?.value['namespace'] === 'string') {
        weight.translation += part.native.value['namespace'].length
      }
      weight.translation += translatedInputGrowth(part.input) + NAME_GROWTH * (part.name.length + part.id.length)
      return
    case 'tool-result':
      weight.translation += NAME_GROWTH * part.callId.length
      for (const nested of part.content) weighPart(nested, weight)
      return
    default:
  }
}

/** Returns the maximum number of bytes that a translation adds to a call's arguments, which it may escape. */
function translatedInputGrowth(input: string): number {
  let growth = input.length
  for (const _ of input.matchAll(/\d[eE]/g)) growth += EXPONENT_GROWTH
  return growth
}

/** Returns undefined unless the source is a base64 image. */
function imageData(part: Extract<Part, { readonly type: 'image' }>): string | undefined {
  const { source } = part
  return source.type === 'base64' && source.mediaType.startsWith('image/') ? source.data : undefined
}

export function boundByBytes(weight: PromptWeight, model: Model, isTranslated: boolean): number {
  const bytes = weight.bytes + (isTranslated ? weight.translation : 0)
  return bytes + tokensOutsideText(weight, model)
}

/** Returns the tokens of images and of the vendor's additions, which an exact count of the text does not include. */
export function tokensOutsideText({ overhead, images }: PromptWeight, model: Model): number {
  return overhead + images * (model.imageTokens ?? MAX_IMAGE_TOKENS)
}

/** Returns the upstream's context window, which limits the prompt and the answer together. */
export function contextWindowOf(model: Model): number {
  return model.upstreamWindow ?? model.contextWindow
}

/** A lone surrogate counts as 3 bytes. */
export function utf8Length(text: string): number {
  let bytes = text.length
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index)
    if (code < 0x80) continue
    bytes += code < 0x800 ? 1 : 2
    const isPair = code >= 0xd800 && code < 0xdc00 && (text.charCodeAt(index + 1) & 0xfc00) === 0xdc00
    if (isPair) index++
  }
  return bytes
}

const MAX_DATA_URL_PREFIX_LENGTH = 200

/**
 * Yields the body's text for a tokenizer, one string for each element of a top-level list. Strings are unescaped, as in
 * vendors' prompt templates, and base64 images are omitted.
 */
export function* textsOfBody(prompt: Prompt): Generator<string> {
  const images = imageBlocks(prompt)
  for (const [name, value] of Object.entries(prompt.native.value)) {
    if (!Array.isArray(value)) yield toUnescapedText({ [name]: value }, images)
    else for (const element of value as readonly Json[]) yield toUnescapedText(element, images)
  }
}

function toUnescapedText(value: Json | undefined, images: ReadonlyMap<JsonObject, string>): string {
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
      write(data === undefined ? field : removeImage(field, data))
      pieces.push(',')
    }
    pieces.push('}')
  }

  write(value)
  return pieces.join('')
}

/**
 * Removes base64 data from a field of an image block. The data may be the value itself, part of a data URL, or nested
 * in an object.
 */
function removeImage(field: Json | undefined, data: string): Json | undefined {
  if (typeof field === 'string') {
    const isImage = field.length - data.length <= MAX_DATA_URL_PREFIX_LENGTH && field.endsWith(data)
    return isImage ? field.slice(0, field.length - data.length) : field
  }
  if (typeof field !== 'object' || field === null || Array.isArray(field)) return field
  const entries = Object.entries(field as JsonObject).map(([name, nested]) => [name, removeImage(nested, data)])
  return Object.fromEntries(entries)
}

function imageBlocks(prompt: Prompt): ReadonlyMap<JsonObject, string> {
  const blocks = new Map<JsonObject, string>()
  const visit = (part: Part): void => {
    if (part.type === 'tool-result') part.content.forEach(visit)
    if (part.type !== 'image' || part.native === undefined) return
    const data = imageData(part)
    if (data !== undefined) blocks.set(part.native.value, data)
  }
  for (const message of prompt.messages) message.parts.forEach(visit)
  return blocks
}
