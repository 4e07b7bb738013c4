import { isPromise, type MaybePromise } from '../core/async.ts'
import { failureStatus } from '../core/errors.ts'
import { hasFlag } from '../core/http.ts'
import type { ClientFormat } from '../formats/format.ts'
import { yieldToEventLoop } from '../tokens/event-loop.ts'
import { authenticate } from './authenticate.ts'
import type { Call, Handler } from './call.ts'
import { callUpstream } from './call-upstream.ts'
import { type Authenticated, Exchange } from './exchange.ts'
import { parseRequest } from './parse-request.ts'
import { plan } from './plan.ts'
import { reserve } from './reserve.ts'
import { respond } from './respond.ts'
import type { RequestHook, Services } from './services.ts'
import { endWithoutResponse } from './settle.ts'
import { asFailure, canceledError } from './failures.ts'

/** @param authenticateStage Batch items use the key of their batch. */
export function modelStages(
  { hooks }: Pick<Services, 'hooks'>,
  authenticateStage: Stage<Exchange, Pick<Authenticated, 'key' | 'caller'>> = authenticate,
): Stages<Exchange> {
  return Stages.begin(authenticateStage) // finds the key
    .next(parseRequest) //                  reads prompt and model, checks permissions
    .check(hooks.onRequest) //              plugins may answer
    .check(hooks.deduplicate) //            plugins may answer a repetition
    .check(hooks.changePrompt) //           plugins may change the prompt
    .next(reserve) //                       reserves rate limits and the worst-case cost
    .next(plan) //                          plugins find a response, or choose the prompt that is sent
    .next(callUpstream) //                  calls a provider, with retries and fallbacks
    .check(hooks.checkResponse) //          plugins may reject a whole response
    .next(respond) //                       answers in the caller's format; settles once
}

/** Returns what it has found, or undefined if it has answered the request. */
export type Stage<Before, Found> = (exchange: Before, services: Services) => MaybePromise<Found | undefined>

/** The types of `next` and `check` ensure that each stage receives what the previous ones have found. */
interface ErasedStage {
  run(exchange: Exchange, services: Services): MaybePromise<object | boolean | undefined>
}

/** The stages run synchronously until one of them returns a promise. What a stage has found is added to the exchange. */
export class Stages<Last extends Exchange> {
  readonly #stages: readonly ErasedStage[]

  private constructor(stages: readonly ErasedStage[]) {
    this.#stages = stages
  }

  static begin<Found extends object>(stage: Stage<Exchange, Found>): Stages<Exchange & Found> {
    return new Stages([{ run: stage }])
  }

  next<Found extends object>(stage: Stage<Last, Found>): Stages<Last & Found> {
    const added: { run(exchange: Last, services: Services): MaybePromise<Found | undefined> } = { run: stage }
    return new Stages<Last & Found>([...this.#stages, added])
  }

  check(hooks: readonly RequestHook<Last>[]): Stages<Last> {
    const added = hooks.map((hook): { run(exchange: Last, services: Services): MaybePromise<boolean> } => ({
      run: hook,
    }))
    return new Stages([...this.#stages, ...added])
  }

  run(exchange: Exchange, services: Services): MaybePromise<void> {
    try {
      for (let index = 0; index < this.#stages.length; index++) {
        const result = this.#stages[index]?.run(exchange, services)
        if (isPromise(result)) return this.#runAfter(result, index + 1, exchange, services)
        if (typeof result === 'object') Object.assign(exchange, result)
        else if (result !== true) return undefined
      }
    } catch (error) {
      return fail(exchange, error, services)
    }
  }

  /** One async function for all remaining stages creates fewer promises than a chain. */
  async #runAfter(
    waiting: Promise<object | boolean | undefined>,
    next: number,
    exchange: Exchange,
    services: Services,
  ): Promise<void> {
    try {
      let result = await waiting
      for (let index = next; ; index++) {
        if (typeof result === 'object') Object.assign(exchange, result)
        else if (result !== true) return
        if (index === this.#stages.length) return
        if (exchange.needsPauses) await yieldToEventLoop()
        const pending = this.#stages[index]?.run(exchange, services)
        result = isPromise(pending) ? await pending : pending
      }
    } catch (error) {
      await fail(exchange, error, services)
    }
  }
}

async function fail(exchange: Exchange, error: unknown, services: Services): Promise<void> {
  const failure = exchange.cancellation.isCanceled ? canceledError(error) : asFailure(error)
  // Before the import, because the gateway could close while the module is loaded.
  await endWithoutResponse(exchange, { status: failureStatus(failure), failure }, services)
  await (await import('./send-failure.ts')).sendFailure(exchange, failure, services)
}

export function modelHandler(format: ClientFormat, services: Services): Handler {
  const stages = modelStages(services)
  return (call) => {
    const exchange = createExchange(call, format)
    const completion = stages.run(exchange, services)
    if (exchange.isDetached && completion !== undefined) {
      services.detached.add({
        end: () => exchange.cancellation.cancel(new Error('The gateway is closing.')),
        ended: completion,
      })
    }
    return completion
  }
}

export function createExchange({ id, startedAt, request, sink, context }: Call, format: ClientFormat): Exchange {
  const isDetached = hasFlag(request, 'x-svc-detach')
  return new Exchange({ id, startedAt, request, sink, format, context }, { hasClient: true, isDetached })
}
