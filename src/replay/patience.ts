import type { Runtime } from '../core/ports.ts'

export interface Patience extends Pick<Runtime, 'after'> {
  /** Milliseconds. */
  readonly ms: number
  /** The caller's own. */
  readonly signal: AbortSignal
  /** What to reject with when it took too long. */
  readonly late: () => Error
}

/** The outcome of `work`, unless it takes too long or the caller leaves. Leaves nothing behind. */
export async function patient<T>(work: Promise<T>, { ms, after, signal, late }: Patience): Promise<T> {
  signal.throwIfAborted()
  let giveUp: (reason: unknown) => void = () => {}
  const ended = new Promise<never>((_, reject) => {
    giveUp = reject
  })
  const leave = (): void => giveUp(signal.reason)
  const cancel = after(Math.max(0, ms), () => giveUp(late()))
  signal.addEventListener('abort', leave, { once: true })
  try {
    return await Promise.race([work, ended])
  } finally {
    cancel()
    signal.removeEventListener('abort', leave)
  }
}
