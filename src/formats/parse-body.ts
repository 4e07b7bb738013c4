import { GatewayError } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'
import type { Json, JsonObject } from '../core/json.ts'
import type { MaybePromise } from '../core/maybe-promise.ts'
import type { ReceivedBody } from '../core/prompt.ts'
import { scanJson, type ParseLimits } from './scan-json.ts'

export interface ParsedBody {
  readonly body: JsonObject
  /** The body's JSON text as received, without a byte order mark; serialized again where a key appears twice. */
  readonly text: string
  /** The body as received, without a byte order mark; absent where replacing its model alone is not safe. */
  readonly received?: ReceivedBody
  /** The most bytes that the body can take as UTF-8, as received or serialized again: `1e20` becomes 21 digits. */
  readonly bytes: number
}

/** The longest number that `JSON.stringify` writes has 25 characters; the shortest that grows has 3. */
const EXPONENT_GROWTH = 22

const LONGEST_REASON = 100

/**
 * Reads bytes of a caller as one JSON object. Throws `invalid-request`.
 *
 * The structure is counted in one linear pass before `JSON.parse`, which would take a depth of millions. Servers disagree
 * about a key that appears twice, so such a body leaves as this library understood it. A key `__proto__` is an own
 * property like any other.
 */
export function parseBody(bytes: Uint8Array, limits: ParseLimits = {}): ParsedBody {
  const steps = parseSteps(bytes, limits)
  for (;;) {
    const step = steps.next()
    if (step.done === true) return step.value
  }
}

/**
 * The same with a pause between its steps, in which the event loop serves others: a body of many megabytes does not block
 * them.
 */
export function parseBodyInTurns(
  bytes: Uint8Array,
  limits: ParseLimits,
  pause: () => Promise<void>,
): MaybePromise<ParsedBody> {
  const steps = parseSteps(bytes, limits)
  const first = steps.next()
  return first.done === true ? first.value : finishInTurns(steps, pause)
}

async function finishInTurns(steps: ReturnType<typeof parseSteps>, pause: () => Promise<void>): Promise<ParsedBody> {
  for (;;) {
    await pause()
    const step = steps.next()
    if (step.done === true) return step.value
  }
}

/** A body above one of these sizes yields between its steps, and is decoded in slices: characters beyond ASCII decode slowly. */
const LARGE = 1024 * 1024
const MANY_KEYS = 10_000
const DECODE_SLICE = 1024 * 1024

function* parseSteps(received: Uint8Array, limits: ParseLimits): Generator<void, ParsedBody, undefined> {
  const bytes = withoutMark(received)
  const { keys, exponents, modelSpan } = yield* scanJson(bytes, limits)
  const size = received.length + exponents * EXPONENT_GROWTH
  const isLarge = bytes.length > LARGE || keys > MANY_KEYS
  const text = yield* decode(bytes, isLarge ? DECODE_SLICE : bytes.length)
  if (isLarge) yield
  const body = parseObject(text)
  if (isLarge) yield
  if (countKeys(body) !== keys) return { body, text: JSON.stringify(body), bytes: size }
  if (modelSpan === undefined) return { body, text, bytes: size }
  const isAscii = text.length === bytes.length
  const spliced = isAscii && text.length <= MAX_SPLICED_TEXT ? { bytes, modelSpan, text } : { bytes, modelSpan }
  return { body, text, bytes: size, received: spliced }
}

const encoder = new TextEncoder()
const OPEN_BRACE = 123
/** Below this many characters joining pieces of text costs less than arrays of bytes. */
const MAX_SPLICED_TEXT = 64 * 1024

/** Returns the body with another model in its place, and with `added` fields right behind its opening brace. */
export function replaceModel(received: ReceivedBody, model: string, added: JsonObject = {}): string | Uint8Array {
  const { bytes, modelSpan, text } = received
  const inside = bytes.indexOf(OPEN_BRACE) + 1
  const fields = Object.keys(added).length === 0 ? '' : `${JSON.stringify(added).slice(1, -1)},`
  if (text !== undefined) {
    const before = text.slice(0, inside) + fields + text.slice(inside, modelSpan.start)
    return before + JSON.stringify(model) + text.slice(modelSpan.end)
  }
  const before = bytes.subarray(inside, modelSpan.start)
  return joined([
    bytes.subarray(0, inside),
    encoder.encode(fields),
    before,
    encoder.encode(JSON.stringify(model)),
    bytes.subarray(modelSpan.end),
  ])
}

function joined(pieces: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(pieces.reduce((size, piece) => size + piece.byteLength, 0))
  let at = 0
  for (const piece of pieces) {
    whole.set(piece, at)
    at += piece.byteLength
  }
  return whole
}

function withoutMark(bytes: Uint8Array): Uint8Array {
  return bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? bytes.subarray(3) : bytes
}

const REPLACEMENT = '\uFFFD'

/** Node's own conversion is several times faster than a decoder that checks, and writes U+FFFD where bytes are wrong. */
function* decode(bytes: Uint8Array, slice: number): Generator<void, string, undefined> {
  if (isNodeBytes(bytes) && bytes.length <= slice) {
    const text = bytes.utf8Slice()
    if (!text.includes(REPLACEMENT)) return text
  }
  return yield* decodeStrictly(bytes, slice)
}

/** The part of Node's Buffer that is used. */
interface NodeBytes {
  utf8Slice(): string
}

function isNodeBytes(bytes: Uint8Array): bytes is Uint8Array & NodeBytes {
  return 'utf8Slice' in bytes
}

function* decodeStrictly(bytes: Uint8Array, slice: number): Generator<void, string, undefined> {
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
  let text = ''
  try {
    for (let start = 0; start < bytes.length; start += slice) {
      const end = start + slice
      text += decoder.decode(bytes.subarray(start, end), { stream: end < bytes.length })
      if (end < bytes.length) yield
    }
  } catch {
    throw new GatewayError('invalid-request', 'The request body is not valid UTF-8. Send JSON encoded as UTF-8.')
  }
  // Reading one character joins the pieces here instead of within JSON.parse, which blocks for long enough by itself.
  text.charCodeAt(0)
  return text
}

function parseObject(text: string): JsonObject {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    if (text.trim() === '') throw refused('is empty')
    const reason = error instanceof Error ? error.message.slice(0, LONGEST_REASON) : 'it cannot be parsed'
    throw refused(`is not valid JSON: ${reason}`)
  }
  if (isJsonObject(value)) return value
  throw refused(`is ${Array.isArray(value) ? 'an array' : value === null ? 'null' : `a ${typeof value}`}`)
}

function refused(reason: string): GatewayError {
  return new GatewayError('invalid-request', `The request body ${reason}. Send one JSON object.`)
}

/** Fewer than were scanned: some object has the same key twice. */
function countKeys(value: Json | undefined): number {
  if (typeof value !== 'object' || value === null) return 0
  let keys = 0
  if (Array.isArray(value)) {
    for (const item of value as readonly Json[]) keys += countKeys(item)
    return keys
  }
  const fields = value as JsonObject
  for (const name in fields) keys += 1 + countKeys(fields[name])
  return keys
}
