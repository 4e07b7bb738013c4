import { nearestName } from './check-options.ts'
import { GatewayError } from './errors.ts'
import { isNodeBytes } from './json.ts'

/** Larger bodies occupy part of their key's capacity, and are processed in steps between which other requests run. */
export const LARGE_BODY_BYTES: number = 1024 * 1024

/** Response headers. Names are in lowercase. */
export type HeaderRecord = Record<string, string>

/** Limits on reading a request body. */
export interface BodyLimits {
  /** In bytes. Larger bodies are rejected with `too-large`. */
  readonly maxBytes: number
  /** Maximum time to receive the body, in milliseconds. Slower bodies are rejected with `request-timeout`. */
  readonly readMs: number
  readonly after: (ms: number, callback: () => void) => () => void
}

/** An HTTP request, independent of the server implementation. */
export interface HttpRequest {
  readonly method: string
  /** The percent-encoded path without the query. */
  readonly path: string
  /** The query without its question mark, or an empty string. */
  readonly query: string
  /**
   * The origin in the request, for absolute URLs in its response, such as `https://api.example.com`. Empty if unknown. Must
   * not be stored, because the caller chooses the host.
   */
  readonly origin: string
  /** Returns a header by its lowercase name. Most repeated headers are joined by a comma and a space. */
  header(name: string): string | undefined
  headerNames(): Iterable<string>
  /** Reads the complete body. Must be called only once. */
  body(limits: BodyLimits): Uint8Array | Promise<Uint8Array>
  /** Sets the listener for a client disconnect. Calls it asynchronously if the client has already disconnected. */
  onDisconnect(listener: () => void): void
}

/** Writes a response: either one call to `send`, or `begin`, any number of writes, and then `end` or `destroy`. Must not throw. */
export interface ResponseSink {
  send(status: number, headers: HeaderRecord, body: Uint8Array | string): void
  begin(status: number, headers: HeaderRecord): void
  /** Returns false if the client reads too slowly. The next write should then wait for `onDrain`. */
  write(bytes: Uint8Array | string): boolean
  onDrain(listener: () => void): void
  end(): void
  /** Closes the connection. The client detects the incomplete response. */
  destroy(): void
}

/** Answers a request. Never throws, and does not wait until the response is complete. */
export type HttpHandler = (request: HttpRequest, sink: ResponseSink) => void

/** The part of a gateway that servers and frameworks call. */
export interface HttpHandling {
  readonly handle: HttpHandler
}

/** Say who makes a request, for keys that permit it. */
export const CONTEXT_HEADERS = {
  customer: 'X-Svc-Customer',
  user: 'X-Svc-User',
  session: 'X-Svc-Session',
  tags: 'X-Svc-Tags',
} as const

const STEERING_HEADERS = [
  'X-Savings-Level',
  'X-Vanishing-Context',
  'X-Svc-RLM',
  'X-Svc-Force',
  'X-Svc-Cache-Threshold',
  'X-Svc-Explain',
  'X-Svc-Detach',
] as const

const KNOWN_HEADERS: readonly string[] = [...STEERING_HEADERS, ...Object.values(CONTEXT_HEADERS)]

type SteeringHeader = (typeof STEERING_HEADERS)[number]

const NAME_PREFIX = 'x-svc-'
const KNOWN_NAMES: ReadonlySet<string> = new Set(KNOWN_HEADERS.map((name) => name.toLowerCase()))
const TRUE_VALUES: ReadonlySet<string> = new Set(['1', 'true', 'yes'])
const FALSE_VALUES: ReadonlySet<string> = new Set(['0', 'false', 'no'])
const MAX_ECHO_LENGTH = 40

export function readFlag(request: Pick<HttpRequest, 'header'>, name: SteeringHeader): boolean {
  const value = request.header(name.toLowerCase())
  if (value === undefined || FALSE_VALUES.has(value.trim().toLowerCase())) return false
  if (isTrue(value)) return true
  throw headerError(name, value, '1, true, yes, 0, false or no')
}

/** Like `readFlag`, but returns false for invalid values. */
export function hasFlag(request: Pick<HttpRequest, 'header'>, name: Lowercase<SteeringHeader>): boolean {
  const value = request.header(name)
  return value !== undefined && isTrue(value)
}

