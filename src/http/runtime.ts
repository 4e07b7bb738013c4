import { defaultTransport } from '#transport'
import type { ClosableTransport, Runtime } from '../core/ports.ts'
import { fetchTransport } from './transport-fetch.ts'

/** The world outside, for tests and unusual platforms. */
export interface RuntimeOptions {
  /** Milliseconds since 1970. @default Date.now */
  readonly now?: () => number
  /** From 0 up to 1. @default Math.random */
  readonly random?: () => number
  /** A version 4 UUID. @default crypto.randomUUID */
  readonly uuid?: () => string
  /**
   * How upstreams are reached, called as `fetch(url, init)`.
   * @default undici on Node, the global fetch elsewhere
   */
  readonly fetch?: typeof globalThis.fetch
}

/** The world outside as the platform has it, with what the operator put in its place. */
export interface OwnedRuntime extends Runtime {
  /** Ends the connections that this gateway opened. */
  readonly close: () => Promise<void>
}

export function createRuntime(options: RuntimeOptions = {}): OwnedRuntime {
  const transport: ClosableTransport = options.fetch === undefined ? defaultTransport() : fetchTransport(options.fetch)
  return {
    now: options.now ?? Date.now,
    random: options.random ?? Math.random,
    uuid: options.uuid ?? (() => crypto.randomUUID()),
    transport,
    after,
    close: () => transport.close(),
  }
}

export const after: Runtime['after'] = (ms, callback, { isBackground = false } = {}) => {
  const timer = setTimeout(callback, ms)
  if (isBackground) unref(timer)
  return () => clearTimeout(timer)
}

/** Lets the process exit before the timer fires. Platforms other than Node have numbers as timers, and no such difference. */
function unref(timer: unknown): void {
  if (typeof timer === 'object' && timer !== null && 'unref' in timer && typeof timer.unref === 'function')
    timer.unref()
}
