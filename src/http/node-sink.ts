import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http'
import type { HeaderRecord, ResponseSink } from '../core/http.ts'
import { onceFinished } from './node-request.ts'
import { plainFailure } from './router.ts'

/** Maximum time for which a client may continue its upload after the response, in milliseconds. */
const LINGER_MS = 1_000
/** Time after which a finished response that the client does not read is aborted, in milliseconds. */
const UNREAD_MS = 60_000

/**
 * Writes a response to node:http. If the response cannot be sent, responds with a plain 500, or closes the connection
 * if bytes were already sent.
 */
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
      'The gateway produced a response that cannot be sent. Retry, and contact its operator if it fails again.'
    const { status, headers, body } = plainFailure(500, message)
    this.#outgoing.writeHead(status, headers)
    this.#finish(body)
  }

  /**
   * Ends the response. During an upload, first reads and discards the rest of the request for a limited time. Closing
   * the connection earlier would reset it, and the client could lose the response.
   */
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

/** Lets Node close a connection that makes no progress. Otherwise, an unread response would stay in memory indefinitely. */
function closeWhenUnread(outgoing: ServerResponse): void {
  const { socket } = outgoing
  if (socket === null) return
  const { timeout = 0 } = socket
  socket.setTimeout(UNREAD_MS)
  // This listener must run before Node sets the keep-alive timeout of the connection.
  outgoing.prependOnceListener('finish', () => socket.setTimeout(timeout))
}

/**
 * Returns true while a body is being received. `complete` is also false for a request without a body while its handler
 * runs. If its connection were closed, the next request would need a new connection, and clients could treat a broken
 * stream as complete.
 */
function isUploading({ complete, headers, httpVersionMajor }: IncomingMessage): boolean {
  if (complete) return false
  if (httpVersionMajor > 1 || headers['transfer-encoding'] !== undefined) return true
  return Number(headers['content-length'] ?? 0) > 0
}

/** Sets headers that a framework has collected outside node:http. The gateway's headers override them. */
export function copyHeaders(headers: OutgoingHttpHeaders, outgoing: ServerResponse): void {
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined) outgoing.setHeader(name, value)
  }
}
