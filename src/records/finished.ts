import type { FailureKind } from '../core/errors.ts'
import type { NanoUsd } from '../core/money.ts'

/** What a finished request cost; a bill has these fields. */
export interface FinishedBill {
  readonly originalTokens: number
  readonly optimizedTokens: number
  readonly completionTokens: number
  readonly theoretical: NanoUsd
  readonly actual: NanoUsd
  readonly billed: NanoUsd
  readonly cache: 'HIT' | 'MISS'
  readonly strategy: string
  readonly estimated: boolean
}

/** One line of the waterfall's decision. */
export interface TierOutcome {
  readonly tier: number
  readonly outcome: string
  readonly reason: string
}

/** How one request ended: all that audit, metrics and log need to know of it. No text of prompt or answer. */
export interface Finished {
  readonly requestId: string
  /** Undefined: the request carried no key that is known. */
  readonly keyId: string | undefined
  /** As the caller wrote it; undefined: the request did not come so far. */
  readonly model: string | undefined
  /** The HTTP status that the caller saw. */
  readonly status: number
  readonly failure?: FailureKind | undefined
  /** When the request ended, milliseconds since 1970. */
  readonly at: number
  readonly latencyMs: number
  /** The tier that rewrote the prompt. A replay from the cache, tier 1, is known from its bill. */
  readonly tier?: 2 | 3 | 4 | 5 | undefined
  /** Present when there was an answer, whole or in part, or when upstreams were paid without one. */
  readonly bill?: FinishedBill | undefined
  /** What became of each tier that was looked at, and why. */
  readonly tiers?: readonly TierOutcome[] | undefined
}

/** What became of a request. */
export type Ending = 'answered' | 'refused' | 'failed' | 'left'

/** The status in the records of a request whose caller left. It is never sent. */
const LEFT = 499

export function endingOf(finished: Finished): Ending {
  if (finished.failure === 'cancelled' || finished.status === LEFT) return 'left'
  if (finished.status >= 500) return 'failed'
  return finished.status >= 400 ? 'refused' : 'answered'
}

/** Tokens that were sent and generated for a request; a replay from the cache used none. */
export function tokensUsed({ bill }: Finished): number {
  return bill === undefined || bill.cache === 'HIT' ? 0 : bill.optimizedTokens + bill.completionTokens
}

const MAX_NAME = 200

/** Texts that callers choose are cut to a maximum length before they are recorded. */
export function shortened(name: string | undefined): string | null {
  return name === undefined ? null : name.slice(0, MAX_NAME)
}
