import { isNodeBytes } from '../core/answer.ts'
import { decodeUtf8, parseText, utf8Decoder } from './fields.ts'
import { MAX_URL_START_BYTES } from '../core/json.ts'
import type { LongString, Steps } from './scan-json.ts'

const STEP_BYTES = 1024 * 1024

export interface LongStrings {
  /** Long values in ascending order. */
  readonly strings: readonly LongString[]
  /** A random prefix, which prevents callers from sending a placeholder. */
  readonly placeholder: string
}

/**
 * Parses JSON of several megabytes. `JSON.parse` would block the event loop for several milliseconds per megabyte. Long
 * strings are replaced with placeholders and parsed in separate steps. Throws `invalid-request`.
 */
export function* parseInSteps(bytes: Uint8Array, { strings, placeholder }: LongStrings): Steps<unknown> {
  let outline = ''
  let at = 0
  for (const [index, { start, end }] of strings.entries()) {
    outline += `${yield* decodeInSteps(bytes.subarray(at, start))}${placeholder}${index}`
    at = end
  }
  outline += yield* decodeInSteps(bytes.subarray(at))
  yield
  const value = parseText(outline)
  const parsed = yield* parseStrings(bytes, strings)
  restore(value, placeholder, parsed)
  return value
}

function* parseStrings(bytes: Uint8Array, strings: readonly LongString[]): Steps<readonly string[]> {
  const parsed: string[] = []
  let stepBytes = STEP_BYTES
  for (const { start, end, isBase64 } of strings) {
    if (stepBytes >= STEP_BYTES) {
      yield
      stepBytes = 0
    }
    stepBytes += end - start
    const string = bytes.subarray(start, end)
    parsed.push(yield* isBase64 ? parseBase64(string) : parseString(string))
  }
  return parsed
}

/** Matches characters that a JSON string must escape, and the backslash. */
// oxlint-disable-next-line no-control-regex -- JSON strings must escape them
const UNPLAIN = /[\0-\x1f\\]/

/** Parses base64 without escapes, after an optional `data:` prefix. */
function* parseBase64(bytes: Uint8Array): Steps<string> {
  const isPlain = /^[ -[\]-~]*$/.test(decodeUtf8(bytes.subarray(0, MAX_URL_START_BYTES)))
  if (!isPlain) return yield* parseString(bytes)
  return isNodeBytes(bytes) ? bytes.latin1Slice() : decodeUtf8(bytes)
}

function* parseString(bytes: Uint8Array): Steps<string> {
  const decode = utf8Decoder()
  let string = ''
  for (let at = 0; at < bytes.length;) {
    if (at > 0) yield
    const end = endOfEscapes(bytes, at, Math.min(at + STEP_BYTES, bytes.length))
    const piece = decode(bytes.subarray(at, end), end < bytes.length)
    string += UNPLAIN.test(piece) ? parseText(`"${piece}"`) : piece
    at = end
  }
  return joinPieces(string)
}

/** Replaces placeholders with the long strings that they represent. */
function restore(value: unknown, placeholder: string, parsed: readonly string[]): void {
  if (typeof value !== 'object' || value === null) return
  const fields = value as Record<string, unknown>
  for (const name in fields) {
    const field = fields[name]
    if (typeof field !== 'string') restore(field, placeholder, parsed)
    else if (field.startsWith(placeholder)) fields[name] = parsed[Number(field.slice(placeholder.length))]
  }
}

function* decodeInSteps(bytes: Uint8Array): Steps<string> {
  if (bytes.length <= STEP_BYTES) return decodeUtf8(bytes)
  const decode = utf8Decoder()
  let text = ''
  for (let at = 0; at < bytes.length; at += STEP_BYTES) {
    yield
    text += decode(bytes.subarray(at, at + STEP_BYTES), at + STEP_BYTES < bytes.length)
  }
  return joinPieces(text)
}

/** Forces the engine to join the pieces of a concatenated string in this step, instead of in a longer later step. */
function joinPieces(text: string): string {
  text.charCodeAt(0)
  return text
}

const BACKSLASH = 92
const LETTER_U = 117

/** Returns `limit`, or the end of an escape sequence that crosses it. `start` must not be inside an escape. */
function endOfEscapes(bytes: Uint8Array, start: number, limit: number): number {
  const before = bytes.subarray(start, limit)
  let at = 0
  while (at < before.length) {
    const escape = before.indexOf(BACKSLASH, at)
    if (escape === -1) return limit
    at = escape + (bytes[start + escape + 1] === LETTER_U ? 6 : 2)
  }
  return start + at
}
