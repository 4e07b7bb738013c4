/** A JSON value. */
export type Json = string | number | boolean | null | readonly Json[] | JsonObject

/** A JSON object. An undefined field is equivalent to an absent field. */
export type JsonObject = { readonly [key: string]: Json | undefined }

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

export function parseJson(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json
  } catch {
    return undefined
  }
}

/** Returns undefined without parsing if the text does not begin as an object, because a failed parse takes long. */
export function parseObject(text: string): JsonObject | undefined {
  return !/^\s*\{/.test(text) || isTooDeep(text) ? undefined : asObject(parseJson(text))
}

export function asObject(value: unknown): JsonObject | undefined {
  return isJsonObject(value) ? value : undefined
}

export function asArray(value: Json | undefined): readonly Json[] {
  return Array.isArray(value) ? (value as readonly Json[]) : []
}

export function asString(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined
}

export function asCount(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0 ? Math.floor(value) : undefined
}

/** Lenient servers treat `MAX_TOKENS` and `maxTokens` as equal. */
export function normalizeName(name: string): string {
  return name
    .toUpperCase()
    .toLowerCase()
    .replace(/[\s_-]/g, '')
}

/** Serializing values that are nested much deeper exhausts the stack. */
const MAX_DEPTH = 128

const QUOTE = 34
const BACKSLASH = 92
const OPEN_BRACKET = 91
const CLOSE_BRACKET = 93
const OPEN_BRACE = 123
const CLOSE_BRACE = 125

export function isTooDeep(text: string): boolean {
  return text.length > 2 * MAX_DEPTH && readNesting({ depth: 0, isInString: false, isEscaped: false }, text) > MAX_DEPTH
}

export interface JsonNesting {
  depth: number
  isInString: boolean
  /** True if the last chunk ended with the backslash of an escape sequence. */
  isEscaped: boolean
}

/** Reads the next chunk of JSON. Returns the maximum depth within the chunk. */
export function readNesting(nesting: JsonNesting, text: string): number {
  let { depth } = nesting
  if (text === '') return depth
  let maxDepth = depth
  for (let index = nesting.isInString ? skipString(nesting, text, 0) + 1 : 0; index < text.length; index++) {
    const unit = text.charCodeAt(index)
    if (unit === QUOTE) index = skipString(nesting, text, index + 1)
    else if (unit === OPEN_BRACE || unit === OPEN_BRACKET) maxDepth = Math.max(maxDepth, ++depth)
    else if (unit === CLOSE_BRACE || unit === CLOSE_BRACKET) depth--
  }
  nesting.depth = depth
  return maxDepth
}

/** Returns the index of the closing quote, or the length of the chunk if the string continues in the next chunk. */
function skipString(nesting: JsonNesting, text: string, start: number): number {
  const first = nesting.isEscaped ? start + 1 : start
  // `indexOf` is faster than a loop over the characters.
  for (let quote = text.indexOf('"', first); quote !== -1; quote = text.indexOf('"', quote + 1)) {
    if (isEscapedAt(text, quote, first)) continue
    nesting.isInString = false
    nesting.isEscaped = false
    return quote
  }
  nesting.isInString = true
  nesting.isEscaped = isEscapedAt(text, text.length, first)
  return text.length
}

export function isEscapedAt(text: string, index: number, start: number): boolean {
  let runStart = index
  while (runStart > start && text.charCodeAt(runStart - 1) === BACKSLASH) runStart--
  return (index - runStart) % 2 === 1
}

/** For short strings, `indexOf` is slower. */
const SHORT_STRING_BYTES = 24

/** Returns the length if no quote follows, or the negative index at which to continue if `limit` is reached first. */
export function closingQuote(bytes: Uint8Array, start: number, limit: number): number {
  const { length } = bytes
  let index = start
  while (index < length) {
    for (const scanEnd = Math.min(length, index + SHORT_STRING_BYTES); index < scanEnd; index++) {
      const byte = bytes[index]
      if (byte === QUOTE) return index
      if (byte === BACKSLASH) index++
    }
    if (index >= limit) return index < length ? -index : length
    const quote = bytes.indexOf(QUOTE, index)
    if (quote === -1) return length
    let end = quote
    while (end > index && bytes[end - 1] === BACKSLASH) end--
    if ((quote - end) % 2 === 0) return quote
    index = quote + 1
  }
  return length
}

const IS_BASE64_BYTE: Uint8Array = Uint8Array.from({ length: 256 }, (_, byte) =>
  /[\w+/=\\-]/.test(String.fromCharCode(byte)) ? 1 : 0,
)

/** Accepts both alphabets, padding and backslashes. */
export function endOfBase64(bytes: Uint8Array, start: number, end: number): number {
  let index = start
  while (index < end && IS_BASE64_BYTE[bytes[index] ?? 0] === 1) index++
  return index
}

/** Each backslash in base64 data starts an escape. */
export function countEscapes(bytes: Uint8Array): number {
  let count = 0
  for (let index = bytes.indexOf(BACKSLASH); index !== -1; index = bytes.indexOf(BACKSLASH, index + 1)) count++
  return count
}

export const MAX_DATA_URL_PREFIX_BYTES = 200

export function startOfBase64(bytes: Uint8Array, start: number): number {
  const prefix = decodeLatin1(bytes, start, start + MAX_DATA_URL_PREFIX_BYTES)
  const end = prefix.startsWith('data:') ? prefix.indexOf(';base64,') : -1
  return end === -1 ? start : start + end + ';base64,'.length
}

function decodeLatin1(bytes: Uint8Array, start: number, end: number): string {
  return String.fromCharCode(...bytes.subarray(start, end))
}

const MODEL = Uint8Array.from('model', (letter) => letter.charCodeAt(0))
/** Length of the key `model` with every letter escaped as `\uXXXX`, in bytes. */
const MAX_ESCAPED_LENGTH = MODEL.length * 6

/** `escaped` is the key `model` written with escapes. */
export function modelKeyKind(bytes: Uint8Array, start: number, end: number): 'plain' | 'escaped' | 'other' {
  const length = end - start
  if (length < MODEL.length || length > MAX_ESCAPED_LENGTH) return 'other'
  let prefixLength = 0
  while (prefixLength < MODEL.length && bytes[start + prefixLength] === MODEL[prefixLength]) prefixLength++
  if (length === MODEL.length) return prefixLength === length ? 'plain' : 'other'
  let index = start + prefixLength
  while (index < end && bytes[index] !== BACKSLASH) index++
  if (index >= end) return 'other'
  try {
    return JSON.parse(`"${decodeLatin1(bytes, start, end)}"`) === 'model' ? 'escaped' : 'other'
  } catch {
    return 'other'
  }
}

/** Methods of Node's Buffer, which are faster than a TextDecoder. */
interface NodeBytes {
  utf8Slice(): string
  latin1Slice(): string
}

export function isNodeBytes(bytes: Uint8Array): bytes is Uint8Array & NodeBytes {
  return 'latin1Slice' in bytes
}

/**
 * Joins the pieces of a text, which V8 concatenates lazily. Otherwise, the garbage collector would copy each piece of a
 * stored text, and a later step would join those of a long one. Reading a character joins them.
 */
export function flatten(text: string): string {
  return text.charCodeAt(0) >= 0 ? text : ''
}