function isTrue(value: string): boolean {
  return TRUE_VALUES.has(value.trim().toLowerCase())
}

export function hasContextHeader(request: Pick<HttpRequest, 'header'>): boolean {
  return Object.values(CONTEXT_HEADERS).some((name) => request.header(name.toLowerCase()) !== undefined)
}

export function headerError(name: string, value: string, expected: string): GatewayError {
  const echo = value
    .trim()
    .replace(/[^\x20-\x7e]/g, '?')
    .slice(0, MAX_ECHO_LENGTH)
  return new GatewayError(
    'invalid-request',
    `${name} is "${echo}"; expected ${expected}. Correct the value, or omit the header to use the default.`,
    { param: name },
  )
}

const STEERING_NAME_START = /^(?:x-s|x-v|cache-control$)/i

/** False positives are possible. */
export function mayHaveSteeringHeader(headerNames: Iterable<string>): boolean {
  for (const name of headerNames) if (STEERING_NAME_START.test(name)) return true
  return false
}

/** A misspelled header would otherwise be ignored, and the request would be billed. */
export function checkSteeringNames(headerNames: Iterable<string>): void {
  for (const header of headerNames) {
    const name = header.toLowerCase()
    if (!name.startsWith(NAME_PREFIX) || KNOWN_NAMES.has(name)) continue
    const echo = header.slice(0, MAX_ECHO_LENGTH)
    throw new GatewayError(
      'invalid-request',
      `Unknown request header ${echo}. Did you mean ${nearestName(name.slice(0, 2 * MAX_ECHO_LENGTH), KNOWN_HEADERS, 2 * MAX_ECHO_LENGTH)}? Correct the name or omit the header.`,
      { param: echo },
    )
  }
}

/** Returns a single piece without copying it. `size` is the total length of the pieces. */
export function joinBytes(pieces: readonly Uint8Array[], size: number = sizeOf(pieces)): Uint8Array {
  const [only] = pieces
  if (pieces.length === 1 && only !== undefined) return only
  const joined = allocateBytes(size)
  let offset = 0
  for (const piece of pieces) {
    joined.set(piece, offset)
    offset += piece.byteLength
  }
  return joined
}

function sizeOf(pieces: readonly Uint8Array[]): number {
  return pieces.reduce((size, { byteLength }) => size + byteLength, 0)
}

/** Node searches and sends its own buffers faster than other byte arrays. */
export const allocateBytes: (size: number) => Uint8Array =
  'Buffer' in globalThis ? (size) => globalThis.Buffer.allocUnsafe(size) : (size) => new Uint8Array(size)

const MAX_REASON_LENGTH = 100
const REPLACEMENT_CHARACTER = '\uFFFD'

/** If `isPart` is true, the message omits the position, which would be relative to the part. */
export function parseJsonText(text: string, isPart: boolean): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    if (text.trim() === '') throw bodyError('is empty')
    const reason = error instanceof Error ? error.message.slice(0, MAX_REASON_LENGTH) : 'it cannot be parsed'
    throw bodyError(`is not valid JSON: ${isPart ? reason.replace(/ at position \d.*/s, '') : reason}`)
  }
}

export function bodyError(reason: string): GatewayError {
  return new GatewayError('invalid-request', `The request body ${reason}. Send one JSON object.`)
}

export function decodeUtf8(bytes: Uint8Array): string {
  // `utf8Slice` is several times faster than a strict decoder, but replaces invalid bytes with U+FFFD.
  const text = isNodeBytes(bytes) ? bytes.utf8Slice() : REPLACEMENT_CHARACTER
  return text.includes(REPLACEMENT_CHARACTER) ? createUtf8Decoder()(bytes, false) : text
}

export function createUtf8Decoder(): (bytes: Uint8Array, hasMore: boolean) => string {
  const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
  return (bytes, hasMore) => {
    try {
      return utf8.decode(bytes, { stream: hasMore })
    } catch {
      throw new GatewayError('invalid-request', 'The request body is not valid UTF-8. Send JSON encoded as UTF-8.')
    }
  }
}
