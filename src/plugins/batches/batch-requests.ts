import { GatewayError } from '../../core/errors.ts'
import { closingQuote, isJsonObject, type JsonObject } from '../../core/json.ts'

/** Rejects with `invalid-request` unless the bytes are a JSON object. */
type ParseObject = (bytes: Uint8Array) => Promise<{ readonly body: JsonObject; readonly text: string }>

interface ReadOptions {
  readonly parse: ParseObject
  readonly pause: () => Promise<void>
}

const MAX_REQUESTS = 10_000
const MAX_ID_LENGTH = 64
const PARSED_SLICE_BYTES = 65_536

/** The fields of `params` are validated when the item is processed. */
export async function readBatchRequests(bytes: Uint8Array, options: ReadOptions): Promise<readonly string[]> {
  const { spans, emptiedBody } = await findRequests(bytes, options.pause)
  const { requests: unscanned } = (await options.parse(emptiedBody)).body
  if (spans.length === 0 || !Array.isArray(unscanned) || unscanned.length > 0) {
    throw invalidRequestError('requests', 'expected a list of one or more {custom_id, params}')
  }
  const requests: string[] = []
  const indexByCustomId = new Map<string, number>()
  let parsedBytes = 0
  for (const [index, span] of spans.entries()) {
    requests.push(await readRequest(bytes, span, { index, indexByCustomId, parse: options.parse }))
    parsedBytes += span.end - span.start
    if (parsedBytes < PARSED_SLICE_BYTES) continue
    parsedBytes = 0
    await options.pause()
  }
  return requests
}

async function findRequests(
  bytes: Uint8Array,
  pause: ReadOptions['pause'],
): Promise<{ readonly spans: readonly ByteSpan[]; readonly emptiedBody: Uint8Array }> {
  const spans: ByteSpan[] = []
  const scan = scanRequests(bytes)
  for (;;) {
    const { value, done } = scan.next()
    if (done === true) return { spans, emptiedBody: value }
    if (value === undefined) await pause()
    else if (spans.length < MAX_REQUESTS) spans.push(value)
    else throw invalidRequestError('requests', `expected at most ${MAX_REQUESTS} requests. Create several batches`)
  }
}

interface ReadContext {
  readonly index: number
  readonly indexByCustomId: Map<string, number>
  readonly parse: ParseObject
}

async function readRequest(
  bytes: Uint8Array,
  { start, end }: ByteSpan,
  { index, indexByCustomId, parse }: ReadContext,
): Promise<string> {
  const path = `requests.${index}`
  if (bytes[start] !== OPEN_BRACE || start === end) {
    throw invalidRequestError(path, 'expected an object with custom_id and params')
  }
  const { body, text } = await addPathToErrors(path, parse(bytes.subarray(start, end)))
  const { custom_id: customId, params } = body
  if (typeof customId !== 'string' || customId.length === 0 || customId.length > MAX_ID_LENGTH) {
    throw invalidRequestError(`${path}.custom_id`, `expected a string of 1 to ${MAX_ID_LENGTH} characters`)
  }
  const first = indexByCustomId.get(customId)
  if (first !== undefined) {
    throw invalidRequestError(
      `${path}.custom_id`,
      `requests.${first} has the same custom_id; expected a unique id for each request`,
    )
  }
  indexByCustomId.set(customId, index)
  if (!isJsonObject(params))
    throw invalidRequestError(`${path}.params`, 'expected an object, the body of a message request')
  return text
}

async function addPathToErrors<Value>(path: string, parsing: Promise<Value>): Promise<Value> {
  try {
    return await parsing
  } catch (error) {
    if (!GatewayError.is(error)) throw error
    throw new GatewayError(error.kind, `${path}: ${error.message}`, { ...error.details, param: path })
  }
}

function invalidRequestError(param: string, problem: string): GatewayError {
  return new GatewayError('invalid-request', `${param}: ${problem}.`, { param })
}

interface ByteSpan {
  readonly start: number
  readonly end: number
}

const SCANNED_SLICE_BYTES = 262_144

const QUOTE = 34
const COMMA = 44
const COLON = 58
const OPEN_BRACKET = 91
const CLOSE_BRACKET = 93
const OPEN_BRACE = 123
const CLOSE_BRACE = 125
const SPACE = 32
/** Tab, line feed, carriage return and space. */
const WHITE_SPACE = [9, 10, 13, SPACE]

