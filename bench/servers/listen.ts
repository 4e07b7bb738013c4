import type { Server } from 'node:http'
import { responseQueries } from './agent.ts'

/** Listens on a free loopback port. Reports the port and `values` to the benchmark. */
export function listen(server: Server, values: Readonly<Record<string, string>> = {}): void {
  responseQueries()
  // If the server closed an idle connection just as the client reuses it, that request would fail.
  server.keepAliveTimeout = 0
  server.listen(0, '127.0.0.1', () => {
    const address = server.address()
    if (typeof address === 'object' && address !== null) process.send?.({ ready: { port: address.port, ...values } })
  })
}
