import { canShareTimers, defaultTransport } from '#transport'
import { GatewayError } from '../core/errors.ts'
import type { ClosableTransport, Runtime, TransportCall } from '../core/ports.ts'
import { fetchTransport } from './transport-fetch.ts'

/** Replacements of the platform, for tests and unusual platforms. */
export interface RuntimeOptions {
  /** Milliseconds since 1970. @default Date.now */
  readonly now?: () => number
  /** From 0 up to 1. @default Math.random */
  readonly random?: () => number
  /** A version 4 UUID. @default crypto.randomUUID */
  readonly uuid?: () => string
  /**
   * Sends upstream calls, called as `fetch(url, init)`.
   * @default undici on Node, the global fetch elsewhere
   */
  readonly fetch?: typeof globalThis.fetch
}

/** Returns the platform, with the replacements of the operator. */
export interface OwnedRuntime extends Runtime {
  /** Ends the connections that this gateway opened. */
  readonly close: () => Promise<void>
}

export function createRuntime(options: RuntimeOptions = {}): OwnedRuntime {
  const transport: ClosableTransport = options.fetch === undefined ? defaultTransport() : fetchTransport(options.fetch)
  let isClosed = false
  return {
    now: options.now ?? Date.now,
    random: options.random ?? Math.random,
    uuid: options.uuid ?? (() => crypto.randomUUID()),
    transport: (request, handler) => {
      if (!isClosed) return transport(request, handler)
      handler.onError(gatewayClosed())
      return NO_CALL
    },
    after,
    close: () => {
      isClosed = true
      return transport.close()
    },
  }
}

const NO_CALL: TransportCall = { pause: () => {}, resume: () => {}, abort: () => {} }

/** Retries after `close` are refused, because they would open connections that are never closed. */
function gatewayClosed(): GatewayError {
  return new GatewayError(
    'overloaded',
    'The gateway was closed before the request was answered. Send the request again.',
  )
}

/** Shorter waits get a timer of their own, so that they are exact. */
const MIN_SHARED_MS = 1_000
/** Resolution of shared timers, in milliseconds. */
const TICK_MS = 100
/** Maximum delay of a platform timer. Greater delays overflow. */
const MAX_TIMER_MS = 2 ** 31 - 1

/** Calls back after `ms`, at most a tenth later and never earlier. */
export const after: Runtime['after'] = (ms, callback, { isBackground = false } = {}) => {
  if (canShareTimers && ms >= MIN_SHARED_MS) return wheel.add(ms, callback, isBackground)
  const timer = setTimeout(callback, ms)
  if (isBackground) setRef(timer, false)
  return () => clearTimeout(timer)
}

/**
 * An element of the circular list of the deadlines of one tick. The head of the list has no callback. The neighbors of
 * a head without deadlines, and of a deadline that is over, are the element itself.
 */
class Deadline {
  previous: Deadline
  next: Deadline
  readonly tick: number
  readonly callback: () => void
  readonly isBackground: boolean

  constructor(tick: number, callback: () => void, isBackground: boolean) {
    this.previous = this
    this.next = this
    this.tick = tick
    this.callback = callback
    this.isBackground = isBackground
  }
}

/**
 * Many deadlines on one platform timer. Nearly all deadlines are canceled before they are due, so adding and canceling
 * one costs no timer. The timer stays at its tick when the deadlines of that tick are canceled, and then moves on to
 * the next tick that has some.
 */
export class TimerWheel {
  /** The head of the list of each tick. Empty lists are removed when the timer fires. */
  readonly #ticks = new Map<number, Deadline>()
  #timer: ReturnType<typeof setTimeout> | undefined
  #timerTick = Infinity
  /** Number of deadlines that keep the process alive. */
  #foreground = 0

  /** Returns the function that cancels the deadline. */
  add(ms: number, callback: () => void, isBackground: boolean): () => void {
    const now = performance.now()
    const tick = Math.ceil((now + ms) / TICK_MS)
    let head = this.#ticks.get(tick)
    if (head === undefined) this.#ticks.set(tick, (head = new Deadline(tick, noop, true)))
    const deadline = new Deadline(tick, callback, isBackground)
    deadline.previous = head.previous
    deadline.next = head
    head.previous.next = deadline
    head.previous = deadline
    if (tick < this.#timerTick) this.#arm(tick, now)
    if (!isBackground && this.#foreground++ === 0) setRef(this.#timer, true)
    return () => this.#remove(deadline)
  }

  #remove(deadline: Deadline): void {
    const { previous, next } = deadline
    if (next === deadline) return
    previous.next = next
    next.previous = previous
    deadline.previous = deadline.next = deadline
    if (!deadline.isBackground && --this.#foreground === 0) setRef(this.#timer, false)
  }

  #arm(tick: number, now: number): void {
    clearTimeout(this.#timer)
    const ms = Math.ceil(tick * TICK_MS - now)
    this.#timer = setTimeout(() => this.#fire(), Math.min(Math.max(ms, 0), MAX_TIMER_MS))
    this.#timerTick = tick
    if (this.#foreground === 0) setRef(this.#timer, false)
  }

  #fire(): void {
    this.#timerTick = Infinity
    try {
      this.#callDue(performance.now() / TICK_MS)
    } finally {
      // Also after a callback that threw: the deadlines behind it are still due.
      const next = this.#nextTick()
      if (next < this.#timerTick) this.#arm(next, performance.now())
    }
  }

  #callDue(now: number): void {
    const due = [...this.#ticks.values()].filter(({ tick }) => tick <= now).toSorted((a, b) => a.tick - b.tick)
    for (const head of due) {
      while (head.next !== head) {
        const { next } = head
        this.#remove(next)
        next.callback()
      }
    }
  }

  #nextTick(): number {
    let next = Infinity
    for (const head of this.#ticks.values()) {
      if (head.next === head) this.#ticks.delete(head.tick)
      else if (head.tick < next) next = head.tick
    }
    return next
  }
}

function noop(): void {}

const wheel = new TimerWheel()

/** Sets whether a timer blocks the exit of the process. On platforms other than Node, timers are numbers and never block it. */
function setRef(timer: unknown, keepsAlive: boolean): void {
  if (typeof timer !== 'object' || timer === null) return
  const change = keepsAlive ? 'ref' : 'unref'
  if (change in timer) (timer as NodeJS.Timeout)[change]()
}
