import type { ClosableTransport, TransportRequest, TransportResponse } from '../core/ports.ts'

/** The part of the platform's `fetch` that is used: an address and plain settings, never a Request object. */
export type FetchFunction = (url: string, init: RequestInit) => Promise<Response>

/**
 * A transport over any standard `fetch`. Redirects are not followed. The platform pools connections by itself, so
 * `close` has nothing to do, and knows no time-out for connecting: the deadline for the first byte covers it.
 */
export function fetchTransport(fetch: FetchFunction): ClosableTransport {
  const transport = async (request: TransportRequest): Promise<TransportResponse> => {
    const { method, url, headers, body, signal } = request
    const init: RequestInit = { method, headers: { ...headers }, signal, redirect: 'manual' }
    // TypeScript's BodyInit leaves out byte arrays over shared memory, which every fetch accepts as well.
    if (body !== undefined) init.body = body as BodyInit
    const response = await unlessAborted(fetch(url, init), signal)
    return {
      status: response.status,
      // The platform has undone the encoding already but still names it.
      header: (name) => (name === 'content-encoding' ? undefined : (response.headers.get(name) ?? undefined)),
      body: bytesOf(response.body, signal),
    }
  }
  return Object.assign(transport, { close: () => Promise.resolve() })
}

/** The transport of platforms other than Node: the global `fetch`. */
export function defaultTransport(): ClosableTransport {
  // Looked up at each call, so that a test or a tracer that replaces the global fetch is heard; called without `this`.
  return fetchTransport((url, init) => globalThis.fetch(url, init))
}

/** The body's bytes. An abort cancels the body at once, whether or not anybody has begun to read it. */
function bytesOf(body: ReadableStream<Uint8Array> | null, signal: AbortSignal): AsyncIterable<Uint8Array> {
  if (body === null) return nothing()
  const reader = body.getReader()
  const cancel = (): void => {
    // Does nothing after the end; resolves a read that is under way, also of a body that ignores its signal.
    reader.cancel(signal.reason).catch(() => {})
  }
  signal.addEventListener('abort', cancel, { once: true })
  return readAll(reader, signal, () => {
    signal.removeEventListener('abort', cancel)
    cancel()
  })
}

async function* readAll(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  signal: AbortSignal,
  leave: () => void,
): AsyncGenerator<Uint8Array, void, undefined> {
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (signal.aborted) throw signal.reason
      if (done) return
      yield value
    }
  } finally {
    leave()
  }
}

async function* nothing(): AsyncGenerator<Uint8Array, void, undefined> {
  // A status without a body.
}

/** A fetch of the caller's own may ignore the signal; the call ends all the same. */
function unlessAborted(response: Promise<Response>, signal: AbortSignal): Promise<Response> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason)
    if (signal.aborted) abort()
    signal.addEventListener('abort', abort, { once: true })
    response.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}
