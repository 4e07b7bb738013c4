import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'

/** How the proxy treats connections: pass bytes on, hold them back, or end every connection and refuse new ones. */
export type ProxyMode = 'pass' | 'hang' | 'slow' | 'cut'

export interface TcpProxy {
  readonly port: number
  set(mode: ProxyMode): void
  close(): Promise<void>
}

/** Bytes are held back for so long in the mode `slow`. */
const SLOW_MS = 100

/** Stands between a client and a server on this machine. */
export async function startTcpProxy(target: string): Promise<TcpProxy> {
  const { hostname, port } = new URL(target)
  const sockets = new Set<Socket>()
  const held: (() => void)[] = []
  let mode: ProxyMode = 'pass'

  function pass(from: Socket, to: Socket): void {
    from.on('data', (bytes) => {
      const send = (): void => void (to.destroyed || to.write(bytes))
      if (mode === 'hang' || held.length > 0) held.push(send)
      else if (mode === 'slow') setTimeout(send, SLOW_MS)
      else send()
    })
    from.once('close', () => to.destroy())
    from.on('error', () => to.destroy())
    sockets.add(from)
    from.once('close', () => sockets.delete(from))
  }

  const server = createServer((client) => {
    if (mode === 'cut') return void client.destroy()
    const upstream = connect(Number(port), hostname)
    pass(client, upstream)
    pass(upstream, client)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()

  return {
    port: typeof address === 'object' && address !== null ? address.port : 0,
    set: (next) => {
      mode = next
      if (next === 'cut') for (const socket of sockets) socket.destroy()
      if (next !== 'hang') for (const send of held.splice(0)) send()
    },
    close: async () => {
      for (const socket of sockets) socket.destroy()
      server.close()
      await once(server, 'close')
    },
  }
}
