import { isPromise, type MaybePromise } from '../core/async.ts'
import type { Exchange } from './exchange.ts'
import { fail } from './fail.ts'
import type { Services } from './services.ts'

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
