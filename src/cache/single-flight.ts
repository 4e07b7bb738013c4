import type { Cancellation } from '../core/cancellation.ts'
import type { Runtime } from '../core/ports.ts'

/** How a leader ends. */
export type FlightEnd<T> =
  /** Every follower gets this value. */
  | { readonly shared: T }
  /** The leader could not finish (its caller disconnected): the follower that has waited longest is the next leader. */
  | 'handed-over'
  /** The result cannot be shared (a tool call, a refusal, a failure): each follower does its own work at once. */
  | 'not-shared'

export interface Leader<T, P> {
  readonly role: 'leader'
  /** Passes a part of the answer to the followers at once. */
  publish(part: P): void
  /** True while a follower waits. The leader must then continue when its caller disconnects. */
  hasFollowers(): boolean
  /** Must be called when the work ends, in a `finally`. Only the first call has an effect. */
  complete(completion: FlightEnd<T>): void
}

export type FlightRole<T, P> =
  | Leader<T, P>
  /** The leader answered. `parts` is the number of parts that `onPart` received. */
  | { readonly role: 'follower'; readonly value: T; readonly parts: number }
  /** The leader ended without an answer after this follower had received parts, which cannot be undone. */
  | { readonly role: 'broken' }
  /** Does its own work; no request waits for it. */
  | { readonly role: 'alone' }

export interface JoinOptions<P> {
  /** Cancelled when the caller of this request disconnects. */
  readonly cancellation?: Cancellation
  /** Receives the leader's parts: earlier ones at once, later ones when published. @default waits for the end */
  readonly onPart?: (part: P) => void
}

/** Lets one of many identical requests do the work for all. */
export interface SingleFlight<T, P = never> {
  /**
   * Returns the leader at once for the first request of a key. Other requests wait for the leader; a request whose
   * caller disconnects is rejected with the reason of its cancellation, without effect on the others. While a request waits
   * there is exactly one leader.
   */
  join(key: string, options?: JoinOptions<P>): FlightRole<T, P> | Promise<FlightRole<T, P>>
  /** Keys with a leader. */
  readonly size: number
}

export interface SingleFlightOptions {
  /** Maximum number of followers per key. Further requests do their own work. @default 1000 */
  readonly maxFollowers?: number
  /** Maximum number of parts kept for requests that join late. A late request then waits for the end. @default 10,000 */
  readonly maxParts?: number
  /**
   * Time after which a follower without a part does its own work, because the leader's caller may read slowly. @default
   * none
   */
  readonly timeout?: { readonly ms: number; readonly after: Runtime['after'] }
}

interface Follower<T, P> {
  readonly settle: (role: FlightRole<T, P>) => void
  readonly onPart: ((part: P) => void) | undefined
  received: number
  stopTimeout: () => void
}

/** Created when needed, because most flights have no follower and publish no part. */
interface Flight<T, P> {
  followers: Set<Follower<T, P>> | undefined
  /** Absent before the first part; `lost` when there were too many to keep. */
  parts: P[] | 'lost' | undefined
}

function partsOf<T, P>({ parts }: Flight<T, P>): readonly P[] {
  return parts === undefined || parts === 'lost' ? [] : parts
}

function followersOf<T, P>({ followers }: Flight<T, P>): readonly Follower<T, P>[] {
  return followers === undefined ? [] : Array.from(followers)
}

/** Removes a flight when it is complete. */
export function createSingleFlight<T, P = never>(options: SingleFlightOptions = {}): SingleFlight<T, P> {
  const { maxFollowers = 1000, maxParts = 10_000, timeout } = options
  const flights = new Map<string, Flight<T, P>>()

  const leaderOf = (key: string, flight: Flight<T, P>): Leader<T, P> => {
    let isComplete = false
    return {
      role: 'leader',
      publish: (part) => {
        if (!isComplete) publish(flight, part, maxParts)
      },
      hasFollowers: () => !isComplete && (flight.followers?.size ?? 0) > 0,
      complete: (completion) => {
        if (isComplete) return
        isComplete = true
        if (completion === 'handed-over') handOver(key, flight)
        else end(key, flight, completion)
      },
    }
  }
  const handOver = (key: string, flight: Flight<T, P>): void => {
    breakStarted(flight)
    flight.parts = undefined
    const [next] = followersOf(flight)
    if (next === undefined) flights.delete(key)
    else next.settle(leaderOf(key, flight))
  }
  const end = (key: string, flight: Flight<T, P>, completion: { readonly shared: T } | 'not-shared'): void => {
    flights.delete(key)
    if (completion === 'not-shared') breakStarted(flight)
    // A follower leaves the set when it is settled.
    for (const follower of followersOf(flight)) {
      if (completion === 'not-shared') follower.settle({ role: 'alone' })
      else follower.settle({ role: 'follower', value: completion.shared, parts: follower.received })
    }
  }

  return {
    get size() {
      return flights.size
    },
    join: (key, joining = {}) => {
      if (joining.cancellation?.isCancelled === true) throw joining.cancellation.reason
      const flight = flights.get(key)
      if (flight === undefined) {
        const started: Flight<T, P> = { followers: undefined, parts: undefined }
        flights.set(key, started)
        return leaderOf(key, started)
      }
      return (flight.followers?.size ?? 0) >= maxFollowers ? { role: 'alone' } : follow(flight, joining, timeout)
    },
  }
}

function publish<T, P>(flight: Flight<T, P>, part: P, maxParts: number): void {
  const parts = (flight.parts ??= [])
  if (parts !== 'lost') {
    if (parts.length >= maxParts) flight.parts = 'lost'
    else parts.push(part)
  }
  for (const follower of followersOf(flight)) give(follower, part)
}

function give<T, P>(follower: Follower<T, P>, part: P): void {
  if (follower.onPart === undefined) return
  follower.received += 1
  follower.stopTimeout()
  try {
    follower.onPart(part)
  } catch {
    // The error of one follower must not stop the leader.
    follower.settle({ role: 'broken' })
  }
}

/** Followers that received parts cannot start their own work. */
function breakStarted<T, P>(flight: Flight<T, P>): void {
  for (const follower of followersOf(flight)) {
    if (follower.received > 0) follower.settle({ role: 'broken' })
  }
}

function follow<T, P>(
  flight: Flight<T, P>,
  { cancellation, onPart }: JoinOptions<P>,
  timeout: SingleFlightOptions['timeout'],
): Promise<FlightRole<T, P>> {
  return new Promise((resolve, reject) => {
    let unsubscribe: (() => void) | undefined
    const leave = (): void => {
      detach()
      reject(cancellation?.reason)
    }
    const settle = (role: FlightRole<T, P>): void => {
      detach()
      resolve(role)
    }
    const stopTimeout = timeout?.after(timeout.ms, () => settle({ role: 'alone' })) ?? (() => {})
    // Without the first parts a late follower cannot write a stream of its own; it waits for the whole answer.
    const receives = flight.parts === 'lost' ? undefined : onPart
    const follower: Follower<T, P> = { settle, onPart: receives, received: 0, stopTimeout }
    const detach = (): void => {
      flight.followers?.delete(follower)
      stopTimeout()
      unsubscribe?.()
    }
    const followers = (flight.followers ??= new Set())
    followers.add(follower)
    unsubscribe = cancellation?.onCancel(leave)
    for (const part of partsOf(flight)) give(follower, part)
  })
}
