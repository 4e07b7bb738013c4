import type { Claim, ItemQueue } from '../batches/item-queue.ts'
import type { Runtime } from '../core/ports.ts'

export interface HoldOptions {
  readonly queue: Pick<ItemQueue, 'renew'>
  readonly after: Runtime['after']
  readonly leaseMs: number
  /** Everything under way, so that it can be ended. */
  readonly running: Set<AbortController>
}

/** Works while the lease of an item is renewed; who has lost it ends the work, which then does not count. */
export async function holdClaim<value>(
  claim: Claim,
  { queue, after, leaseMs, running }: HoldOptions,
  work: (controller: AbortController) => Promise<value>,
): Promise<value> {
  const controller = new AbortController()
  let done = false
  let cancel: () => void = () => {}
  const arm = (): void => {
    if (!done) cancel = after(leaseMs / 3, () => void renew().catch(arm), { isBackground: true })
  }
  const renew = async (): Promise<void> => {
    if (await queue.renew(claim)) arm()
    else if (!done) controller.abort(new Error('The item is in other hands.'))
  }
  running.add(controller)
  arm()
  try {
    return await work(controller)
  } finally {
    done = true
    running.delete(controller)
    cancel()
  }
}
