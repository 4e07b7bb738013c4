import { NO_USAGE, promptTokens, type Usage } from '../core/answer.ts'
import type { Cancellation } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import type { Model } from '../core/model.ts'
import { add, costOf, ZERO, type NanoUsd } from '../core/money.ts'
import type { Provider } from '../core/ports.ts'

/** A provider and a model that can answer a request. */
export interface Candidate {
  readonly provider: Provider
  readonly model: Model
}

/** The usage may increase while the answer is received. */
type AnswerWithUsage = Readonly<{ usage?: Usage | undefined }>

/**
 * One upstream call. The vendor charges for a call that the upstream accepts (status 200), and for a call that the
 * gateway ends before the answer because of a timeout or a disconnected client. Calls that are rejected or do not reach
 * the upstream are free.
 */
export class AttemptRecord {
  readonly route: Candidate
  isBillable = false
  readonly #cancellation: Cancellation
  /** True if the client disconnected before the call was sent. */
  readonly #isUnsent: boolean
  #answer: AnswerWithUsage = {}

  constructor(route: Candidate, cancellation: Cancellation) {
    this.route = route
    this.#cancellation = cancellation
    this.#isUnsent = cancellation.isCancelled
  }

  get usage(): Usage {
    return this.#answer.usage ?? NO_USAGE
  }

  recordAnswer(answer: AnswerWithUsage): void {
    this.isBillable = true
    this.#answer = answer
  }

  recordFailure(error: unknown): void {
    this.isBillable ||= !this.#isUnsent && (this.#cancellation.isCancelled || isTimeout(error))
  }
}

/** The upstream calls of one request, including retries and fallbacks. */
export class Attempts {
  readonly #cancellation: Cancellation
  readonly #records: AttemptRecord[] = []

  constructor(cancellation: Cancellation) {
    this.#cancellation = cancellation
  }

  begin(route: Candidate): AttemptRecord {
    const record = new AttemptRecord(route, this.#cancellation)
    this.#records.push(record)
    return record
  }

  /** True if at least one billable call has no reported prompt tokens. */
  get hasUnreportedPrompt(): boolean {
    return this.#records.some(({ isBillable, usage }) => isBillable && promptTokens(usage) === 0)
  }

  /** Returns the cost of all billable calls. `countPrompt` replaces prompt tokens that the upstream did not report. */
  cost(countPrompt: () => number): NanoUsd {
    return costOfBillable(this.#records, countPrompt)
  }

  /** Returns the cost of all billable calls except the last, which produced the answer. */
  costOfUnused(countPrompt: () => number): NanoUsd {
    return this.#records.length < 2 ? ZERO : costOfBillable(this.#records.slice(0, -1), countPrompt)
  }

  /** Returns the last call if it is billable. */
  lastIfBillable(): AttemptRecord | undefined {
    const record = this.#records.at(-1)
    return record?.isBillable === true ? record : undefined
  }
}

function costOfBillable(records: readonly AttemptRecord[], countPrompt: () => number): NanoUsd {
  return records.reduce((sum, { isBillable, route, usage }) => {
    return isBillable ? add(sum, costOf(addMissingPromptTokens(usage, countPrompt), route.model.price)) : sum
  }, ZERO)
}

/**
 * Adds the local count of the prompt to usage that lacks prompt tokens. A prompt is never empty, so 0 means that the
 * upstream did not count it.
 */
export function addMissingPromptTokens(usage: Usage, countPrompt: () => number): Usage {
  return promptTokens(usage) > 0 ? usage : { ...usage, inputTokens: countPrompt() }
}

function isTimeout(error: unknown): boolean {
  return GatewayError.is(error) && error.kind === 'upstream-timeout' && error.details.isUnsent !== true
}
