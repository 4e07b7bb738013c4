import { GatewayError } from '../core/errors.ts'
import type { Cancellation, MaybePromise } from '../core/async.ts'
import type { Runtime } from '../core/ports.ts'

/** Minimum size of a body that takes capacity, in bytes. Smaller bodies are parsed immediately. */
export const LARGE_BODY_BYTES: number = 1024 * 1024
const MAX_WAITING_REQUESTS = 100
const RETRY_AFTER_SECONDS = 5

export interface HeldCapacity {
  /**
   * Replaces the expected size with the size of the received body. Does not wait, even if the body exceeds the
   * capacity.
   */
  resize(bytes: number): void
  /** Releases the capacity. Further calls have no effect. */
  release(): void
}

export interface BodyCapacityOptions {
  /** Capacity per key, in bytes. A single body may be larger. */
  readonly maxBytes: number
  /** Maximum wait for capacity, in milliseconds. After that, the request is rejected with `rate-limited`. */
  readonly waitMs: number
  readonly after: Runtime['after']
}

interface Owner {
  held: number
  readonly waiting: Set<{ readonly bytes: number; admit(): void }>
}

/**
 * Limits the total size of the large bodies that one key has in progress. Until its request is answered, a body
 * occupies several times its size in memory. A body that would exceed the limit is not read until earlier bodies are
 * released.
 */
export class BodyCapacity {
  readonly #options: BodyCapacityOptions
  readonly #owners = new Map<string, Owner>()

  constructor(options: BodyCapacityOptions) {
    this.#options = options
  }

  /**
   * Resolves when the key has capacity for the body. Rejects with `rate-limited` if too many requests are waiting or
   * the wait is too long, and with `cancelled` if the caller disconnects.
   */
  acquire(keyId: string, bytes: number, cancellation: Cancellation): MaybePromise<HeldCapacity> {
    const size = sizeOf(bytes)
    if (size === 0) return new Held(this, keyId, 0)
    const owner = this.#ownerOf(keyId)
    if (owner.waiting.size === 0 && this.#fits(owner, size)) return this.#admit(owner, keyId, size)
    if (owner.waiting.size >= MAX_WAITING_REQUESTS) throw tooMany()
    return this.#wait(owner, { keyId, bytes: size, cancellation })
  }

  change(keyId: string, by: number): void {
    if (by === 0) return
    const owner = this.#ownerOf(keyId)
    owner.held += by
    for (const next of owner.waiting) {
      if (!this.#fits(owner, next.bytes)) break
      next.admit()
    }
    if (owner.held === 0 && owner.waiting.size === 0) this.#owners.delete(keyId)
  }

  #ownerOf(keyId: string): Owner {
    const known = this.#owners.get(keyId)
    if (known !== undefined) return known
    const owner: Owner = { held: 0, waiting: new Set() }
    this.#owners.set(keyId, owner)
    return owner
  }

  #fits({ held }: Owner, bytes: number): boolean {
    return held === 0 || held + bytes <= this.#options.maxBytes
  }

  #admit(owner: Owner, keyId: string, bytes: number): HeldCapacity {
    owner.held += bytes
    return new Held(this, keyId, bytes)
  }

  #wait(
    owner: Owner,
    { keyId, bytes, cancellation }: { keyId: string; bytes: number; cancellation: Cancellation },
  ): Promise<HeldCapacity> {
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
        admit: () => {
          end()
          resolve(this.#admit(owner, keyId, bytes))
        },
      }
      owner.waiting.add(waiter)
      const cancelDeadline = this.#options.after(this.#options.waitMs, () => fail(tooMany()))
      const unsubscribe = cancellation.onCancel(() => fail(clientDisconnected(cancellation.reason)))
    })
  }
}

class Held implements HeldCapacity {
  readonly #capacity: BodyCapacity
  readonly #keyId: string
  #bytes: number

  constructor(capacity: BodyCapacity, keyId: string, bytes: number) {
    this.#capacity = capacity
    this.#keyId = keyId
    this.#bytes = bytes
  }

  resize(bytes: number): void {
    const by = sizeOf(bytes) - this.#bytes
    this.#bytes += by
    this.#capacity.change(this.#keyId, by)
  }

  release(): void {
    this.resize(0)
  }
}

function sizeOf(bytes: number): number {
  return bytes > LARGE_BODY_BYTES ? bytes : 0
}

function tooMany(): GatewayError {
  return new GatewayError(
    'rate-limited',
    'Too many large requests with this key are in progress. Send fewer large requests at the same time.',
    {
      retryAfterSeconds: RETRY_AFTER_SECONDS,
    },
  )
}

function clientDisconnected(cause: unknown): GatewayError {
  return new GatewayError('cancelled', 'The caller left.', { cause })
}
