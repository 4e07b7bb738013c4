/** What the lookup before an upstream call finds: a response of an earlier or an identical request, or nothing. */
import type { NanoUsd } from '../core/money.ts'
import type { Bill } from '../billing/bill.ts'
import type { ResponseSource, Completion } from '../core/completion.ts'
import type { Recording } from '../streams/event-buffer.ts'
import type { LiveStream } from '../streams/live-stream.ts'
import type { RequestOutcome } from './finished-request.ts'

export interface ReplayPlan {
  readonly kind: 'replay'
  /** A stored response, or the live stream of an identical request. */
  readonly response: Completion | ResponseSource
  readonly bill: Bill
  /** Present for a response that was stored for an earlier request. */
  readonly stored?: StoredMatch
  /** Present if other requests may wait for this one. */
  readonly keeper?: ResponseKeeper
}

export interface StoredMatch {
  /** 1 if both questions are equal. */
  readonly similarity: number
  /** In milliseconds since 1970. */
  readonly storedAt: number
}

export type PublishedResponse = LiveStream & Pick<Recording, 'ended'>

export interface ResponseKeeper {
  /** Called once, when the request ends. */
  finish(outcome: RequestOutcome): void
  /** Absent if other requests must not follow the stream. */
  share?(live: PublishedResponse): void
}

export interface RecallMiss {
  readonly keeper: ResponseKeeper
  /** Cost of the cache's verifier. */
  readonly spent: NanoUsd
}

export type Recalled = { readonly replay: ReplayPlan } | RecallMiss

/** `recalling` resolves after the headers of the stream have left. */
export type RecallResult = Recalled | { readonly recalling: Promise<Recalled> }
