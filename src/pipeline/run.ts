import { authenticate } from './authenticate.ts'
import { callUpstream } from './call-upstream.ts'
import { deduplicate } from './deduplicate.ts'
import type { Authenticated, Exchange, Parsed } from './exchange.ts'
import { parseRequest } from './parse-request.ts'
import { plan } from './plan.ts'
import { reserve } from './reserve.ts'
import { respond } from './respond.ts'
import { isPromise, type MaybePromise } from '../core/async.ts'
import { fail } from './settle.ts'
import type { Services } from './services.ts'
import { hasFlag } from '../core/http.ts'

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

/** Returns the exchange with further fields, or undefined if the stage has answered the request. */
export type Stage<before, after> = (exchange: before, services: Services) => MaybePromise<after | undefined>

/** A stage of which only the order is known: the builder has checked that it fits the one before it. */
interface OrderedStage {
  run(exchange: Exchange, services: Services): MaybePromise<Exchange | undefined>
}

/**
 * A sequence of stages. A stage runs when the previous one returns, synchronously if that returned no promise. The
 * failure of any stage is turned into a response in one place.
 */
export class Stages<last extends Exchange> {
  readonly #stages: readonly OrderedStage[]

  private constructor(stages: readonly OrderedStage[]) {
    this.#stages = stages
  }

  static begin<after extends Exchange>(stage: Stage<Exchange, after>): Stages<after> {
    return new Stages([{ run: stage }])
  }

  next<after extends Exchange>(stage: Stage<last, after>): Stages<after> {
    const added: { run(exchange: last, services: Services): MaybePromise<after | undefined> } = { run: stage }
    return new Stages<after>([...this.#stages, added])
  }

  run(exchange: Exchange, services: Services): MaybePromise<void> {
    try {
      for (let index = 0; index < this.#stages.length; index++) {
        const given = this.#stages[index]?.run(exchange, services)
        if (isPromise(given)) return this.#runAfter(given, index + 1, exchange, services)
        if (given === undefined) return undefined
      }
    } catch (error) {
      return fail(exchange, error, services)
    }
  }

  /** Returns one promise for all stages from the first one that waits. */
  async #runAfter(
    waiting: Promise<Exchange | undefined>,
    next: number,
    exchange: Exchange,
    services: Services,
  ): Promise<void> {
    try {
      let before = await waiting
      for (let index = next; before !== undefined && index < this.#stages.length; index++) {
        const given = this.#stages[index]?.run(exchange, services)
        before = isPromise(given) ? await given : given
      }
    } catch (error) {
      await fail(exchange, error, services)
    }
  }
}

/** Answers requests with `X-Svc-Explain`; other requests continue. The code is loaded when it is first needed. */
export function explain(parsed: Parsed, services: Services): MaybePromise<Parsed | undefined> {
  if (!hasFlag(parsed.request, 'x-svc-explain')) return parsed
  return import('./rare-stages.ts')
    .then((loaded) => loaded.explain(parsed, services))
    .finally(() => parsed.capacity?.release())
}
