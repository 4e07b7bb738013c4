import { NO_USAGE, promptTokens, type Usage } from '../core/answer.ts'
import type { Cancellation } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import type { Model } from '../core/model.ts'
import { add, costOf, ZERO, type NanoUsd } from '../core/money.ts'
import type { Provider } from '../core/ports.ts'

export interface AttemptRoute {
  readonly provider: Provider
  readonly model: Model
}

/** An answer whose usage may increase while it is received. */
interface Reporting {
  readonly usage?: Usage | undefined
}

/**
 * One upstream call. The vendor charges for a call that the upstream accepts (status 200), and for a call that the
 * gateway ends before the answer because of a timeout or a disconnected client. Calls that are rejected or do not reach
 * the upstream are free.
 */
export class Attempt {
  readonly route: AttemptRoute
  isPaid = false
  readonly #cancellation: Cancellation
  /** True if the client disconnected before the call was sent. */
  readonly #isUnsent: boolean
  #answer: Reporting = {}

  constructor(route: AttemptRoute, cancellation: Cancellation) {
    this.route = route
    this.#cancellation = cancellation
    this.#isUnsent = cancellation.isCancelled
  }

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

/** The upstream calls of one request, including retries and fallbacks. */
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

  /** True if at least one billable call has no reported prompt tokens. */
  get isUnreported(): boolean {
    return this.#all.some(({ isPaid, usage }) => isPaid && promptTokens(usage) === 0)
  }

  /** Returns the cost of all billable calls. `sent`, the local count of the prompt, replaces missing prompt tokens. */
  cost(sent: () => number): NanoUsd {
    return costOfPaid(this.#all, sent)
  }

  /** Returns the cost of all billable calls except the last, which produced the answer. */
  costOfUnused(sent: () => number): NanoUsd {
    return this.#all.length < 2 ? ZERO : costOfPaid(this.#all.slice(0, -1), sent)
  }

  /** Returns the last call if it is billable. */
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

/**
 * Adds the local count of the prompt to usage that lacks prompt tokens. A prompt is never empty, so 0 means that the
 * upstream did not count it.
 */
export function withPrompt(usage: Usage, sent: () => number): Usage {
  return promptTokens(usage) > 0 ? usage : { ...usage, inputTokens: sent() }
}

function isTimeout(error: unknown): boolean {
  return GatewayError.is(error) && error.kind === 'upstream-timeout' && error.details.isUnsent !== true
}
