import { makeHitBill } from '../billing/bill.ts'
import { readCacheDirectives } from '../cache/cache-directives.ts'
import type { CacheMiss } from '../cache/semantic-cache.ts'
import { ZERO, type NanoUsd } from '../core/money.ts'
import type { Leader } from '../cache/single-flight.ts'
import type { Keep, Outcome, Parts, Plan, Remembered, Reserved } from './stages.ts'

/** Stores nothing: for requests that the cache must not see. */
export const KEEP_NOTHING: Keep = { finish: () => {} }

/** The request was not answered from the cache. */
export interface Recalled {
  readonly keep: Keep
  /** What a verifier of the cache cost. */
  readonly spent: NanoUsd
}

/**
 * Returns a stored answer, the answer of an identical request, or the function that stores the answer of this request.
 * Rejects only when the caller disconnects.
 */
export async function recall(reserved: Reserved, parts: Parts): Promise<{ readonly replay: Plan } | Recalled> {
  const { memory } = parts
  if (memory === undefined) return { keep: KEEP_NOTHING, spent: ZERO }
  const { prompt, key, resolved, signal, request } = reserved
  const found = await memory.cache.lookUp({
    prompt,
    keyId: key.id,
    modelName: resolved.name,
    directives: readCacheDirectives((name) => request.headers.get(name)),
    signal,
    requestId: reserved.id,
    smallModel: () => parts.smallModel(resolved.routes[0]),
  })
  if (found.hit) return { replay: replayOf(reserved, found, found.spent) }
  const { spent } = found
  if (found.id === undefined) return { keep: keepFor(found, undefined, parts), spent }
  const role = await memory.singleFlight.join(`${key.id} ${found.id}`, { signal })
  if (role.role !== 'follower') return { keep: keepFor(found, role.role === 'leader' ? role : undefined, parts), spent }
  found.becameHit()
  return { replay: replayOf(reserved, role.value, spent) }
}

/** Bills what the stored answer would have cost this request. */
function replayOf(
  { resolved, margin }: Reserved,
  { completion, promptTokens }: Remembered,
  spent: NanoUsd = ZERO,
): Plan {
  const bill = makeHitBill({
    price: resolved.routes[0].model.price,
    margin,
    originalTokens: promptTokens,
    completionTokens: completion.usage?.outputTokens ?? 0,
    spent,
  })
  return { kind: 'replay', completion, bill }
}

/**
 * Stores a complete answer, then shares it with the followers. The caller whose answer it is does not wait for that: a
 * slow embedder must not delay it.
 */
function keepFor(
  miss: CacheMiss,
  leader: Leader<Remembered, never> | undefined,
  { records }: Pick<Parts, 'records'>,
): Keep {
  return {
    finish: ({ status, completion, bill }: Outcome) => {
      if (status !== 200 || completion === undefined || bill === undefined) {
        leader?.complete(status === 499 ? 'handed-over' : 'not-shared')
        return
      }
      const shared = { completion, promptTokens: bill.originalTokens }
      share(miss, shared, leader).catch((cause: unknown) => {
        leader?.complete('not-shared')
        records.failed('an answer could not be stored in the cache', cause)
      })
    },
  }
}

async function share(
  miss: CacheMiss,
  shared: Remembered,
  leader: Leader<Remembered, never> | undefined,
): Promise<void> {
  const isStored = await miss.store(shared.completion, shared.promptTokens)
  leader?.complete(isStored ? { shared } : 'not-shared')
}
