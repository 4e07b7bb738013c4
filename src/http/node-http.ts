import type { IncomingMessage, ServerResponse, OutgoingHttpHeaders } from 'node:http'
import type { Socket } from 'node:net'
import type { BodyLimits, HttpRequest, HeaderRecord, ResponseSink } from '../core/http.ts'
import { GatewayError } from '../core/errors.ts'
import { bodyTooLarge } from './body.ts'
import { plainFailure } from './router.ts'
import { BodyCollector, bodyConsumed, bodyTooLate, bodyUnreadable } from './collect-body.ts'

/** A node:http request, with the fields that frameworks add. */
export interface NodeIncoming extends IncomingMessage {
  /** The parsed body, if a body parser has run. */
  readonly body?: unknown
  /** The unparsed body, if a middleware stores it. */
  readonly rawBody?: unknown
}

export class NodeRequest implements HttpRequest {
  readonly method: string
  readonly path: string
  readonly query: string
  readonly #incoming: NodeIncoming
  readonly #outgoing: ServerResponse

  constructor(incoming: NodeIncoming, outgoing: ServerResponse) {
    this.#incoming = incoming
    this.#outgoing = outgoing
    this.method = incoming.method ?? 'GET'
    const target = originForm(incoming.url ?? '/')
    const queryStart = target.indexOf('?')
    this.path = queryStart === -1 ? target : target.slice(0, queryStart)
    this.query = queryStart === -1 ? '' : target.slice(queryStart + 1)
  }

  get origin(): string {
    const { socket, headers } = this.#incoming
    const scheme = 'encrypted' in socket && socket.encrypted === true ? 'https' : 'http'
    const host = headers.host ?? headers[':authority']
    return typeof host === 'string' && isHost(host) ? `${scheme}://${host}` : ''
  }

  header(name: string): string | undefined {
    const value = this.#incoming.headers[name]
    return Array.isArray(value) ? value.join(', ') : value
  }

  headerNames(): Iterable<string> {
    return Object.keys(this.#incoming.headers)
  }

  body(limits: BodyLimits): Uint8Array | Promise<Uint8Array> {
    const incoming = this.#incoming
    if (incoming.readableDidRead || incoming.readableEnded) return checkSize(rebuildBody(incoming), limits)
    if (incoming.rawBody instanceof Uint8Array) return checkSize(incoming.rawBody, limits)
    return readIncoming(incoming, limits)
  }

  /** The body for handlers of web requests. Unlike `body`, does not limit it. Must be called only once. */
  bodyStream(): ReadableStream<Uint8Array> {
    const incoming = this.#incoming
    if (incoming.readableDidRead || incoming.readableEnded) return streamBytes(() => rebuildBody(incoming))
    const { rawBody } = incoming
    return rawBody instanceof Uint8Array ? streamBytes(() => rawBody) : streamIncoming(incoming)
  }

  onDisconnect(listener: () => void): void {
    const outgoing = this.#outgoing
    if (outgoing.destroyed && !outgoing.writableFinished) return void process.nextTick(listener)
    onceFinished(this.#incoming, outgoing, () => {
      if (!outgoing.writableFinished) listener()
    })
  }
}

/** Proxy requests have the absolute form, `GET http://host/path`. */
function originForm(target: string): string {
  if (target.startsWith('/')) return target
  try {
    const { pathname, search } = new URL(target)
    return pathname + search
  } catch {
    return '/'
  }
}

function isHost(host: string): boolean {
  return /^[\w.-]+(:\d+)?$|^\[[\da-fA-F:.]+\](:\d+)?$/.test(host)
}

function checkSize(bytes: Uint8Array, { maxBytes }: BodyLimits): Uint8Array {
  if (bytes.byteLength > maxBytes) throw bodyTooLarge(maxBytes)
  return bytes
}

function rebuildBody({ rawBody, body, readableDidRead }: NodeIncoming): Uint8Array {
  const consumed = rawBody ?? body
  if (consumed instanceof Uint8Array) return consumed
  if (typeof consumed === 'string') return Buffer.from(consumed)
  if (consumed === undefined && !readableDidRead) return new Uint8Array(0)
  if (consumed === undefined) throw bodyConsumed()
  try {
    return Buffer.from(JSON.stringify(consumed))
  } catch (cause) {
    const message =
      'The parsed request body cannot be serialized: it may be nested too deeply. Reduce its nesting depth.'
    throw new GatewayError('invalid-request', message, { cause })
  }
}

