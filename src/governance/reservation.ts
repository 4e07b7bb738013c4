import type { MaybePromise } from '../core/maybe-promise.ts'
import type { Model } from '../core/model.ts'
import type { NanoUsd } from '../core/money.ts'
import type { SettledEntry, Settlement } from '../core/ports.ts'

/** What `X-RateLimit-*` say. Without a limit: the greatest safe integer, and the end of the current hour. */
export interface RateStatus {
  readonly limit: number
  readonly remaining: number
  /** Milliseconds since 1970. */
  readonly resetAt: number
}

/** What a request may cost at the most, as the ledger needs to know it. */
export interface Quote {
  /** Upper bound of the prompt's tokens, for token limits. */
  readonly promptTokens: number
  /** The answer's limit: as asked for, or the model's greatest. */
  readonly outputTokens: number
  /** Billed money for an answer of so many tokens, prompt and margin included. Grows with `outputTokens`. */
  cost(outputTokens: number): NanoUsd
  /** Only the key's request limits are asked: the call costs neither tokens nor money. @default false */
  readonly requestOnly?: boolean
  /** The part of the cost that an exact count of the prompt could take off, at the most. @default 0 */
  readonly uncounted?: NanoUsd
  /** The most prompt tokens that the cost covers on a candidate model. @default no bound */
  promptBound?(model: Model): number
  /** More exact quotes, for a request that this one does not let through. */
  readonly recount?: {
    /** Where a token limit refuses. */
    readonly tokens?: Recount
    /** Where a budget refuses. */
    readonly budget?: Recount
  }
}

/** Waits for a call of the store as long as the request may; see pipeline/store-wait. */
export type WaitForStore = <value>(given: MaybePromise<value>) => MaybePromise<value>

/** Counts the prompt and returns the quote by that count, which cannot be recounted in the same way again. */
export interface Recount {
  readonly run: () => Promise<Quote>
  /** True when the count is a call to an upstream, which takes a place of the request limits. */
  readonly asksUpstream: boolean
}

/** What a request really used. */
export interface Used {
  readonly promptTokens: number
  readonly completionTokens: number
  readonly savedTokens: number
  readonly theoretical: NanoUsd
  readonly actual: NanoUsd
  readonly billed: NanoUsd
  /** The model's name as the caller wrote it. */
  readonly model: string
}

/** Places and money taken in advance. */
export interface Reservation {
  /** False when the store failed and the request is served all the same: nothing is held, and the settlement bills it. */
  readonly isReserved: boolean
  readonly rate: RateStatus
  /** The quote that fitted. */
  readonly quote: Quote
  /** The answer's limit that the budgets pay for: at most the quote's. */
  readonly outputTokens: number
  /**
   * Replaces what was held by what was used, and appends the audit entries in the same step. Only the first call counts; a
   * request that used nothing settles zeros.
   *
   * @param entries @default none
   */
  settle(used: Used, entries?: readonly SettledEntry[]): MaybePromise<void>
  /**
   * What `settle` writes, as data: a caller that must not lose it with this process keeps it, and may hand it to the store
   * again later. The store takes the settlement of a reservation once.
   */
  settlement(used: Used, entries?: readonly SettledEntry[]): Settlement
}
