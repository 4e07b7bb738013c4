import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http'
import type { HeaderRecord, ResponseSink } from '../core/http.ts'
import { onceClosed } from './node-request.ts'
import { plainFailure } from './router.ts'

/** Milliseconds in which a client that still uploads may finish after it was answered. */
const LINGER_MS = 1_000
/** Milliseconds without progress after which a connection is closed whose client does not read the end of its response. */
const UNREAD_MS = 60_000

/**
 * Writes a response to node:http. A response that cannot be sent becomes a plain 500 as long as no byte has left, and a
 * broken connection afterwards.
 */
export class NodeSink implements ResponseSink {
  readonly #incoming: IncomingMessage
  readonly #outgoing: ServerResponse
  #isFinished = false

  /** `done` is called once the response has been handed over, or the client has left. */
  constructor(incoming: IncomingMessage, outgoing: ServerResponse, done?: () => void) {
    this.#incoming = incoming
    this.#outgoing = outgoing
    if (done !== undefined) onceClosed(incoming, outgoing, done)
  }

  whole(status: number, headers: HeaderRecord, body: Uint8Array | string): void {
    const outgoing = this.#outgoing
    if (outgoing.destroyed || outgoing.headersSent) return
    headers['content-length'] = String(typeof body === 'string' ? Buffer.byteLength(body) : body.byteLength)
    if (!this.#writeHead(status, headers)) return
    this.#finish(this.#incoming.method === 'HEAD' ? '' : body)
  }

  begin(status: number, headers: HeaderRecord): void {
    const outgoing = this.#outgoing
    if (outgoing.destroyed || outgoing.headersSent || !this.#writeHead(status, headers)) return
    // Node sends the headers with the first bytes, which may be long in coming.
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
      // A header value that HTTP does not allow.
      if (outgoing.headersSent) outgoing.destroy()
      else this.#fail()
      return false
    }
  }

  #fail(): void {
    for (const name of this.#outgoing.getHeaderNames()) this.#outgoing.removeHeader(name)
    const message =
      'The gateway produced a response that cannot be sent. Retry, and notify its operator if it fails again.'
    const { status, headers, body } = plainFailure(500, message)
    this.#outgoing.writeHead(status, headers)
    this.#finish(body)
  }

  /**
   * A connection that is closed while its client still uploads is reset, and the response may be lost with it. So the
   * rest of the request is read and dropped, for a while.
   */
  #finish(last: Uint8Array | string): void {
    const [incoming, outgoing] = [this.#incoming, this.#outgoing]
    this.#isFinished = true
    if (!isUploading(incoming) || incoming.destroyed) {
      outgoing.end(last)
      if (outgoing.writableLength > 0) closeWhenUnread(outgoing)
      return
    }
    if (last.length > 0) outgoing.write(last)
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

/** Node closes a connection that makes no progress for so long. Without this an unread response is held for ever. */
function closeWhenUnread(outgoing: ServerResponse): void {
  const { socket } = outgoing
  if (socket === null) return
  const { timeout = 0 } = socket
  socket.setTimeout(UNREAD_MS)
  // Before Node sets the time for which it keeps the connection.
  outgoing.prependOnceListener('finish', () => socket.setTimeout(timeout))
}

/**
 * True while a body is still to come. A request without a body is not `complete` either while its handler runs; closing
 * its connection would cost the next request a new one, and make clients take a broken stream for a whole one.
 */
function isUploading({ complete, headers, httpVersionMajor }: IncomingMessage): boolean {
  if (complete) return false
  if (httpVersionMajor > 1 || headers['transfer-encoding'] !== undefined) return true
  return Number(headers['content-length'] ?? 0) > 0
}

/** Sets headers that a framework has collected apart from node:http; those of the response win over them. */
export function keepHeaders(headers: OutgoingHttpHeaders, outgoing: ServerResponse): void {
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined) outgoing.setHeader(name, value)
  }
}