function readIncoming(incoming: NodeIncoming, { maxBytes, readMs, after }: BodyLimits): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const collector = new BodyCollector(maxBytes, Number(incoming.headers['content-length'] ?? 0))
    let isSettled = false
    const giveUp = (error: Error): void => {
      if (isSettled) return
      isSettled = true
      cancel()
      incoming.off('data', collect).off('end', end).off('error', fail).off('close', fail)
      reject(error)
    }
    const collect = (chunk: Uint8Array): void => {
      if (!isSettled && !collector.add(chunk)) giveUp(bodyTooLarge(maxBytes))
    }
    /** Leaves the listeners registered, because later events have no effect. */
    const end = (): void => {
      isSettled = true
      cancel()
      const { buffer, byteOffset, byteLength } = collector.bytes()
      // The methods of a Buffer decode faster than a TextDecoder.
      resolve(Buffer.from(buffer, byteOffset, byteLength))
    }
    const fail = (cause?: unknown): void => {
      if (!isSettled) giveUp(bodyUnreadable(cause))
    }
    const cancel = after(readMs, () => giveUp(bodyTooLate(readMs)))
    if (incoming.destroyed) return fail()
    incoming.on('data', collect).on('end', end).on('error', fail).on('close', fail)
  })
}

function streamBytes(read: () => Uint8Array): ReadableStream<Uint8Array> {
  const pull = (controller: ReadableStreamDefaultController<Uint8Array>): void => {
    const bytes = read()
    if (bytes.byteLength > 0) controller.enqueue(bytes)
    controller.close()
  }
  return new ReadableStream({ pull }, { highWaterMark: 0 })
}

/** Unlike `Readable.toWeb`, does not close the connection when the reader cancels, so the response can be sent. */
function streamIncoming(incoming: IncomingMessage): ReadableStream<Uint8Array> {
  let detach: (() => void) | undefined
  const attach = (controller: ReadableStreamDefaultController<Uint8Array>): (() => void) => {
    const collect = (chunk: Uint8Array): void => {
      incoming.pause()
      controller.enqueue(chunk)
    }
    const end = (): void => {
      stop()
      controller.close()
    }
    const fail = (cause?: unknown): void => {
      stop()
      controller.error(bodyUnreadable(cause))
    }
    const stop = (): void => void incoming.off('data', collect).off('end', end).off('error', fail).off('close', fail)
    incoming.on('data', collect).on('end', end).on('error', fail).on('close', fail)
    if (incoming.destroyed) fail()
    return stop
  }
  return new ReadableStream(
    {
      // Reads nothing before the handler does.
      pull: (controller) => {
        detach ??= attach(controller)
        incoming.resume()
      },
      cancel: () => detach?.(),
    },
    { highWaterMark: 0 },
  )
}

/**
 * Node reports a closed connection only to the response that is being sent. This function therefore destroys the
 * responses that wait behind it (pipelining).
 */
function onceFinished(incoming: IncomingMessage, outgoing: ServerResponse, listener: () => void): void {
  outgoing.once('close', listener)
  if (outgoing.socket !== null || incoming.httpVersionMajor > 1) return
  const closers = waitingClosersOf(incoming.socket)
  const close = (): void => {
    outgoing.off('close', listener)
    outgoing.destroy()
    listener()
  }
  closers.add(close)
  outgoing.once('close', () => closers.delete(close))
}

const waitingClosersBySocket = new WeakMap<Socket, Set<() => void>>()

function waitingClosersOf(socket: Socket): Set<() => void> {
  const known = waitingClosersBySocket.get(socket)
  if (known !== undefined) return known
  const closers = new Set<() => void>()
  waitingClosersBySocket.set(socket, closers)
  socket.once('close', () => {
    for (const close of closers) close()
    closers.clear()
  })
  return closers
}

/** Maximum time to read the rest of an upload after the response, in milliseconds. */
const LINGER_MS = 1_000
/** Time after which a finished response that the client does not read is aborted, in milliseconds. */
const UNREAD_MS = 60_000

export class NodeSink implements ResponseSink {
  readonly #incoming: IncomingMessage
  readonly #outgoing: ServerResponse
  #isFinished = false

