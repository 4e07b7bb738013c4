import type { Agent, Dispatcher } from 'undici'
import type { ClosableTransport, TransportRequest, TransportResponse } from '../core/ports.ts'
import { createBodyQueue, type BodyQueue } from './body-queue.ts'

export interface UndiciOptions {
  /** Milliseconds for connecting, TLS included, where the request does not say. @default 10_000 */
  readonly connectTimeoutMs?: number
  /** How long an idle connection is kept, in milliseconds; a shorter time that the upstream announces wins. @default 30_000 */
  readonly keepAliveMs?: number
  /** The most connections to one address; further requests wait for a free one. @default 1024 */
  readonly connections?: number
}

/** The most bytes of response headers. */
const HEADER_BYTES = 16 * 1024
/** Agents differ only in their time-out for connecting; a caller with more different ones shares the last. */
const MOST_AGENTS = 8

/**
 * The transport of Node, on undici's agent: a fifth of the cost of the global fetch. The agent is made, and undici
 * loaded, at the first request. Time-outs other than for connecting are the caller's, by its signal.
 */
export function undiciTransport(options: UndiciOptions = {}): ClosableTransport {
  const agents = new Map<number, Promise<Agent>>()
  const agentFor = (connectMs: number): Promise<Agent> => {
    const known = agents.get(connectMs) ?? (agents.size < MOST_AGENTS ? undefined : [...agents.values()].at(-1))
    if (known !== undefined) return known
    const agent = createAgent(options, connectMs)
    agents.set(connectMs, agent)
    // The next request loads again what could not be loaded.
    agent.catch(() => agents.delete(connectMs))
    return agent
  }
  let ready: { readonly connectMs: number; readonly agent: Agent } | undefined
  const transport = async (request: TransportRequest): Promise<TransportResponse> => {
    const connectMs = request.connectMs ?? options.connectTimeoutMs ?? 10_000
    if (ready?.connectMs !== connectMs) ready = { connectMs, agent: await agentFor(connectMs) }
    return await dispatch(ready.agent, request)
  }
  const close = async (): Promise<void> => {
    const open = [...agents.values()]
    agents.clear()
    ready = undefined
    await Promise.all(open.map(async (agent) => (await agent).destroy()))
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
    maxHeaderSize: HEADER_BYTES,
  })
}

/** One request. Resolves with the final status; informational ones are skipped. */
function dispatch(agent: Agent, request: TransportRequest): Promise<TransportResponse> {
  const { signal } = request
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason)
    let running: Dispatcher.DispatchController | undefined
    let queue: BodyQueue | undefined
    const abort = (): void => {
      settle(signal.reason)
      running?.abort(asError(signal.reason))
    }
    /** The one way out of every end, whichever comes first. */
    const settle = (failure?: unknown): void => {
      signal.removeEventListener('abort', abort)
      queue?.end(failure)
      // Does nothing once the response has begun.
      reject(failure)
    }
    signal.addEventListener('abort', abort, { once: true })
    agent.dispatch(toDispatch(request), {
      onRequestStart(controller) {
        running = controller
        // Undici knows no way to withdraw a request that still waits for its connection.
        if (signal.aborted) controller.abort(asError(signal.reason))
      },
      onResponseStart(controller, status, headers) {
        if (status < 200) return
        const body = createBodyQueue(controller)
        queue = body
        resolve({ status, header: (name) => single(headers[name]), body })
      },
      onResponseData(_controller, bytes) {
        queue?.push(bytes)
      },
      onResponseEnd() {
        settle()
      },
      onResponseError(_controller, error) {
        settle(error)
      },
    })
  })
}

function toDispatch(request: TransportRequest): Dispatcher.DispatchOptions {
  const { origin, path } = splitUrl(request.url)
  return { origin, path, method: request.method, headers: request.headers, body: request.body ?? null }
}

interface SplitUrl {
  readonly origin: string
  readonly path: string
}

/** A provider calls the same few addresses for ever. */
const MOST_ADDRESSES = 64
const addresses = new Map<string, SplitUrl>()

function splitUrl(url: string): SplitUrl {
  const known = addresses.get(url)
  if (known !== undefined) return known
  const { origin, pathname, search } = new URL(url)
  const split = { origin, path: pathname + search }
  if (addresses.size >= MOST_ADDRESSES) addresses.clear()
  addresses.set(url, split)
  return split
}

function single(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value.join(', ') : value
}

function asError(reason: unknown): Error {
  return reason instanceof Error ? reason : new Error('The request was aborted', { cause: reason })
}
