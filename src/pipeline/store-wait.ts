import { storeFault } from '../core/errors.ts'
import { isPromise, type MaybePromise } from '../core/async.ts'
import type { Exchange } from './exchange.ts'
import type { Services } from './services.ts'

type Waiting = Pick<Services, 'runtime' | 'storeTimeoutMs'>

/**
 * Waits for a call of the store on behalf of a request. If all calls of the request together take longer than
 * `storeTimeoutMs`, rejects with `overloaded`. The call itself continues. Other time of the request does not count.
 */
export function waitForStore<value>(
  exchange: Exchange,
  given: MaybePromise<value>,
  { runtime, storeTimeoutMs }: Waiting,
): MaybePromise<value> {
  if (!isPromise(given)) return given
  const startedAt = runtime.now()
  const left = Math.max(0, storeTimeoutMs - exchange.storeMs)
  return new Promise((resolve, reject) => {
    const expire = (): void => {
      exchange.storeMs = storeTimeoutMs
      reject(storeFault(`did not answer within ${storeTimeoutMs} ms`))
    }
    if (left === 0) expire()
    const cancel = runtime.after(left, expire)
    const finish = (): void => {
      cancel()
      exchange.storeMs += Math.max(0, runtime.now() - startedAt)
    }
    given.then(
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
