import { withTimeout, type Cancellation, type MaybePromise } from '../core/async.ts'
import type { Runtime } from '../core/ports.ts'
import type { Quota, Store } from '../core/store.ts'

/** This process's claim on a name in the store, renewed until `end`. If the process dies, the claim expires. */
export interface Lease {
  /** Replaces the stored value, or deletes it if `value` is undefined. Has no effect on a lost claim. Never rejects. */
  end(value: string | undefined, ttlMs?: number): Promise<unknown>
}

interface LeaseRequest {
  readonly name: string
  /** Undefined if the name must not have a value yet. */
  readonly expected: string | undefined
  /** Must be unique to this lease. */
  readonly value: string
  readonly leaseMs: number
  readonly quota: Quota
}

/** More than one, so that a single renewal may fail. */
const RENEWALS_PER_LEASE = 3

/** Resolves with undefined if the stored value is not the expected one. Rejects if the store fails. */
export async function acquireLease(
  { store, after }: { readonly store: Pick<Store, 'swap'> } & Pick<Runtime, 'after'>,
  { name, expected, value, leaseMs, quota }: LeaseRequest,
): Promise<Lease | undefined> {
  let hasEnded = false
  let cancel: () => void = () => {}
  try {
    if (!(await store.swap(name, expected, value, { ttlMs: leaseMs, quota }))) return undefined
  } catch (error) {
    // The swap may have succeeded although its reply was lost.
    store.swap(name, value, undefined).catch(() => {})
    throw error
  }

  const renew = async (): Promise<void> => {
    const isOurs = await store.swap(name, value, value, { ttlMs: leaseMs, quota }).catch(() => true)
    if (isOurs && !hasEnded) renewLater()
  }
  const renewLater = (): void => {
    cancel = after(leaseMs / RENEWALS_PER_LEASE, () => void renew(), { isBackground: true })
  }
  renewLater()

  return {
    end: async (finalValue, ttlMs) => {
      hasEnded = true
      cancel()
      return store.swap(name, value, finalValue, ttlMs === undefined ? {} : { ttlMs, quota }).catch(() => false)
    },
  }
}

/** A request runs while it has a subscriber, such as its caller, a repeated request, or a follower of its stream. */
export class Subscribers {
  #count = 0
  #isOver = false
  readonly #onLastLeave: () => void

  constructor(onLastLeave: () => void) {
    this.#onLastLeave = onLastLeave
  }

  /** True after the last subscriber has left. The request is then canceled, and later subscribers get no result. */
  get isOver(): boolean {
    return this.#isOver
  }

  /** Returns a function that removes the subscriber. */
  join(): () => void {
    let isPresent = true
    this.#count += 1
    return () => {
      if (!isPresent) return
      isPresent = false
      this.#count -= 1
      if (this.#count > 0 || this.#isOver) return
      this.#isOver = true
      this.#onLastLeave()
    }
  }
}

const CLOSE_TIMEOUT_MS = 5_000

/** Tracks work that continues after its caller disconnects. */
export class DetachedWork {
  readonly #running = new Map<() => void, Promise<void>>()
  readonly #after: Runtime['after']

  constructor({ after }: Pick<Runtime, 'after'>) {
    this.#after = after
  }

  /** `end` requests an early end. */
  add({ end, ended }: { readonly end: () => void; readonly ended: Promise<unknown> }): void {
    const forget = (): void => void this.#running.delete(end)
    this.#running.set(end, ended.then(forget, forget))
  }

