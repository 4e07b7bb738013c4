import type { Runtime } from '../core/ports.ts'

/** How a leader ends its flight. */
export type Landing<T> =
  /** Everyone who waits gets this value. */
  | { readonly shared: T }
  /** The leader could not finish (its caller left): the one who waits longest leads next. */
  | 'handed-over'
  /** Nothing that can be shared came (a tool call, a refusal, a failure): everyone who waits goes alone, at once. */
  | 'scattered'

/** A seat in a flight. */
export type Seat<T> =
  /** Does the work and must call `land`, in a `finally`; only the first call counts. */
  | { readonly role: 'leader'; land(landing: Landing<T>): void }
  /** Got the leader's value. */
  | { readonly role: 'passenger'; readonly value: T }
  /** Does its own work; nobody waits for it. */
  | { readonly role: 'alone' }

/** Lets one of many requests that ask the same do the work for all. */
export interface Flights<T> {
  /**
   * Resolves at once for the first of a key; for others when the leader lands. Rejects with the signal's reason when the
   * one who waits leaves, which touches nobody else. There is always exactly one leader while someone waits.
   */
  board(key: string, signal?: AbortSignal): Promise<Seat<T>>
  /** Keys that are in the air. */
  readonly size: number
}

export interface FlightsOptions {
  /** Who comes when so many wait for one key goes alone. @default 1000 */
  readonly mostWaiting?: number
  /** Who has waited so long goes alone: the leader's own caller may read its stream slowly. @default waits for ever */
  readonly patience?: { readonly ms: number; readonly after: Runtime['after'] }
}

interface Waiting<T> {
  readonly seat: (seat: Seat<T>) => void
}

/** Single flight, without memory of flights that have landed. */
export function createFlights<T>(options: FlightsOptions = {}): Flights<T> {
  const { mostWaiting = 1000, patience } = options
  const flights = new Map<string, Set<Waiting<T>>>()

  const leader = (key: string, queue: Set<Waiting<T>>): Seat<T> => {
    let landed = false
    return {
      role: 'leader',
      land: (landing) => {
        if (landed) return
        landed = true
        if (landing === 'handed-over') handOver(key, queue)
        else dissolve(key, queue, landing)
      },
    }
  }
  const handOver = (key: string, queue: Set<Waiting<T>>): void => {
    const [next] = queue
    if (next === undefined) {
      flights.delete(key)
      return
    }
    next.seat(leader(key, queue))
  }
  const dissolve = (key: string, queue: Set<Waiting<T>>, landing: { readonly shared: T } | 'scattered'): void => {
    flights.delete(key)
    // Who gets a seat leaves the queue.
    for (const waiting of Array.from(queue)) {
      waiting.seat(landing === 'scattered' ? { role: 'alone' } : { role: 'passenger', value: landing.shared })
    }
  }

  return {
    get size() {
      return flights.size
    },
    board: async (key, signal) => {
      signal?.throwIfAborted()
      const queue = flights.get(key)
      if (queue === undefined) {
        const fresh = new Set<Waiting<T>>()
        flights.set(key, fresh)
        return leader(key, fresh)
      }
      return queue.size >= mostWaiting ? { role: 'alone' } : waitIn(queue, signal, patience)
    },
  }
}

function waitIn<T>(
  queue: Set<Waiting<T>>,
  signal: AbortSignal | undefined,
  patience: FlightsOptions['patience'],
): Promise<Seat<T>> {
  return new Promise((resolve, reject) => {
    const leave = (): void => {
      end()
      reject(signal?.reason)
    }
    const waiting: Waiting<T> = {
      seat: (seat) => {
        end()
        resolve(seat)
      },
    }
    const forget = patience?.after(patience.ms, () => waiting.seat({ role: 'alone' }))
    const end = (): void => {
      queue.delete(waiting)
      forget?.()
      signal?.removeEventListener('abort', leave)
    }
    queue.add(waiting)
    signal?.addEventListener('abort', leave, { once: true })
  })
}
