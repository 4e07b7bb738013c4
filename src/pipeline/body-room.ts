import { GatewayError } from '../core/errors.ts'
import type { Cancellation } from '../core/cancellation.ts'
import type { MaybePromise } from '../core/async.ts'
import type { Runtime } from '../core/ports.ts'

/** A body of at most this many bytes takes no room: it is parsed within one turn of the event loop. */
export const LARGE_BODY: number = 1024 * 1024
/** Requests of one key that may wait for room. */
const MAX_WAITING = 100
const RETRY_AFTER_SECONDS = 5

/** The room that one request has taken. Returning it twice has no effect. */
export interface HeldRoom {
  /** Takes as much as the body has turned out to be. Never waits: the body is here already. */
  resize(bytes: number): void
  leave(): void
}

export interface BodyRoomOptions {
  /** Bytes of one key. A single body always has room. */
  readonly maxBytes: number
  /** Milliseconds that a request waits before it is refused with `rate-limited`. */
  readonly waitMs: number
  readonly after: Runtime['after']
}

interface Owner {
  held: number
  readonly waiting: Set<{ readonly bytes: number; admit(): void }>
}

/**
 * Bounds the large bodies that are in progress, per key: each takes several times its size in memory until it is answered.
 * A body that finds no room waits for the ones before it and is not read, so that its sender is held back.
 */
export class BodyRoom {
  readonly #options: BodyRoomOptions
  readonly #owners = new Map<string, Owner>()

  constructor(options: BodyRoomOptions) {
    this.#options = options
  }

  /** Rejects with `rate-limited` when too many wait or the wait is too long, and when the caller leaves. */
  enter(keyId: string, bytes: number, cancellation: Cancellation): MaybePromise<HeldRoom> {
    const size = sizeOf(bytes)
    if (size === 0) return new Held(this, keyId, 0)
    const owner = this.#ownerOf(keyId)
    if (owner.waiting.size === 0 && this.#hasRoom(owner, size)) return this.#admit(owner, keyId, size)
    if (owner.waiting.size >= MAX_WAITING) throw tooMany()
    return this.#wait(owner, { keyId, bytes: size, cancellation })
  }

  change(keyId: string, by: number): void {
    if (by === 0) return
    const owner = this.#ownerOf(keyId)
    owner.held += by
    for (const next of owner.waiting) {
      if (!this.#hasRoom(owner, next.bytes)) break
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

  #hasRoom({ held }: Owner, bytes: number): boolean {
    return held === 0 || held + bytes <= this.#options.maxBytes
  }

  #admit(owner: Owner, keyId: string, bytes: number): HeldRoom {
    owner.held += bytes
    return new Held(this, keyId, bytes)
  }

  #wait(
    owner: Owner,
    { keyId, bytes, cancellation }: { keyId: string; bytes: number; cancellation: Cancellation },
  ): Promise<HeldRoom> {
    return new Promise((resolve, reject) => {
      const end = (): void => {
        owner.waiting.delete(place)
        cancelDeadline()
        forgetCaller()
      }
      const refuse = (error: GatewayError): void => {
        end()
        reject(error)
      }
      const place = {
        bytes,
        admit: () => {
          end()
          resolve(this.#admit(owner, keyId, bytes))
        },
      }
      owner.waiting.add(place)
      const cancelDeadline = this.#options.after(this.#options.waitMs, () => refuse(tooMany()))
      const forgetCaller = cancellation.onCancel(() => refuse(left(cancellation.reason)))
    })
  }
}

class Held implements HeldRoom {
  readonly #room: BodyRoom
  readonly #keyId: string
  #bytes: number

  constructor(room: BodyRoom, keyId: string, bytes: number) {
    this.#room = room
    this.#keyId = keyId
    this.#bytes = bytes
  }

  resize(bytes: number): void {
    const by = sizeOf(bytes) - this.#bytes
    this.#bytes += by
    this.#room.change(this.#keyId, by)
  }

  leave(): void {
    this.resize(0)
  }
}

function sizeOf(bytes: number): number {
  return bytes > LARGE_BODY ? bytes : 0
}

function tooMany(): GatewayError {
  return new GatewayError('rate-limited', 'Too many large requests are in progress. Send fewer at once.', {
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  })
}

function left(cause: unknown): GatewayError {
  return new GatewayError('cancelled', 'The caller left.', { cause })
}
