import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'

/** The proxy forwards bytes, forwards them late, holds them, or closes all connections, also new ones. */
export type ProxyMode = 'pass' | 'hang' | 'slow' | 'cut'

export interface TcpProxy {
  readonly port: number
  set(mode: ProxyMode): void
  close(): Promise<void>
}

/** Delay of each piece in `slow` mode, in milliseconds. */
const SLOW_MS = 100

/** Starts a proxy in front of a local server. */
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
