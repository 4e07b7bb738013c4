import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http'
import { failure } from './fetcher.ts'
import { madeOf, type Made } from './text-response.ts'

/** How long a caller who still sends its request may go on after the answer, in milliseconds. */
const lingerMs = 1_000

/**
 * Writes a response to node:http. A response that cannot be sent becomes a plain failure while nothing has left, and
 * a broken connection later. Resolves when all is handed over or the caller has left; never rejects.
 */
export async function sendResponse(
  response: Response,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
): Promise<void> {
  if (outgoing.destroyed || outgoing.headersSent) return discard(response)
  try {
    await deliver(response, incoming, outgoing)
  } catch {
    discard(response)
    if (outgoing.headersSent) outgoing.destroy()
    else await refuse(incoming, outgoing)
  }
}

/** For a header that `Headers` allows and HTTP does not, and a body that was read before or fails at once. */
function refuse(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
  for (const name of outgoing.getHeaderNames()) outgoing.removeHeader(name)
  const message = 'The gateway made an answer that cannot be sent. Try again; if it fails again, tell its operator.'
  return deliver(failure(500, message), incoming, outgoing)
}

async function deliver(response: Response, incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
  const made = madeOf(response)
  if (made !== undefined && incoming.complete && incoming.method !== 'HEAD') return sendText(response, made, outgoing)
  const headers = headersOf(response, outgoing)
  if (!incoming.complete) headers['connection'] = 'close'
  const writeHead = (): void => void outgoing.writeHead(response.status, headers)
  if (response.body !== null && incoming.method !== 'HEAD') {
    await sendBody(response.body.getReader(), outgoing, { headers, writeHead })
  } else {
    writeHead()
    discard(response)
  }
  if (!incoming.complete) await uploadEnd(incoming)
  outgoing.end()
}

/** Head and body in one piece. */
function sendText(response: Response, { headers, text }: Made, outgoing: ServerResponse): void {
  outgoing.writeHead(response.status, { ...headers, 'content-length': String(Buffer.byteLength(text)) })
  outgoing.end(text)
}

function headersOf(response: Response, outgoing: ServerResponse): Record<string, string | string[]> {
  const headers: Record<string, string | string[]> = {}
  let cookies = 0
  for (const [name, value] of response.headers) {
    headers[name] = value
    if (name === 'set-cookie') cookies += 1
  }
  if (cookies > 0) headers['set-cookie'] = [...cookiesOf(outgoing), ...response.headers.getSetCookie()]
  return headers
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

interface Head {
  readonly headers: Record<string, string | string[]>
  readonly writeHead: () => void
}

type Reader = ReadableStreamDefaultReader<Uint8Array>
type Piece = Awaited<ReturnType<Reader['read']>>

/** Never asks for more than the caller takes. A caller who leaves cancels the body. */
async function sendBody(reader: Reader, outgoing: ServerResponse, head: Head): Promise<void> {
  const stop = (): void => void reader.cancel().catch(() => undefined)
  outgoing.once('close', stop)
  try {
    const begun = [reader.read(), reader.read()] as const
    const [first, second] = await whatIsThere(...begun)
    if (first?.done === false && second?.done === true)
      head.headers['content-length'] ??= String(first.value.byteLength)
    head.writeHead()
    // Node sends the head with the first piece, which may be long in coming.
    if (first === undefined) outgoing.flushHeaders()
    await pump(begun, reader, outgoing)
  } catch (error) {
    stop()
    throw error
  } finally {
    outgoing.off('close', stop)
  }
}

/**
 * Those of two pieces that need no waiting; rejects when reading has failed by now. A body that was made of one text or
 * of bytes is there at once with its end, and can be sent with its length.
 */
function whatIsThere(first: Promise<Piece>, second: Promise<Piece>): Promise<readonly (Piece | undefined)[]> {
  const now = new Promise<undefined>((resolve) => process.nextTick(resolve, undefined))
  return Promise.all([Promise.race([first, now]), Promise.race([second, now])])
}

async function pump(
  [first, second]: readonly [Promise<Piece>, Promise<Piece>],
  reader: Reader,
  outgoing: ServerResponse,
): Promise<void> {
  let piece = await first
  let begun: Promise<Piece> | undefined = second
  while (!piece.done) {
    if (!outgoing.write(piece.value)) await drained(outgoing)
    piece = await (begun ?? reader.read())
    begun = undefined
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
