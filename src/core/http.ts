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
  /** Reads the whole body once. Returns the bytes at once when the server already has them. */
  body(limits: BodyLimits): Uint8Array | Promise<Uint8Array>
  /**
   * Registers the only listener for "the client disconnected"; it is called at most once, and soon where the client has
   * disconnected before.
   */
  onDisconnect(listener: () => void): void
}

/** Where a response is written. Every response is one `whole`, or one `begin` with writes and one `end` or `destroy`. */
export interface ResponseSink {
  whole(status: number, headers: HeaderRecord, body: Uint8Array | string): void
  begin(status: number, headers: HeaderRecord): void
  /** Returns false when the client reads too slowly; the listener of `onDrain` is called when it has caught up. */
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
