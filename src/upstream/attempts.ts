import { NO_USAGE, promptTokens, type Usage } from '../core/answer.ts'
import type { Cancellation } from '../core/cancellation.ts'
import { GatewayError } from '../core/errors.ts'
import type { Model } from '../core/model.ts'
import { add, costOf, ZERO, type NanoUsd } from '../core/money.ts'
import type { Provider } from '../core/ports.ts'

/** The provider and the model of a call. */
export interface AttemptRoute {
  readonly provider: Provider
  readonly model: Model
}

/** An answer whose usage may grow while it arrives. */
interface Reporting {
  readonly usage?: Usage | undefined
}

/**
 * One upstream call. It is paid once the upstream accepts it (status 200), and also when the gateway ends it before its
 * answer: on a timeout, or when the client disconnects. A call that was refused or that did not reach the upstream is free.
 */
export class Attempt {
  readonly route: AttemptRoute
  isPaid = false
  readonly #cancellation: Cancellation
  /** True when the client disconnected before: the call was never sent. */
  readonly #isUnsent: boolean
  #answer: Reporting = {}

  constructor(route: AttemptRoute, cancellation: Cancellation) {
    this.route = route
    this.#cancellation = cancellation
    this.#isUnsent = cancellation.isCancelled
  }

  /** The usage reported so far. */
  get usage(): Usage {
    return this.#answer.usage ?? NO_USAGE
  }

  answered(answer: Reporting): void {
    this.isPaid = true
    this.#answer = answer
  }

  failed(error: unknown): void {
    this.isPaid ||= !this.#isUnsent && (this.#cancellation.isCancelled || isTimeout(error))
  }
}

/** The upstream calls of one request, retries and fallbacks included. */
export class Attempts {
  readonly #cancellation: Cancellation
  readonly #all: Attempt[] = []

  constructor(cancellation: Cancellation) {
    this.#cancellation = cancellation
  }

  begin(route: AttemptRoute): Attempt {
    const attempt = new Attempt(route, this.#cancellation)
    this.#all.push(attempt)
    return attempt
  }

  /** True when the upstream has not reported the prompt's tokens of a paid call. */
  get isUnreported(): boolean {
    return this.#all.some(({ isPaid, usage }) => isPaid && promptTokens(usage) === 0)
  }

  /** Returns the cost of all paid calls. `sent` counts the prompt locally, for calls without reported usage. */
  cost(sent: () => number): NanoUsd {
    return costOfPaid(this.#all, sent)
  }

  /** Returns the cost of all paid calls except the last one, which is the answer. */
  costOfUnused(sent: () => number): NanoUsd {
    return this.#all.length < 2 ? ZERO : costOfPaid(this.#all.slice(0, -1), sent)
  }

  /** Returns the last call if it is paid. */
  last(): Attempt | undefined {
    const attempt = this.#all.at(-1)
    return attempt?.isPaid === true ? attempt : undefined
  }
}

function costOfPaid(attempts: readonly Attempt[], sent: () => number): NanoUsd {
  return attempts.reduce((sum, attempt) => (attempt.isPaid ? add(sum, costOfAttempt(attempt, sent)) : sum), ZERO)
}

function costOfAttempt({ route, usage }: Attempt, sent: () => number): NanoUsd {
  return costOf(withPrompt(usage, sent), route.model.price)
}

/** Adds a local count of the prompt to usage that has none: no prompt is empty, so the upstream did not count it. */
export function withPrompt(usage: Usage, sent: () => number): Usage {
  return promptTokens(usage) > 0 ? usage : { ...usage, inputTokens: sent() }
}

function isTimeout(error: unknown): boolean {
  return GatewayError.is(error) && error.kind === 'upstream-timeout' && error.details.isUnsent !== true
}
