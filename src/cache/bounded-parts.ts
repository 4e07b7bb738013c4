import type { AnswerStore, VectorIndex } from '../core/cache-ports.ts'
import type { Runtime } from '../core/ports.ts'
import { isPending, withDeadline } from './timeout.ts'

export interface BoundsOfCalls {
  readonly runtime: Pick<Runtime, 'now' | 'after'>
  /** Maximum time of one call in milliseconds. */
  readonly timeoutMs: number
}

/** Number of consecutive failures after which a part is not called for a while. */
const MAX_FAILURES = 3
const REST_MS = 10_000

type Bounded = <T>(work: () => T | Promise<T>) => T | Promise<T>

/**
 * Gives each call a deadline. After three failures in a row calls fail at once for ten seconds: while the storage hangs,
 * requests must not wait for the deadline one after the other.
 */
function createBounded({ runtime, timeoutMs }: BoundsOfCalls): Bounded {
  const { now, after } = runtime
  let failures = 0
  let restsUntil = 0
  const failed = (error: unknown): never => {
    failures += 1
    if (failures >= MAX_FAILURES) restsUntil = now() + REST_MS
    throw error
  }
  return (work) => {
    if (now() < restsUntil) throw new Error('the storage of the cache rests after failures')
    const succeeded = <T>(value: T): T => {
      failures = 0
      return value
    }
    try {
      const result = withDeadline({ ms: timeoutMs, after }, work)
      return isPending(result) ? result.then(succeeded, failed) : succeeded(result)
    } catch (error) {
      return failed(error)
    }
  }
}

/** Returns the same store, whose calls never hang. */
export function boundAnswers(store: AnswerStore, bounds: BoundsOfCalls): AnswerStore {
  const bounded = createBounded(bounds)
  const { claims, peek = store.get } = store
  return {
    get: (id) => bounded(() => store.get(id)),
    peek: (id) => bounded(() => peek.call(store, id)),
    put: (answer) => bounded(() => store.put(answer)),
    amend: (id, changes) => bounded(() => store.amend(id, changes)),
    remove: (id) => bounded(() => store.remove(id)),
    hasComparable: (scope) => bounded(() => store.hasComparable(scope)),
    // An operator waits for it, and it may take long.
    clear: (keyId) => store.clear(keyId),
    size: () => store.size(),
    ...(claims !== undefined && {
      claims: {
        take: async (id, ttlMs) => bounded(() => claims.take(id, ttlMs)),
        isTaken: async (id) => bounded(() => claims.isTaken(id)),
        release: async (id) => bounded(() => claims.release(id)),
      },
    }),
  }
}

/** Returns the same index, whose calls never hang. */
export function boundIndex(index: VectorIndex, bounds: BoundsOfCalls): VectorIndex {
  const bounded = createBounded(bounds)
  return {
    add: (entry) => bounded(() => index.add(entry)),
    nearest: (scope, vector, options) => bounded(() => index.nearest(scope, vector, options)),
    remove: (id) => bounded(() => index.remove(id)),
    clear: () => index.clear(),
  }
}
