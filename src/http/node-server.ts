import { createServer, type Server } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import type { HttpHandling } from '../core/http.ts'
import { toNodeListener } from './node-handler.ts'

export interface ServeOptions {
  /** 0 takes any free port. */
  readonly port: number
  /** The address to listen on. @default every address of the machine */
  readonly hostname?: string
  /** How long `close` waits for requests that are being answered, in milliseconds. @default 30_000 */
  readonly drainMs?: number
}

/** A listening server. */
export interface RunningServer {
  readonly port: number
  /** Where to reach the server from this machine, without a slash at the end. */
  readonly url: string
  /**
   * Takes no new connections, lets running requests finish, and cuts those that are not done after `drainMs`.
   * It does not close the gateway: that comes after.
   */
  close(): Promise<void>
}

/**
 * Serves a gateway with node:http, with limits tight enough for the open internet: 10 s for the headers of a request,
 * 60 s for all of it, 200 headers. Rejects when the port cannot be had.
 */
export async function serve(gateway: HttpHandling, options: ServeOptions): Promise<RunningServer> {
  const server = createServer({
    headersTimeout: 10_000,
    requestTimeout: 60_000,
    connectionsCheckingInterval: 5_000,
  })
  server.maxHeadersCount = 200
  const answer = toNodeListener(gateway)
  const resting = restingConnections(server)
  server.on('request', answer)
  await listen(server, options)
  const { port } = server.address() as AddressInfo
  let closed: Promise<void> | undefined
  return {
    port,
    url: `http://${hostOf(options.hostname)}:${port}`,
    close: () => (closed ??= drain(server, resting, options.drainMs ?? 30_000)),
  }
}

function hostOf(hostname = 'localhost'): string {
  return hostname.includes(':') ? `[${hostname}]` : hostname
}

function listen(server: Server, { port, hostname }: ServeOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen({ port, host: hostname }, () => {
      server.off('error', reject)
      resolve()
    })
  })
}

/** The connections on which nothing is asked, those included on which nothing ever was. Node counts these as busy. */
interface Resting {
  /** Ends them now, and every other one as soon as its answer is sent. */
  end(): void
}

function restingConnections(server: Server): Resting {
  const asked = new Map<Socket, number>()
  let ending = false
  const count = (socket: Socket, change: number): void => {
    const left = (asked.get(socket) ?? 0) + change
    asked.set(socket, left)
    if (ending && left === 0) socket.destroySoon()
  }
  server.on('connection', (socket: Socket) => {
    asked.set(socket, 0)
    socket.once('close', () => asked.delete(socket))
  })
  server.on('request', ({ socket }, outgoing) => {
    count(socket, 1)
    outgoing.once('close', () => count(socket, -1))
  })
  return {
    end: () => {
      ending = true
      for (const [socket, requests] of asked) if (requests === 0) socket.destroySoon()
    },
  }
}

function drain(server: Server, resting: Resting, drainMs: number): Promise<void> {
  return new Promise((resolve) => {
    const deadline = setTimeout(() => server.closeAllConnections(), drainMs)
    server.close(() => {
      clearTimeout(deadline)
      resolve()
    })
    resting.end()
  })
}
