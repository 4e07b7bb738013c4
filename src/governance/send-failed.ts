import type { MaybePromise } from '../core/async.ts'

interface FailedSender<Pending> {
  send(pending: Pending): MaybePromise<unknown>
  discard(pending: Pending): void
}

/**
 * Sends settlements that have failed, in order, and removes those that the store has. One that the store rejects is
 * discarded, because it would block later ones. Resolves with the number that still wait. Loaded after the first failure.
 */
export async function sendFailed<Pending>(
  failed: Pending[],
  { send, discard }: FailedSender<Pending>,
): Promise<number> {
  for (let next = failed.shift(); next !== undefined; next = failed.shift()) {
    try {
      await send(next)
    } catch (error) {
      // Anything but a rejection may succeed later.
      if (!(error instanceof RangeError)) return failed.unshift(next)
      discard(next)
    }
  }
  return 0
}
