import type { Server } from 'node:http'

/** Listens on a free port of the loopback, tells the parent, and answers `cpu` with the microseconds used so far. */
export function serveParent(server: Server): void {
  server.listen(0, '127.0.0.1', () => {
    const address = server.address()
    if (typeof address === 'object' && address !== null) process.send?.({ port: address.port })
  })
  process.on('message', (message) => {
    if (message !== 'cpu') return
    const { user, system } = process.cpuUsage()
    process.send?.({ cpu: user + system, rss: process.memoryUsage().rss })
  })
  process.on('disconnect', () => process.exit(0))
}
