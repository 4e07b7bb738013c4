import type { Store } from '../../src/core/store.ts'

/** The store of a process that dies: later calls do not reach the store. */
export interface MortalStore extends Store {
  /** Number of further calls that reach the store. */
  dieAfter(calls: number): void
  readonly isDead: boolean
}

export function mortalStore(store: Store): MortalStore {
  let left = Infinity
  const alive = (): void => {
    if (left <= 0) throw new Error('the process is dead')
    left -= 1
  }
  const methods = Object.entries(store).map(([name, method]: [string, (...given: never[]) => Promise<unknown>]) => [
    name,
    async (...given: never[]) => {
      alive()
      return method(...given)
    },
  ])
  return {
    ...(Object.fromEntries(methods) as Store),
    close: async () => {},
    dieAfter: (calls) => {
      left = calls
    },
    get isDead() {
      return left <= 0
    },
  }
}
