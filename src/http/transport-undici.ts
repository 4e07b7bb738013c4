import { Readable } from 'node:stream'
import type { Agent, Dispatcher } from 'undici'
import type { ClosableTransport, TransportCall, TransportHandler, TransportRequest } from '../core/ports.ts'

export interface UndiciOptions {
  /** Milliseconds for connecting, TLS included, when the request states none. @default 10_000 */
  readonly connectTimeoutMs?: number
  /** Milliseconds for which an idle connection is kept; a shorter time that the upstream announces wins. @default 30_000 */
  readonly keepAliveMs?: number
  /** Maximum number of connections to one address; further requests wait for a free one. @default 1024 */
  readonly connections?: number
}

/** Maximum size of response headers in bytes. */
const MAX_HEADER_BYTES = 16 * 1024
/** Agents differ only in their connect timeout; further timeouts share the newest agent. */
const MAX_AGENTS = 8

/**
 * The transport of Node, on undici's `dispatch`: a fifth of the cost of the global fetch. Undici is loaded, and the agent
 * created, by the first request. All timeouts but the one for connecting are the caller's.
 */
export function undiciTransport(options: UndiciOptions = {}): ClosableTransport {
  const agents = new Map<number, Promise<Agent>>()
  const agentFor = (connectMs: number): Promise<Agent> => {
    const known = agents.get(connectMs) ?? (agents.size < MAX_AGENTS ? undefined : [...agents.values()].at(-1))
    if (known !== undefined) return known
    const agent = createAgent(options, connectMs)
    agents.set(connectMs, agent)
    // A failed import must not fail every later request.
    agent.catch(() => agents.delete(connectMs))
    return agent
  }
  let ready: { readonly connectMs: number; readonly agent: Agent } | undefined
  const transport = (request: TransportRequest, handler: TransportHandler): TransportCall => {
    const connectMs = request.connectMs ?? options.connectTimeoutMs ?? 10_000
    const call = new UndiciCall(handler)
    if (ready?.connectMs === connectMs) {
      call.dispatch(ready.agent, request)
      return call
    }
    agentFor(connectMs).then(
      (agent) => {
        ready = { connectMs, agent }
        call.dispatch(agent, request)
      },
      (error: unknown) => call.fail(error),
    )
    return call
  }
  const close = async (): Promise<void> => {
    const open = [...agents.values()]
    agents.clear()
    ready = undefined
    await Promise.allSettled(open.map(async (agent) => (await agent).destroy()))
  }
  return Object.assign(transport, { close })
}

/** The transport that fits the platform: on Node this one, elsewhere the one of `transport-fetch.ts`. */
export function defaultTransport(): ClosableTransport {
  return undiciTransport()
}

async function createAgent(options: UndiciOptions, connectMs: number): Promise<Agent> {
  const { Agent } = await import('undici')
  return new Agent({
    connect: { timeout: connectMs },
    keepAliveTimeout: options.keepAliveMs ?? 30_000,
    connections: options.connections ?? 1024,
    pipelining: 1,
    headersTimeout: 0,
    bodyTimeout: 0,
    maxHeaderSize: MAX_HEADER_BYTES,
  })
}

/** A larger body is written in slices: a socket that takes 30 MB at once blocks the event loop. */
const LARGE_BODY_BYTES = 1024 * 1024
const SLICE = 256 * 1024

function* slicesOf(bytes: Uint8Array): Generator<Uint8Array> {
  for (let at = 0; at < bytes.byteLength; at += SLICE) yield bytes.subarray(at, at + SLICE)
}

const ABORTED = new Error('The upstream call was aborted')

/** One call: undici's handler on one side, the caller's on the other. Silent after `abort`. */
class UndiciCall implements TransportCall, Dispatcher.DispatchHandler {
  readonly #handler: TransportHandler
  #controller: Dispatcher.DispatchController | undefined
  #isOver = false

  constructor(handler: TransportHandler) {
    this.#handler = handler
  }

  dispatch(agent: Agent, request: TransportRequest): void {
    if (this.#isOver) return
    const { origin, path } = splitUrl(request.url)
    const { method, headers, body = null } = request
    if (body === null || body.length <= LARGE_BODY_BYTES) {
      agent.dispatch({ origin, path, method, headers, body }, this)
      return
    }
    const bytes = typeof body === 'string' ? Buffer.from(body) : body
    const sized = { ...headers, 'content-length': String(bytes.byteLength) }
    agent.dispatch({ origin, path, method, headers: sized, body: Readable.from(slicesOf(bytes)) }, this)
  }

  fail(error: unknown): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#handler.onError(error)
  }

  pause(): void {
    this.#controller?.pause()
  }

  resume(): void {
    this.#controller?.resume()
  }

  abort(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#controller?.abort(ABORTED)
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller
    // Undici cannot withdraw a request that still waits for a connection.
    if (this.#isOver) controller.abort(ABORTED)
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number, headers: ResponseHeaders): void {
    if (this.#isOver || status < 200) return
    this.#handler.onHead(status, (name) => single(headers[name]))
  }

  onResponseData(_controller: Dispatcher.DispatchController, bytes: Uint8Array): void {
    // Undici reports an empty piece after each `resume`: a reader that pauses at every piece would never get on.
    if (!this.#isOver && bytes.byteLength > 0) this.#handler.onData(bytes)
  }

  onResponseEnd(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#handler.onEnd()
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.fail(error)
  }
}

type ResponseHeaders = Readonly<Record<string, string | string[] | undefined>>

function single(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value.join(', ') : value
}

interface SplitUrl {
  readonly origin: string
  readonly path: string
}

/** A provider calls the same few addresses again and again. */
const MAX_ADDRESSES = 64
const addresses = new Map<string, SplitUrl>()

function splitUrl(url: string): SplitUrl {
  const known = addresses.get(url)
  if (known !== undefined) return known
  const { origin, pathname, search } = new URL(url)
  const split = { origin, path: pathname + search }
  if (addresses.size >= MAX_ADDRESSES) addresses.clear()
  addresses.set(url, split)
  return split
}
