import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Fetcher } from './fetcher.ts'
import { toNodeHandler } from './node-bridge.ts'

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
export async function serve(gateway: Fetcher, options: ServeOptions): Promise<RunningServer> {
  const server = createServer({
    headersTimeout: 10_000,
    requestTimeout: 60_000,
    connectionsCheckingInterval: 5_000,
  })
  server.maxHeadersCount = 200
  const handle = toNodeHandler(gateway)
  server.on('request', (incoming, outgoing) => {
    // A connection that is kept alive would hold up a server that closes.
    outgoing.once('close', () => void (server.listening || server.closeIdleConnections()))
    void handle(incoming, outgoing)
  })
  await listen(server, options)
  const { port } = server.address() as AddressInfo
  let closed: Promise<void> | undefined
  return {
    port,
    url: `http://${hostOf(options.hostname)}:${port}`,
    close: () => (closed ??= drain(server, options.drainMs ?? 30_000)),
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

function drain(server: Server, drainMs: number): Promise<void> {
  return new Promise((resolve) => {
    const deadline = setTimeout(() => server.closeAllConnections(), drainMs)
    server.close(() => {
      clearTimeout(deadline)
      resolve()
    })
  })
}
