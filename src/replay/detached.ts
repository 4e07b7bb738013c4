import type { Runtime } from '../core/ports.ts'

/** Work that goes on without its caller. */
export interface Detached {
  /** `end` makes it end soon; `ended` resolves or rejects when it has. */
  add(work: { readonly end: () => void; readonly ended: Promise<unknown> }): void
  /** Ends all work and waits until it has ended, at most `waitMs`. @default 5,000 */
  close(waitMs?: number): Promise<void>
  readonly size: number
}

const WAIT_MS = 5_000

export function createDetached({ after }: Pick<Runtime, 'after'>): Detached {
  const under = new Map<() => void, Promise<void>>()
  return {
    add: ({ end, ended }) => {
      const forget = (): void => void under.delete(end)
      under.set(end, ended.then(forget, forget))
    },
    close: async (waitMs = WAIT_MS) => {
      let cancel: () => void = () => {}
      const late = new Promise<void>((resolve) => {
        cancel = after(waitMs, resolve)
      })
      for (const end of under.keys()) end()
      await Promise.race([Promise.all(under.values()), late])
      cancel()
    },
    get size() {
      return under.size
    },
  }
}
