import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import type { SseEvent } from '../../src/core/answer.ts'
import type { JsonObject } from '../../src/core/json.ts'
import type { Dialect } from '../../src/core/prompt.ts'
import { buildEvents, buildErrorBody, buildBody, type Answer, type Failure } from './upstream-answers.ts'

export { buildEvents, type Answer, type Failure }

/** One request as the upstream saw it. */
export interface UpstreamRequest {
  /** 0 for the first. */
  readonly index: number
  readonly method: string
  /** With the query string. */
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  /** The body as it came. */
  readonly text: string
  /** The body as JSON; an empty object when it is none. */
  readonly body: JsonObject
  /** By the path: `/messages` is the message format. */
  readonly dialect: Dialect
  /** What the body asks for. */
  readonly stream: boolean
  /** True as soon as the client closed the connection before the answer was complete. */
  readonly isAborted: boolean
  /** Resolves when the client closes the connection before the answer is complete. */
  readonly aborted: Promise<void>
}

/** In a list of events: the connection is destroyed here. */
export const CUT: unique symbol = Symbol('cut')
/** In a list of events: nothing more is sent, and the connection stays open. */
export const HANG: unique symbol = Symbol('hang')

/** A frame, raw text or bytes written as they are, a promise to wait for, or one of `CUT` and `HANG`. */
export type StreamItem = SseEvent | string | Uint8Array | Promise<unknown> | typeof CUT | typeof HANG

/** What a stream sends; an asynchronous source may wait by itself. */
export type StreamItems = Iterable<StreamItem> | AsyncIterable<Exclude<StreamItem, Promise<unknown>>>

/** What the upstream does with a request. A plain text is an answer with that text. */
export type Reply =
  | string
  | Answer
  | { readonly kind: 'json'; readonly value: unknown; readonly status?: number; readonly headers?: Headers }
  | { readonly kind: 'body'; readonly body: string | Uint8Array; readonly status?: number; readonly headers?: Headers }
  | { readonly kind: 'failure'; readonly status: number; readonly failure?: Failure; readonly headers?: Headers }
  | {
      readonly kind: 'events'
      readonly items: StreamItems
      readonly headers?: Headers
    }
  /** Bytes onto the socket, past the HTTP server: broken status lines and the like. */
  | { readonly kind: 'socket'; readonly bytes: string | Uint8Array; readonly close?: boolean }
  | { readonly kind: 'cut' }
  | { readonly kind: 'hang' }
  | { readonly kind: 'by-hand'; readonly answer: (response: ServerResponse, socket: Socket) => unknown }

type Headers = Readonly<Record<string, string | readonly string[]>>
type Responder = (request: UpstreamRequest) => Reply | Promise<Reply>

export interface Upstream {
  /** `http://127.0.0.1:<port>`: the base address of the message format. */
  readonly url: string
  /** The same with `/v1`: the base address of the chat format. */
  readonly baseUrl: string
  /** Every request so far, oldest first. */
  readonly requests: readonly UpstreamRequest[]
  /** The newest request; throws when there was none. */
  readonly last: UpstreamRequest
  /** Connections that are open now. */
  readonly connections: number
  /** Connections that were ever opened. */
  readonly connectionsOpened: number
  /** What the following requests get. */
  reply: Responder
  /** Resolves with request number `count` (1 is the first) as soon as it has arrived. */
  waitForRequest(count: number): Promise<UpstreamRequest>
  close(): Promise<void>
}

/**
 * A real HTTP server on the loopback that plays an upstream of both formats. Without `reply` it answers
 * "Hello from upstream." with plausible usage, streamed or whole as the request asks.
 */
export async function startUpstream(options: { readonly reply?: Responder } = {}): Promise<Upstream> {
  const requests: UpstreamRequest[] = []
  const arrivals = new Set<() => void>()
  const sockets = new Set<Socket>()
  let connectionsOpened = 0
  const server = createServer({ keepAliveTimeout: 60_000 }, (incoming, response) => {
    void receive(incoming, response, requests.length).catch(() => response.destroy())
  })
  server.on('connection', (socket) => {
    connectionsOpened += 1
    sockets.add(socket)
    socket.on('error', () => {})
    socket.once('close', () => sockets.delete(socket))
  })

  async function receive(incoming: IncomingMessage, response: ServerResponse, index: number): Promise<void> {
    const request = await readRequest(incoming, response, index)
    requests.push(request)
    for (const wake of arrivals) wake()
    await send(await upstream.reply(request), request, response)
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
      if (request === undefined) throw new Error('The upstream got no request')
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
        const look = (): void => {
          const request = requests[count - 1]
          if (request === undefined) return
          arrivals.delete(look)
          resolve(request)
        }
        arrivals.add(look)
        look()
      }),
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        for (const socket of sockets) socket.destroy()
      }),
  }
  return upstream
}

