import { isJsonObject, type Json, type JsonObject } from '../core/json.ts'
import type { MaybePromise } from '../core/async.ts'
import { bodyError, decodeUtf8, LARGE_BODY_BYTES, parseJsonText } from '../core/http.ts'
import type { ReceivedBody } from '../core/prompt.ts'
import type { Steps } from '../core/steps.ts'
import { scanJson, scanWithoutPauses, type JsonScan, type ParseLimits } from './scan-json.ts'
import { type FailureDetails, GatewayError } from '../core/errors.ts'

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
export function parseBody(received: Uint8Array, limits: ParseLimits = {}): ParsedBody {
  const bytes = withoutByteOrderMark(received)
  return parseWhole(scanWithoutPauses(bytes, limits), bytes, received.length)
}

/** Maximum size in bytes at which joining strings is faster than joining bytes. */
export const MAX_SPLICED_TEXT_BYTES: number = 64 * 1024

interface ParseRuntime {
  readonly pause: () => Promise<void>
  readonly uuid: () => string
}

const SMALL_BODY_BYTES = 16 * 1024

export function parseBodyInSteps(
  received: Uint8Array,
  limits: ParseLimits,
  runtime: ParseRuntime,
): MaybePromise<ParsedBody> {
  const bytes = withoutByteOrderMark(received)
  if (received.length <= SMALL_BODY_BYTES) return parseWhole(scanWithoutPauses(bytes, limits), bytes, received.length)
  const scanning = scanJson(bytes, limits)
  const first = scanning.next()
  if (first.done !== true)
    return parseAfterScan(finishInSteps(scanning, runtime.pause), bytes, received.length, runtime)
  if (needsParts(first.value, bytes)) return parseAfterScan(first.value, bytes, received.length, runtime)
  return parseWhole(first.value, bytes, received.length)
}

async function parseAfterScan(
  scanned: MaybePromise<JsonScan>,
  bytes: Uint8Array,
  size: number,
  { pause, uuid }: ParseRuntime,
): Promise<ParsedBody> {
  const scan = await scanned
  if (!needsParts(scan, bytes)) return parseWhole(scan, bytes, size)
  const { parseInSteps } = await import('./large-bodies.ts')
  const body = await finishInSteps(parseInSteps(bytes, scan, uuid()), pause)
  await pause()
  const parsed = createParsedBody(body, { scan, bytes, text: '', size })
  await pause()
  return parsed
}

function needsParts({ cuts }: JsonScan, bytes: Uint8Array): boolean {
  return bytes.length > LARGE_BODY_BYTES || cuts.length > 0
}

async function finishInSteps<Result>(steps: Steps<Result>, pause: () => Promise<void>): Promise<Result> {
  for (;;) {
    await pause()
    const result = steps.next()
    if (result.done === true) return result.value
  }
}

function parseWhole(scan: JsonScan, bytes: Uint8Array, size: number): ParsedBody {
  const text = decodeUtf8(bytes)
  return createParsedBody(parseJsonText(text, false), { scan, bytes, text, size })
}

interface ScannedBody {
  readonly scan: JsonScan
  readonly bytes: Uint8Array
  /** Empty for a body that is parsed in steps. */
  readonly text: string
  readonly size: number
}

function createParsedBody(body: unknown, { scan, bytes, text, size }: ScannedBody): ParsedBody {
  if (!isJsonObject(body)) {
    throw bodyError(`is ${Array.isArray(body) ? 'an array' : body === null ? 'null' : `a ${typeof body}`}`)
  }
  const { modelSpan, hasLongNumbers } = scan
  const maxSerializedBytes = size + scan.exponentCount * EXPONENT_GROWTH
  const hasRepeatedKeys = countKeys(body) !== scan.keyCount
  if (hasRepeatedKeys || modelSpan === undefined) return { body, hasRepeatedKeys, maxSerializedBytes }
  const isSplicedAsText = text.length === bytes.length && bytes.length <= MAX_SPLICED_TEXT_BYTES
  const received: ReceivedBody = { bytes, modelSpan, hasLongNumbers, ...(isSplicedAsText && { text }) }
  return { body, hasRepeatedKeys, maxSerializedBytes, received }
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

export function modelNameError(details: FailureDetails = {}): GatewayError {
  return new GatewayError(
    'invalid-request',
    'model is not a valid name; expected at most 200 letters, digits and the characters . _ : @ + - /, without the segments . and .. between slashes. Send a name such as <provider>/<model_id>.',
    { param: 'model', ...details },
  )
}

export function nameSet(names: string): ReadonlySet<string> {
  return new Set(names.split(' '))
}
