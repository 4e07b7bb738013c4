import { admit } from './admit.ts'
import { claim } from './claim.ts'
import { embed, respondEmbedding, understandEmbedding } from './embed.ts'
import { refuse } from './refuse.ts'
import { repeat } from './repeat.ts'
import { untouched } from './plan.ts'
import { reserve } from './reserve.ts'
import type { Parts, Reached, Received } from './stages.ts'

/** The way of an embeddings request: the line of `run.ts` without cache and tiers, for vectors instead of words. */
export async function runEmbedding(received: Received, parts: Parts): Promise<Response> {
  let reached: Reached = received
  try {
    const admitted = (reached = await admit(received, parts)) //                 whose request: 401
    const understood = await understandEmbedding(admitted, parts) //             what shall be embedded: 400 403 404 413
    const claimed = (reached = await claim((reached = understood), parts)) //    first of its Idempotency-Key, or not
    if ('repeated' in claimed) return await repeat(claimed, parts) //            the same vectors again, free of charge
    const reserved = (reached = await reserve(claimed, parts)) //                places and money in advance: 402 429
    const planned = (reached = untouched(reserved)) //                           the texts are sent as they came
    const answered = (reached = await embed(planned, understood.embedding, parts)) // the vectors: 502 503 504
    return await respondEmbedding(answered, understood.embedding, parts) //      in the caller's encoding; settles, once
  } catch (error) {
    return refuse(reached, error, parts)
  }
}
