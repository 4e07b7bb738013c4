import { isJsonObject, type Json, type JsonObject } from '../core/json.ts'
import type { MaybePromise } from '../core/async.ts'
import { joinBytes, LARGE_BODY_BYTES } from '../core/http.ts'
import type { ReceivedBody } from '../core/prompt.ts'
import { bodyError, decodeUtf8, parseJsonText } from './fields.ts'
import { scanJson, scanSmallJson, type JsonScan, type LongString, type ParseLimits, type Steps } from './scan-json.ts'

export interface ParsedBody {
  readonly body: JsonObject
  /** If true, the body is serialized again, because servers differ in which of the values they use. */
  readonly hasRepeatedKeys: boolean
  /** Absent if the body must be serialized again. */
  readonly received?: ReceivedBody
  /** Maximum size of the body in bytes if it is serialized again. Numbers can grow: `1e20` becomes 21 digits. */
  readonly maxSerializedBytes: number
}

/** `JSON.stringify` writes at most 25 bytes for a number, and a number that grows has at least 3. */
const EXPONENT_GROWTH = 22

/** The structure is checked before `JSON.parse`, which accepts nesting depths in the millions. */
export function parseBody(bytes: Uint8Array, limits: ParseLimits = {}): ParsedBody {
  if (bytes.length <= SMALL_BODY_BYTES) return parseSmallBody(bytes, limits)
  const steps = parseSteps(bytes, limits)
  for (;;) {
    const result = steps.next()
    if (result.done === true) return result.value
  }
}

interface ParseRuntime {
  readonly pause: () => Promise<void>
  readonly uuid: () => string
}

export function parseBodyInSteps(
  bytes: Uint8Array,
  limits: ParseLimits,
  runtime: ParseRuntime,
): MaybePromise<ParsedBody> {
  if (bytes.length <= SMALL_BODY_BYTES) return parseSmallBody(bytes, limits)
  if (bytes.length > LARGE_BODY_BYTES) return parseLargeBody(bytes, limits, runtime)
  const steps = parseSteps(bytes, limits)
  const first = steps.next()
  return first.done === true ? first.value : finishInSteps(steps, runtime.pause)
}

async function parseLargeBody(
  bytes: Uint8Array,
  limits: ParseLimits,
  { pause, uuid }: ParseRuntime,
): Promise<ParsedBody> {
  const { parseInSteps } = await import('./large-bodies.ts')
  const parse: LargeBodyParser = (body, strings) => parseInSteps(body, strings, uuid())
  return finishInSteps(parseSteps(bytes, limits, parse), pause)
}

async function finishInSteps(steps: Steps<ParsedBody>, pause: () => Promise<void>): Promise<ParsedBody> {
  for (;;) {
    await pause()
    const result = steps.next()
    if (result.done === true) return result.value
  }
}

export function jsonTextOf(received: Uint8Array, { body, hasRepeatedKeys }: ParsedBody): string {
  return hasRepeatedKeys ? JSON.stringify(body) : new TextDecoder().decode(received)
}

type LargeBodyParser = (bytes: Uint8Array, strings: readonly LongString[]) => Steps<unknown>

const SMALL_BODY_BYTES = 16 * 1024

function parseSmallBody(received: Uint8Array, limits: ParseLimits): ParsedBody {
  const bytes = withoutByteOrderMark(received)
  const scan = scanSmallJson(bytes, limits)
  const text = decodeUtf8(bytes)
  return createParsedBody(parseJsonText(text, false), { scan, bytes, text, size: received.length })
}

const MAX_UNPAUSED_KEYS = 10_000

function* parseSteps(received: Uint8Array, limits: ParseLimits, parseLarge?: LargeBodyParser): Steps<ParsedBody> {
  const bytes = withoutByteOrderMark(received)
  const scan = yield* scanJson(bytes, limits)
  const needsPauses = bytes.length > LARGE_BODY_BYTES || scan.keyCount > MAX_UNPAUSED_KEYS
  if (needsPauses) yield
  const text = parseLarge === undefined ? decodeUtf8(bytes) : ''
  const body = parseLarge === undefined ? parseJsonText(text, false) : yield* parseLarge(bytes, scan.longStrings)
  if (needsPauses) yield
  return createParsedBody(body, { scan, bytes, text, size: received.length })
}

interface ScannedBody {
  readonly scan: JsonScan
  readonly bytes: Uint8Array
  /** Empty for a large body that is parsed in steps. */
  readonly text: string
  readonly size: number
}

function createParsedBody(body: unknown, { scan, bytes, text, size }: ScannedBody): ParsedBody {
  if (!isJsonObject(body)) {
    throw bodyError(`is ${Array.isArray(body) ? 'an array' : body === null ? 'null' : `a ${typeof body}`}`)
  }
  const { modelSpan } = scan
  const maxSerializedBytes = size + scan.exponentCount * EXPONENT_GROWTH
  const hasRepeatedKeys = countKeys(body) !== scan.keyCount
  if (hasRepeatedKeys || modelSpan === undefined) return { body, hasRepeatedKeys, maxSerializedBytes }
  const isSplicedAsText = text.length === bytes.length && bytes.length <= MAX_SPLICED_TEXT_BYTES
  const received = isSplicedAsText ? { bytes, modelSpan, text } : { bytes, modelSpan }
  return { body, hasRepeatedKeys, maxSerializedBytes, received }
}

const encoder = new TextEncoder()
const OPEN_BRACE = 123
/** Maximum size in bytes at which joining strings is faster than joining bytes. */
const MAX_SPLICED_TEXT_BYTES = 64 * 1024

export function replaceModel(received: ReceivedBody, model: string, addedFields: JsonObject = {}): string | Uint8Array {
  const { bytes, modelSpan, text } = received
  const fieldsStart = bytes.indexOf(OPEN_BRACE) + 1
  const fields = Object.keys(addedFields).length === 0 ? '' : `${JSON.stringify(addedFields).slice(1, -1)},`
  if (text !== undefined) {
    const start = text.slice(0, fieldsStart) + fields + text.slice(fieldsStart, modelSpan.start)
    return start + JSON.stringify(model) + text.slice(modelSpan.end)
  }
  return joinBytes([
    bytes.subarray(0, fieldsStart),
    encoder.encode(fields),
    bytes.subarray(fieldsStart, modelSpan.start),
    encoder.encode(JSON.stringify(model)),
    bytes.subarray(modelSpan.end),
  ])
}

function withoutByteOrderMark(bytes: Uint8Array): Uint8Array {
  return bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? bytes.subarray(3) : bytes
}

/** If an object repeats a key, this count is lower than the number of keys in the JSON. */
function countKeys(value: Json | undefined): number {
  if (typeof value !== 'object' || value === null) return 0
  let keys = 0
  if (Array.isArray(value)) {
    for (const element of value as readonly Json[]) keys += countKeys(element)
    return keys
  }
  const fields = value as JsonObject
  for (const name in fields) keys += 1 + countKeys(fields[name])
  return keys
}
