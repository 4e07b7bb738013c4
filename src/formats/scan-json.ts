import { GatewayError } from '../core/errors.ts'
import { LARGE_BODY_BYTES } from '../core/http.ts'
import type { Span } from '../core/prompt.ts'
import type { Steps } from '../core/steps.ts'
import { closingQuote, countEscapes, endOfBase64, modelKeyKind, startOfBase64 } from '../core/json.ts'

/** Limits on a JSON body. They bound how long `JSON.parse` blocks the event loop. */
export interface ParseLimits {
  readonly depth?: number
  /** Maximum number of keys and array elements, except numbers in arrays. */
  readonly keys?: number
  /** Maximum number of keys of one object. V8 takes longest for objects with many keys. */
  readonly objectKeys?: number
  /** Maximum number of numbers in arrays. Integers of up to 9 digits count once, others four times. */
  readonly numbers?: number
  /** Maximum number of bytes outside strings. */
  readonly syntaxBytes?: number
  /** Maximum number of bytes in strings, except long strings of base64. */
  readonly textBytes?: number
}

export interface JsonScan {
  readonly keyCount: number
  readonly exponentCount: number
  /** True if a number has more digits than `JSON.parse` keeps, or an exponent. */
  readonly hasLongNumbers: boolean
  /** The string value of the top-level `model` with its quotes, if the key appears exactly once, without escapes. */
  readonly modelSpan: Span | undefined
  /** Strings of 4 KiB or more that are not keys. Empty unless the body is large. */
  readonly longStrings: readonly LongString[]
  /** Commas between parts of about 8,000 keys and array elements each. */
  readonly cuts: readonly JsonCut[]
}

/** A comma inside an object or array. */
export interface JsonCut {
  readonly position: number
  /** The number of containers that have been open since the previous cut. */
  readonly keptDepth: number
  /** For each open container from the outermost one: the last key of an object, or undefined for an array. */
  readonly path: readonly (Span | undefined)[]
}

/** A byte range between quotes. */
export interface LongString extends Span {
  /** True only for base64 without escapes, after an optional `data:` prefix. */
  readonly isBase64: boolean
}

interface Container {
  isArray: boolean
  keyCount: number
  keyStart: number
  keyEnd: number
}

class ScanState implements JsonScan {
  readonly bytes: Uint8Array
  readonly limits: Required<ParseLimits>
  readonly keysPerPart: number
  /** The containers up to the largest depth so far. Those beyond `depth` are closed. */
  readonly containers: Container[] = []
  readonly longStrings: LongString[] = []
  readonly cuts: JsonCut[] = []
  position = 0
  depth = 0
  /** The smallest depth since the last cut. */
  keptDepth = 0
  uncutCount = 0
  keyCount = 0
  elementCount = 0
  numberCount = 0
  exponentCount = 0
  hasLongNumbers = false
  stringBytes = 0
  textBytes = 0
  stringStart = 0
  stringEnd = 0
  isInString = false
  /** Number of backslashes in the current string. Counted only while the string may be base64. */
  escapeCount = 0
  modelCount = 0
  isModelNext = false
  modelSpan: Span | undefined = undefined

  constructor(bytes: Uint8Array, limits: ParseLimits, keysPerPart: number) {
    const { depth = 64, keys = 100_000, objectKeys = 10_000, numbers = 500_000 } = limits
    const { syntaxBytes = 4 * 1024 * 1024, textBytes = Number.POSITIVE_INFINITY } = limits
    this.bytes = bytes
    this.keysPerPart = keysPerPart
    this.limits = { depth, keys, objectKeys, numbers, syntaxBytes, textBytes }
  }
}

const SLICE_BYTES = 256 * 1024
/** `JSON.parse` takes up to 25 ms for this number of keys in objects of many different shapes. */
const KEYS_PER_PART = 8_000
/** V8 stores all integers of up to this many digits without an object. */
const MAX_SMALL_INTEGER_DIGITS = 9
/** A number of more digits may be parsed to the value of another number. */
const MAX_EXACT_DIGITS = 15
/** Parse time of any other number, relative to a small integer. */
const OTHER_NUMBER_WEIGHT = 4
const MIN_LONG_STRING_BYTES = 4096
/** Base64 may contain escaped slashes and line breaks. Strings with more frequent escapes are slow to parse and count as text. */
const MIN_BYTES_PER_ESCAPE = 16

/** Ignores syntax errors, which `JSON.parse` reports. */
export function* scanJson(
  bytes: Uint8Array,
  limits: ParseLimits,
  keysPerPart: number = KEYS_PER_PART,
): Steps<JsonScan> {
  const state = new ScanState(bytes, limits, keysPerPart)
  while (!scanSlice(state)) yield
  return state
}

