import { GatewayError } from '../core/errors.ts'
import { isPromise, type MaybePromise } from '../core/maybe-promise.ts'
import type { Runtime, Store } from '../core/ports.ts'

export interface GuardOptions {
  readonly after: Runtime['after']
  /** How long one call may take, in milliseconds. @default 2,000 */
  readonly timeoutMs?: number
}

const TIMEOUT_MS = 2_000

/**
 * The same store, whose calls never hang: one that fails or does not answer in time rejects with `overloaded`, so that
 * a request is answered with 503 and nothing is served without its limits. A RangeError is a fault of the caller and
 * passes. What the store says is kept as the cause and never shown. A step that was given up may still happen in the
 * store; every step is safe to be sent again, save `append`.
 */
export function guardStore(store: Store, { after, timeoutMs = TIMEOUT_MS }: GuardOptions): Store {
  if (store.local === true) return store

  function guarded<result>(work: () => MaybePromise<result>): Promise<result> {
    return new Promise((resolve, reject) => {
      const cancel = after(timeoutMs, () => reject(fault(`did not answer within ${timeoutMs} ms`, undefined)))
      const fail = (cause: unknown): void => {
        cancel()
        const isKnown = GatewayError.is(cause) || cause instanceof RangeError
        reject(isKnown ? cause : fault('failed', cause))
      }
      const succeed = (value: result): void => {
        cancel()
        resolve(value)
      }
      try {
        const result = work()
        if (isPromise(result)) result.then(succeed, fail)
        else succeed(result)
      } catch (error) {
        fail(error)
      }
    })
  }

  return {
    get: (key) => guarded(() => store.get(key)),
    set: (key, value, options) => guarded(() => store.set(key, value, options)),
    swap: (key, expected, value, options) => guarded(() => store.swap(key, expected, value, options)),
    delete: (key) => guarded(() => store.delete(key)),
    list: (prefix, options) => guarded(() => store.list(prefix, options)),
    reserve: (request) => guarded(() => store.reserve(request)),
    settle: (settlement) => guarded(() => store.settle(settlement)),
    levels: (counters) => guarded(() => store.levels(counters)),
    tallies: (names) => guarded(() => store.tallies(names)),
    append: (log, entry) => guarded(() => store.append(log, entry)),
    entries: (log, query) => guarded(() => store.entries(log, query)),
    ping: () => guarded(() => store.ping()),
    ...(store.warnings !== undefined && { warnings: () => guarded(async () => (await store.warnings?.()) ?? []) }),
    close: () => store.close(),
  }
}

function fault(what: string, cause: unknown): GatewayError {
  return new GatewayError(
    'overloaded',
    `The gateway's store ${what}. Nothing was served or charged; try again later.`,
    {
      cause,
    },
  )
}
