import type { Runtime } from '../core/ports.ts'

/** How many requests are being answered, so that work in the background can let them go first. */
export interface Traffic {
  enter(id: string): void
  /** Ids that did not enter are ignored. */
  leave(id: string): void
  /**
   * Resolves when at most `calm` requests are being answered, after so long a wait that work must go on a little, or when
   * the signal fires.
   */
  quiet(signal: AbortSignal): Promise<void>
}

export interface TrafficOptions {
  readonly after: Runtime['after']
  /** @default 8 */
  readonly calm?: number
  /** @default 30_000 */
  readonly patienceMs?: number
}

const CALM = 8
const PATIENCE_MS = 30_000

export function createTraffic({ after, calm = CALM, patienceMs = PATIENCE_MS }: TrafficOptions): Traffic {
  const answering = new Set<string>()
  const waiting = new Set<() => void>()
  return {
    enter: (id) => void answering.add(id),
    leave: (id) => {
      if (!answering.delete(id) || answering.size > calm) return
      for (const go of waiting) go()
    },
    quiet: (signal) =>
      answering.size <= calm || signal.aborted
        ? Promise.resolve()
        : new Promise((resolve) => {
            const go = (): void => {
              cancel()
              signal.removeEventListener('abort', go)
              waiting.delete(go)
              resolve()
            }
            const cancel = after(patienceMs, go)
            waiting.add(go)
            signal.addEventListener('abort', go)
          }),
  }
}
