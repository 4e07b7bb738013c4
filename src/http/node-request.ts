import type { IncomingMessage, ServerResponse } from 'node:http'
import type { BodyLimits, HttpRequest } from '../core/http.ts'
import { GatewayError } from '../core/errors.ts'
import { BodyCollector, bodyTooLarge, bodyTooLate, bodyUnreadable } from './body.ts'
import type { Socket } from 'node:net'

/** A node:http request, with the fields that frameworks add. */
export interface NodeIncoming extends IncomingMessage {
  /** The parsed body, if a body parser has run. */
  readonly body?: unknown
  /** The unparsed body, if a middleware stores it. */
  readonly rawBody?: unknown
}

/** Adapts a node:http request without creating Web API objects. */
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
    return `${scheme}://${typeof host === 'string' && isHost(host) ? host : 'localhost'}`
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

  onDisconnect(listener: () => void): void {
    const outgoing = this.#outgoing
    if (outgoing.destroyed && !outgoing.writableFinished) return void process.nextTick(listener)
    onceFinished(this.#incoming, outgoing, () => {
      if (!outgoing.writableFinished) listener()
    })
  }
}

/** Returns the path and the query. Proxy requests have the absolute form, `GET http://host/path`. */
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

/** Returns the bytes that a body parser has consumed, or equivalent bytes. */
function rebuildBody({ rawBody, body, readableDidRead }: NodeIncoming): Uint8Array {
  const consumed = rawBody ?? body
  if (consumed instanceof Uint8Array) return consumed
  if (typeof consumed === 'string') return Buffer.from(consumed)
  if (consumed === undefined && !readableDidRead) return new Uint8Array(0)
  if (consumed === undefined) {
    const message =
      'Another middleware read the request body before the gateway. Mount the gateway before that middleware.'
    throw new GatewayError('internal', message)
  }
  try {
    return Buffer.from(JSON.stringify(consumed))
  } catch (cause) {
    const message = 'The request body is nested too deeply. Send at most 64 levels.'
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
    /** The listeners stay registered, because later events have no effect. */
    const end = (): void => {
      isSettled = true
      cancel()
      const { buffer, byteOffset, byteLength } = collector.bytes()
      // Node buffers can be searched and decoded without copying.
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

/**
 * Calls the listener once, when the response has been sent or the connection is closed. Node reports a closed
 * connection only to the response that is being sent. This function therefore destroys responses that wait behind an
 * earlier response of the same connection (pipelining).
 */
export function onceFinished(incoming: IncomingMessage, outgoing: ServerResponse, listener: () => void): void {
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

/** Functions that close the waiting responses of each connection, which share one listener. */
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
