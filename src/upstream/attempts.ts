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
interface UsageSource {
  readonly usage?: Usage | undefined
}

/**
 * One upstream call. The vendor charges for a call that the upstream accepts (status 200), and for a call that the
 * gateway ends before the answer because of a timeout or a disconnected client. Calls that are rejected or do not reach
 * the upstream are free.
 */
export class Attempt {
  readonly route: AttemptRoute
  isBillable = false
  readonly #cancellation: Cancellation
  /** True if the client disconnected before the call was sent. */
  readonly #isUnsent: boolean
  #answer: UsageSource = {}

  constructor(route: AttemptRoute, cancellation: Cancellation) {
    this.route = route
    this.#cancellation = cancellation
    this.#isUnsent = cancellation.isCancelled
  }

  get usage(): Usage {
    return this.#answer.usage ?? NO_USAGE
  }

  answered(answer: UsageSource): void {
    this.isBillable = true
    this.#answer = answer
  }

  failed(error: unknown): void {
    this.isBillable ||= !this.#isUnsent && (this.#cancellation.isCancelled || isTimeout(error))
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
  get hasUnreportedPrompt(): boolean {
    return this.#all.some(({ isBillable, usage }) => isBillable && promptTokens(usage) === 0)
  }

  /** Returns the cost of all billable calls. `sent`, the local count of the prompt, replaces missing prompt tokens. */
  cost(countPrompt: () => number): NanoUsd {
    return costOfBillable(this.#all, countPrompt)
  }

  /** Returns the cost of all billable calls except the last, which produced the answer. */
  costOfUnused(countPrompt: () => number): NanoUsd {
    return this.#all.length < 2 ? ZERO : costOfBillable(this.#all.slice(0, -1), countPrompt)
  }

  /** Returns the last call if it is billable. */
  last(): Attempt | undefined {
    const attempt = this.#all.at(-1)
    return attempt?.isBillable === true ? attempt : undefined
  }
}

function costOfBillable(attempts: readonly Attempt[], countPrompt: () => number): NanoUsd {
  return attempts.reduce(
    (sum, attempt) => (attempt.isBillable ? add(sum, costOfAttempt(attempt, countPrompt)) : sum),
    ZERO,
  )
}

function costOfAttempt({ route, usage }: Attempt, countPrompt: () => number): NanoUsd {
  return costOf(withPromptTokens(usage, countPrompt), route.model.price)
}

/**
 * Adds the local count of the prompt to usage that lacks prompt tokens. A prompt is never empty, so 0 means that the
 * upstream did not count it.
 */
export function withPromptTokens(usage: Usage, countPrompt: () => number): Usage {
  return promptTokens(usage) > 0 ? usage : { ...usage, inputTokens: countPrompt() }
}

function isTimeout(error: unknown): boolean {
  return GatewayError.is(error) && error.kind === 'upstream-timeout' && error.details.isUnsent !== true
}
