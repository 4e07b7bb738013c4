import { GatewayError } from '../core/errors.ts'
import { endOfEscapes, MAX_URL_START } from './json-strings.ts'
import type { LongString } from './scan-json.ts'

/** Work in steps of about a millisecond; the event loop serves others in between. */
export type Steps<value> = Generator<void, value, undefined>

/** Bytes that one step decodes or parses. */
const STEP_BYTES = 1024 * 1024
const MAX_REASON = 100
const REPLACEMENT = '\uFFFD'

export interface LongStrings {
  /** In their order. None is a key. */
  readonly strings: readonly LongString[]
  /** The beginning of the strings that take their places. It is random, so that no caller can write it. */
  readonly placeholder: string
}

/**
 * Parses JSON text of many megabytes. `JSON.parse` blocks for milliseconds per megabyte and cannot be divided, so it is given
 * the text with placeholders for long strings, which are parsed in steps of their own. Throws `invalid-request`.
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
  const value = parseJson(outline)
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
    parsed.push(
      isBase64 && isPlain(string.subarray(0, MAX_URL_START)) ? decodeUtf8(string) : yield* parseString(string),
    )
  }
  return parsed
}

/** Characters that a JSON string does not hold as they are, and the beginning of an escape. */
// oxlint-disable-next-line no-control-regex -- these are the ones
const UNPLAIN = /[\0-\x1f\\]/

function isPlain(bytes: Uint8Array): boolean {
  return !UNPLAIN.test(decodeUtf8(bytes))
}

function* parseString(bytes: Uint8Array): Steps<string> {
  const decode = decoder()
  let string = ''
  for (let at = 0; at < bytes.length;) {
    if (at > 0) yield
    const end = endOfEscapes(bytes, at, Math.min(at + STEP_BYTES, bytes.length))
    const piece = decode(bytes.subarray(at, end), end < bytes.length)
    string += UNPLAIN.test(piece) ? parseJson(`"${piece}"`) : piece
    at = end
  }
  return joinPieces(string)
}

/** Puts each long string in the place of its placeholder. */
function restore(value: unknown, placeholder: string, parsed: readonly string[]): void {
  if (typeof value !== 'object' || value === null) return
  const fields = value as Record<string, unknown>
  for (const name in fields) {
    const field = fields[name]
    if (typeof field !== 'string') restore(field, placeholder, parsed)
    else if (field.startsWith(placeholder)) fields[name] = parsed[Number(field.slice(placeholder.length))]
  }
}

/** Throws `invalid-request`. A part of a text is named by its reason alone, since positions within it mislead. */
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

/** Throws `invalid-request`. */
export function decodeUtf8(bytes: Uint8Array): string {
  // Node's own conversion is several times faster than a decoder that checks, and writes U+FFFD where bytes are wrong.
  const text = isNodeBytes(bytes) ? bytes.utf8Slice() : REPLACEMENT
  return text.includes(REPLACEMENT) ? decoder()(bytes, false) : text
}

function* decodeInSteps(bytes: Uint8Array): Steps<string> {
  if (bytes.length <= STEP_BYTES) return decodeUtf8(bytes)
  const decode = decoder()
  let text = ''
  for (let at = 0; at < bytes.length; at += STEP_BYTES) {
    yield
    text += decode(bytes.subarray(at, at + STEP_BYTES), at + STEP_BYTES < bytes.length)
  }
  return joinPieces(text)
}

/** Reading a character joins the pieces of a string here, instead of in a longer step that uses it. */
function joinPieces(text: string): string {
  text.charCodeAt(0)
  return text
}

function decoder(): (bytes: Uint8Array, hasMore: boolean) => string {
  const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
  return (bytes, hasMore) => {
    try {
      return utf8.decode(bytes, { stream: hasMore })
    } catch {
      throw new GatewayError('invalid-request', 'The request body is not valid UTF-8. Send JSON encoded as UTF-8.')
    }
  }
}

/** The part of Node's Buffer that is used. */
interface NodeBytes {
  utf8Slice(): string
}

function isNodeBytes(bytes: Uint8Array): bytes is Uint8Array & NodeBytes {
  return 'utf8Slice' in bytes
}
