import type { Runtime, Transport } from '../../src/core/ports.ts'

export interface ManualRuntime extends Runtime {
  /** Moves the clock and calls back whatever falls due, in the order of their times. */
  readonly advance: (ms: number) => void
  /** How many callbacks wait. */
  readonly pending: () => number
  /** For how many milliseconds from now the waiting callbacks were asked, soonest first. */
  readonly delays: () => readonly number[]
}

interface Timer {
  readonly at: number
  readonly callback: () => void
}

/** A world that stands still until a test moves it. Randomness is 0.5, or what the test gives in turn. */
export function manualRuntime(
  transport: Transport,
  options: { readonly now?: number; readonly random?: () => number } = {},
): ManualRuntime {
  let now = options.now ?? Date.UTC(2026, 0, 2, 3, 4, 5)
  let ids = 0
  const timers = new Set<Timer>()
  const due = (): Timer | undefined =>
    [...timers].filter((timer) => timer.at <= now).toSorted((one, other) => one.at - other.at)[0]
  return {
    now: () => now,
    random: options.random ?? (() => 0.5),
    uuid: () => `00000000-0000-4000-8000-${String(++ids).padStart(12, '0')}`,
    transport,
    after(ms, callback) {
      const timer = { at: now + ms, callback }
      timers.add(timer)
      return () => timers.delete(timer)
    },
    advance(ms) {
      const end = now + ms
      const next = (): number => Math.min(end, ...[...timers].map((timer) => timer.at))
      for (now = Math.max(now, next()); ; now = Math.max(now, next())) {
        for (let timer = due(); timer !== undefined; timer = due()) {
          timers.delete(timer)
          timer.callback()
        }
        if (now >= end) return
      }
    },
    pending: () => timers.size,
    delays: () => [...timers].map((timer) => timer.at - now).toSorted((one, other) => one - other),
  }
}
