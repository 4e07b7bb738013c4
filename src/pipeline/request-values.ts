import type { Bill } from '../billing/bill.ts'
import type { Completion } from '../core/answer.ts'
import type { GatewayError } from '../core/errors.ts'
import type { MaybePromise } from '../core/async.ts'
import type { Model } from '../core/model.ts'
import type { Provider } from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import type { MarkedPrompt } from '../savings/prompt-cache.ts'
import type { WaterfallResult } from '../savings/tier.ts'
import type { Attempts } from '../upstream/attempts.ts'
import type { UpstreamStream } from '../upstream/upstream-stream.ts'

/** One provider and model that can answer a request. */
export interface Route {
  readonly provider: Provider
  readonly model: Model
}

/** What a model name resolves to: the first route is tried first, the others are its fallbacks. */
export interface Resolved {
  /** As the caller wrote it. */
  readonly name: string
  readonly routes: readonly [Route, ...Route[]]
}

/** The size of a prompt, in tokens. Nothing of it is computed before it is read. */
export interface Size {
  /** By our own count. Blocks the event loop for a long prompt, unless `prepare` was called before. */
  readonly estimate: number
  /** Computes the estimate of a long prompt with pauses. Returns undefined where nothing is to be waited for. */
  prepare(): MaybePromise<void>
  /** True when the body may hold media that is named by its digest, which is computed with pauses. */
  readonly mayHoldLongMedia: boolean
  /** The bound by bytes, for token limits. */
  readonly bound: number
  /** True where `reserved` reads the estimate. */
  needsEstimate(route: Route): boolean
  /** The most that is reserved for a route: the bound, or the model's window where that is less or work of the vendor is asked for. */
  reserved(route: Route): number
  /** The most that a route's upstream can report of the prompt as it is sent. */
  reportable(route: Route): number
  /** Exact for a route; undefined where no exact counter exists. */
  counter(route: Route): Counter | undefined
  /** The gateway's own exact count, for token limits. */
  count(): Promise<number>
}

/** A way to count a prompt exactly. */
export interface Counter {
  /** Undefined when the count failed. */
  readonly count: () => Promise<number | undefined>
  /** True when it calls an upstream. */
  readonly asksUpstream: boolean
}

/** How the request will be answered. */
export type Plan = { readonly kind: 'replay'; readonly completion: Completion; readonly bill: Bill } | AskPlan

/** An upstream is called. */
export interface AskPlan {
  readonly kind: 'ask'
  readonly prompt: Prompt
  readonly optimized: WaterfallResult
  readonly counted: Counted
  readonly keep: Keep
  readonly attempts: Attempts
  /** Present when the prompt has markers for the vendor's prompt cache. */
  readonly marked?: MarkedPrompt
}

/** Notified once when the request has ended: what may be stored, and whether followers may have it. */
export interface Keep {
  finish(outcome: RequestOutcome): void
}

/** Our own counts of the prompt as received and as sent; equal when nothing was rewritten. */
export interface Counted {
  readonly original: number
  readonly sent: number
  /** Computes both for a long prompt with pauses. Absent: they are known. */
  prepare?(): MaybePromise<void>
}

export type Answer =
  | { readonly kind: 'whole'; readonly completion: Completion }
  | { readonly kind: 'streamed'; readonly stream: UpstreamStream }

/** How a request ended, for the records. */
export interface RequestOutcome {
  /** The HTTP status that the caller saw. */
  readonly status: number
  readonly bill?: Bill
  /** Makes the whole answer; absent for one that broke off or was left. */
  readonly completion?: () => Completion
  readonly failure?: GatewayError
}
