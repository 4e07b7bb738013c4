import { once } from 'node:events'
import { createServer, type IncomingMessage } from 'node:http'
import type { RedisClient } from '../../src/redis.ts'

// Processes that open one kind of client do not load the packages of the others.

export interface OpenClient {
  readonly client: RedisClient
  readonly close: () => Promise<void>
}

/** Opens a client for the server at a URL. */
export type OpenRedis = (url: string) => Promise<OpenClient>

export const openIoredis: OpenRedis = async (url) => {
  const { Redis } = await import('ioredis')
  const client = new Redis(url, { lazyConnect: true, enableOfflineQueue: false })
  client.on('error', () => {})
  await client.connect()
  return { client, close: async () => client.disconnect() }
}

export const openNodeRedis: OpenRedis = async (url) => {
  const { createClient } = await import('redis')
  const client = createClient({ url, disableOfflineQueue: true })
  await client.connect()
  return { client, close: async () => client.destroy() }
}

export const openCluster: OpenRedis = async (url) => {
  const { Cluster } = await import('ioredis')
  const client = new Cluster([url], { lazyConnect: true })
  await client.connect()
  return { client, close: async () => client.disconnect() }
}

/** Opens a client of @upstash/redis, through a local server that implements Upstash's HTTP protocol. */
export const openUpstash: OpenRedis = async (url) => {
  const [{ Redis }, { Redis: UpstashRedis }] = await Promise.all([import('ioredis'), import('@upstash/redis')])
  const redis = new Redis(url)
  const run = async ([command = '', ...args]: readonly unknown[]): Promise<object> =>
    redis.call(String(command), ...args.map(String)).then(
      (result) => ({ result }),
      (error: Error) => ({ error: error.message }),
    )
  // The client sends all calls of an event loop turn as one pipeline.
  const server = createServer((request, response) => {
    void readLists(request).then(async (commands) => {
      const results = await Promise.all(commands.map(run))
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(results))
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  const port = typeof address === 'object' && address !== null ? address.port : 0
  const client = new UpstashRedis({
    url: `http://127.0.0.1:${port}`,
    token: 'test',
    responseEncoding: false,
    enableTelemetry: false,
  })
  const close = async (): Promise<void> => {
    redis.disconnect()
    server.closeAllConnections()
    server.close()
  }
  return { client, close }
}

async function readLists(request: IncomingMessage): Promise<readonly (readonly unknown[])[]> {
  const pieces: Buffer[] = []
  for await (const piece of request) pieces.push(piece as Buffer)
  const body: unknown = JSON.parse(Buffer.concat(pieces).toString())
  return Array.isArray(body) ? body : []
}
