import { GatewayError } from './errors.ts'
import { nearestName } from './option-checks.ts'

/** Response headers: names in lower case. */
export type HeaderRecord = Record<string, string>

/** Bounds of a request body. */
export interface BodyLimits {
  /** Maximum size in bytes; a larger body is refused with `too-large`. */
  readonly maxBytes: number
  /** Maximum time for the body to arrive, in milliseconds. A later body is refused with `request-timeout`. */
  readonly readMs: number
  readonly after: (ms: number, callback: () => void) => () => void
}

/** An HTTP request as the pipeline sees it, from any server. */
export interface HttpRequest {
  readonly method: string
  /** The path as sent, still percent-encoded, without the query. */
  readonly path: string
  /** The query without its question mark; empty when there is none. */
  readonly query: string
  /** The address of the server as the client wrote it, such as `https://api.example.com`; for absolute links in bodies. */
  readonly origin: string
  /** The value of a header by its lower-case name. Repeated headers are joined by a comma and a space. */
  header(name: string): string | undefined
  /** The lower-case names of all headers. */
  headerNames(): Iterable<string>
  /** Reads the whole body once. Returns the bytes synchronously if the server already has them. */
  body(limits: BodyLimits): Uint8Array | Promise<Uint8Array>
  /**
   * Registers the only listener for "the client disconnected". It is called at most once, and also after an earlier
   * disconnection.
   */
  onDisconnect(listener: () => void): void
}

/** Writes a response: one call of `whole`, or one of `begin` with writes and one `end` or `destroy`. */
export interface ResponseSink {
  whole(status: number, headers: HeaderRecord, body: Uint8Array | string): void
  begin(status: number, headers: HeaderRecord): void
  /** Returns false if the client reads too slowly. The listener of `onDrain` is called when it has caught up. */
  write(bytes: Uint8Array | string): boolean
  /** Registers the only listener for "the client has caught up". */
  onDrain(listener: () => void): void
  end(): void
  /** Closes the connection, so that the client sees an incomplete response. */
  destroy(): void
}

/** Answers requests. Never throws and never rejects; returns before the response is complete. */
export type HttpHandler = (request: HttpRequest, sink: ResponseSink) => void

/** An object that answers HTTP requests: a gateway. */
export interface HttpHandling {
  readonly handle: HttpHandler
}

/** The headers of a request by their lower-case names, with the interface of Headers. */
export interface HeaderView {
  get(name: string): string | null
  keys(): Iterable<string>
}

export function headersOf(request: Pick<HttpRequest, 'header' | 'headerNames'>): HeaderView {
  return { get: (name) => request.header(name) ?? null, keys: () => request.headerNames() }
}

/** The request headers that steer the gateway, spelled as in the docs. */
const KNOWN = [
  'X-Savings-Level',
  'X-Vanishing-Context',
  'X-Svc-RLM',
  'X-Svc-Cache-Threshold',
  'X-Svc-Explain',
  'X-Svc-Detach',
] as const

export type SteeringHeader = (typeof KNOWN)[number]

const PREFIX = 'x-svc-'
const KNOWN_NAMES: ReadonlySet<string> = new Set(KNOWN.map((name) => name.toLowerCase()))
const TRUE: ReadonlySet<string> = new Set(['1', 'true', 'yes'])
const FALSE: ReadonlySet<string> = new Set(['0', 'false', 'no'])
const MAX_ECHO = 40

/** Returns whether a flag is set. Throws `invalid-request` for a value that is neither true nor false. */
export function readFlag(headers: Pick<HeaderView, 'get'>, name: SteeringHeader): boolean {
  const value = headers.get(name.toLowerCase())
  if (value === null || FALSE.has(value.trim().toLowerCase())) return false
  if (isTrue(value)) return true
  throw notUnderstood(name, value, '1, true, yes, 0, false or no')
}

/** Returns whether a flag is set, for code that runs where headers are not checked. Invalid values mean false. */
export function hasFlag(request: Pick<HttpRequest, 'header'>, name: Lowercase<SteeringHeader>): boolean {
  const value = request.header(name)
  return value !== undefined && isTrue(value)
}

function isTrue(value: string): boolean {
  return TRUE.has(value.trim().toLowerCase())
}

/** Returns the error for a steering header with an invalid value. */
export function notUnderstood(name: string, value: string, expected: string): GatewayError {
  const shown = value
    .trim()
    .replace(/[^\x20-\x7e]/g, '?')
    .slice(0, MAX_ECHO)
  return new GatewayError(
    'invalid-request',
    `${name} is "${shown}"; expected ${expected}. Omit the header for the default.`,
    { param: name },
  )
}

const MAY_STEER = /^(?:x-s|x-v|cache-control$)/i

/** Returns false when no header can steer the gateway, by the prefixes of their names. */
export function maySteer(headerNames: Iterable<string>): boolean {
  for (const name of headerNames) if (MAY_STEER.test(name)) return true
  return false
}

/** Throws `invalid-request` for an unknown `X-Svc-*` header. A misspelled one would be ignored, and the request billed. */
export function checkSteeringNames(headers: Pick<HeaderView, 'keys'>): void {
  for (const given of headers.keys()) {
    const name = given.toLowerCase()
    if (!name.startsWith(PREFIX) || KNOWN_NAMES.has(name)) continue
    const shown = given.slice(0, MAX_ECHO)
    throw new GatewayError(
      'invalid-request',
      `There is no request header ${shown}. Did you mean ${nearestName(name.slice(0, 2 * MAX_ECHO), KNOWN, 2 * MAX_ECHO)}? Correct the name or omit the header.`,
      { param: shown },
    )
  }
}
