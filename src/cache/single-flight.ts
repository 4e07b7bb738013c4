import type { Cancellation } from '../core/cancellation.ts'
import type { Runtime } from '../core/ports.ts'

/** How the work of a leader ends. */
export type FlightEnd<T> =
  /** Every follower gets this value. */
  | { readonly shared: T }
  /** The leader could not finish, because its caller disconnected. The longest waiting follower becomes the leader. */
  | 'handed-over'
  /** The result cannot be shared: a tool call, a refusal, a failure. Each follower does its own work at once. */
  | 'not-shared'

export interface Leader<T> {
  readonly role: 'leader'
  /** Must be called when the work ends. Only the first call has an effect. */
  complete(end: FlightEnd<T>): void
}

export type FlightRole<T> =
  | Leader<T>
  /** Gets the value of the leader. */
  | { readonly role: 'follower'; readonly value: T }
  /** Does its own work. No request waits for it. */
  | { readonly role: 'alone' }

export interface JoinOptions {
  /** Cancelled when the caller of this request disconnects. */
  readonly cancellation?: Cancellation
}

/** Lets one of several identical requests do the work for all. */
export interface SingleFlight<T> {
  /**
   * Returns the leader at once for the first request of a key. Other requests wait for it. A request whose caller
   * disconnects is rejected with the reason of its cancellation, without an effect on the others. While a request waits,
   * its key has exactly one leader.
   */
  join(key: string, options?: JoinOptions): FlightRole<T> | Promise<FlightRole<T>>
  /** Number of keys with a leader. */
  readonly size: number
}

export interface SingleFlightOptions {
  /** Maximum number of followers per key. Further requests do their own work. @default 1000 */
  readonly maxFollowers?: number
  /** Time after which a follower does its own work, because the leader's caller may read slowly. @default none */
  readonly timeout?: { readonly ms: number; readonly after: Runtime['after'] }
}

/** Ends the wait of a follower. */
type Settle<T> = (role: FlightRole<T>) => void

export function createSingleFlight<T>({ maxFollowers = 1000, timeout }: SingleFlightOptions = {}): SingleFlight<T> {
  /** The followers of each leader, longest waiting first. Undefined until the first one, because most leaders have none. */
  const flights = new Map<string, Set<Settle<T>> | undefined>()

  const leaderOf = (key: string): Leader<T> => {
    let isComplete = false
    const complete = (end: FlightEnd<T>): void => {
      if (isComplete) return
      isComplete = true
      const followers = [...(flights.get(key) ?? [])]
      const [next] = followers
      if (end === 'handed-over' && next !== undefined) {
        next(leaderOf(key))
        return
      }
      flights.delete(key)
      for (const settle of followers) {
        settle(typeof end === 'object' ? { role: 'follower', value: end.shared } : { role: 'alone' })
      }
    }
    return { role: 'leader', complete }
  }

  const follow = (followers: Set<Settle<T>>, cancellation: Cancellation | undefined): Promise<FlightRole<T>> =>
    new Promise((resolve, reject) => {
      const settle: Settle<T> = (role) => {
        detach()
        resolve(role)
      }
      const detach = (): void => {
        followers.delete(settle)
        stopTimeout?.()
        unsubscribe?.()
      }
      followers.add(settle)
      const stopTimeout = timeout?.after(timeout.ms, () => settle({ role: 'alone' }))
      const unsubscribe = cancellation?.onCancel(() => {
        detach()
        reject(cancellation.reason)
      })
    })

  return {
    get size() {
      return flights.size
    },
    join: (key, { cancellation } = {}) => {
      if (cancellation?.isCancelled === true) throw cancellation.reason
      if (!flights.has(key)) {
        flights.set(key, undefined)
        return leaderOf(key)
      }
      const followers = flights.get(key) ?? new Set()
      flights.set(key, followers)
      return followers.size >= maxFollowers ? { role: 'alone' } : follow(followers, cancellation)
    },
  }
}
