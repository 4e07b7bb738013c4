import type { MaybePromise } from '../core/async.ts'
import type { Model } from '../core/model.ts'
import type { NanoUsd } from '../core/money.ts'
import type { SettledEntry, Settlement } from '../core/store.ts'

/** The values of `X-RateLimit-*`. Without a limit: the maximum safe integer, and the end of the current hour. */
export interface RateStatus {
  readonly limit: number
  readonly remaining: number
  /** Milliseconds since 1970. */
  readonly resetAt: number
}

/** The worst case of a request, as the ledger reserves it. */
export interface Quote {
  /** Upper bound of the prompt's tokens, for token limits. */
  readonly promptTokens: number
  /** The output limit in tokens: that of the request, or the maximum of the model. */
  readonly outputTokens: number
  /** Returns the billed amount for an answer of this length, prompt and margin included. Increases with the length. */
  cost(outputTokens: number): NanoUsd
  /** True if only the key's request limits apply, because the call costs neither tokens nor money. @default false */
  readonly requestOnly?: boolean
  /** Maximum amount by which an exact count of the prompt could lower the cost. @default 0 */
  readonly uncounted?: NanoUsd
  /** Maximum number of prompt tokens that the cost covers on a candidate model. @default no bound */
  promptBound?(model: Model): number
  /** More exact quotes, used if a limit refuses this one. */
  readonly recount?: {
    /** Used if a token limit refuses. */
    readonly tokens?: Recount
    /** Used if a budget refuses. */
    readonly budget?: Recount
  }
}

/** Waits for a call of the store within the timeout of the request; see pipeline/store-wait. */
export type WaitForStore = <value>(given: MaybePromise<value>) => MaybePromise<value>

/** Counts the prompt and returns a quote by that count, without this counter. */
export interface Recount {
  readonly run: () => Promise<Quote>
  /** True when the count calls an upstream, which counts against the request limits. */
  readonly asksUpstream: boolean
}

/** The actual usage of a request. */
export interface Used {
  readonly promptTokens: number
  readonly completionTokens: number
  readonly savedTokens: number
  readonly theoretical: NanoUsd
  readonly actual: NanoUsd
  readonly billed: NanoUsd
  /** The model name as received from the caller. */
  readonly model: string
}

/** Requests, tokens and money that were reserved for a request. */
export interface Reservation {
  /** False when the store failed and the request is served anyway: the settlement bills it without a reservation. */
  readonly isReserved: boolean
  readonly rate: RateStatus
  /** The quote that was accepted. */
  readonly quote: Quote
  /** The output limit that the budgets cover: at most that of the quote. */
  readonly outputTokens: number
  /**
   * Replaces the reserved amounts with the used amounts, and appends the audit entries in the same step. Only the first
   * call has an effect. A request that used nothing settles zeros.
   *
   * @param entries @default none
   */
  settle(used: Used, entries?: readonly SettledEntry[]): MaybePromise<void>
  /**
   * Returns what `settle` writes, as data. A caller that must not lose it with this process stores it, and may pass it
   * to the store again later. The store applies the settlement of a reservation once.
   */
  settlement(used: Used, entries?: readonly SettledEntry[]): Settlement
}
