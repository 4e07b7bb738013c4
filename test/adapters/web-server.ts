import { createServer, type IncomingMessage, type Server } from 'node:http'
import { Readable } from 'node:stream'
import type { ReadableStream as NodeStream } from 'node:stream/web'

/** Creates a server that calls a web-standard handler, as hosts of route handlers do. */
export function webServer(handle: (request: Request) => Promise<Response>): Server {
  return createServer(async (incoming, outgoing) => {
    const left = new AbortController()
    outgoing.once('close', () => {
      if (!outgoing.writableFinished) left.abort(new Error('The client left.'))
    })
    const response = await handle(requestOf(incoming, left.signal))
    outgoing.writeHead(response.status, Object.fromEntries(response.headers))
    outgoing.flushHeaders()
    if (response.body === null) return void outgoing.end()
    const body = Readable.fromWeb(response.body as NodeStream<Uint8Array>)
    body.on('error', () => outgoing.destroy())
    outgoing.once('close', () => body.destroy())
    body.pipe(outgoing)
  })
}

function requestOf(incoming: IncomingMessage, signal: AbortSignal): Request {
  const { method = 'GET', url = '/', headers } = incoming
  const init = { method, headers: headers as Record<string, string>, signal }
  const address = `http://${headers.host ?? 'localhost'}${url}`
  if (method === 'GET' || method === 'HEAD') return new Request(address, init)
  const body = Readable.toWeb(incoming) as ReadableStream<Uint8Array>
  return new Request(address, { ...init, body, duplex: 'half' } as RequestInit)
}
