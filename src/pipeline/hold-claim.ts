import type { ItemClaim, ItemQueue } from '../batches/item-queue.ts'
import { Cancellation } from '../core/cancellation.ts'
import type { Runtime } from '../core/ports.ts'

export interface HoldOptions {
  readonly queue: Pick<ItemQueue, 'renew'>
  readonly after: Runtime['after']
  readonly leaseMs: number
  /** Running work, so that it can be ended. */
  readonly running: Set<Cancellation>
}

/** Renews the lease of an item while its work runs. If the lease is lost, ends the work and discards its result. */
export async function holdClaim<value>(
  claim: ItemClaim,
  { queue, after, leaseMs, running }: HoldOptions,
  work: (cancellation: Cancellation) => Promise<value>,
): Promise<value> {
  const cancellation = new Cancellation()
  let done = false
  let cancel: () => void = () => {}
  const arm = (): void => {
    if (!done) cancel = after(leaseMs / 3, () => void renew().catch(arm), { isBackground: true })
  }
  const renew = async (): Promise<void> => {
    if (await queue.renew(claim)) arm()
    else if (!done) cancellation.cancel(new Error('Another worker has claimed the item.'))
  }
  running.add(cancellation)
  arm()
  try {
    return await work(cancellation)
  } finally {
    done = true
    running.delete(cancellation)
    cancel()
  }
}