/** Replies in turn; the last one for every further request. */
export function replyInOrder(...replies: readonly [Reply, ...Reply[]]): Responder {
  let next = 0
  return () => replies[Math.min(next++, replies.length - 1)] ?? replies[0]
}

/** A promise that is opened by hand, instead of waiting for time to pass. */
export function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open = (): void => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  return { opened, open }
}

/** A frame as bytes on the wire. */
export function formatEvent(frame: SseEvent): string {
  const event = frame.event === undefined ? '' : `event: ${frame.event}\n`
  return `${event}data: ${frame.data}\n\n`
}

async function readRequest(
  incoming: IncomingMessage,
  response: ServerResponse,
  index: number,
): Promise<UpstreamRequest> {
  let left = false
  const leaving = new Promise<void>((resolve) => {
    response.once('close', () => {
      if (response.writableFinished) return
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
    dialect: path.includes('/messages') ? 'anthropic' : 'openai',
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

async function send(reply: Reply, request: UpstreamRequest, response: ServerResponse): Promise<void> {
  if (typeof reply === 'string') return await sendAnswer({ text: reply }, request, response)
  if (!('kind' in reply)) return await sendAnswer(reply, request, response)
  switch (reply.kind) {
    case 'json':
      return sendBody(response, reply.status ?? 200, JSON.stringify(reply.value), reply.headers)
    case 'body':
      return sendBody(response, reply.status ?? 200, reply.body, reply.headers)
    case 'failure':
      return sendBody(
        response,
        reply.status,
        JSON.stringify(buildErrorBody(request.dialect, reply.status, reply.failure)),
        reply.headers,
      )
    case 'events':
      return await sendEvents(response, reply.items, reply.headers)
    case 'socket':
      response.socket?.write(reply.bytes)
      if (reply.close !== false) response.socket?.end()
      return
    case 'cut':
      response.socket?.destroy()
      return
    case 'hang':
      return
    case 'by-hand':
      if (response.socket !== null) await reply.answer(response, response.socket)
  }
}

async function sendAnswer(answer: Answer, request: UpstreamRequest, response: ServerResponse): Promise<void> {
  if (request.path.includes('/count_tokens')) return sendBody(response, 200, '{"input_tokens":11}')
  if (request.method === 'GET') return sendBody(response, 200, '{"object":"list","data":[],"has_more":false}')
  if (request.stream) return await sendEvents(response, buildEvents(request, answer))
  sendBody(response, 200, JSON.stringify(buildBody(request, answer)))
}

function sendBody(response: ServerResponse, status: number, body: string | Uint8Array, headers: Headers = {}): void {
  response.writeHead(status, { 'content-type': 'application/json', ...copyHeaders(headers) })
  response.end(body)
}

async function sendEvents(response: ServerResponse, items: StreamItems, headers: Headers = {}): Promise<void> {
  response.writeHead(200, { 'content-type': 'text/event-stream', ...copyHeaders(headers) })
  response.flushHeaders()
  for await (const item of wrapItems(items)) {
    if (item.value === HANG || response.destroyed) return
    if (item.value === CUT) {
      response.socket?.destroy()
      return
    }
    if (item.value instanceof Promise) await item.value
    else await write(response, item.value)
  }
  response.end()
}

/** `for await` over a plain iterable would wait for promises and lose them; wrapped they arrive as they are. */
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

/** Resolves when the bytes have left for the socket: a cut comes after them, and a slow reader slows the upstream. */
function write(response: ServerResponse, item: SseEvent | string | Uint8Array): Promise<void> {
  const bytes = typeof item === 'string' || item instanceof Uint8Array ? item : formatEvent(item)
  return new Promise((resolve) => {
    response.once('close', resolve)
    response.write(bytes, () => {
      response.off('close', resolve)
      resolve()
    })
  })
}

function copyHeaders(headers: Headers): Record<string, string | string[]> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name, typeof value === 'string' ? value : [...value]]),
  )
}
