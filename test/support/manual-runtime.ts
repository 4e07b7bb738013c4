import type { Runtime, Transport } from '../../src/core/ports.ts'

export interface ManualRuntime extends Runtime {
  /** Advances the clock and runs the timers that expire, earliest first. */
  readonly advance: (ms: number) => void
  /** Returns the number of pending timers. */
  readonly pending: () => number
  /** Returns the remaining milliseconds of the pending timers, shortest first. */
  readonly delays: () => readonly number[]
}

interface Timer {
  readonly expiresAt: number
  readonly callback: () => void
}

/** Creates a runtime whose clock only moves when a test advances it. @default `random` returns 0.5 */
export function manualRuntime(
  transport: Transport,
  options: { readonly now?: number; readonly random?: () => number } = {},
): ManualRuntime {
  let now = options.now ?? Date.UTC(2026, 0, 2, 3, 4, 5)
  let ids = 0
  const timers = new Set<Timer>()
  const nextExpired = (): Timer | undefined =>
    [...timers].filter((timer) => timer.expiresAt <= now).toSorted((a, b) => a.expiresAt - b.expiresAt)[0]
  return {
    now: () => now,
    random: options.random ?? (() => 0.5),
    uuid: () => `00000000-0000-4000-8000-${String(++ids).padStart(12, '0')}`,
    transport,
    after(ms, callback) {
      const timer = { expiresAt: now + ms, callback }
      timers.add(timer)
      return () => timers.delete(timer)
    },
    advance(ms) {
      const end = now + ms
      const next = (): number => Math.min(end, ...[...timers].map((timer) => timer.expiresAt))
      for (now = Math.max(now, next()); ; now = Math.max(now, next())) {
        for (let timer = nextExpired(); timer !== undefined; timer = nextExpired()) {
          timers.delete(timer)
          timer.callback()
        }
        if (now >= end) return
      }
    },
    pending: () => timers.size,
    delays: () => [...timers].map((timer) => timer.expiresAt - now).toSorted((a, b) => a - b),
  }
}
