import type { Store } from '../../../src/core/store.ts'

/** The store of a process that crashes: after the crash, no call reaches the wrapped store. */
export interface CrashingStore extends Store {
  /** Simulates a crash after this number of further calls. */
  crashAfter(calls: number): void
  readonly hasCrashed: boolean
}

export function crashingStore(store: Store): CrashingStore {
  let remainingCalls = Infinity
  const countCall = (): void => {
    if (remainingCalls <= 0) throw new Error('The process has crashed.')
    remainingCalls -= 1
  }
  const methods = Object.entries(store).map(([name, method]: [string, (...args: never[]) => Promise<unknown>]) => [
    name,
    async (...args: never[]) => {
      countCall()
      return method(...args)
    },
  ])
  return {
    ...(Object.fromEntries(methods) as Store),
    close: async () => {},
    crashAfter: (calls) => {
      remainingCalls = calls
    },
    get hasCrashed() {
      return remainingCalls <= 0
    },
  }
}
