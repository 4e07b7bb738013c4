import { isPromise, type MaybePromise } from '../core/maybe-promise.ts'
import { authenticate } from './authenticate.ts'
import { deduplicate } from './deduplicate.ts'
import { parseEmbedding, respondWithVectors } from './embed.ts'
import type { Exchange } from './exchange.ts'
import { fail } from './fail.ts'
import { reserve } from './reserve.ts'
import { next } from './run.ts'
import type { Services } from './services.ts'

/** The way of an embeddings request: the stages of `run.ts` without cache and tiers, for vectors instead of words. */
export function runEmbedding(exchange: Exchange, services: Services): MaybePromise<void> {
  try {
    const authenticated = authenticate(exchange, services) //              the key: 401
    const parsed = next(authenticated, parseEmbedding, services) //        texts, model, permissions: 400 403 404 413
    const claimed = next(parsed, deduplicate, services) //                 Idempotency-Key: the same vectors again, 409
    const reserved = next(claimed, reserve, services) //                   counters and worst-case cost: 402 429
    const responded = next(reserved, respondWithVectors, services) //      in the caller's encoding; settles once
    if (isPromise(responded))
      return responded.then(
        () => {},
        (error: unknown) => fail(exchange, error, services),
      )
  } catch (error) {
    return fail(exchange, error, services)
  }
}
