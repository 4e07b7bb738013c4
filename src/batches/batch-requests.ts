import { GatewayError } from '../core/errors.ts'
import { isJsonObject, type JsonObject } from '../core/json.ts'

export interface BatchRequest {
  readonly customId: string
  /** JSON of `{custom_id, params}`. `params` is validated when the item is processed. */
  readonly text: string
}

/** Rejects with `invalid-request` unless the bytes are a JSON object. */
type ParseObject = (bytes: Uint8Array) => Promise<{ readonly body: JsonObject; readonly text: string }>

interface ReadOptions {
  readonly parse: ParseObject
  readonly pause: () => Promise<void>
}

const MAX_REQUESTS = 10_000
const MAX_ID_LENGTH = 64
/** Bytes to parse between two pauses, which takes at most a few milliseconds. */
const PARSED_SLICE_BYTES = 65_536

/**
 * Parses the requests of a new batch, with pauses. Rejects with `invalid-request` and the path of the first invalid
 * request.
 */
export async function readBatchRequests(bytes: Uint8Array, options: ReadOptions): Promise<readonly BatchRequest[]> {
  const { spans, rest } = await findRequests(bytes, options.pause)
  const { requests: emptied } = (await options.parse(rest)).body
  if (spans.length === 0 || !Array.isArray(emptied) || emptied.length > 0) {
    throw invalidRequest('requests', 'expected a list of one or more {custom_id, params}')
  }
  const requests: BatchRequest[] = []
  const seen = new Map<string, number>()
  let parsed = 0
  for (const [index, span] of spans.entries()) {
    requests.push(await readRequest(bytes, span, { index, seen, parse: options.parse }))
    parsed += span.end - span.start
    if (parsed < PARSED_SLICE_BYTES) continue
    parsed = 0
    await options.pause()
  }
  return requests
}

async function findRequests(
  bytes: Uint8Array,
  pause: ReadOptions['pause'],
): Promise<{ readonly spans: readonly ByteSpan[]; readonly rest: Uint8Array }> {
  const spans: ByteSpan[] = []
  const scan = scanRequests(bytes)
  for (;;) {
    const { value, done } = scan.next()
    if (done === true) return { spans, rest: value }
    if (value === undefined) await pause()
    else if (spans.length >= MAX_REQUESTS) throw tooMany()
    else spans.push(value)
  }
}

interface ReadState {
  readonly index: number
  readonly seen: Map<string, number>
  readonly parse: ParseObject
}

async function readRequest(
  bytes: Uint8Array,
  { start, end }: ByteSpan,
  { index, seen, parse }: ReadState,
): Promise<BatchRequest> {
  const path = `requests.${index}`
  if (bytes[start] !== OPEN_BRACE || start === end)
    throw invalidRequest(path, 'expected an object with custom_id and params')
  const { body, text } = await parseAt(path, parse(bytes.subarray(start, end)))
  const { custom_id: customId, params } = body
  if (typeof customId !== 'string' || customId.length === 0 || customId.length > MAX_ID_LENGTH) {
    throw invalidRequest(`${path}.custom_id`, `expected a string of 1 to ${MAX_ID_LENGTH} characters`)
  }
  const first = seen.get(customId)
  if (first !== undefined) {
    throw invalidRequest(
      `${path}.custom_id`,
      `requests.${first} has the same custom_id; expected a unique id for each request`,
    )
  }
  seen.set(customId, index)
  if (!isJsonObject(params)) throw invalidRequest(`${path}.params`, 'expected an object, the body of a message request')
  return { customId, text }
}

async function parseAt<Value>(path: string, parsing: Promise<Value>): Promise<Value> {
  try {
    return await parsing
  } catch (error) {
    if (!GatewayError.is(error)) throw error
    throw new GatewayError(error.kind, `${path}: ${error.message}`, { ...error.details, param: path })
  }
}

function tooMany(): GatewayError {
  return invalidRequest('requests', `expected at most ${MAX_REQUESTS} requests. Create several batches`)
}

function invalidRequest(param: string, problem: string): GatewayError {
  return new GatewayError('invalid-request', `${param}: ${problem}.`, { param })
}

interface ByteSpan {
  readonly start: number
  readonly end: number
}

/** Bytes to scan between two pauses. */
const SCANNED_SLICE_BYTES = 262_144

const QUOTE = 34
const COMMA = 44
const COLON = 58
const OPEN_BRACKET = 91
const BACKSLASH = 92
const CLOSE_BRACKET = 93
const OPEN_BRACE = 123
const CLOSE_BRACE = 125
const SPACE = 32

