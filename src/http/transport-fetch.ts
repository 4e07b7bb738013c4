import type { ClosableTransport, Runtime, TransportCall, TransportHandler, TransportRequest } from '../core/ports.ts'

/** The part of the platform's `fetch` that the transport uses. Called without `this`. */
type FetchFunction = (url: string, init: RequestInit) => Promise<Response>

/** `close` has no effect, because the platform pools connections. `connectMs` is ignored. */
export function fetchTransport(fetch: FetchFunction): ClosableTransport {
  const transport = (request: TransportRequest, handler: TransportHandler): TransportCall => {
    const call = new FetchCall(handler)
    void call.run(fetch, request)
    return call
  }
  return Object.assign(transport, { close: () => Promise.resolve() })
}

export function defaultTransport(): ClosableTransport {
  // Reads the global fetch on each call, because tests and tracers may replace it.
  return fetchTransport((url, init) => globalThis.fetch(url, init))
}

/** Requests do not share a timer, because on Cloudflare Workers a timer ends with the request that created it. */
export const after: Runtime['after'] = (ms, callback, { isBackground = false } = {}) => {
  const timer = setTimeout(callback, ms)
  // Only some platforms return timers that can be unreferenced.
  if (isBackground && typeof timer === 'object') timer.unref?.()
  return () => clearTimeout(timer)
}

class FetchCall implements TransportCall {
  readonly #handler: TransportHandler
  readonly #controller = new AbortController()
  #reader: ReadableStreamDefaultReader<Uint8Array> | undefined
  #isOver = false
  #isPaused = false
  #wake: (() => void) | undefined

  constructor(handler: TransportHandler) {
    this.#handler = handler
  }

  async run(fetch: FetchFunction, { method, url, headers, body }: TransportRequest): Promise<void> {
    try {
      const init: RequestInit = { method, headers: { ...headers }, signal: this.#controller.signal, redirect: 'manual' }
      // The type excludes byte arrays over shared memory, which the gateway never creates.
      if (body !== undefined) init.body = body as BodyInit
      await this.#read(await fetch(url, init))
    } catch (error) {
      if (this.#isOver) return
      this.#isOver = true
      this.#handler.onError(error)
    }
  }

  pause(): void {
    this.#isPaused = true
  }

  resume(): void {
    this.#isPaused = false
    this.#wake?.()
  }

  abort(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#controller.abort(new Error('The upstream call was aborted'))
    // A custom fetch may ignore the signal, so the body is also canceled.
    this.#reader?.cancel().catch(() => {})
    this.#wake?.()
  }

  async #read(response: Response): Promise<void> {
    const reader = response.body?.getReader()
    this.#reader = reader
    if (this.#isOver) return void reader?.cancel().catch(() => {})
    // The platform has already decoded the body but keeps the Content-Encoding header.
    this.#handler.onHead(response.status, (name) =>
      name === 'content-encoding' ? undefined : (response.headers.get(name) ?? undefined),
    )
    for (;;) {
      if (this.#isPaused) await new Promise<void>((resolve) => (this.#wake = resolve))
      if (this.#isOver || reader === undefined) break
      const { done, value } = await reader.read()
      if (this.#isOver) return
      if (done) break
      await this.#deliver(value)
    }
    if (this.#isOver) return
    this.#isOver = true
    this.#handler.onEnd()
  }

  /** A platform may deliver several megabytes at once. */
  async #deliver(bytes: Uint8Array): Promise<void> {
    for (let start = 0; start < bytes.byteLength && !this.#isOver; start += SLICE_BYTES) {
      if (this.#isPaused) await new Promise<void>((resolve) => (this.#wake = resolve))
      if (!this.#isOver) this.#handler.onData(bytes.subarray(start, start + SLICE_BYTES))
    }
  }
}

const SLICE_BYTES = 64 * 1024