export function scanWithoutPauses(bytes: Uint8Array, limits: ParseLimits): JsonScan {
  const state = new ScanState(bytes, limits, KEYS_PER_PART)
  while (!scanSlice(state));
  return state
}

/** Returns true at the end of the body. */
function scanSlice(state: ScanState): boolean {
  const sliceEnd = Math.min(state.position + SLICE_BYTES, state.bytes.length)
  while (state.position < sliceEnd) {
    if (!state.isInString) readToken(state)
    else if (state.stringEnd < 0) findStringEnd(state, sliceEnd)
    else if (!checkBase64(state)) return false
  }
  checkSyntaxBytes(state)
  return state.position >= state.bytes.length
}

const QUOTE = 34
const COMMA = 44
const COLON = 58
const UPPER_E = 69
const OPEN_BRACKET = 91
const CLOSE_BRACKET = 93
const LOWER_E = 101
const OPEN_BRACE = 123
const CLOSE_BRACE = 125

const BLANK = 1
const DIGIT = 2
const SIGN_OR_POINT = 3
const LETTER = 4
const CHARACTER_KINDS: Uint8Array = Uint8Array.from({ length: 256 }, (_, byte) =>
  characterKind(String.fromCharCode(byte)),
)

function characterKind(character: string): number {
  if (/\s/.test(character)) return BLANK
  if (/\d/.test(character)) return DIGIT
  if (/[+.-]/.test(character)) return SIGN_OR_POINT
  return /[a-z]/i.test(character) ? LETTER : 0
}

function readToken(state: ScanState): void {
  const byte = state.bytes[state.position] ?? 0
  switch (byte) {
    case QUOTE:
      return openString(state)
    case COLON:
      countKey(state)
      break
    case OPEN_BRACE:
    case OPEN_BRACKET:
      enterBracket(state, byte)
      break
    case CLOSE_BRACE:
    case CLOSE_BRACKET:
      if (state.depth > 0) state.depth--
      state.keptDepth = Math.min(state.keptDepth, state.depth)
      break
    case COMMA:
      if (state.uncutCount >= state.keysPerPart) cut(state)
      state.isModelNext = false
      break
    default:
      if (CHARACTER_KINDS[byte] === DIGIT || CHARACTER_KINDS[byte] === SIGN_OR_POINT) return readNumber(state)
      if (CHARACTER_KINDS[byte] === LETTER) return readLiteral(state)
      if (CHARACTER_KINDS[byte] === BLANK) state.position = endOfRun(state.bytes, state.position, BLANK) - 1
  }
  state.position++
}

function enterBracket(state: ScanState, bracket: number): void {
  const { depth } = state.limits
  countElement(state)
  if (++state.depth > depth) throw bodyLimitError(`is nested deeper than ${depth} levels. Flatten it.`)
  const container = (state.containers[state.depth - 1] ??= { isArray: false, keyCount: 0, keyStart: 0, keyEnd: 0 })
  container.isArray = bracket === OPEN_BRACKET
  container.keyCount = 0
  state.isModelNext = false
}

function cut(state: ScanState): void {
  if (state.depth === 0) return
  const open = state.containers.slice(0, state.depth)
  const path = open.map(({ isArray, keyStart, keyEnd }) => (isArray ? undefined : { start: keyStart, end: keyEnd }))
  state.cuts.push({ position: state.position, keptDepth: state.keptDepth, path })
  state.keptDepth = state.depth
  state.uncutCount = 0
}

function countKey(state: ScanState): void {
  state.keyCount++
  checkKeys(state)
  const container = state.containers[state.depth - 1]
  if (container !== undefined) {
    container.keyStart = state.stringStart
    container.keyEnd = state.stringEnd
    if (++container.keyCount > state.limits.objectKeys) {
      throw bodyLimitError(`has an object with more than ${state.limits.objectKeys} keys. Send fewer.`)
    }
  }
  if (state.longStrings.at(-1)?.start === state.stringStart) state.longStrings.pop()
  if (state.depth !== 1) return
  const keyKind = modelKeyKind(state.bytes, state.stringStart, state.stringEnd)
  state.isModelNext = keyKind !== 'other'
  if (!state.isModelNext) return
  // An escaped key counts twice, so that `modelSpan` stays undefined.
  state.modelCount += keyKind === 'plain' ? 1 : 2
  state.modelSpan = undefined
}

function countElement(state: ScanState): void {
  if (!isInArray(state)) return
  state.elementCount++
  checkKeys(state)
}

function isInArray({ depth, containers }: ScanState): boolean {
  return depth > 0 && containers[depth - 1]?.isArray === true
}

