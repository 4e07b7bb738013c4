import type { ItemClaim, ItemQueue } from '../batches/item-queue.ts'
import { Cancellation } from '../core/cancellation.ts'
import type { Runtime } from '../core/ports.ts'

export interface HoldOptions {
  readonly queue: Pick<ItemQueue, 'renew'>
  readonly after: Runtime['after']
  readonly leaseMs: number
  /** Everything under way, so that it can be ended. */
  readonly running: Set<Cancellation>
}

/** Works while the lease of an item is renewed; who has lost it ends the work, which then does not count. */
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
    else if (!done) cancellation.cancel(new Error('The item is in other hands.'))
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
