import type { Cancellation, MaybePromise } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import { type HttpRequest, LARGE_BODY_BYTES } from '../core/http.ts'
import type { Runtime } from '../core/ports.ts'

/** Rejects a compressed body, because its decompressed size is unknown. */
export function checkJsonHeaders(request: Pick<HttpRequest, 'header'>, maxBytes: number): void {
  const encoding = request.header('content-encoding')
  if (encoding !== undefined && encoding !== '' && encoding.toLowerCase() !== 'identity') {
    const message = 'Compressed request bodies are not accepted. Send the body without Content-Encoding.'
    throw new GatewayError('unsupported-media', message, { param: 'Content-Encoding' })
  }
  const type = request.header('content-type')
  if (type !== 'application/json' && (type === undefined || !/^application\/([\w.-]+\+)?json\b/i.test(type))) {
    const message = 'The Content-Type is not application/json. Send a JSON body with Content-Type: application/json.'
    throw new GatewayError('unsupported-media', message, { param: 'Content-Type' })
  }
  if (Number(request.header('content-length') ?? 0) > maxBytes) throw bodyTooLarge(maxBytes)
}

export function expectedBytes(request: Pick<HttpRequest, 'header'>, maxBytes: number): number {
  return request.header('transfer-encoding') === undefined ? Number(request.header('content-length') ?? 0) : maxBytes
}

export function bodyTooLarge(maxBytes: number): GatewayError {
  const message = `The request body exceeds the maximum of ${maxBytes} bytes. Send a smaller body.`
  return new GatewayError('too-large', message)
}

const MAX_WAITING_REQUESTS = 100
const RETRY_AFTER_SECONDS = 5

interface BodyCapacityOptions {
  /** Capacity per key, in bytes. A single body may be larger. */
  readonly maxBytes: number
  readonly waitMs: number
  readonly after: Runtime['after']
}

interface Owner {
  usedBytes: number
  readonly waiting: Set<{ readonly bytes: number; start(): void }>
}

/** Limits the large bodies of each key, because a body takes several times its size in memory. */
export class BodyCapacity {
  readonly #options: BodyCapacityOptions
  readonly #owners = new Map<string, Owner>()

  constructor(options: BodyCapacityOptions) {
    this.#options = options
  }

  acquire(keyId: string, bytes: number, cancellation: Cancellation): MaybePromise<OccupiedCapacity> {
    const size = countedSizeOf(bytes)
    if (size === 0) return new OccupiedCapacity(this, keyId, 0)
    const owner = this.#ownerOf(keyId)
    if (owner.waiting.size === 0 && this.#fits(owner, size)) return this.#occupy(owner, keyId, size)
    if (owner.waiting.size >= MAX_WAITING_REQUESTS) throw tooManyLargeRequests()
    return this.#wait(owner, keyId, size, cancellation)
  }

  adjust(keyId: string, deltaBytes: number): void {
    if (deltaBytes === 0) return
    const owner = this.#ownerOf(keyId)
    owner.usedBytes += deltaBytes
    for (const next of owner.waiting) {
      if (!this.#fits(owner, next.bytes)) break
      next.start()
    }
    if (owner.usedBytes === 0 && owner.waiting.size === 0) this.#owners.delete(keyId)
  }

  #ownerOf(keyId: string): Owner {
    const known = this.#owners.get(keyId)
    if (known !== undefined) return known
    const owner: Owner = { usedBytes: 0, waiting: new Set() }
    this.#owners.set(keyId, owner)
    return owner
  }

  #fits({ usedBytes }: Owner, bytes: number): boolean {
    return usedBytes === 0 || usedBytes + bytes <= this.#options.maxBytes
  }

  #occupy(owner: Owner, keyId: string, bytes: number): OccupiedCapacity {
    owner.usedBytes += bytes
    return new OccupiedCapacity(this, keyId, bytes)
  }

  #wait(owner: Owner, keyId: string, bytes: number, cancellation: Cancellation): Promise<OccupiedCapacity> {
    if (cancellation.isCanceled) return Promise.reject(canceledBeforeRead(cancellation.reason))
    return new Promise((resolve, reject) => {
      const end = (): void => {
        owner.waiting.delete(waiter)
        cancelDeadline()
        unsubscribe()
      }
      const fail = (error: GatewayError): void => {
        end()
        reject(error)
      }
      const waiter = {
        bytes,
        start: () => {
          end()
          resolve(this.#occupy(owner, keyId, bytes))
        },
      }
      owner.waiting.add(waiter)
      const cancelDeadline = this.#options.after(this.#options.waitMs, () => fail(tooManyLargeRequests()))
      const unsubscribe = cancellation.onCancel(() => fail(canceledBeforeRead(cancellation.reason)))
    })
  }
}

export class OccupiedCapacity {
  readonly #capacity: BodyCapacity
  readonly #keyId: string
  #bytes: number

  constructor(capacity: BodyCapacity, keyId: string, bytes: number) {
    this.#capacity = capacity
    this.#keyId = keyId
    this.#bytes = bytes
  }

  /** Does not wait, even if the capacity is exceeded. */
  resize(bytes: number): void {
    const deltaBytes = countedSizeOf(bytes) - this.#bytes
    this.#bytes += deltaBytes
    this.#capacity.adjust(this.#keyId, deltaBytes)
  }

  release(): void {
    this.resize(0)
  }
}

function countedSizeOf(bytes: number): number {
  return bytes > LARGE_BODY_BYTES ? bytes : 0
}

function tooManyLargeRequests(): GatewayError {
  return new GatewayError(
    'rate-limited',
    'Too many large requests with this key are in progress. Send fewer large requests at the same time.',
    { retryAfterSeconds: RETRY_AFTER_SECONDS },
  )
}

function canceledBeforeRead(cause: unknown): GatewayError {
  return new GatewayError('cancelled', 'The request was canceled before its body was read.', { cause })
}
