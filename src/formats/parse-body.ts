import { isJsonObject, type Json, type JsonObject } from '../core/json.ts'
import type { MaybePromise } from '../core/async.ts'
import { bodyError, decodeUtf8, joinBytes, LARGE_BODY_BYTES, parseJsonText } from '../core/http.ts'
import { type ReceivedBody, isSafeModelName } from '../core/prompt.ts'
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

export function jsonTextOf(received: Uint8Array, { body, hasRepeatedKeys }: ParsedBody): string {
  return hasRepeatedKeys ? JSON.stringify(body) : new TextDecoder().decode(received)
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

const encoder = new TextEncoder()
const OPEN_BRACE = 123
/** Maximum size in bytes at which joining strings is faster than joining bytes. */
export const MAX_SPLICED_TEXT_BYTES: number = 64 * 1024

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

const MAX_ECHO_LENGTH = 100

export function fieldError(param: string, value: Json | undefined, expected: string): GatewayError {
  return new GatewayError('invalid-request', `${param} is ${describeValue(value)}; expected ${expected}.`, { param })
}

function describeValue(value: Json | undefined): string {
  if (value === undefined) return 'missing'
  if (value === null) return 'null'
  if (Array.isArray(value)) return value.length === 0 ? 'an empty array' : 'an array'
  if (typeof value === 'object') return 'an object'
  if (typeof value !== 'string') return String(value)
  return value.length > MAX_ECHO_LENGTH ? `a string of ${value.length} characters` : JSON.stringify(value)
}

export function isAbsent(value: Json | undefined): value is null | undefined {
  return value === undefined || value === null
}

export function objectAt(value: Json | undefined, param: string, expected = 'an object'): JsonObject {
  if (isJsonObject(value)) return value
  throw fieldError(param, value, expected)
}

export function stringAt(value: Json | undefined, param: string, expected = 'a string'): string {
  if (typeof value === 'string') return value
  throw fieldError(param, value, expected)
}

export function arrayAt(value: Json | undefined, param: string, maxLength: number): readonly Json[] {
  if (!Array.isArray(value)) throw fieldError(param, value, `an array of at most ${maxLength} elements`)
  if (value.length <= maxLength) return value as readonly Json[]
  const message = `${param} has ${value.length} elements; expected at most ${maxLength}. Send fewer.`
  throw new GatewayError('invalid-request', message, { param })
}

export function booleanAt(value: Json | undefined, param: string): boolean | undefined {
  if (isAbsent(value)) return undefined
  if (typeof value === 'boolean') return value
  throw fieldError(param, value, 'true or false')
}

export interface NumberBounds {
  readonly min: number
  readonly max?: number
  readonly isInteger?: boolean
}

export function numberAt(value: Json | undefined, param: string, bounds: NumberBounds): number | undefined {
  if (isAbsent(value)) return undefined
  const { min, max = Number.MAX_VALUE, isInteger = false } = bounds
  const isInRange = typeof value === 'number' && value >= min && value <= max
  if (isInRange && (!isInteger || Number.isInteger(value))) return value
  throw fieldError(param, value, describeRange(bounds))
}

export function describeRange({ min, max, isInteger = false }: NumberBounds): string {
  return `${isInteger ? 'an integer' : 'a number'}${max === undefined ? ` of ${min} or more` : ` from ${min} to ${max}`}`
}

export function readModelName(value: Json | undefined): string {
  if (typeof value !== 'string' || value === '') throw fieldError('model', value, 'the name of a model')
  if (isSafeModelName(value)) return value
  throw modelNameError({ code: 'invalid_model' })
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

export function isUnset(value: Json | undefined): boolean {
  return isAbsent(value) || value === false || (Array.isArray(value) && value.length === 0)
}
