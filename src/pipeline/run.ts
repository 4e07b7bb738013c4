import { isPromise, type MaybePromise } from '../core/maybe-promise.ts'
import { authenticate } from './authenticate.ts'
import { callUpstream } from './call-upstream.ts'
import { deduplicate } from './deduplicate.ts'
import type { Authenticated, Exchange } from './exchange.ts'
import { explain } from './wants-explanation.ts'
import { fail } from './fail.ts'
import { parseRequest } from './parse-request.ts'
import { plan } from './plan.ts'
import { reserve } from './reserve.ts'
import { respond } from './respond.ts'
import type { Services } from './services.ts'

/** Knows more of the exchange afterwards than before. Returns undefined when it has answered the request itself. */
export type Stage<before, after> = (exchange: before, services: Services) => MaybePromise<after | undefined>

/**
 * The whole way of a model request, one line per stage, in one direction. A stage runs as soon as the one before it
 * returns, without waiting when it returned no promise. A failure anywhere becomes a response in one place.
 *
 * @param authenticateBy another way to find the key, for requests that carry none: the items of batches.
 */
export function run(
  exchange: Exchange,
  services: Services,
  authenticateBy: Stage<Exchange, Authenticated> = authenticate,
): MaybePromise<void> {
  try {
    const authenticated = authenticateBy(exchange, services) //            the key: 401
    const parsed = next(authenticated, parseRequest, services) //          prompt, model, permissions: 400 403 404 413
    const explained = next(parsed, explain, services) //                   X-Svc-Explain: says what would happen
    const claimed = next(explained, deduplicate, services) //              Idempotency-Key: the same answer again, 409
    const reserved = next(claimed, reserve, services) //                   counters and worst-case cost: 402 429
    const planned = next(reserved, plan, services) //                      a cached answer, or which prompt to send
    const answered = next(planned, callUpstream, services) //              retries and fallbacks: 502 503 504
    const responded = next(answered, respond, services) //                 in the caller's format; settles once
    if (isPromise(responded)) return responded.then(ignore, (error: unknown) => fail(exchange, error, services))
  } catch (error) {
    return fail(exchange, error, services)
  }
}

/** Runs a stage on what the one before it returned. */
export function next<before, after>(
  given: MaybePromise<before | undefined>,
  stage: Stage<before, after>,
  services: Services,
): MaybePromise<after | undefined> {
  if (isPromise(given)) {
    return given.then((exchange) => (exchange === undefined ? undefined : stage(exchange, services)))
  }
  return given === undefined ? undefined : stage(given, services)
}

function ignore(): void {}
