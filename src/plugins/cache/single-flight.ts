import type { Cancellation, MaybePromise } from '../../core/async.ts'
import type { Runtime } from '../../core/ports.ts'
import type { Completion } from '../../core/completion.ts'

export interface SharedResponse {
  readonly completion: Completion
  /** Number of tokens of the received prompt. */
  readonly promptTokens: number
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
  readonly timeout?: { readonly ms: number; readonly after: Runtime['after'] } | undefined
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