  async close(): Promise<void> {
    for (const end of this.#running.keys()) end()
    const ended = Promise.all(this.#running.values())
    const createError = (): Error => new Error('The work did not end in time.')
    await withTimeout(ended, { ms: CLOSE_TIMEOUT_MS, after: this.#after, createError }).catch(() => {})
  }
}

export type FlightEnd<T> =
  | { readonly shared: T }
  /** The leader was canceled or failed early. The follower that has waited longest becomes the leader. */
  | 'handed-over'
  /** Each follower calls the upstream itself. */
  | 'not-shared'

export interface Leader<T, S = never> {
  readonly role: 'leader'
  publish(stream: S): void
  /** Must be called when the work ends. Only the first call has an effect. */
  complete(end: FlightEnd<T>): void
}

export type FlightRole<T, S = never> =
  | Leader<T, S>
  | { readonly role: 'follower'; readonly value: T }
  | { readonly role: 'stream'; readonly stream: S }
  /** The request calls the upstream itself. Other requests do not wait for its result. */
  | { readonly role: 'alone' }

interface JoinOptions {
  readonly cancellation?: Cancellation
  readonly followsStream?: boolean
}

export interface SingleFlight<T, S = never> {
  /** The first request with a key becomes the leader synchronously. */
  join(key: string, options?: JoinOptions): MaybePromise<FlightRole<T, S>>
}

interface SingleFlightOptions {
  /** Maximum time that a follower waits. Needed because the leader's caller may read slowly. @default unlimited */
  readonly timeout?: { readonly ms: number; readonly after: Runtime['after'] }
}

/** Applies separately to waiting followers and to followers of the stream. */
const MAX_FOLLOWERS = 1000

interface Follower<T, S> {
  readonly settle: (role: FlightRole<T, S>) => void
  readonly followsStream: boolean
}

interface Flight<T, S> {
  /** In order of arrival. Undefined until the first follower arrives, because most leaders have none. */
  followers: Set<Follower<T, S>> | undefined
  stream: S | undefined
  streamFollowers: number
}

export function createSingleFlight<T, S = never>({ timeout }: SingleFlightOptions = {}): SingleFlight<T, S> {
  const flights = new Map<string, Flight<T, S>>()

  const createLeader = (key: string, flight: Flight<T, S>): Leader<T, S> => {
    let isComplete = false
    const publish = (stream: S): void => {
      if (isComplete) return
      flight.stream = stream
      for (const { settle, followsStream } of flight.followers ?? []) {
        if (!followsStream) continue
        flight.streamFollowers++
        settle({ role: 'stream', stream })
      }
    }
    const complete = (end: FlightEnd<T>): void => {
      if (isComplete) return
      isComplete = true
      const followers = [...(flight.followers ?? [])]
      const [next] = followers
      if (end === 'handed-over' && next !== undefined) {
        flight.stream = undefined
        next.settle(createLeader(key, flight))
        return
      }
      flights.delete(key)
      for (const { settle } of followers) {
        settle(typeof end === 'object' ? { role: 'follower', value: end.shared } : { role: 'alone' })
      }
    }
    return { role: 'leader', publish, complete }
  }

  const follow = (
    followers: Set<Follower<T, S>>,
    { cancellation, followsStream = false }: JoinOptions,
  ): Promise<FlightRole<T, S>> =>
    new Promise((resolve, reject) => {
      const settle = (role: FlightRole<T, S>): void => {
        detach()
        resolve(role)
      }
      const follower = { settle, followsStream }
      const detach = (): void => {
        followers.delete(follower)
        stopTimeout?.()
        unsubscribe?.()
      }
      followers.add(follower)
      const stopTimeout = timeout?.after(timeout.ms, () => settle({ role: 'alone' }))
      const unsubscribe = cancellation?.onCancel(() => {
        detach()
        reject(cancellation.reason)
      })
    })

  return {
    join: (key, joinOptions = {}) => {
      const { cancellation, followsStream } = joinOptions
      if (cancellation?.isCanceled === true) throw cancellation.reason
      const flight = flights.get(key)
      if (flight === undefined) {
        const newFlight: Flight<T, S> = { followers: undefined, stream: undefined, streamFollowers: 0 }
        flights.set(key, newFlight)
        return createLeader(key, newFlight)
      }
      if (flight.stream !== undefined && followsStream === true) {
        if (flight.streamFollowers++ >= MAX_FOLLOWERS) return { role: 'alone' }
        return { role: 'stream', stream: flight.stream }
      }
      const followers = (flight.followers ??= new Set())
      return followers.size >= MAX_FOLLOWERS ? { role: 'alone' } : follow(followers, joinOptions)
    },
  }
}