  /** @param done Called when the response has been sent or the client has disconnected. */
  constructor(incoming: IncomingMessage, outgoing: ServerResponse, done?: () => void) {
    this.#incoming = incoming
    this.#outgoing = outgoing
    if (done !== undefined) onceFinished(incoming, outgoing, done)
  }

  send(status: number, headers: HeaderRecord, body: Uint8Array | string): void {
    const outgoing = this.#outgoing
    if (outgoing.destroyed || outgoing.headersSent) return
    headers['content-length'] = String(typeof body === 'string' ? Buffer.byteLength(body) : body.byteLength)
    if (!this.#writeHead(status, headers)) return
    this.#finish(this.#incoming.method === 'HEAD' ? '' : body)
  }

  /** Adds cookies to those that a framework has set. */
  addCookies(cookies: readonly string[]): void {
    if (cookies.length > 0 && !this.#outgoing.headersSent) this.#outgoing.appendHeader('set-cookie', [...cookies])
  }

  begin(status: number, headers: HeaderRecord): void {
    const outgoing = this.#outgoing
    if (outgoing.destroyed || outgoing.headersSent || !this.#writeHead(status, headers)) return
    // Without this call, Node would send the headers only with the first bytes, which may come much later.
    process.nextTick(() => {
      if (!outgoing.destroyed && !outgoing.writableEnded) outgoing.flushHeaders()
    })
  }

  write(bytes: Uint8Array | string): boolean {
    const outgoing = this.#outgoing
    if (this.#isFinished || outgoing.destroyed || this.#incoming.method === 'HEAD') return true
    return outgoing.write(bytes)
  }

  onDrain(listener: () => void): void {
    this.#outgoing.on('drain', listener)
  }

  end(): void {
    if (!this.#isFinished && !this.#outgoing.destroyed) this.#finish('')
  }

  destroy(): void {
    this.#outgoing.destroy()
  }

  #writeHead(status: number, headers: HeaderRecord): boolean {
    const outgoing = this.#outgoing
    if (isUploading(this.#incoming)) headers['connection'] = 'close'
    try {
      outgoing.writeHead(status, headers)
      return true
    } catch {
      // Node throws if a header contains characters that HTTP does not allow.
      if (outgoing.headersSent) outgoing.destroy()
      else this.#sendFailure()
      return false
    }
  }

  #sendFailure(): void {
    for (const name of this.#outgoing.getHeaderNames()) this.#outgoing.removeHeader(name)
    const message =
      'The gateway produced a response that cannot be sent. Retry, and contact the operator if the problem persists.'
    const { status, headers, body } = plainFailure(message)
    this.#outgoing.writeHead(status, headers)
    this.#finish(body)
  }

  /** Closing the connection during an upload would reset it, and the client could lose the response. */
  #finish(lastBytes: Uint8Array | string): void {
    const incoming = this.#incoming
    const outgoing = this.#outgoing
    this.#isFinished = true
    if (!isUploading(incoming) || incoming.destroyed) {
      outgoing.end(lastBytes)
      if (outgoing.writableLength > 0) closeWhenUnread(outgoing)
      return
    }
    if (lastBytes.length > 0) outgoing.write(lastBytes)
    const end = (): void => {
      clearTimeout(timer)
      incoming.off('end', end).off('close', end)
      outgoing.end()
    }
    const timer = setTimeout(end, LINGER_MS)
    incoming.on('end', end).on('close', end)
    incoming.resume()
  }
}

/** An unread response would otherwise stay in memory until the client disconnects. */
function closeWhenUnread(outgoing: ServerResponse): void {
  const { socket } = outgoing
  if (socket === null) return
  const { timeout = 0 } = socket
  socket.setTimeout(UNREAD_MS)
  // This listener must run before Node sets the keep-alive timeout of the connection.
  outgoing.prependOnceListener('finish', () => socket.setTimeout(timeout))
}

/** `complete` is also false for a request without a body while its handler runs. */
function isUploading({ complete, headers, httpVersionMajor }: IncomingMessage): boolean {
  if (complete) return false
  if (httpVersionMajor > 1 || headers['transfer-encoding'] !== undefined) return true
  return Number(headers['content-length'] ?? 0) > 0
}

export function copyHeaders(headers: OutgoingHttpHeaders, outgoing: ServerResponse): void {
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined) outgoing.setHeader(name, value)
  }
}
