/** Collects a request body as it arrives, within its limits. */
import { GatewayError } from '../core/errors.ts'
import { joinBytes, LARGE_BODY_BYTES } from '../core/http.ts'

export function bodyTooLate(readMs: number): GatewayError {
  const message = `The request body did not arrive within ${readMs / 1000} seconds. Send the request again.`
  return new GatewayError('request-timeout', message)
}

export function bodyUnreadable(cause: unknown): GatewayError {
  const message = 'The request body ended before it was complete. Send the request again.'
  return new GatewayError('invalid-request', message, { cause })
}

export function bodyConsumed(): GatewayError {
  const message =
    'Another middleware read the request body before the gateway. Mount the gateway before that middleware.'
  return new GatewayError('invalid-request', message)
}

/** The operating system allocates physical memory only for the pages that are written. */
const UNKNOWN_LENGTH_BUFFER_BYTES = 32 * 1024 * 1024

export class BodyCollector {
  readonly #maxBytes: number
  readonly #expectedBytes: number
  readonly #pieces: Uint8Array[] = []
  #buffer: Uint8Array | undefined
  #size = 0

  /** @param expected The Content-Length, or 0 if unknown. */
  constructor(maxBytes: number, expected: number) {
    this.#maxBytes = maxBytes
    this.#expectedBytes = expected
  }

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
