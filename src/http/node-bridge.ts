import type { ServerResponse } from 'node:http'
import { answer, failure, type Fetcher } from './fetcher.ts'
import { IncomingRequest, type NodeIncoming } from './node-request.ts'
import { sendResponse } from './node-response.ts'

export type { NodeIncoming } from './node-request.ts'

/** Answers one request of node:http. The promise resolves when all is sent, and never rejects. */
export type NodeHandler = (incoming: NodeIncoming, outgoing: ServerResponse) => Promise<void>

/** Makes a request listener for node:http: `http.createServer(toNodeHandler(gateway))`. */
export function toNodeHandler(gateway: Fetcher): NodeHandler {
  return async (incoming, outgoing) => {
    const request = readRequest(incoming, outgoing)
    const response = request instanceof Response ? request : await answer(gateway, request)
    await sendResponse(response, incoming, outgoing)
  }
}

/** The request, or the response for one whose body cannot be given to the gateway. */
function readRequest(incoming: NodeIncoming, outgoing: ServerResponse): Request | Response {
  if (!wasRead(incoming)) return new IncomingRequest(incoming, outgoing)
  const body = rebuildBody(incoming)
  if (body instanceof Response) return body
  return new IncomingRequest(withBody(incoming, body), outgoing)
}

function wasRead(incoming: NodeIncoming): boolean {
  if (incoming.method === 'GET' || incoming.method === 'HEAD') return false
  return incoming.readableDidRead || incoming.readableEnded
}

/** The bytes that a body parser has taken off the wire, or equal ones. */
function rebuildBody({ rawBody, body, readableDidRead }: NodeIncoming): Buffer | Response {
  const kept = rawBody ?? body
  if (kept instanceof Uint8Array) return Buffer.from(kept.buffer, kept.byteOffset, kept.byteLength)
  if (typeof kept === 'string') return Buffer.from(kept)
  if (kept === undefined && !readableDidRead) return Buffer.alloc(0)
  if (kept === undefined) {
    return failure(500, 'Something read the request body before the gateway. Mount the gateway before that.')
  }
  try {
    return Buffer.from(JSON.stringify(kept))
  } catch {
    return failure(400, 'The request body is nested too deeply. Send at most 64 levels.')
  }
}

/**
 * The same request with another body. It inherits from the original, which goes on telling whether the caller is still
 * there; the headers that described the bytes on the wire describe the new ones.
 */
function withBody(incoming: NodeIncoming, rawBody: Buffer): NodeIncoming {
  const described = new Set(['content-length', 'content-encoding', 'transfer-encoding'])
  const { ...headers } = incoming.headers
  for (const name of described) delete headers[name]
  const length = String(rawBody.byteLength)
  const rawHeaders = incoming.rawHeaders.filter((_, index, all) => {
    const name = all[index - (index % 2)] ?? ''
    return !described.has(name.toLowerCase())
  })
  return Object.create(incoming, {
    rawBody: { value: rawBody },
    headers: { value: { ...headers, 'content-length': length } },
    rawHeaders: { value: [...rawHeaders, 'content-length', length] },
  }) as NodeIncoming
}
