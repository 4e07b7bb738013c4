const QUOTE = 34
export const BACKSLASH = 92

/** Looking at the next bytes one by one keeps short strings cheap; searching keeps long ones cheap. */
const SHORT = 24

/**
 * Returns the index of the quote that ends a string, or the end of the text. Returns the negative index at which the search
 * goes on where `limit` comes first. Linear: each backslash is looked at once.
 */
export function closingQuote(bytes: Uint8Array, start: number, limit: number): number {
  const { length } = bytes
  let at = start
  while (at < length) {
    for (const near = Math.min(length, at + SHORT); at < near; at++) {
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

/** Returns how far the bytes are base64 of either alphabet, padding and backslashes of escaped signs included. */
export function endOfBase64(bytes: Uint8Array, start: number, end: number): number {
  let at = start
  while (at < end && BASE64[bytes[at] ?? 0] === 1) at++
  return at
}

/** Counts backslashes. */
export function countEscapes(bytes: Uint8Array): number {
  let count = 0
  for (let at = bytes.indexOf(BACKSLASH); at !== -1; at = bytes.indexOf(BACKSLASH, at + 1)) count++
  return count
}

/** Maximum bytes of a `data:` URL before its data. */
export const MAX_URL_START = 200

/** Returns where the data of a string begins: after `;base64,` in a `data:` URL. */
export function startOfBase64(bytes: Uint8Array, start: number): number {
  const prefix = latin1(bytes, start, start + MAX_URL_START)
  const end = prefix.startsWith('data:') ? prefix.indexOf(';base64,') : -1
  return end === -1 ? start : start + end + ';base64,'.length
}

const MODEL = [...'model'].map((letter) => letter.charCodeAt(0))
/** Every letter as `\uXXXX`. */
const MAX_ESCAPED_LENGTH = MODEL.length * 6

/** Distinguishes the key `model`, the same key written with escapes, and any other key. */
export function modelKey(bytes: Uint8Array, start: number, end: number): 'plain' | 'escaped' | 'another' {
  const length = end - start
  if (length < MODEL.length || length > MAX_ESCAPED_LENGTH) return 'another'
  if (length === MODEL.length && MODEL.every((byte, index) => bytes[start + index] === byte)) return 'plain'
  if (!holdsBackslash(bytes, start, end)) return 'another'
  const written = latin1(bytes, start, end)
  try {
    return JSON.parse(`"${written}"`) === 'model' ? 'escaped' : 'another'
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
