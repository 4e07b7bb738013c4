import { once } from 'node:events'
import { createServer, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { checkOptions, expects, falseOr, optionsOf, integerFrom } from '../core/check-options.ts'
import { type NodeHandling, toNodeHandling } from './node-fetch.ts'
import { type NodeIncoming, NodeRequest, NodeSink } from './node-http.ts'
import {
  ADAPTER_CHECKS,
  type AdapterOptions,
  checkAdapterOptions,
  checkTakesContext,
  type Served,
  servesFetch,
} from './served.ts'

/** Options of `serve()`. */
export interface ServeOptions extends AdapterOptions<NodeIncoming> {
  /** The port to listen on. 0 chooses a free port. */
  readonly port: number
  /** The address to listen on. @default all addresses of the machine */
  readonly hostname?: string | undefined
  /** Maximum time that `close` waits for running requests, in milliseconds. @default 30_000 */
  readonly drainMs?: number
  /**
   * Idle timeout of a connection, in milliseconds. It must be longer than the idle timeout of any proxy in front of the
   * server, commonly 60 s. Otherwise, the proxy may reuse a connection that was just closed, and report a reset.
   * `false` switches the timeout off. @default 75_000
   */
  readonly keepAliveMs?: false | number
}

/** Longer delays overflow. */
const MAX_TIMER_MS = 2 ** 31 - 1
const checkMs = integerFrom(0, MAX_TIMER_MS, 'milliseconds')
const checkServeOptions = optionsOf(
  {
    ...ADAPTER_CHECKS,
    port: integerFrom(0, 65_535),
    hostname: expects('a host name or an address', (value) => typeof value === 'string'),
    drainMs: checkMs,
    keepAliveMs: falseOr(integerFrom(1, MAX_TIMER_MS, 'milliseconds')),
  },
  ['port'],
)

const FIRST_REQUEST_TIMEOUT_MS = 1_000
/** One turn to accept, one to read, and one for data that arrives in the meantime. */
const QUIET_TURNS = 3

/** A listening server. */
export interface RunningServer {
  readonly port: number
  /** The address of the server on this machine, without a trailing slash. */
  readonly url: string
  /**
   * Stops listening, answers the requests that have arrived, and closes the remaining connections after `drainMs`.
   * Waits at most one second for the first request of a new connection. Does not close the gateway; call
   * `gateway.close()` afterwards.
   */
  close(): Promise<void>
}

/**
 * Serves a gateway, or any object with a Web-standard `fetch`, with node:http, with limits that are suitable for the public internet: 10 s for the headers of a
 * request, 60 s for the complete request, and 200 headers. Rejects if an argument is invalid or the address is unavailable.
 *
 * @example
 * const server = await serve(gateway, { port: 8787 })
 * console.log(`http://localhost:${server.port}/v1`)
 * process.once('SIGTERM', async () => {
 *   await server.close()
 *   await gateway.close()
 * })
 */
export async function serve(gateway: Served, options: ServeOptions): Promise<RunningServer> {
  checkOptions('serve', options, checkServeOptions)
  const listen = nodeListenerOf('serve', gateway, options)
  const { drainMs = 30_000, keepAliveMs = 75_000 } = options
  const server = createServer({
    keepAliveTimeout: keepAliveMs === false ? 0 : keepAliveMs,
    headersTimeout: 10_000,
    requestTimeout: 60_000,
    connectionsCheckingInterval: 5_000,
  })
  server.maxHeadersCount = 200
  const connections = new ConnectionTracker(server)
  server.on('request', (incoming, outgoing) =>
    listen(new NodeRequest(incoming, outgoing), new NodeSink(incoming, outgoing), incoming),
  )
  server.listen({ port: options.port, host: options.hostname })
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  let closed: Promise<void> | undefined
  return {
    port,
    url: `http://${hostOf(options.hostname)}:${port}`,
    close: () => (closed ??= drain(server, connections, drainMs)),
  }
}

function hostOf(hostname = 'localhost'): string {
  return hostname.includes(':') ? `[${hostname}]` : hostname
}

interface Connection {
  runningRequests: number
  wasUsed: boolean
}

/** Node treats a new connection as busy, and closes an idle connection even if an unread request has arrived on it. */
class ConnectionTracker {
  arrivals = 0
  readonly #connections = new Map<Socket, Connection>()
  #isEnding = false
  #isEndingUnused = false

  constructor(server: Server) {
    server.on('connection', (socket: Socket) => {
      this.arrivals++
      this.#connections.set(socket, { runningRequests: 0, wasUsed: false })
      socket.once('close', () => this.#connections.delete(socket))
    })
    server.on('request', ({ socket }, outgoing) => {
      const connection = this.#connections.get(socket)
      this.arrivals++
      if (connection === undefined) return
      connection.runningRequests++
      connection.wasUsed = true
      if (this.#isEnding) outgoing.shouldKeepAlive = false
      outgoing.once('close', () => {
        connection.runningRequests--
        this.#closeIfDone(socket, connection)
      })
    })
  }

  /** Leaves connections without a first request open until `endUnused`. */
  end(): void {
    this.#isEnding = true
    for (const [socket, connection] of this.#connections) this.#closeIfDone(socket, connection)
  }

  endUnused(): void {
    this.#isEndingUnused = true
    this.end()
  }

  #closeIfDone(socket: Socket, { runningRequests, wasUsed }: Connection): void {
    if (this.#isEnding && runningRequests === 0 && (wasUsed || this.#isEndingUnused)) socket.destroySoon()
  }
}

/** First reads data that has arrived, because closing resets unaccepted connections and those with unread requests. */
async function drain(server: Server, connections: ConnectionTracker, drainMs: number): Promise<void> {
  const firstRequestMs = Math.min(FIRST_REQUEST_TIMEOUT_MS, drainMs)
  await waitUntilQuiet(connections, Date.now() + firstRequestMs)
  await new Promise<void>((resolve) => {
    const drainTimer = setTimeout(() => server.closeAllConnections(), drainMs)
    const unusedTimer = setTimeout(() => connections.endUnused(), firstRequestMs)
    server.close(() => {
      clearTimeout(drainTimer)
      clearTimeout(unusedTimer)
      resolve()
    })
    connections.end()
  })
}

/** Waits several turns, because Node accepts only one connection per turn of the event loop. */
async function waitUntilQuiet(connections: ConnectionTracker, deadline: number): Promise<void> {
  let previousArrivals = connections.arrivals
  for (let quietTurns = 0; quietTurns < QUIET_TURNS; quietTurns++) {
    await new Promise((resolve) => setImmediate(resolve))
    const { arrivals } = connections
    if (arrivals !== previousArrivals && Date.now() < deadline) quietTurns = -1
    previousArrivals = arrivals
  }
}

/** Answers one request of node:http. Never rejects. Resolves after the response, or when the client disconnects. */
export type NodeHandler = (incoming: NodeIncoming, outgoing: ServerResponse) => Promise<void>

/**
 * Returns a request listener for node:http: `http.createServer(toNodeHandler(gateway))`.
 *
 * @example
 * createServer(toNodeHandler(gateway)).listen(8787)
 */
export function toNodeHandler(gateway: Served, options: AdapterOptions<NodeIncoming> = {}): NodeHandler {
  const handle = nodeHandlerOf('toNodeHandler', gateway, options)
  return (incoming, outgoing) => handle(incoming, outgoing, incoming)
}

/** @param name The adapter that reports an invalid argument. */
export function nodeHandlerOf<FrameworkRequest>(
  name: string,
  gateway: Served,
  options: AdapterOptions<FrameworkRequest>,
): (incoming: NodeIncoming, outgoing: ServerResponse, request: FrameworkRequest) => Promise<void> {
  checkOptions(name, options, checkAdapterOptions)
  if (options.context === undefined) {
    const handling: NodeHandling = servesFetch(name, gateway) ? toNodeHandling(gateway) : gateway
    return (incoming, outgoing) =>
      new Promise((resolve) => {
        handling.handle(new NodeRequest(incoming, outgoing), new NodeSink(incoming, outgoing, resolve))
      })
  }
  const listen = nodeListenerOf(name, gateway, options)
  return (incoming, outgoing, request) =>
    new Promise((resolve) => {
      listen(new NodeRequest(incoming, outgoing), new NodeSink(incoming, outgoing, resolve), request)
    })
}

function nodeListenerOf<FrameworkRequest>(
  name: string,
  gateway: Served,
  options: AdapterOptions<FrameworkRequest>,
): (request: NodeRequest, sink: NodeSink, frameworkRequest: FrameworkRequest) => void {
  if (options.context !== undefined) {
    checkTakesContext(name, gateway)
    return (request, sink, frameworkRequest) => gateway.handle(request, sink, () => options.context?.(frameworkRequest))
  }
  const handling: NodeHandling = servesFetch(name, gateway) ? toNodeHandling(gateway) : gateway
  return (request, sink) => handling.handle(request, sink)
}
