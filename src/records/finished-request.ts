import type { FailureKind } from '../core/errors.ts'
import type { NanoUsd } from '../core/money.ts'

/** The part of a bill that is recorded. */
export interface FinishedBill {
  readonly originalTokens: number
  readonly optimizedTokens: number
  readonly completionTokens: number
  readonly theoretical: NanoUsd
  readonly actual: NanoUsd
  readonly billed: NanoUsd
  readonly cache: 'HIT' | 'MISS'
  readonly strategy: string
  readonly isEstimated: boolean
}

/** The result of one tier. */
export interface TierOutcome {
  readonly tier: number
  readonly outcome: string
  readonly reason: string
}

/** A finished request, for the audit trail, the metrics and the log. Contains no text from the prompt or the answer. */
export interface FinishedRequest {
  readonly requestId: string
  /** Undefined if the request had no known key. */
  readonly keyId: string | undefined
  /** Model name in the request. Undefined if the request was rejected before its model was read. */
  readonly model: string | undefined
  /** The HTTP status of the response. */
  readonly status: number
  readonly failure?: FailureKind | undefined
  /** When the request ended, in milliseconds since 1970. */
  readonly at: number
  readonly latencyMs: number
  /** The tier that rewrote the prompt. For tier 1, the cache, see `bill.cache`. */
  readonly tier?: 2 | 3 | 4 | 5 | undefined
  /** Present if the request had a complete or partial answer, or if an upstream charged for a call. */
  readonly bill?: FinishedBill | undefined
  readonly tiers?: readonly TierOutcome[] | undefined
}

/** The outcome of a request. `left`: the caller disconnected. */
export type FinalOutcome = 'answered' | 'refused' | 'failed' | 'left'

/** Status recorded for a request whose caller disconnected. Never sent. */
const CLIENT_CLOSED_REQUEST = 499

export function outcomeOf(finished: FinishedRequest): FinalOutcome {
  if (finished.failure === 'cancelled' || finished.status === CLIENT_CLOSED_REQUEST) return 'left'
  if (finished.status >= 500) return 'failed'
  return finished.status >= 400 ? 'refused' : 'answered'
}

/** Returns prompt and output tokens, or 0 for an answer from the cache. */
export function tokensUsed({ bill }: FinishedRequest): number {
  return bill === undefined || bill.cache === 'HIT' ? 0 : bill.optimizedTokens + bill.completionTokens
}

const MAX_NAME_LENGTH = 200

export function truncateName(name: string | undefined): string | null {
  return name === undefined ? null : name.slice(0, MAX_NAME_LENGTH)
}
