import type { BodyLimits, HeaderRecord, HttpHandling, HttpRequest, ResponseSink } from '../core/http.ts'
import { GatewayError } from '../core/errors.ts'
import { bodyTooLarge } from './body.ts'
import { checkOptions } from '../core/check-options.ts'
import { plainFailure } from './router.ts'
import { type AdapterOptions, checkAdapterOptions, checkTakesContext, type Served, servesFetch } from './served.ts'
import { BodyCollector, bodyConsumed, bodyTooLate, bodyUnreadable } from './collect-body.ts'

/** A handler that clients can use as their `fetch`, and servers as their Web-standard handler. */
export interface FetchHandler {
  /** The form of servers. Ignores what the server passes after the request, such as its bindings. */
  (request: Request, ...context: readonly unknown[]): Promise<Response>
  /** The form of the global `fetch`. After a `Request`, only the `signal` of `init` is used. */
  (input: Request | string | URL, init?: RequestInit): Promise<Response>
}

/** Rejects only if `new Request` throws for the arguments. */
export function toFetch(gateway: HttpHandling): (input: Request | string | URL, init?: unknown) => Promise<Response> {
  return async (input, init) => {
    const request = requestOf(input, init)
    return new Promise((resolve) => {
      const sink = new WebSink(resolve, request)
      gateway.handle(new WebRequest(request, sink), sink)
    })
  }
}

/** @param name The function that reports an invalid argument. */
export function webHandlerOf(
  name: string,
  served: Served,
  options: AdapterOptions<Request>,
): (request: Request) => Promise<Response> {
  checkOptions(name, options, checkAdapterOptions)
  if (options.context !== undefined) {
    checkTakesContext(name, served)
    return (request) => {
      const findContext = (): unknown => options.context?.(request)
      return toFetch({ handle: (received, sink) => served.handle(received, sink, findContext) })(request)
    }
  }
  return servesFetch(name, served) ? async (request) => served.fetch(request) : toFetch(served)
}

/**
 * Servers pass a `Request` and then any value: Bun its server, Workers the bindings, which may have the names of fetch
 * options. A client that passes a `Request` and a signal must still be able to cancel the call.
 */
function requestOf(input: Request | string | URL, init: unknown): Request {
  const options = isFetchInit(init) ? init : {}
  // Requests of other packages are not instances of the global class.
  if (typeof input !== 'object' || !('headers' in input)) return new Request(input, options)
  return options.signal instanceof AbortSignal ? new Request(input, { signal: options.signal }) : input
}

function isFetchInit(value: unknown): value is RequestInit {
  if (typeof value !== 'object' || value === null) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  // A plain object of another realm has another prototype.
  const isPlain = prototype === null || Object.getPrototypeOf(prototype) === null
  return isPlain || value instanceof Request
}

class WebRequest implements HttpRequest {
  readonly #request: Request
  readonly #sink: WebSink
  #url: URL | undefined

  constructor(request: Request, sink: WebSink) {
    this.#request = request
    this.#sink = sink
  }

  get method(): string {
    return this.#request.method
  }

  get path(): string {
    return this.#address.pathname
  }

  get query(): string {
    return this.#address.search.slice(1)
  }

  get origin(): string {
    return this.#address.origin
  }

  /** Parsed on first use, where the gateway answers an invalid address with 500. */
  get #address(): URL {
    return (this.#url ??= new URL(this.#request.url))
  }

  header(name: string): string | undefined {
    return this.#request.headers.get(name) ?? undefined
  }

  headerNames(): Iterable<string> {
    return this.#request.headers.keys()
  }

