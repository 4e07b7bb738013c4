import { GatewayError } from '../core/errors.ts'

/** Work divided into steps of about a millisecond. The caller yields to the event loop between steps. */
export type Steps<value> = Generator<void, value, undefined>

const MAX_REASON = 100
const REPLACEMENT = '\uFFFD'

/** Parses JSON or throws `invalid-request`. The message for a part of a text omits positions, which would be wrong. */
export function parseJson(text: string, isPart = true): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    if (text.trim() === '') throw notAnObject('is empty')
    const reason = error instanceof Error ? error.message.slice(0, MAX_REASON) : 'it cannot be parsed'
    throw notAnObject(`is not valid JSON: ${isPart ? reason.replace(/ at position \d.*/s, '') : reason}`)
  }
}

export function notAnObject(reason: string): GatewayError {
  return new GatewayError('invalid-request', `The request body ${reason}. Send one JSON object.`)
}

/** Decodes UTF-8 or throws `invalid-request`. */
export function decodeUtf8(bytes: Uint8Array): string {
  // Node's conversion is several times faster than a strict decoder, but replaces invalid bytes with U+FFFD.
  const text = isNodeBytes(bytes) ? bytes.utf8Slice() : REPLACEMENT
  return text.includes(REPLACEMENT) ? decoder()(bytes, false) : text
}

/** Returns a strict decoder of consecutive pieces, which throws `invalid-request`. */
export function decoder(): (bytes: Uint8Array, hasMore: boolean) => string {
  const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
  return (bytes, hasMore) => {
    try {
      return utf8.decode(bytes, { stream: hasMore })
    } catch {
      throw new GatewayError('invalid-request', 'The request body is not valid UTF-8. Send JSON encoded as UTF-8.')
    }
  }
}

/** Methods of Node's Buffer. */
interface NodeBytes {
  utf8Slice(): string
  latin1Slice(): string
}

export function isNodeBytes(bytes: Uint8Array): bytes is Uint8Array & NodeBytes {
  return 'utf8Slice' in bytes
}

const QUOTE = 34
export const BACKSLASH = 92

/** Number of bytes that are compared one by one before `indexOf`, which is slower for short strings. */
const SHORT_BYTES = 24

/**
 * Returns the index of the quote that ends a string, or the end of the text. When `limit` is reached first, returns the
 * negative index at which the search continues. Linear: each backslash is read once.
 */
export function closingQuote(bytes: Uint8Array, start: number, limit: number): number {
  const { length } = bytes
  let at = start
  while (at < length) {
    for (const near = Math.min(length, at + SHORT_BYTES); at < near; at++) {
      const byte = bytes[at]
      if (byte === QUOTE) return at
      if (byte === BACKSLASH) at++
    }
    if (at >= limit) return at < length ? -at : length
    const quote = bytes.indexOf(QUOTE, at)
    if (quote === -1) return length
    if (backslashesBefore(bytes, quote, at) % 2 === 0) return quote
    at = quote + 1
  }
  return length
}

function backslashesBefore(bytes: Uint8Array, end: number, start: number): number {
  let at = end
  while (at > start && bytes[at - 1] === BACKSLASH) at--
  return end - at
}

const BASE64: Uint8Array = Uint8Array.from({ length: 256 }, (_, byte) =>
  /[\w+/=\\-]/.test(String.fromCharCode(byte)) ? 1 : 0,
)

/** Returns the end of base64 data of either alphabet, including padding and backslashes of escaped characters. */
export function endOfBase64(bytes: Uint8Array, start: number, end: number): number {
  let at = start
  while (at < end && BASE64[bytes[at] ?? 0] === 1) at++
  return at
}

export function countEscapes(bytes: Uint8Array): number {
  let count = 0
  for (let at = bytes.indexOf(BACKSLASH); at !== -1; at = bytes.indexOf(BACKSLASH, at + 1)) count++
  return count
}

/** Maximum bytes of a `data:` URL before its data. */
export const MAX_URL_START = 200

/** Returns the start of the data in a string: after `;base64,` in a `data:` URL. */
export function startOfBase64(bytes: Uint8Array, start: number): number {
  const prefix = latin1(bytes, start, start + MAX_URL_START)
  const end = prefix.startsWith('data:') ? prefix.indexOf(';base64,') : -1
  return end === -1 ? start : start + end + ';base64,'.length
}

const MODEL = [...'model'].map((letter) => letter.charCodeAt(0))
/** Length of the key with every letter escaped as `\uXXXX`. */
const MAX_ESCAPED_LENGTH = MODEL.length * 6

/** Distinguishes the key `model`, the same key written with escapes, and any other key. */
export function modelKey(bytes: Uint8Array, start: number, end: number): 'plain' | 'escaped' | 'another' {
  const length = end - start
  if (length < MODEL.length || length > MAX_ESCAPED_LENGTH) return 'another'
  if (length === MODEL.length && MODEL.every((byte, index) => bytes[start + index] === byte)) return 'plain'
  if (!holdsBackslash(bytes, start, end)) return 'another'
  const escaped = latin1(bytes, start, end)
  try {
    return JSON.parse(`"${escaped}"`) === 'model' ? 'escaped' : 'another'
  } catch {
    return 'another'
  }
}

function holdsBackslash(bytes: Uint8Array, start: number, end: number): boolean {
  for (let at = start; at < end; at++) if (bytes[at] === BACKSLASH) return true
  return false
}

function latin1(bytes: Uint8Array, start: number, end: number): string {
  return String.fromCharCode(...bytes.subarray(start, end))
}
