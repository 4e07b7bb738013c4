import type { Runtime } from '../core/ports.ts'

/** How long something may take. */
export interface Patience {
  readonly ms: number
  readonly after: Runtime['after']
  /** The caller's own. */
  readonly signal?: AbortSignal
}

/**
 * The outcome of `work`, or a rejection when it fails, takes too long, or the caller leaves. The signal that `work` is
 * given ends with either, and nothing is left behind.
 */
export async function withPatience<T>(patience: Patience, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const { signal } = patience
  const ending = new AbortController()
  signal?.throwIfAborted()
  const { promise: ended, reject } = settleable()
  const leave = (): void => reject(signal?.reason)
  const cancel = patience.after(patience.ms, () => reject(new Error(`no answer within ${patience.ms} ms`)))
  signal?.addEventListener('abort', leave, { once: true })
  try {
    return await Promise.race([work(ending.signal), ended])
  } finally {
    cancel()
    signal?.removeEventListener('abort', leave)
    ending.abort()
  }
}

function settleable(): { readonly promise: Promise<never>; readonly reject: (reason: unknown) => void } {
  let reject: (reason: unknown) => void = () => {}
  const promise = new Promise<never>((_, fail) => {
    reject = fail
  })
  return { promise, reject }
}
