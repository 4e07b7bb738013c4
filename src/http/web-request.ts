import type { BodyLimits, HttpRequest } from '../core/http.ts'

/** A request whose body two readers may ask for: it is read once. */
export class SharedRequest implements HttpRequest {
  readonly method: string
  readonly path: string
  readonly query: string
  readonly origin: string
  readonly #request: HttpRequest
  #body: Promise<Uint8Array> | undefined

  constructor(request: HttpRequest) {
    this.#request = request
    this.method = request.method
    this.path = request.path
    this.query = request.query
    this.origin = request.origin
  }

  header(name: string): string | undefined {
    return this.#request.header(name)
  }

  headerNames(): Iterable<string> {
    return this.#request.headerNames()
  }

  /** The limits of the first call apply. */
  body(limits: BodyLimits): Promise<Uint8Array> {
    return (this.#body ??= Promise.resolve(this.#request.body(limits)))
  }

  onDisconnect(listener: () => void): void {
    this.#request.onDisconnect(listener)
  }
}

/** Returns the request as the platform's `Request`, for the operator's code. Its body is read when something reads it. */
export function webRequestOf(request: SharedRequest, limits: BodyLimits): Request {
  const headers = new Headers()
  for (const name of request.headerNames()) {
    const value = request.header(name)
    if (value !== undefined && !name.startsWith(':')) headers.set(name, value)
  }
  const { method, origin, path, query } = request
  const init: RequestInit & { duplex: 'half' } = { method, headers, duplex: 'half' }
  if (method !== 'GET' && method !== 'HEAD') init.body = lazyBody(request, limits)
  return new Request(`${origin}${path}${query === '' ? '' : `?${query}`}`, init)
}

function lazyBody(request: SharedRequest, limits: BodyLimits): ReadableStream<Uint8Array> {
  const pull = async (controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> => {
    const bytes = await request.body(limits)
    if (bytes.byteLength > 0) controller.enqueue(bytes)
    controller.close()
  }
  return new ReadableStream({ pull }, { highWaterMark: 0 })
}
