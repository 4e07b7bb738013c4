import { ZERO } from '../core/money.ts'
import type { MaybePromise } from '../core/async.ts'
import type { Quote, RateStatus, Reservation, Used } from './reservation.ts'
import type { VirtualKey } from './virtual-key.ts'

/** A call that costs nothing but calls an upstream, or starts work that does. */
export const ONE_REQUEST: Quote = { requestOnly: true, promptTokens: 0, outputTokens: 0, cost: () => ZERO }

/** Takes one request of the key's request limits. Throws `rate-limited` when one of them is reached. */
export async function takeRequest(
  ledger: { reserve(key: VirtualKey, quote: Quote): MaybePromise<Reservation> },
  key: VirtualKey,
): Promise<RateStatus> {
  const reservation = await ledger.reserve(key, ONE_REQUEST)
  await reservation.settle(NOTHING_USED)
  return reservation.rate
}

const NOTHING_USED: Used = {
  promptTokens: 0,
  completionTokens: 0,
  savedTokens: 0,
  theoretical: ZERO,
  actual: ZERO,
  billed: ZERO,
  model: '',
}
