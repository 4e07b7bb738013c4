import { authenticate } from './authenticate.ts'
import { deduplicate } from './deduplicate.ts'
import { parseEmbedding, respondWithVectors } from './embed.ts'
import type { Exchange } from './exchange.ts'
import { reserve } from './reserve.ts'
import { Stages } from './stages.ts'

/** The stages of an embeddings request: those of `run.ts` without cache and tiers. */
export const embeddingStages: Stages<Exchange> = Stages.begin(authenticate) // the key: 401
  .next(parseEmbedding) //     texts, model, permissions: 400 403 404 413
  .next(deduplicate) //        Idempotency-Key: the same vectors again, 409
  .next(reserve) //            counters and worst-case cost: 402 429
  .next(respondWithVectors) // in the caller's encoding; settles once
