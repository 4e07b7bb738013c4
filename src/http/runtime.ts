import { defaultTransport, sharedTimer } from '#transport'
import { GatewayError } from '../core/errors.ts'
import type { ClosableTransport, Runtime, TransportCall } from '../core/ports.ts'
import { fetchTransport } from './transport-fetch.ts'

/** Replaces platform functions, for tests and unusual platforms. */
export interface RuntimeOptions {
  /** Returns the current time in milliseconds since 1970. @default Date.now */
  readonly now?: () => number
  /** Returns a number from 0 (inclusive) to 1 (exclusive). @default Math.random */
  readonly random?: () => number
  /** Returns a version 4 UUID. @default crypto.randomUUID */
  readonly uuid?: () => string
  /** Sends upstream calls. Called as `fetch(url, init)`. @default undici on Node, the global fetch elsewhere */
  readonly fetch?: typeof globalThis.fetch
}

/** A runtime that owns its upstream connections. */
export interface ClosableRuntime extends Runtime {
  /** Closes the upstream connections. Later calls fail. */
  readonly close: () => Promise<void>
}

export function createRuntime(options: RuntimeOptions = {}): ClosableRuntime {
  const transport: ClosableTransport = options.fetch === undefined ? defaultTransport() : fetchTransport(options.fetch)
  let isClosed = false
  return {
    now: options.now ?? Date.now,
    random: options.random ?? Math.random,
    uuid: options.uuid ?? (() => crypto.randomUUID()),
    transport: (request, handler) => {
      if (!isClosed) return transport(request, handler)
      // A call after `close` would open a connection that is never closed.
      const message = 'The gateway was closed before the request was answered. Send the request again.'
      handler.onError(new GatewayError('overloaded', message))
      return CLOSED_CALL
    },
    after,
    close: () => {
      isClosed = true
      return transport.close()
    },
  }
}

const CLOSED_CALL: TransportCall = { pause: () => {}, resume: () => {}, abort: () => {} }

/** Minimum wait that uses the shared timer, in milliseconds. Shorter waits use a separate, exact timer. */
const MIN_SHARED_MS = 1_000

/** Calls `callback` after `ms` milliseconds, never early and at most 10% late. */
export const after: Runtime['after'] = (ms, callback, { isBackground = false } = {}) => {
  if (sharedTimer !== undefined && ms >= MIN_SHARED_MS) return sharedTimer.add(ms, callback, isBackground)
  const timer = setTimeout(callback, ms)
  // Only some platforms return timers that can be unreferenced.
  if (isBackground && typeof timer === 'object') timer.unref?.()
  return () => clearTimeout(timer)
}
