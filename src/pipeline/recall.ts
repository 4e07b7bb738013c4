import { makeHitBill } from '../billing/bill.ts'
import type { Seat } from '../cache/flights.ts'
import type { CacheMiss } from '../cache/semantic-cache.ts'
import { readCacheWishes } from '../cache/wishes.ts'
import type { Keep, Outcome, Parts, Plan, Remembered, Reserved } from './stages.ts'

/** Keeps nothing: for requests that the cache must not see. */
export const KEEP_NOTHING: Keep = { finish: () => {} }

/** A stored answer, or what has to be told when this request's own answer is there. Never rejects but for a caller who leaves. */
export async function recall(
  reserved: Reserved,
  parts: Parts,
): Promise<{ readonly replay: Plan } | { readonly keep: Keep }> {
  const { memory } = parts
  if (memory === undefined) return { keep: KEEP_NOTHING }
  const { prompt, key, resolved, signal, request } = reserved
  const found = await memory.cache.lookup({
    prompt,
    keyId: key.id,
    modelName: resolved.name,
    wishes: readCacheWishes((name) => request.headers.get(name)),
    signal,
  })
  if (found.hit) return { replay: replayOf(reserved, found) }
  if (found.id === undefined) return { keep: keepFor(found, undefined, parts) }
  const seat = await memory.flights.board(`${key.id} ${found.id}`, signal)
  if (seat.role !== 'passenger') return { keep: keepFor(found, seat, parts) }
  found.becameHit()
  return { replay: replayOf(reserved, seat.value) }
}

/** What the stored answer would have cost this request. */
function replayOf({ resolved, margin }: Reserved, { completion, promptTokens }: Remembered): Plan {
  const bill = makeHitBill({
    price: resolved.routes[0].model.price,
    margin,
    originalTokens: promptTokens,
    completionTokens: completion.usage?.outputTokens ?? 0,
  })
  return { kind: 'replay', completion, bill }
}

/**
 * Stores a whole answer and lets those who wait have it. Nobody waits for the storing but they: a slow embedder must
 * not hold up the one whose answer it is.
 */
function keepFor(miss: CacheMiss, seat: Seat<Remembered> | undefined, { records }: Pick<Parts, 'records'>): Keep {
  const land = seat?.role === 'leader' ? seat.land : () => {}
  return {
    finish: ({ status, completion, bill }: Outcome) => {
      if (status !== 200 || completion === undefined || bill === undefined) {
        land(status === 499 ? 'handed-over' : 'scattered')
        return
      }
      const shared = { completion, promptTokens: bill.originalTokens }
      miss.save(completion, shared.promptTokens).then(
        (kept) => land(kept ? { shared } : 'scattered'),
        (cause: unknown) => {
          land('scattered')
          records.failed('an answer could not be stored in the cache', cause)
        },
      )
    },
  }
}