const REQUESTS_KEY = Uint8Array.from('requests', (letter) => letter.charCodeAt(0))

/**
 * Yields the elements of a body's `requests` array, and undefined wherever the caller may pause. The caller parses each
 * element separately, because parsing a body of many megabytes at once would block the event loop for seconds. Returns
 * the body with an empty array in place of the elements.
 *
 * Structural characters are ASCII, so the bytes need no decoding. Malformed JSON is detected later, when an element or
 * the rest of the body is parsed.
 */
export function* scanRequests(bytes: Uint8Array): Generator<ByteSpan | undefined, Uint8Array, void> {
  const scan: Scan = {
    offset: 0,
    depth: 0,
    isInString: false,
    lastString: { elementStart: 0, tokenEnd: 0 },
    isAtRequestsValue: false,
    requests: undefined,
    start: -1,
    end: 0,
  }
  let nextPause = SCANNED_SLICE_BYTES
  for (; scan.offset < bytes.length; scan.offset += 1) {
    const element = scanByte(bytes, scan)
    if (element !== undefined) yield element
    if (scan.offset < nextPause) continue
    nextPause = scan.offset + SCANNED_SLICE_BYTES
    yield undefined
  }
  return withoutElements(bytes, scan.requests)
}

interface Scan {
  offset: number
  /** Number of open brackets and braces. */
  depth: number
  isInString: boolean
  /** The most recent string, without its quotes. */
  lastString: { elementStart: number; tokenEnd: number }
  isAtRequestsValue: boolean
  /** Offsets of the brackets of the first `requests` array. `end` is -1 until the array ends. */
  requests: { readonly start: number; end: number } | undefined
  /** Start of the current element, or -1 between elements. */
  start: number
  /** End of the last token. */
  end: number
}

/** Returns the element that ends just before the byte, if any. */
function scanByte(bytes: Uint8Array, scan: Scan): ByteSpan | undefined {
  const byte = bytes[scan.offset] ?? 0
  if (scan.isInString) return scanStringByte(byte, scan)
  if (byte <= SPACE) return undefined
  const isInList = scan.requests?.end === -1
  if (isInList && scan.depth === ELEMENT_DEPTH && (byte === COMMA || byte === CLOSE_BRACKET))
    return endElement(scan, byte)
  if (isInList && scan.start === -1) scan.start = scan.offset
  if (byte === QUOTE) openString(scan)
  else if (byte === COLON)
    scan.isAtRequestsValue = scan.depth === 1 && scan.requests === undefined && isRequestsKey(bytes, scan.lastString)
  else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) openBracket(scan, byte)
  else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) scan.depth -= 1
  if (byte !== COLON) scan.isAtRequestsValue = false
  scan.end = scan.offset + 1
  return undefined
}

/** Elements are inside the body object and the array. */
const ELEMENT_DEPTH = 2

function openBracket(scan: Scan, byte: number): void {
  scan.depth += 1
  if (scan.isAtRequestsValue && byte === OPEN_BRACKET) scan.requests = { start: scan.offset, end: -1 }
}

/** Returns an empty span for a missing element (`[1,,2]`), and undefined for an empty array. */
function endElement(scan: Scan, byte: number): ByteSpan | undefined {
  const { start, end, requests: list } = scan
  const isFirst = list !== undefined && scan.end <= list.start + 1
  scan.start = -1
  scan.end = scan.offset + 1
  if (byte === CLOSE_BRACKET && list !== undefined) {
    list.end = scan.offset
    scan.depth -= 1
  }
  if (start !== -1) return { start, end }
  return byte === CLOSE_BRACKET && isFirst ? undefined : { start: scan.offset, end: scan.offset }
}

function openString(scan: Scan): void {
  scan.isInString = true
  scan.lastString.elementStart = scan.offset + 1
}

function scanStringByte(byte: number, scan: Scan): undefined {
  if (byte === BACKSLASH) scan.offset += 1
  if (byte !== QUOTE) return
  scan.isInString = false
  scan.lastString.tokenEnd = scan.offset
  scan.end = scan.offset + 1
}

function isRequestsKey(bytes: Uint8Array, { start, end }: ByteSpan): boolean {
  return end - start === REQUESTS_KEY.length && REQUESTS_KEY.every((letter, index) => bytes[start + index] === letter)
}

function withoutElements(bytes: Uint8Array, list: Scan['requests']): Uint8Array {
  if (list === undefined || list.end === -1) return bytes
  const rest = new Uint8Array(list.start + 1 + bytes.length - list.end)
  rest.set(bytes.subarray(0, list.start + 1))
  rest.set(bytes.subarray(list.end), list.start + 1)
  return rest
}
