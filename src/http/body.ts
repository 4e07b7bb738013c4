import { GatewayError } from '../core/errors.ts'
import type { HttpRequest } from '../core/http.ts'

/**
 * Throws for a compressed body (its size is unknown until it is decompressed), a content type other than JSON, or a
 * length above the limit.
 */
export function checkJsonHeaders(request: Pick<HttpRequest, 'header'>, maxBytes: number): void {
  const encoding = request.header('content-encoding')
  if (encoding !== undefined && encoding !== '' && encoding.toLowerCase() !== 'identity') {
    const message = 'Compressed request bodies are not accepted. Send plain JSON without Content-Encoding.'
    throw new GatewayError('unsupported-media', message, { param: 'Content-Encoding' })
  }
  const type = request.header('content-type')
  if (type !== JSON_TYPE && (type === undefined || !/^application\/([\w.-]+\+)?json\b/i.test(type))) {
    throw new GatewayError(
      'unsupported-media',
      'The Content-Type is not application/json. Send a JSON body with Content-Type: application/json.',
      {
        param: 'Content-Type',
      },
    )
  }
  if (Number(request.header('content-length') ?? 0) > maxBytes) throw bodyTooLarge(maxBytes)
}

/** Returns the Content-Length, or the maximum size for a chunked body. */
export function expectedBytes(request: Pick<HttpRequest, 'header'>, maxBytes: number): number {
  return request.header('transfer-encoding') === undefined ? Number(request.header('content-length') ?? 0) : maxBytes
}

const JSON_TYPE = 'application/json'

export function bodyTooLarge(maxBytes: number): GatewayError {
  const message = `The request body exceeds the maximum of ${maxBytes} bytes. Send a smaller body.`
  return new GatewayError('too-large', message)
}

export function bodyTooLate(readMs: number): GatewayError {
  const message = `The request body did not arrive within ${readMs / 1000} seconds. Send the request again.`
  return new GatewayError('request-timeout', message)
}

export function bodyUnreadable(cause: unknown): GatewayError {
  const message = 'The request body ended before it was complete. Send the request again.'
  return new GatewayError('invalid-request', message, { cause })
}

/** Joins pieces whose total length is `size`. Returns a single piece without copying it. */
export function joinBytes(pieces: readonly Uint8Array[], size: number): Uint8Array {
  const [only] = pieces
  if (pieces.length === 1 && only !== undefined) return only
  const joined = allocate(size)
  let offset = 0
  for (const piece of pieces) {
    joined.set(piece, offset)
    offset += piece.byteLength
  }
  return joined
}

/**
 * Returns a Node buffer where available, because Node searches and sends its own buffers faster than other byte arrays.
 */
const allocate: (size: number) => Uint8Array =
  'Buffer' in globalThis ? (size) => globalThis.Buffer.allocUnsafe(size) : (size) => new Uint8Array(size)

/**
 * Minimum size of a body that is copied while it arrives, in bytes. Joining 30 MB at the end would block the event loop
 * for 20 ms.
 */
const LARGE_BODY_BYTES = 1024 * 1024
/**
 * Buffer size for a body of unknown size, in bytes. The operating system allocates physical memory only for the pages
 * that are written.
 */
const UNKNOWN_LENGTH_BUFFER_BYTES = 32 * 1024 * 1024

export class BodyCollector {
  readonly #maxBytes: number
  readonly #expectedBytes: number
  readonly #pieces: Uint8Array[] = []
  #buffer: Uint8Array | undefined
  #size = 0

  /** @param expected The Content-Length. A longer body is copied again. */
  constructor(maxBytes: number, expected: number) {
    this.#maxBytes = maxBytes
    this.#expectedBytes = expected
  }

  /** Returns false, without adding the piece, if the body would exceed the maximum. */
  add(piece: Uint8Array): boolean {
    const size = this.#size + piece.byteLength
    if (size > this.#maxBytes) return false
    if (this.#size === 0 || size <= LARGE_BODY_BYTES) this.#pieces.push(piece)
    else this.#bufferFor(size).set(piece, this.#size)
    this.#size = size
    return true
  }

  bytes(): Uint8Array {
    return this.#buffer?.subarray(0, this.#size) ?? joinBytes(this.#pieces, this.#size)
  }

  #bufferFor(size: number): Uint8Array {
    if (this.#buffer !== undefined && this.#buffer.byteLength >= size) return this.#buffer
    const capacity = size <= this.#expectedBytes ? this.#expectedBytes : Math.max(2 * size, UNKNOWN_LENGTH_BUFFER_BYTES)
    const larger = new Uint8Array(Math.min(this.#maxBytes, capacity))
    larger.set(this.bytes())
    return (this.#buffer = larger)
  }
}
