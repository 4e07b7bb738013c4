import { GatewayError } from '../core/errors.ts'
import type { HttpRequest } from '../core/http.ts'

/**
 * Refuses what the headers of a JSON request already show to be unusable: a compressed body (its real size is unknown
 * until it is expanded), another content type, a length above the limit.
 */
export function checkJsonHeaders(request: Pick<HttpRequest, 'header'>, maxBytes: number): void {
  const encoding = request.header('content-encoding')
  if (encoding !== undefined && encoding !== '' && encoding.toLowerCase() !== 'identity') {
    throw new GatewayError('unsupported-media', 'Compressed request bodies are not accepted: send plain JSON.', {
      param: 'Content-Encoding',
    })
  }
  const type = request.header('content-type')
  if (type !== JSON_TYPE && (type === undefined || !/^application\/([\w.-]+\+)?json\b/i.test(type))) {
    throw new GatewayError('unsupported-media', 'The body must be JSON with Content-Type: application/json.', {
      param: 'Content-Type',
    })
  }
  if (Number(request.header('content-length') ?? 0) > maxBytes) throw bodyTooLarge(maxBytes)
}

/** Bytes that a body may have, by its headers: one that comes in chunks may be as large as any. */
export function expectedBytes(request: Pick<HttpRequest, 'header'>, maxBytes: number): number {
  return request.header('transfer-encoding') === undefined ? Number(request.header('content-length') ?? 0) : maxBytes
}

const JSON_TYPE = 'application/json'

export function bodyTooLarge(maxBytes: number): GatewayError {
  return new GatewayError('too-large', `The request body is larger than ${maxBytes} bytes, the maximum. Send less.`)
}

export function bodyTooLate(readMs: number): GatewayError {
  return new GatewayError('request-timeout', `The request body did not arrive within ${readMs / 1000} seconds.`)
}

export function bodyUnreadable(cause: unknown): GatewayError {
  const message = 'The request body ended before it was complete. Send it again, whole.'
  return new GatewayError('invalid-request', message, { cause })
}

/** Pieces of `size` bytes together as one; a single piece as it is. */
export function joinBytes(pieces: readonly Uint8Array[], size: number): Uint8Array {
  const [only] = pieces
  if (pieces.length === 1 && only !== undefined) return only
  const whole = new Uint8Array(size)
  let offset = 0
  for (const piece of pieces) {
    whole.set(piece, offset)
    offset += piece.byteLength
  }
  return whole
}
