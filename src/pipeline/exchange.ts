import { Cancellation, type MaybePromise } from '../core/async.ts'
import type { HttpRequest, ResponseSink } from '../core/http.ts'
import type { JsonObject } from '../core/json.ts'
import type { EmbeddingRequest, Provider } from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import type { Finished } from '../records/finished.ts'
import type { ClientFormat } from '../formats/format.ts'
import type { Reservation } from '../governance/reservation.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import type { FirstRequest } from '../replay/idempotency.ts'
import type { Recording } from '../replay/event-buffer.ts'
import type { LiveStream } from '../replay/live-stream.ts'
import { createSubscribers, type Subscribers } from '../replay/subscribers.ts'
import type { Steering, WaterfallResult } from '../savings/tier.ts'
import type { HeldCapacity } from './body-capacity.ts'
import type { Bill } from '../billing/bill.ts'
import type { AnswerSource, Completion } from '../core/answer.ts'
import type { GatewayError } from '../core/errors.ts'
import type { Model } from '../core/model.ts'
import type { MarkedPrompt } from '../savings/prompt-cache.ts'
import type { Attempts } from '../upstream/attempts.ts'
import type { UpstreamStream } from '../upstream/upstream-stream.ts'

/** What an exchange begins with. */
export interface ExchangeStart {
  /** Also the value of x-request-id. */
  readonly id: string
  /** Milliseconds since 1970. */
  readonly startedAt: number
  readonly request: HttpRequest
  readonly sink: ResponseSink
  readonly format: ClientFormat
}

/** Who waits for the answer. */
export interface ExchangeCaller {
  /** False for work without a client connection, such as the items of a batch. */
  readonly isConnected: boolean
  /** The request goes on without a reader. */
  readonly isDetached: boolean
  /** @default a new one */
  readonly cancellation?: Cancellation
}

/**
 * One request from arrival to settlement. All fields are declared here, so that the object's shape never changes; the
 * types below state which of them each stage may rely on.
 */
export class Exchange {
  readonly id: string
  readonly startedAt: number
  readonly request: HttpRequest
  readonly sink: ResponseSink
  readonly format: ClientFormat
  readonly cancellation: Cancellation
  /** The readers of the answer. Absent without a client connection, as for the items of a batch. */
  readonly subscribers: Subscribers | undefined
  /** The request goes on without a reader. */
  isDetached: boolean
  /** The caller itself has left. */
  hasLeft = false
  /** Called when the caller itself leaves. */
  onLeave: (() => void) | undefined = undefined

  key: VirtualKey | undefined = undefined
  /** The body as the caller wrote it, before earlier turns took their place in the prompt. */
  asked: JsonObject | undefined = undefined
  prompt: Prompt | undefined = undefined
  resolved: Resolved | undefined = undefined
  size: Size | undefined = undefined
  steering: Steering | undefined = undefined
  /** Present for an embeddings request. */
  embedding: EmbeddingRequest | undefined = undefined
  margin = 0
  /** The capacity that a large body takes of its key until the request ends. */
  capacity: HeldCapacity | undefined = undefined
  /** Present for the first request with its Idempotency-Key. */
  first: FirstRequest | undefined = undefined
  reservation: Reservation | undefined = undefined
  plan: Plan | undefined = undefined
  answer: Answer | undefined = undefined
  /** The route that answered; undefined for a replay. */
  route: Route | undefined = undefined
  /** Names of hints that the upstream's format could not carry. */
  ignored: readonly string[] = []
  /** How long the request has waited for the store so far, in milliseconds. */
  storeMs = 0
  /** What audit, metrics and log record of the request, once it has ended. */
  finished: Finished | undefined = undefined
  /** The request has been settled, or needs no settlement. */
  isEnded = false

  constructor(start: ExchangeStart, caller: ExchangeCaller) {
    this.id = start.id
    this.startedAt = start.startedAt
    this.request = start.request
    this.sink = start.sink
    this.format = start.format
    this.cancellation = caller.cancellation ?? new Cancellation()
    this.isDetached = caller.isDetached
    this.subscribers = caller.isConnected ? this.#subscribe() : undefined
  }

  /** Lets the request go on without a reader. */
  detach(): void {
    if (this.isDetached) return
    this.isDetached = true
    this.subscribers?.join()
  }

  /** The request is cancelled when the last subscriber leaves: its caller, a repetition, a follower of its stream. */
  #subscribe(): Subscribers {
    const subscribers = createSubscribers(() => this.cancellation.cancel(new Error('The caller left.')))
    const leave = subscribers.join()
    // A subscriber that never leaves.
    if (this.isDetached) subscribers.join()
    this.request.onDisconnect(() => {
      this.hasLeft = true
      this.onLeave?.()
      leave()
    })
    return subscribers
  }
}

export type Authenticated = Exchange & { readonly key: VirtualKey }

export type Parsed = Authenticated & {
  readonly asked: JsonObject
  readonly prompt: Prompt
  readonly resolved: Resolved
  readonly size: Size
  readonly steering: Steering
}

export type Reserved = Parsed & { readonly reservation: Reservation }

export type Planned = Reserved & { readonly plan: Plan }

export type Answered = Planned & { readonly answer: Answer }

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
  readonly callsUpstream: boolean
}

/** How the request will be answered. */
export type Plan = ReplayPlan | AskPlan

/** No upstream is called. */
export interface ReplayPlan {
  readonly kind: 'replay'
  /** A stored answer, or the stream of an identical request while it is generated. */
  readonly answer: Completion | AnswerSource
  readonly bill: Bill
  /** Present when further requests wait for this one. */
  readonly keep?: Keep
}

/** A stream that identical requests may follow. */
export type PublishedAnswer = LiveStream & Pick<Recording, 'ended'>

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
  /** Called when the stream of the answer begins. Absent if no request may follow it. */
  share?(live: PublishedAnswer): void
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
