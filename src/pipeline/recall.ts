import { sha256 } from '#hash'
import { makeHitBill } from '../billing/bill.ts'
import { readCacheDirectives } from '../cache/cache-options.ts'
import type { CacheMiss } from '../cache/cache-miss.ts'
import type { Leader } from '../cache/single-flight.ts'
import { chain, isPromise, type MaybePromise } from '../core/async.ts'
import { ZERO, type NanoUsd } from '../core/money.ts'
import type { Keep, Plan, RequestOutcome, Reserved } from './exchange.ts'
import { yieldToEventLoop } from '../tokens/yield.ts'
import type { AnswerCache, Services, SharedAnswer } from './services.ts'

/** Stores nothing: for requests that the cache must not see. */
export const KEEP_NOTHING: Keep = { finish: () => {} }

/** The request was not answered from the cache. */
export interface RecallMiss {
  readonly keep: Keep
  /** What a verifier of the cache cost. */
  readonly spent: NanoUsd
}

type AnswerLeader = Leader<SharedAnswer>

type Found = { readonly replay: Plan } | RecallMiss

const NOT_CACHED: RecallMiss = { keep: KEEP_NOTHING, spent: ZERO }

/**
 * Returns a stored answer, the answer of an identical request, or the function that stores the answer of this request.
 * Rejects only when the caller disconnects.
 */
export function recall(reserved: Reserved, services: Services): MaybePromise<Found> {
  const { memory } = services
  if (memory === undefined) return NOT_CACHED
  const ready = reserved.size.mayHoldLongMedia ? digestBlocks(reserved) : undefined
  return chain(ready, () => find(reserved, memory, services))
}

async function digestBlocks({ prompt }: Reserved): Promise<void> {
  const { digestInTurns, longBlocksOf } = await import('./on-demand.ts')
  await digestInTurns(longBlocksOf(prompt), { hash: sha256, pause: yieldToEventLoop })
}

function find(reserved: Reserved, memory: AnswerCache, services: Services): MaybePromise<Found> {
  const { prompt, key, resolved, cancellation, request, id } = reserved
  const found = memory.cache.lookUp({
    prompt,
    keyId: key.id,
    modelName: resolved.name,
    directives: readCacheDirectives((name) => request.header(name)),
    cancellation,
    requestId: id,
    smallModel: () => services.smallModel(resolved.routes[0]),
  })
  return chain(found, (answer) => {
    if (answer.hit) return { replay: replayOf(reserved, answer, answer.spent) }
    if (answer.id === undefined) return { keep: keepFor(answer, undefined, services), spent: answer.spent }
    return join(reserved, answer, memory, services)
  })
}

/** Waits for the identical request of the same key that is running, when there is one. */
function join(
  reserved: Reserved,
  miss: CacheMiss,
  { singleFlight }: AnswerCache,
  services: Services,
): MaybePromise<Found> {
  const joined = singleFlight.join(`${reserved.key.id} ${miss.id}`, { cancellation: reserved.cancellation })
  return chain(joined, (role) => {
    const { spent } = miss
    if (role.role === 'leader') return lead(reserved, miss, role, services)
    if (role.role !== 'follower') return { keep: keepFor(miss, undefined, services), spent }
    miss.becameHit()
    return { replay: replayOf(reserved, role.value, spent) }
  })
}

/** Calls the upstream, unless another process does so for an identical request and stores its answer. */
function lead(reserved: Reserved, miss: CacheMiss, leader: AnswerLeader, services: Services): MaybePromise<Found> {
  const { spent, claim } = miss
  const found: Found = { keep: keepFor(miss, leader, services), spent }
  if (claim === undefined) return found
  return claim.join().then(
    (shared) => {
      if (shared === undefined) return found
      leader.complete({ shared })
      miss.becameHit()
      return { replay: replayOf(reserved, shared, spent) }
    },
    (reason: unknown) => {
      leader.complete('handed-over')
      throw reason
    },
  )
}

/** Bills what the stored answer would have cost this request. */
function replayOf(
  { resolved, margin }: Reserved,
  { completion, promptTokens }: SharedAnswer,
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
function keepFor(miss: CacheMiss, leader: AnswerLeader | undefined, { observers }: Pick<Services, 'observers'>): Keep {
  return {
    finish: ({ status, completion, bill }: RequestOutcome) => {
      if (status !== 200 || completion === undefined || bill === undefined) {
        leader?.complete(status === 499 ? 'handed-over' : 'not-shared')
        void miss.claim?.release()
        return
      }
      const failed = (cause: unknown): void => {
        leader?.complete('not-shared')
        void miss.claim?.release()
        observers.failed('an answer could not be stored in the cache', cause)
      }
      try {
        const shared = share(miss, { completion: completion(), promptTokens: bill.originalTokens }, leader)
        if (isPromise(shared)) shared.catch(failed)
      } catch (cause) {
        failed(cause)
      }
    },
  }
}

function share(miss: CacheMiss, shared: SharedAnswer, leader: AnswerLeader | undefined): MaybePromise<void> {
  return chain(miss.store(shared.completion, shared.promptTokens), (isStored) => {
    leader?.complete(isStored ? { shared } : 'not-shared')
    return miss.claim?.release()
  })
}
