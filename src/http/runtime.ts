import { defaultTransport, sharedTimer } from '#transport'
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

/** Calls back after `ms`, at most a tenth later and never earlier. */
export const after: Runtime['after'] = (ms, callback, { isBackground = false } = {}) => {
  if (sharedTimer !== undefined && ms >= MIN_SHARED_MS) return sharedTimer.add(ms, callback, isBackground)
  const timer = setTimeout(callback, ms)
  if (isBackground) unref(timer)
  return () => clearTimeout(timer)
}

/** Lets the process exit before the timer fires. On platforms other than Node, timers are numbers and never block the exit. */
function unref(timer: unknown): void {
  if (typeof timer === 'object' && timer !== null && 'unref' in timer && typeof timer.unref === 'function')
    timer.unref()
}
