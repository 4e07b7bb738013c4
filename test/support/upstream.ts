import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import type { SseEvent } from '../../src/core/completion.ts'
import type { JsonObject } from '../../src/core/json.ts'
import type { Dialect } from '../../src/core/prompt.ts'
import { buildEvents, buildErrorBody, buildBody, type ModelResponse, type Failure } from './upstream-responses.ts'

export { buildEvents, type ModelResponse, type Failure }

/** A request as the upstream received it. */
export interface UpstreamRequest {
  /** Position in the order of arrival, from 0. */
  readonly index: number
  readonly method: string
  /** Includes the query string. */
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  /** The received body. */
  readonly text: string
  /** The parsed body, or an empty object if it is not JSON. */
  readonly body: JsonObject
  /** `anthropic` if the path contains `/messages`. */
  readonly dialect: Dialect
  /** The `stream` field of the body. */
  readonly stream: boolean
  /** True after the client closed the connection before the response was complete. */
  readonly isAborted: boolean
  /** Resolves when the client closes the connection before the response is complete. */
  readonly aborted: Promise<void>
}

/** An item of a stream that destroys the connection. */
export const CUT: unique symbol = Symbol('cut')
/** An item of a stream that stops sending and leaves the connection open. */
export const HANG: unique symbol = Symbol('hang')

/** An event, text or bytes to write unchanged, a promise to wait for, `CUT` or `HANG`. */
export type StreamItem = SseEvent | string | Uint8Array | Promise<unknown> | typeof CUT | typeof HANG

/** The items of a stream. An asynchronous iterable waits in its own code instead of yielding promises. */
export type StreamItems = Iterable<StreamItem> | AsyncIterable<Exclude<StreamItem, Promise<unknown>>>

/** How the upstream replies to a request. A string is a response with that text. */
export type Reply =
  | string
  | ModelResponse
  | { readonly kind: 'json'; readonly value: unknown; readonly status?: number; readonly headers?: Headers }
  | { readonly kind: 'body'; readonly body: string | Uint8Array; readonly status?: number; readonly headers?: Headers }
  | { readonly kind: 'failure'; readonly status: number; readonly failure?: Failure; readonly headers?: Headers }
  | {
      readonly kind: 'events'
      readonly items: StreamItems
      readonly headers?: Headers
    }
  /** Bytes that are written directly to the socket, such as an invalid status line. */
  | { readonly kind: 'socket'; readonly bytes: string | Uint8Array; readonly close?: boolean }
  | { readonly kind: 'cut' }
  | { readonly kind: 'hang' }
  | { readonly kind: 'by-hand'; readonly response: (serverResponse: ServerResponse, socket: Socket) => unknown }

type Headers = Readonly<Record<string, string | readonly string[]>>
type Responder = (request: UpstreamRequest) => Reply | Promise<Reply>

export interface Upstream {
  /** `http://127.0.0.1:<port>`: base URL of the message format. */
  readonly url: string
  /** `url` with `/v1`: base URL of the chat format. */
  readonly baseUrl: string
  /** All received requests, oldest first. */
  readonly requests: readonly UpstreamRequest[]
  /** The latest request. Throws if none was received. */
  readonly last: UpstreamRequest
  /** Number of open connections. */
  readonly connections: number
  /** Number of connections opened since the start. */
  readonly connectionsOpened: number
  /** Chooses the reply to each request; tests replace it. */
  reply: Responder
  /** Resolves with request number `count`, from 1, when it arrives. */
  waitForRequest(count: number): Promise<UpstreamRequest>
  close(): Promise<void>
}

/**
 * Starts a local HTTP server that imitates an upstream of both formats. Without `reply`, it answers
 * "Hello from upstream." with plausible usage, streamed if the request sets `stream`.
 */
export async function startUpstream(options: { readonly reply?: Responder } = {}): Promise<Upstream> {
  const requests: UpstreamRequest[] = []
  const arrivals = new Set<() => void>()
  const sockets = new Set<Socket>()
  let connectionsOpened = 0
  const server = createServer({ keepAliveTimeout: 60_000 }, (incoming, serverResponse) => {
    void receive(incoming, serverResponse, requests.length).catch(() => serverResponse.destroy())
  })
  server.on('connection', (socket) => {
    connectionsOpened += 1
    sockets.add(socket)
    socket.on('error', () => {})
    socket.once('close', () => sockets.delete(socket))
  })

  async function receive(incoming: IncomingMessage, serverResponse: ServerResponse, index: number): Promise<void> {
    const request = await readRequest(incoming, serverResponse, index)
    requests.push(request)
    for (const wake of arrivals) wake()
    await send(await upstream.reply(request), request, serverResponse)
  }

  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve)
  })
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const upstream: Upstream = {
    url,
    baseUrl: `${url}/v1`,
    requests,
    get last() {
      const request = requests.at(-1)
      if (request === undefined) throw new Error('The upstream received no request')
      return request
    },
    get connections() {
      return sockets.size
    },
    get connectionsOpened() {
      return connectionsOpened
    },
    reply: options.reply ?? (() => 'Hello from upstream.'),
    waitForRequest: (count) =>
      new Promise((resolve) => {
        const check = (): void => {
          const request = requests[count - 1]
          if (request === undefined) return
          arrivals.delete(check)
          resolve(request)
        }
        arrivals.add(check)
        check()
      }),
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        for (const socket of sockets) socket.destroy()
      }),
  }
  return upstream
}

