import { isPromise, type MaybePromise } from '../core/async.ts'
import { hasFlag } from '../core/http.ts'
import { authenticate, reserve } from './admission.ts'
import { callUpstream, respond } from './call-and-respond.ts'
import type { Authenticated, Exchange, Parsed } from './exchange.ts'
import { parseRequest } from './parse-request.ts'
import { plan } from './plan.ts'
import type { Services } from './services.ts'
import { fail } from './settle.ts'

/** @param authenticateStage Batch items use the key of their batch. */
export function modelStages(authenticateStage: Stage<Exchange, Authenticated> = authenticate): Stages<Exchange> {
  return Stages.begin(authenticateStage) // finds the key
    .next(parseRequest) //                  reads prompt and model, checks permissions
    .next(explain) //                       X-Svc-Explain: returns the plan without running it
    .next(deduplicate) //                   Idempotency-Key: replays the first answer
    .next(reserve) //                       reserves rate limits and the worst-case cost
    .next(plan) //                          finds a cached answer, or optimizes the prompt
    .next(callUpstream) //                  calls a provider, with retries and fallbacks
    .next(respond) //                       answers in the caller's format; settles once
}

/** Returns undefined if the stage has answered the request. */
type Stage<Before, After> = (exchange: Before, services: Services) => MaybePromise<After | undefined>

/** The types of `next` ensure that each stage accepts the result of the previous one. */
interface ErasedStage {
  run(exchange: Exchange, services: Services): MaybePromise<Exchange | undefined>
}

/** The stages run synchronously until one of them returns a promise. */
export class Stages<Last extends Exchange> {
  readonly #stages: readonly ErasedStage[]

  private constructor(stages: readonly ErasedStage[]) {
    this.#stages = stages
  }

  static begin<After extends Exchange>(stage: Stage<Exchange, After>): Stages<After> {
    return new Stages([{ run: stage }])
  }

  next<After extends Exchange>(stage: Stage<Last, After>): Stages<After> {
    const added: { run(exchange: Last, services: Services): MaybePromise<After | undefined> } = { run: stage }
    return new Stages<After>([...this.#stages, added])
  }

  run(exchange: Exchange, services: Services): MaybePromise<void> {
    try {
      for (let index = 0; index < this.#stages.length; index++) {
        const result = this.#stages[index]?.run(exchange, services)
        if (isPromise(result)) return this.#runAfter(result, index + 1, exchange, services)
        if (result === undefined) return undefined
      }
    } catch (error) {
      return fail(exchange, error, services)
    }
  }

  /** One async function for all remaining stages creates fewer promises than a chain. */
  async #runAfter(
    waiting: Promise<Exchange | undefined>,
    next: number,
    exchange: Exchange,
    services: Services,
  ): Promise<void> {
    try {
      let current = await waiting
      for (let index = next; current !== undefined && index < this.#stages.length; index++) {
        const result = this.#stages[index]?.run(exchange, services)
        current = isPromise(result) ? await result : result
      }
    } catch (error) {
      await fail(exchange, error, services)
    }
  }
}

function explain(parsed: Parsed, services: Services): MaybePromise<Parsed | undefined> {
  if (!hasFlag(parsed.request, 'x-svc-explain')) return parsed
  return import('./rare-stages.ts')
    .then((loaded) => loaded.explain(parsed, services))
    .finally(() => parsed.capacity?.release())
}

export function deduplicate(parsed: Parsed, services: Services): MaybePromise<Parsed | undefined> {
  if (parsed.request.header('idempotency-key') === undefined) return parsed
  return import('./rare-stages.ts').then((loaded) => loaded.deduplicate(parsed, services))
}
