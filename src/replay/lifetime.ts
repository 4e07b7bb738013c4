import type { Quota, Store } from '../core/store.ts'
import type { Runtime } from '../core/ports.ts'

/** This process's claim on a name in the store, renewed until `end`. If the process dies, the claim expires. */
export interface Lease {
  /**
   * Ends the lease. Replaces the stored value with `value`, or deletes it. Resolves with false if the store fails or
   * another process holds the lease. Never rejects.
   */
  end(value: string | undefined, ttlMs?: number): Promise<boolean>
}

export interface LeaseRequest {
  readonly name: string
  readonly expected: string | undefined
  /** The value during the lease. Must be unique to the process. */
  readonly text: string
  readonly leaseMs: number
  readonly quota: Quota
}

/** More than one, so that a single renewal may fail. */
const RENEWALS_PER_LEASE = 3

/** Resolves with undefined if another value is stored. Rejects if the store fails. */
export async function acquireLease(
  { store, after }: { readonly store: Pick<Store, 'swap'> } & Pick<Runtime, 'after'>,
  { name, expected, text, leaseMs, quota }: LeaseRequest,
): Promise<Lease | undefined> {
  let hasEnded = false
  let cancel: () => void = () => {}
  try {
    if (!(await store.swap(name, expected, text, { ttlMs: leaseMs, quota }))) return undefined
  } catch (error) {
    // The swap may have succeeded although its reply was lost.
    store.swap(name, text, undefined).catch(() => {})
    throw error
  }

  const renew = async (): Promise<void> => {
    const isOurs = await store.swap(name, text, text, { ttlMs: leaseMs, quota }).catch(() => true)
    if (isOurs && !hasEnded) renewLater()
  }
  const renewLater = (): void => {
    cancel = after(leaseMs / RENEWALS_PER_LEASE, () => void renew(), { isBackground: true })
  }
  renewLater()

  return {
    end: async (value, ttlMs) => {
      hasEnded = true
      cancel()
      const options = ttlMs === undefined ? {} : { ttlMs, quota }
      return store.swap(name, text, value, options).catch(() => false)
    },
  }
}

/**
 * Counts the subscribers of a request, which runs while it has at least one. A second request with the same
 * Idempotency-Key, or a follower of the stream, keeps the request running after the first client disconnects.
 */
export interface Subscribers {
  /** Adds a subscriber. Returns a function that removes it; further calls have no effect. */
  join(): () => void
  /**
   * True after the last subscriber has left. The request is then cancelled, and later subscribers receive no result.
   */
  readonly isOver: boolean
}

/** @param end Called once, when the last subscriber leaves. */
export function createSubscribers(end: () => void): Subscribers {
  return new SubscriberCount(end)
}

class SubscriberCount implements Subscribers {
  isOver = false
  #count = 0
  readonly #end: () => void

  constructor(end: () => void) {
    this.#end = end
  }

  join(): () => void {
    let isPresent = true
    this.#count += 1
    return () => {
      if (!isPresent) return
      isPresent = false
      this.#leave()
    }
  }

  #leave(): void {
    this.#count -= 1
    if (this.#count > 0 || this.isOver) return
    this.isOver = true
    this.#end()
  }
}

/** Tracks work that continues after its caller disconnects. */
export interface Detached {
  /** `end` requests an early end; `ended` settles when the work has ended. */
  add(work: { readonly end: () => void; readonly ended: Promise<unknown> }): void
  /** Ends all work. Resolves when all work has ended, or after `timeoutMs`. @default 5,000 */
  close(timeoutMs?: number): Promise<void>
  readonly size: number
}

const CLOSE_TIMEOUT_MS = 5_000

export function createDetached({ after }: Pick<Runtime, 'after'>): Detached {
  const running = new Map<() => void, Promise<void>>()
  return {
    add: ({ end, ended }) => {
      const forget = (): void => void running.delete(end)
      running.set(end, ended.then(forget, forget))
    },
    close: async (timeoutMs = CLOSE_TIMEOUT_MS) => {
      let cancel: () => void = () => {}
      const timeout = new Promise<void>((resolve) => {
        cancel = after(timeoutMs, resolve)
      })
      for (const end of running.keys()) end()
      await Promise.race([Promise.all(running.values()), timeout])
      cancel()
    },
    get size() {
      return running.size
    },
  }
}
