import { GatewayError, storeError } from '../core/errors.ts'
import { isPromise, type MaybePromise } from '../core/async.ts'
import type { Runtime } from '../core/ports.ts'
import type { Store } from '../core/store.ts'

interface StoreGuardOptions {
  readonly after: Runtime['after']
  readonly timeoutMs: number
}

const PROBE_INTERVAL_MS = 250

/**
 * A call that fails or times out rejects with `overloaded`, so the request gets a 503 instead of being served without
 * limits. If the store answers no call within one timeout period, further calls reject immediately until it answers a
 * ping or an earlier call.
 */
export function guardStore(store: Store, { after, timeoutMs }: StoreGuardOptions): Store {
  if (store.local === true) return store
  let answerCount = 0
  let isUnresponsive = false

  function recordAnswer(): void {
    answerCount += 1
    isUnresponsive = false
  }

  function probe(): void {
    attempt(() => store.ping()).catch(() => {
      after(PROBE_INTERVAL_MS, () => isUnresponsive && probe(), { isBackground: true })
    })
  }

  function markUnresponsive(): void {
    if (isUnresponsive) return
    isUnresponsive = true
    probe()
  }

  function guard<Result>(work: () => MaybePromise<Result>, onLateResult?: (result: Result) => void): Promise<Result> {
    if (isUnresponsive) return Promise.reject(storeError('does not answer'))
    return attempt(work, onLateResult)
  }

  function attempt<Result>(work: () => MaybePromise<Result>, onLateResult?: (result: Result) => void): Promise<Result> {
    return new Promise((resolve, reject) => {
      const answerCountAtStart = answerCount
      let hasTimedOut = false
      const cancel = after(timeoutMs, () => {
        hasTimedOut = true
        reject(storeError(`did not answer within ${timeoutMs} ms`))
        if (answerCount === answerCountAtStart) markUnresponsive()
      })
      const fail = (cause: unknown): void => {
        cancel()
        const isKnown = GatewayError.is(cause) || cause instanceof RangeError
        if (isKnown) recordAnswer()
        reject(isKnown ? cause : storeError('failed', cause))
      }
      const succeed = (value: Result): void => {
        cancel()
        recordAnswer()
        if (hasTimedOut) onLateResult?.(value)
        else resolve(value)
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

  const release = (reservationId: string): void =>
    void attempt(() => store.settle({ reservationId, charges: [], tallies: [] })).catch(() => {})

  return {
    get: (key) => guard(() => store.get(key)),
    set: (key, value, options) => guard(() => store.set(key, value, options)),
    swap: (key, expected, value, options) => guard(() => store.swap(key, expected, value, options)),
    delete: (key) => guard(() => store.delete(key)),
    list: (prefix, options) => guard(() => store.list(prefix, options)),
    reserve: (request) =>
      guard(
        () => store.reserve(request),
        // A reservation without claims holds no amounts, and a repeated settlement may need it.
        ({ accepted }) => accepted && request.claims.length > 0 && release(request.reservationId),
      ),
    settle: (settlement) => guard(() => store.settle(settlement)),
    levels: (counters) => guard(() => store.levels(counters)),
    tallies: (names) => guard(() => store.tallies(names)),
    append: (log, entry) => guard(() => store.append(log, entry)),
    entries: (log, query) => guard(() => store.entries(log, query)),
    ping: () => guard(() => store.ping()),
    ...(store.warnings !== undefined && { warnings: () => guard(async () => (await store.warnings?.()) ?? []) }),
    close: () => store.close(),
  }
}