const REQUESTS_KEY = Uint8Array.from('requests', (letter) => letter.charCodeAt(0))

/**
 * Yields the span of each element of `requests`, and undefined where the caller should yield to the event loop. Returns
 * the body without the elements. Malformed JSON is detected when an element or this rest of the body is parsed.
 */
export function* scanRequests(bytes: Uint8Array): Generator<ByteSpan | undefined, Uint8Array, void> {
  const scan: Scan = {
    depth: 0,
    lastString: { start: 0, end: 0 },
    isAtRequestsValue: false,
    requests: undefined,
    elementStart: -1,
    tokenEnd: 0,
  }
  let nextPause = SCANNED_SLICE_BYTES
  for (let offset = 0; offset < bytes.length; offset += 1) {
    if (offset >= nextPause) {
      nextPause = offset + SCANNED_SLICE_BYTES
      yield undefined
    }
    const element = scanByte(bytes, offset, scan)
    if (element !== undefined) yield element
    if (bytes[offset] !== QUOTE) continue
    let end = closingQuote(bytes, offset + 1, nextPause)
    for (; end < 0; end = closingQuote(bytes, -end, nextPause)) {
      nextPause = -end + SCANNED_SLICE_BYTES
      yield undefined
    }
    scan.lastString = { start: offset + 1, end }
    scan.tokenEnd = end + 1
    offset = end
  }
  return withoutElements(bytes, scan.requests)
}

interface Scan {
  depth: number
  lastString: ByteSpan
  isAtRequestsValue: boolean
  /** `end` is -1 until the array ends. */
  requests: { readonly start: number; end: number } | undefined
  /** -1 outside the elements. */
  elementStart: number
  tokenEnd: number
}

/** Elements are inside the body object and the array. */
const ELEMENT_DEPTH = 2

/** The byte must not be inside a string. */
function scanByte(bytes: Uint8Array, offset: number, scan: Scan): ByteSpan | undefined {
  const byte = bytes[offset] ?? 0
  if (byte <= SPACE && WHITE_SPACE.includes(byte)) return undefined
  const isInRequests = scan.requests?.end === -1
  if (isInRequests && scan.depth === ELEMENT_DEPTH && (byte === COMMA || byte === CLOSE_BRACKET)) {
    return endElement(scan, offset, byte)
  }
  if (isInRequests && scan.elementStart === -1) scan.elementStart = offset
  if (byte === COLON) {
    scan.isAtRequestsValue = scan.depth === 1 && scan.requests === undefined && isRequestsKey(bytes, scan.lastString)
  } else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
    scan.depth += 1
    if (scan.isAtRequestsValue && byte === OPEN_BRACKET) scan.requests = { start: offset, end: -1 }
  } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) scan.depth -= 1
  if (byte !== COLON) scan.isAtRequestsValue = false
  scan.tokenEnd = offset + 1
  return undefined
}

/** Returns an empty span for a missing element (`[1,,2]`), and undefined for an empty array. */
function endElement(scan: Scan, offset: number, byte: number): ByteSpan | undefined {
  const { elementStart, tokenEnd, requests } = scan
  const isFirst = requests !== undefined && tokenEnd <= requests.start + 1
  scan.elementStart = -1
  scan.tokenEnd = offset + 1
  if (byte === CLOSE_BRACKET && requests !== undefined) {
    requests.end = offset
    scan.depth -= 1
  }
  if (elementStart !== -1) return { start: elementStart, end: tokenEnd }
  return byte === CLOSE_BRACKET && isFirst ? undefined : { start: offset, end: offset }
}

function isRequestsKey(bytes: Uint8Array, { start, end }: ByteSpan): boolean {
  return end - start === REQUESTS_KEY.length && REQUESTS_KEY.every((letter, index) => bytes[start + index] === letter)
}

function withoutElements(bytes: Uint8Array, requests: Scan['requests']): Uint8Array {
  if (requests === undefined || requests.end === -1) return bytes
  const emptied = new Uint8Array(requests.start + 1 + bytes.length - requests.end)
  emptied.set(bytes.subarray(0, requests.start + 1))
  emptied.set(bytes.subarray(requests.end), requests.start + 1)
  return emptied
}
