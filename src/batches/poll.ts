import type { OpenBatch } from './batch-storage.ts'
import type { ItemClaim, ItemQueue } from './item-queue.ts'

/** The result of a poll. */
type Found =
  | { readonly kind: 'item'; readonly claim: ItemClaim }
  /** No item is available before about `until`. */
  | { readonly kind: 'wait'; readonly until: number }
  /** Every item is finished. */
  | { readonly kind: 'none' }

/** Polls the unfinished items of one batch in a cycle. */
export interface ItemPoll {
  readonly batch: OpenBatch
  next(): Promise<Found>
}

/** Creates a poll. Processes use different values of `start`, the preceding position, to begin with different items. */
export function createItemPoll(queue: ItemQueue, batch: OpenBatch, start?: string): ItemPoll {
  let ahead: string[] = []
  let last = start

  async function next(): Promise<Found> {
    const look = { fromStart: last === undefined, busy: 0, soonest: Infinity }
    for (;;) {
      if (ahead.length === 0) ahead = [...(await queue.positions(batch, last))]
      const place = ahead.shift()
      if (place === undefined) {
        last = undefined
        if (look.fromStart) return look.busy === 0 ? { kind: 'none' } : { kind: 'wait', until: look.soonest }
        look.fromStart = true
        look.busy = 0
        continue
      }
      last = place
      const taking = await queue.take(batch, place)
      if (taking.kind === 'claimed') return { kind: 'item', claim: taking.claim }
      if (taking.kind !== 'busy') continue
      look.busy += 1
      look.soonest = Math.min(look.soonest, taking.until)
    }
  }

  return { batch, next }
}
