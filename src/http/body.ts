import { GatewayError } from '../core/errors.ts'
import { joinBytes } from './bytes.ts'

export interface BodyLimits {
  readonly maxBytes: number
  /** How long a caller may take to send the body, in milliseconds. */
  readonly readMs: number
  readonly after: (ms: number, callback: () => void) => () => void
}

/**
 * The bytes of a request's body, at most `maxBytes`. Refuses compressed bodies (413 could not be promised for them)
 * and content types that are not JSON.
 */
export async function readBody(request: Request, limits: BodyLimits): Promise<Uint8Array> {
  checkHeaders(request.headers, limits.maxBytes)
  const read = request.headers.get('content-length') === null ? readCounted(request, limits) : readWhole(request)
  const bytes = await withDeadline(read, limits)
  if (bytes.byteLength > limits.maxBytes) throw tooLarge(limits.maxBytes)
  return bytes
}

function checkHeaders(headers: Headers, maxBytes: number): void {
  const encoding = headers.get('content-encoding')
  if (encoding !== null && encoding !== '' && encoding.toLowerCase() !== 'identity') {
    throw new GatewayError('unsupported-media', 'Compressed request bodies are not accepted: send plain JSON.', {
      param: 'Content-Encoding',
    })
  }
  const type = headers.get('content-type')
  if (type === null || !/^application\/([\w.-]+\+)?json\b/i.test(type)) {
    throw new GatewayError('unsupported-media', 'The body must be JSON with Content-Type: application/json.', {
      param: 'Content-Type',
    })
  }
  if (Number(headers.get('content-length') ?? 0) > maxBytes) throw tooLarge(maxBytes)
}

/** A server that gave a Content-Length holds the body to it, so that reading it at once is bounded. */
async function readWhole(request: Request): Promise<Uint8Array> {
  try {
    return new Uint8Array(await request.arrayBuffer())
  } catch (error) {
    throw unreadable(error)
  }
}

/** Without a Content-Length the bytes are counted as they come. */
async function readCounted(request: Request, limits: BodyLimits): Promise<Uint8Array> {
  if (request.body === null) return new Uint8Array(0)
  const pieces: Uint8Array[] = []
  let size = 0
  try {
    for await (const piece of request.body) {
      size += piece.byteLength
      if (size > limits.maxBytes) break
      pieces.push(piece)
    }
  } catch (error) {
    throw unreadable(error)
  }
  if (size > limits.maxBytes) throw tooLarge(limits.maxBytes)
  return joinBytes(pieces, size)
}

async function withDeadline(read: Promise<Uint8Array>, limits: BodyLimits): Promise<Uint8Array> {
  let cancel: () => void = () => {}
  const late = new Promise<never>((_, reject) => {
    cancel = limits.after(limits.readMs, () =>
      reject(new GatewayError('request-timeout', `The body did not arrive within ${limits.readMs / 1000} seconds.`)),
    )
  })
  try {
    return await Promise.race([read, late])
  } finally {
    cancel()
  }
}

function tooLarge(maxBytes: number): GatewayError {
  return new GatewayError('too-large', `The body is larger than ${maxBytes} bytes, the greatest that is accepted here.`)
}

function unreadable(cause: unknown): GatewayError {
  return new GatewayError('invalid-request', 'The body could not be read to its end: send it whole.', { cause })
}
