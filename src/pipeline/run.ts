import { authenticate } from './authenticate.ts'
import { callUpstream } from './call-upstream.ts'
import { deduplicate } from './deduplicate.ts'
import type { Authenticated, Exchange } from './exchange.ts'
import { parseRequest } from './parse-request.ts'
import { plan } from './plan.ts'
import { reserve } from './reserve.ts'
import { respond } from './respond.ts'
import { Stages, type Stage } from './stages.ts'
import { explain } from './wants-explanation.ts'

/**
 * The whole way of a model request, one line per stage.
 *
 * @param authenticateBy another way to find the key, for requests that carry none: the items of batches.
 */
export function modelStages(authenticateBy: Stage<Exchange, Authenticated> = authenticate): Stages<Exchange> {
  return Stages.begin(authenticateBy) // the key: 401
    .next(parseRequest) //               prompt, model, permissions: 400 403 404 413
    .next(explain) //                    X-Svc-Explain: says what would happen
    .next(deduplicate) //                Idempotency-Key: the same answer again, 409
    .next(reserve) //                    counters and worst-case cost: 402 429
    .next(plan) //                       a cached answer, or which prompt to send
    .next(callUpstream) //               retries and fallbacks: 502 503 504
    .next(respond) //                    in the caller's format; settles once
}
