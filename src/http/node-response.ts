import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http'
import { failure } from './fetcher.ts'

/** How long a caller who still sends its request may go on after the answer, in milliseconds. */
const lingerMs = 1_000

/** Writes a response to node:http. Resolves when all is handed over or the caller has left; never rejects. */
export async function sendResponse(
  response: Response,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
): Promise<void> {
  if (outgoing.destroyed || outgoing.headersSent) return discard(response)
  const uploading = !incoming.complete
  if (!writeHead(response, outgoing, uploading)) {
    discard(response)
    for (const name of outgoing.getHeaderNames()) outgoing.removeHeader(name)
    const refusal = failure(500, 'The gateway answered with something that HTTP does not allow. Tell its operator.')
    return sendResponse(refusal, incoming, outgoing)
  }
  if (incoming.method === 'HEAD') discard(response)
  else if (response.body !== null) await pump(response.body, outgoing)
  if (uploading) await uploadEnd(incoming)
  outgoing.end()
}

/** False when the response cannot be sent: node:http refuses a header that `Headers` allows, or its body is taken. */
function writeHead(response: Response, outgoing: ServerResponse, lastOnConnection: boolean): boolean {
  if (response.body?.locked === true || response.bodyUsed) return false
  const headers: Record<string, string | string[]> = {}
  for (const [name, value] of response.headers) headers[name] = value
  const cookies = response.headers.getSetCookie()
  if (cookies.length > 0) headers['set-cookie'] = [...cookiesOf(outgoing), ...cookies]
  if (lastOnConnection) headers['connection'] = 'close'
  try {
    outgoing.writeHead(response.status, headers)
    return true
  } catch {
    return false
  }
}

/** Sets headers that a framework has collected apart from node:http; those of the response win over them. */
export function keepHeaders(headers: OutgoingHttpHeaders, outgoing: ServerResponse): void {
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined) outgoing.setHeader(name, value)
  }
}

/** The cookies that a framework has set before: writing ours would replace them. */
function cookiesOf(outgoing: ServerResponse): readonly string[] {
  const cookies = outgoing.getHeader('set-cookie')
  return Array.isArray(cookies) ? cookies : cookies === undefined ? [] : [String(cookies)]
}

function discard(response: Response): void {
  if (response.body?.locked === false) response.body.cancel().catch(() => undefined)
}

/** Never asks for more than the caller takes; a caller who leaves cancels the body, and a broken body the connection. */
async function pump(body: ReadableStream<Uint8Array>, outgoing: ServerResponse): Promise<void> {
  const reader = body.getReader()
  const stop = (): void => void reader.cancel().catch(() => undefined)
  outgoing.once('close', stop)
  // Node sends the head with the first piece, and the first piece may be long in coming.
  const flush = setImmediate(() => outgoing.flushHeaders())
  try {
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      clearImmediate(flush)
      if (!outgoing.write(piece.value)) await drained(outgoing)
    }
  } catch {
    stop()
    outgoing.destroy()
  } finally {
    clearImmediate(flush)
    outgoing.off('close', stop)
  }
}

/** Resolves also when the connection closes: then nothing will ever drain. */
function drained(outgoing: ServerResponse): Promise<void> {
  if (outgoing.destroyed) return Promise.resolve()
  return new Promise((resolve) => {
    const done = (): void => {
      outgoing.off('drain', done)
      outgoing.off('close', done)
      resolve()
    }
    outgoing.on('drain', done)
    outgoing.on('close', done)
  })
}

/**
 * A connection that is closed while its caller still sends is reset, and the answer may be lost with it.
 * So the rest of the request is read and dropped, for a while.
 */
function uploadEnd(incoming: IncomingMessage): Promise<void> {
  return new Promise((resolve) => {
    if (incoming.complete || incoming.destroyed) return resolve()
    const done = (): void => {
      clearTimeout(timer)
      incoming.off('end', done)
      incoming.off('close', done)
      resolve()
    }
    const timer = setTimeout(done, lingerMs).unref()
    incoming.on('end', done)
    incoming.on('close', done)
    incoming.resume()
  })
}
