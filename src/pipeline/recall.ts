import { makeHitBill } from '../billing/bill.ts'
import type { Seat } from '../cache/flights.ts'
import type { CacheMiss } from '../cache/semantic-cache.ts'
import { readCacheWishes } from '../cache/wishes.ts'
import { chain, type MaybePromise } from '../core/maybe-promise.ts'
import type { Outcome, Reserved } from './exchange.ts'
import type { AnswerCache, Keep, Plan, Services, SharedAnswer } from './services.ts'

/** Keeps nothing: for requests that the cache must not see. */
export const KEEP_NOTHING: Keep = { finish: () => {} }

type WithCache = Pick<Services, 'observers'> & { readonly memory: AnswerCache }

type Recalled = { readonly replay: Plan } | { readonly keep: Keep }

/** A stored answer, or what must be notified when this request's own answer is there. Fails only when the caller leaves. */
export function recall(reserved: Reserved, services: Services): MaybePromise<Recalled> {
  const { memory } = services
  if (memory === undefined) return { keep: KEEP_NOTHING }
  const { prompt, key, resolved, cancellation, request } = reserved
  const found = memory.cache.lookup({
    prompt,
    keyId: key.id,
    modelName: resolved.name,
    wishes: readCacheWishes((name) => request.header(name) ?? null),
    signal: cancellation.signal,
  })
  return chain(found, (answer) => {
    if (answer.hit) return { replay: replayOf(reserved, answer) }
    if (answer.id === undefined) return { keep: keepFor(answer, undefined, services) }
    return join(reserved, answer, { ...services, memory })
  })
}

/** Waits for the same request of the same key that is running, when there is one. */
async function join(reserved: Reserved, found: CacheMiss, services: WithCache): Promise<Recalled> {
  const seat = await services.memory.flights.board(`${reserved.key.id} ${found.id}`, reserved.cancellation.signal)
  if (seat.role !== 'passenger') return { keep: keepFor(found, seat, services) }
  found.becameHit()
  return { replay: replayOf(reserved, seat.value) }
}

/** What the stored answer would have cost this request. */
function replayOf({ resolved, margin }: Reserved, { completion, promptTokens }: SharedAnswer): Plan {
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
function keepFor(
  miss: CacheMiss,
  seat: Seat<SharedAnswer> | undefined,
  { observers }: Pick<Services, 'observers'>,
): Keep {
  const land = seat?.role === 'leader' ? seat.land : () => {}
  return {
    finish: ({ status, completion, bill }: Outcome) => {
      if (status !== 200 || completion === undefined || bill === undefined) {
        land(status === 499 ? 'handed-over' : 'scattered')
        return
      }
      const shared = { completion: completion(), promptTokens: bill.originalTokens }
      miss.save(shared.completion, shared.promptTokens).then(
        (kept) => land(kept ? { shared } : 'scattered'),
        (cause: unknown) => {
          land('scattered')
          observers.failed('an answer could not be stored in the cache', cause)
        },
      )
    },
  }
}
