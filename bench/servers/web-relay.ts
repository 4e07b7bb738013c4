/**
 * A relay on web-standard objects: node:http → Request → undici → Response → node:http, as in frameworks with a `fetch`
 * handler. argv: upstream URL.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { Pool } from 'undici'
import { listen } from './listen.ts'

const pool = new Pool(process.argv[2] ?? '', { connections: 128, pipelining: 1 })

const server = createServer(async (incoming, outgoing) => {
  const response = await relay(await toRequest(incoming))
  await send(response, outgoing)
})
listen(server)

async function relay(request: Request): Promise<Response> {
  const upstream = await pool.request({
    path: new URL(request.url).pathname,
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: 'Bearer upstream' },
    body: Buffer.from(await request.arrayBuffer()),
  })
  const type = String(upstream.headers['content-type'])
  // `ReadableStream` of node:stream/web is the same class with different type parameters.
  const body = Readable.toWeb(upstream.body) as ReadableStream<Uint8Array>
  return new Response(body, { status: upstream.statusCode, headers: { 'content-type': type } })
}

async function toRequest(incoming: IncomingMessage): Promise<Request> {
  const pieces: Buffer[] = []
  for await (const piece of incoming) pieces.push(piece as Buffer)
  const headers = new Headers()
  for (const [name, value] of Object.entries(incoming.headers)) headers.set(name, String(value))
  return new Request(`http://${incoming.headers.host}${incoming.url}`, {
    method: 'POST',
    headers,
    body: Buffer.concat(pieces),
  })
}

async function send(response: Response, outgoing: ServerResponse): Promise<void> {
  outgoing.writeHead(response.status, Object.fromEntries(response.headers))
  const reader = response.body?.getReader()
  for (let next = await reader?.read(); next !== undefined && !next.done; next = await reader?.read()) {
    if (!outgoing.write(next.value)) await new Promise((resolve) => outgoing.once('drain', resolve))
  }
  outgoing.end()
}