  body(limits: BodyLimits): Promise<Uint8Array> {
    return readLimited(this.#request, limits)
  }

  onDisconnect(listener: () => void): void {
    let isDisconnected = false
    const disconnect = (): void => {
      if (!isDisconnected) listener()
      isDisconnected = true
    }
    const { signal } = this.#request
    this.#sink.onCancel = disconnect
    const abort = (): void => {
      disconnect()
      // Ends a pending read of the response body. Servers cancel the body first; Deno prints the error of one that fails.
      queueMicrotask(() => this.#sink.abort(signal.reason))
    }
    if (signal.aborted) queueMicrotask(abort)
    else signal.addEventListener('abort', abort, { once: true })
  }
}

class WebSink implements ResponseSink {
  onCancel: (() => void) | undefined
  readonly #resolve: (response: Response) => void
  readonly #request: Request
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined
  #onDrained: (() => void) | undefined
  #aborted: { readonly reason: unknown } | undefined
  readonly #encoder = new TextEncoder()

  constructor(resolve: (response: Response) => void, request: Request) {
    this.#resolve = resolve
    this.#request = request
  }

  send(status: number, headers: HeaderRecord, body: Uint8Array | string): void {
    this.#respond(status, headers, this.#request.method === 'HEAD' || status === 204 ? null : (body as BodyInit))
  }

  begin(status: number, headers: HeaderRecord): void {
    if (this.#request.method === 'HEAD') return this.#respond(status, headers, null)
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        if (this.#aborted === undefined) this.#controller = controller
        else controller.error(this.#aborted.reason)
      },
      pull: () => this.#onDrained?.(),
      cancel: () => {
        this.#controller = undefined
        this.onCancel?.()
      },
    })
    this.#respond(status, headers, body)
  }

  write(bytes: Uint8Array | string): boolean {
    const controller = this.#controller
    if (controller === undefined) return true
    controller.enqueue(typeof bytes === 'string' ? this.#encoder.encode(bytes) : bytes)
    return (controller.desiredSize ?? 0) > 0
  }

  onDrain(listener: () => void): void {
    this.#onDrained = listener
  }

  end(): void {
    this.#controller?.close()
    this.#controller = undefined
  }

  destroy(): void {
    this.abort(new TypeError('The response ended before it was complete.'))
    this.onCancel?.()
  }

  abort(reason: unknown): void {
    this.#aborted ??= { reason }
    this.#controller?.error(reason)
    this.#controller = undefined
  }

  #respond(status: number, headers: HeaderRecord, body: BodyInit | null): void {
    try {
      this.#resolve(new Response(body, { status, headers }))
    } catch {
      const failure = plainFailure('The gateway produced a response that cannot be sent. Contact the operator.')
      this.#resolve(new Response(failure.body, failure))
    }
  }
}

/** Does not cancel the stream of a late body, because on Node its next chunk would then throw an uncaught error. */
async function readLimited(request: Request, { maxBytes, readMs, after }: BodyLimits): Promise<Uint8Array> {
  if (request.bodyUsed || request.body?.locked === true) throw bodyConsumed()
  if (request.body === null) return new Uint8Array(0)
  const reader = request.body.getReader()
  let isLate = false
  const cancelDeadline = after(readMs, () => {
    isLate = true
    reader.releaseLock()
  })
  const collector = new BodyCollector(maxBytes, Number(request.headers.get('content-length') ?? 0))
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return collector.bytes()
      if (!collector.add(value)) break
    }
  } catch (cause) {
    if (isLate) throw bodyTooLate(readMs)
    throw GatewayError.is(cause) ? cause : bodyUnreadable(cause)
  } finally {
    cancelDeadline()
  }
  void reader.cancel().catch(() => {})
  throw bodyTooLarge(maxBytes)
}

/** Returns a request whose body several readers can read. The limits of the first reader apply. */
export function shareBody(request: HttpRequest): HttpRequest {
  const { method, path, query, origin } = request
  let body: Promise<Uint8Array> | undefined
  return {
    method,
    path,
    query,
    origin,
    header: (name) => request.header(name),
    headerNames: () => request.headerNames(),
    body: (limits) => (body ??= Promise.resolve(request.body(limits))),
    onDisconnect: (listener) => request.onDisconnect(listener),
  }
}

export function toWebRequest(
  request: HttpRequest,
  createBody: () => ReadableStream<Uint8Array>,
  signal?: AbortSignal,
): Request {
  const headers = new Headers()
  for (const name of request.headerNames()) {
    const value = request.header(name)
    if (value !== undefined && !name.startsWith(':')) headers.set(name, value)
  }
  const { method, origin, path, query } = request
  const init: RequestInit & { duplex: 'half' } = { method, headers, duplex: 'half' }
  if (signal !== undefined) init.signal = signal
  if (method !== 'GET' && method !== 'HEAD') init.body = createBody()
  return new Request(`${origin || 'http://localhost'}${path}${query === '' ? '' : `?${query}`}`, init)
}

export function lazyBody(request: HttpRequest, limits: BodyLimits): ReadableStream<Uint8Array> {
  const pull = async (controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> => {
    const bytes = await request.body(limits)
    if (bytes.byteLength > 0) controller.enqueue(bytes)
    controller.close()
  }
  return new ReadableStream({ pull }, { highWaterMark: 0 })
}