function checkKeys(state: ScanState): void {
  const { keyCount, elementCount, limits } = state
  state.uncutCount++
  if (keyCount + elementCount <= limits.keys) return
  throw bodyLimitError(`has more than ${limits.keys} keys and array elements. Send fewer.`)
}

function checkSyntaxBytes({ position, stringBytes, isInString, stringStart, limits }: ScanState): void {
  const bytes = (isInString ? stringStart : position) - stringBytes
  if (bytes <= limits.syntaxBytes) return
  throw bodyLimitError(
    `has more than ${limits.syntaxBytes} bytes outside its strings. Send less whitespace and fewer numbers.`,
  )
}

function readNumber(state: ScanState): void {
  const { bytes, position, limits } = state
  const firstDigit = CHARACTER_KINDS[bytes[position] ?? 0] === DIGIT ? position : position + 1
  const integerEnd = endOfRun(bytes, position, DIGIT)
  let end = integerEnd
  for (let byte = bytes[end]; byte !== undefined; byte = bytes[end]) {
    if (byte === UPPER_E || byte === LOWER_E) state.exponentCount++
    else if (CHARACTER_KINDS[byte] !== SIGN_OR_POINT) break
    end = endOfRun(bytes, end, DIGIT)
  }
  if (end - firstDigit > MAX_EXACT_DIGITS || state.exponentCount > 0) state.hasLongNumbers = true
  state.position = end
  state.isModelNext = false
  if (!isInArray(state)) return
  const isSmallInteger = end === integerEnd && end - firstDigit <= MAX_SMALL_INTEGER_DIGITS
  state.numberCount += isSmallInteger ? 1 : OTHER_NUMBER_WEIGHT
  if (state.numberCount <= limits.numbers) return
  throw bodyLimitError(
    `has more than ${limits.numbers} numbers in arrays. Integers of up to 9 digits count once, others ${OTHER_NUMBER_WEIGHT} times. Send fewer.`,
  )
}

function readLiteral(state: ScanState): void {
  countElement(state)
  state.isModelNext = false
  state.position = endOfRun(state.bytes, state.position, LETTER)
}

function endOfRun(bytes: Uint8Array, start: number, kind: number): number {
  const limit = Math.min(bytes.length, start + SLICE_BYTES)
  let end = start + 1
  while (end < limit && CHARACTER_KINDS[bytes[end] ?? 0] === kind) end++
  return end
}

function openString(state: ScanState): void {
  countElement(state)
  state.isInString = true
  state.stringStart = ++state.position
  state.stringEnd = -1
}

function findStringEnd(state: ScanState, sliceEnd: number): void {
  const { bytes, stringStart, limits } = state
  const end = closingQuote(bytes, state.position, sliceEnd)
  state.position = Math.abs(end)
  if (end < 0) return
  state.stringEnd = end
  // Short strings count as text. A body within the limit needs no check.
  if (bytes.length <= limits.textBytes || end - stringStart < MIN_LONG_STRING_BYTES) return closeString(state, true)
  state.position = startOfBase64(bytes, stringStart)
  state.escapeCount = 0
}

/** Returns true when the check is complete. */
function checkBase64(state: ScanState): boolean {
  const { bytes, position, stringStart, stringEnd } = state
  const limit = Math.min(position + SLICE_BYTES, stringEnd)
  const end = endOfBase64(bytes, position, limit)
  state.escapeCount += countEscapes(bytes.subarray(position, end))
  state.position = end
  const isText = end < limit || state.escapeCount * MIN_BYTES_PER_ESCAPE > stringEnd - stringStart
  if (!isText && end < stringEnd) return false
  closeString(state, isText)
  return true
}

function closeString(state: ScanState, isText: boolean): void {
  const { bytes, stringStart, stringEnd, limits } = state
  if (state.isModelNext && state.modelCount === 1) state.modelSpan = { start: stringStart - 1, end: stringEnd + 1 }
  state.isModelNext = false
  state.isInString = false
  state.position = stringEnd + 1
  state.stringBytes += stringEnd - stringStart
  if (isText) state.textBytes += stringEnd - stringStart
  if (bytes.length > LARGE_BODY_BYTES && stringEnd - stringStart >= MIN_LONG_STRING_BYTES) {
    state.longStrings.push({ start: stringStart, end: stringEnd, isBase64: !isText && state.escapeCount === 0 })
  }
  if (state.textBytes > limits.textBytes) throw promptTooLongError(limits.textBytes)
}

function bodyLimitError(reason: string): GatewayError {
  return new GatewayError('invalid-request', `The request body ${reason}`)
}

/** Some clients recognize the code and shorten the prompt. */
export function promptTooLongError(limit: number): GatewayError {
  return new GatewayError('invalid-request', `prompt is too long: its text exceeds ${limit} bytes. Shorten it.`, {
    code: 'context_length_exceeded',
  })
}