/** Returns the replies in order, and repeats the last one. */
export function replyInOrder(...replies: readonly [Reply, ...Reply[]]): Responder {
  let next = 0
  return () => replies[Math.min(next++, replies.length - 1)] ?? replies[0]
}

/** Creates a promise that a test resolves with `open`. */
export function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open = (): void => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  return { opened, open }
}

/** Formats an event as it is sent in a stream. */
export function formatEvent(frame: SseEvent): string {
  const event = frame.event === undefined ? '' : `event: ${frame.event}\n`
  return `${event}data: ${frame.data}\n\n`
}

async function readRequest(
  incoming: IncomingMessage,
  serverResponse: ServerResponse,
  index: number,
): Promise<UpstreamRequest> {
  let left = false
  const leaving = new Promise<void>((resolve) => {
    serverResponse.once('close', () => {
      if (serverResponse.writableFinished) return
      left = true
      resolve()
    })
  })
  const pieces: Buffer[] = []
  for await (const piece of incoming) pieces.push(piece as Buffer)
  const text = Buffer.concat(pieces).toString('utf8')
  const path = incoming.url ?? '/'
  const body = parseBody(text)
  const headers = Object.fromEntries(
    Object.entries(incoming.headers).map(([name, value]) => [
      name,
      Array.isArray(value) ? value.join(', ') : (value ?? ''),
    ]),
  )
  return {
    index,
    method: incoming.method ?? 'GET',
    path,
    headers,
    text,
    body,
    dialect: path.includes('/messages') ? 'messages' : 'chat',
    stream: body['stream'] === true,
    get isAborted() {
      return left
    },
    aborted: leaving,
  }
}

function parseBody(text: string): JsonObject {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? (value as JsonObject) : {}
  } catch {
    return {}
  }
}

async function send(reply: Reply, request: UpstreamRequest, serverResponse: ServerResponse): Promise<void> {
  if (typeof reply === 'string') return await sendResponse({ text: reply }, request, serverResponse)
  if (!('kind' in reply)) return await sendResponse(reply, request, serverResponse)
  switch (reply.kind) {
    case 'json':
      return sendBody(serverResponse, reply.status ?? 200, JSON.stringify(reply.value), reply.headers)
    case 'body':
      return sendBody(serverResponse, reply.status ?? 200, reply.body, reply.headers)
    case 'failure':
      return sendBody(
        serverResponse,
        reply.status,
        JSON.stringify(buildErrorBody(request.dialect, reply.status, reply.failure)),
        reply.headers,
      )
    case 'events':
      return await sendEvents(serverResponse, reply.items, reply.headers)
    case 'socket':
      serverResponse.socket?.write(reply.bytes)
      if (reply.close !== false) serverResponse.socket?.end()
      return
    case 'cut':
      serverResponse.socket?.destroy()
      return
    case 'hang':
      return
    case 'by-hand':
      if (serverResponse.socket !== null) await reply.response(serverResponse, serverResponse.socket)
  }
}

async function sendResponse(
  response: ModelResponse,
  request: UpstreamRequest,
  serverResponse: ServerResponse,
): Promise<void> {
  if (request.path.includes('/count_tokens')) return sendBody(serverResponse, 200, '{"input_tokens":11}')
  if (request.method === 'GET') return sendBody(serverResponse, 200, '{"object":"list","data":[],"has_more":false}')
  if (request.stream) return await sendEvents(serverResponse, buildEvents(request, response))
  sendBody(serverResponse, 200, JSON.stringify(buildBody(request, response)))
}

function sendBody(
  serverResponse: ServerResponse,
  status: number,
  body: string | Uint8Array,
  headers: Headers = {},
): void {
  serverResponse.writeHead(status, { 'content-type': 'application/json', ...copyHeaders(headers) })
  serverResponse.end(body)
}

async function sendEvents(serverResponse: ServerResponse, items: StreamItems, headers: Headers = {}): Promise<void> {
  serverResponse.writeHead(200, { 'content-type': 'text/event-stream', ...copyHeaders(headers) })
  serverResponse.flushHeaders()
  for await (const item of wrapItems(items)) {
    if (item.value === HANG || serverResponse.destroyed) return
    if (item.value === CUT) {
      serverResponse.socket?.destroy()
      return
    }
    if (item.value instanceof Promise) await item.value
    else await write(serverResponse, item.value)
  }
  serverResponse.end()
}

/** Wraps items, because `for await` replaces promises of a synchronous iterable with their results. */
async function* wrapItems(items: StreamItems): AsyncGenerator<{ readonly value: StreamItem }> {
  if (isAsync(items)) {
    for await (const value of items) yield { value }
    return
  }
  for (const value of items) yield { value }
}

function isAsync(items: StreamItems): items is Exclude<StreamItems, Iterable<StreamItem>> {
  return Symbol.asyncIterator in items
}

/** Resolves when the bytes are flushed, so that `CUT` follows them and a slow reader slows the upstream down. */
function write(serverResponse: ServerResponse, item: SseEvent | string | Uint8Array): Promise<void> {
  const bytes = typeof item === 'string' || item instanceof Uint8Array ? item : formatEvent(item)
  return new Promise((resolve) => {
    serverResponse.once('close', resolve)
    serverResponse.write(bytes, () => {
      serverResponse.off('close', resolve)
      resolve()
    })
  })
}

function copyHeaders(headers: Headers): Record<string, string | string[]> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name, typeof value === 'string' ? value : [...value]]),
  )
}
