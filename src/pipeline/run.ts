import { admit } from './admit.ts'
import { ask } from './ask.ts'
import { claim } from './claim.ts'
import { plan } from './plan.ts'
import { refuse } from './refuse.ts'
import { repeat } from './repeat.ts'
import { reserve } from './reserve.ts'
import { respond } from './respond.ts'
import type { Admitting, Parts, Reached, Received } from './stages.ts'
import { understand } from './understand.ts'
import { explain, wantsExplanation } from './wants-explanation.ts'

/**
 * The whole way of a model request, one line a stage. Each stage knows more than the one before it and none goes back.
 * A failure anywhere becomes a response in one place, which gives back whatever had been reserved by then.
 *
 * @param admitting another way to find the key, for requests that carry none: the items of batches.
 */
export async function run(received: Received, parts: Parts, admitting: Admitting = admit): Promise<Response> {
  let reached: Reached = received
  try {
    const admitted = (reached = await admitting(received, parts)) //    whose request: 401
    const understood = (reached = await understand(admitted, parts)) // what it asks for: 400 403 404 413
    if (wantsExplanation(understood)) return await explain(understood, parts) // says what would happen: nothing does
    const claimed = (reached = await claim(understood, parts)) //       first of its Idempotency-Key, or not: 400 409
    if ('repeated' in claimed) return await repeat(claimed, parts) //   the same answer again, free of charge
    const reserved = (reached = await reserve(claimed, parts)) //       places and money in advance: 402 429
    const planned = (reached = await plan(reserved, parts)) //          replay, or ask with what prompt
    const answered = (reached = await ask(planned, parts)) //           an answer, or its first step: 502 503 504
    return await respond(answered, parts) //                            in the caller's format; settles, once
  } catch (error) {
    return refuse(reached, error, parts)
  }
}
