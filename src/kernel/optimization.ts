/** What the savings did to a prompt, and what they want to know of its response. */
import type { NanoUsd, Usage } from '../core/money.ts'
import type { MaybePromise } from '../core/async.ts'
import type { Part, Prompt } from '../core/prompt.ts'
import type { TierOutcome } from './finished-request.ts'

/** The prompt that is sent instead of the received one, what it cost to find, and what the vendor's cache has of it. */
export interface Optimization {
  readonly rewrite?: {
    readonly prompt: Prompt
    readonly tier: 2 | 3 | 4 | 5
    readonly strategy: string
    readonly tokens: number
  }
  /** Strategy of a prompt that is sent unchanged. @default passthrough */
  readonly strategy?: string
  /** True if the caller pays for the sent prompt even if it costs more than the received one. @default false */
  readonly isForced?: boolean
  /** Includes calls that did not lead to a rewrite. */
  readonly spent: NanoUsd
  /** The part of `spent` that the caller requested. @default 0 */
  readonly requestedCost?: NanoUsd
  readonly verdicts: readonly TierOutcome[]
  /** Why the other tiers have no verdict. @default the prompt is too small */
  readonly skipReason?: string
  /** Share of the received prompt that the vendor's cache would serve, from 0 to 1. @default what the vendor reports */
  readonly servedShare?: number
  /** Tokens that a rewritten prompt and the received one have in common at their beginning. */
  readonly commonPrefixTokens?: number
  /** Tokens of the sent prompt that the vendor's cache is expected to serve. @default 0 */
  readonly expectedCacheRead?: () => number
  /** The vendor's tokens per estimated token, as reported for an earlier turn. @default those of the sent prompt */
  readonly vendorRatio?: number
  /** Records that the vendor has processed the sent prompt. Never rejects. */
  reportSent?(report: { readonly promptTokens: number; readonly usage: Usage | undefined }): Promise<void>
  /** Receives the response, or undefined if it is incomplete. Never throws. */
  reportResponse?(response: readonly Part[] | undefined): void
}

export interface CacheMarkers {
  readonly count: number
  /** Receives the usage that the vendor reported. Never rejects. */
  report(usage: Usage): Promise<void>
}

export interface PromptCounts {
  readonly original: number
  readonly sent: number
  /** Absent if both counts are known. */
  prepareCounts?(): MaybePromise<void>
}
