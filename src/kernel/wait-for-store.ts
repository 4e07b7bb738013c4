import { isPromise, type MaybePromise } from '../core/async.ts'
import { storeError } from '../core/errors.ts'
import type { Runtime } from '../core/ports.ts'
import type { Exchange } from './exchange.ts'

/**
 * Rejects if the request has waited for its store calls for `storeTimeoutMs` in total. The store call itself is not
 * aborted.
 */
export function waitForStore<Value>(
  exchange: Exchange,
  pending: MaybePromise<Value>,
  { runtime, storeTimeoutMs }: { readonly runtime: Pick<Runtime, 'now' | 'after'>; readonly storeTimeoutMs: number },
): MaybePromise<Value> {
  if (!isPromise(pending)) return pending
  const startedAt = runtime.now()
  const remainingMs = Math.max(0, storeTimeoutMs - exchange.storeMs)
  return new Promise((resolve, reject) => {
    const expire = (): void => {
      exchange.storeMs = storeTimeoutMs
      reject(storeError(`did not answer within ${storeTimeoutMs} ms`))
    }
    if (remainingMs === 0) expire()
    const cancel = runtime.after(remainingMs, expire)
    const finish = (): void => {
      cancel()
      exchange.storeMs += Math.max(0, runtime.now() - startedAt)
    }
    pending.then(
      (value) => {
        finish()
        resolve(value)
      },
      (error: unknown) => {
        finish()
        reject(error)
      },
    )
  })
}
