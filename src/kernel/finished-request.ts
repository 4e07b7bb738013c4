import type { CallerContext } from '../core/caller-context.ts'
import type { FailureKind, GatewayError } from '../core/errors.ts'
import type { NanoUsd } from '../core/money.ts'
import type { Bill } from '../billing/bill.ts'
import type { Completion } from '../core/completion.ts'

export interface FinishedBill {
  readonly originalTokens: number
  readonly optimizedTokens: number
  readonly completionTokens: number
  readonly theoretical: NanoUsd
  readonly actual: NanoUsd
  readonly billed: NanoUsd
  readonly cache: 'HIT' | 'MISS'
  readonly strategy: string
  readonly vendorCharge?: NanoUsd
}

/** The result of one tier. */
export interface TierOutcome {
  readonly tier: number
  readonly outcome: string
  readonly reason: string
}

/** A finished request, without text from the prompt or the response. */
export interface FinishedRequest {
  readonly requestId: string
  readonly keyId: string | undefined
  /** Undefined before the caller is known. */
  readonly context?: CallerContext | undefined
  readonly model: string | undefined
  readonly status: number
  readonly failure?: FailureKind | undefined
  /** The error that caused the failure, for the log. */
  readonly cause?: unknown
  /** When the request ended, in milliseconds since 1970. */
  readonly at: number
  readonly latencyMs: number
  /** The tier that rewrote the prompt. For tier 1, the cache, see `bill.cache`. */
  readonly tier?: 2 | 3 | 4 | 5 | undefined
  readonly bill?: FinishedBill | undefined
  readonly tiers?: readonly TierOutcome[] | undefined
}

/** The outcome of a request. `left`: it was canceled because its caller disconnected or the gateway closed. */
export type FinalOutcome = 'answered' | 'refused' | 'failed' | 'left'

/** Status recorded for a canceled request. */
const CLIENT_CLOSED_REQUEST = 499

export function outcomeOf(finished: FinishedRequest): FinalOutcome {
  if (finished.failure === 'cancelled' || finished.status === CLIENT_CLOSED_REQUEST) return 'left'
  if (finished.status >= 500) return 'failed'
  return finished.status >= 400 ? 'refused' : 'answered'
}

const MAX_NAME_LENGTH = 200

export function truncateName(name: string | undefined): string | null {
  return name === undefined ? null : name.slice(0, MAX_NAME_LENGTH)
}

export interface RequestOutcome {
  readonly status: number
  readonly bill?: Bill
  /** Absent if the response is incomplete. */
  readonly completion?: () => Completion
  readonly failure?: GatewayError
}
