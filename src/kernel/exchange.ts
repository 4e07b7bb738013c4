/** The record of one request, and the types that say what is known of it after each stage. */
import type { Completion } from '../core/completion.ts'
import { Cancellation, type MaybePromise } from '../core/async.ts'
import type { GatewayError } from '../core/errors.ts'
import { type HttpRequest, mayHaveSteeringHeader, type ResponseSink } from '../core/http.ts'
import type { JsonObject } from '../core/json.ts'
import type { Route } from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import type { ClientFormat } from '../formats/format.ts'
import type { Reservation, RequestUsage, SettlementRecord } from '../governance/reservation.ts'
import type { Caller } from '../governance/caller.ts'
import type { Call } from './call.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import type { OccupiedCapacity } from '../http/body.ts'
import { Subscribers } from '../streams/shared-work.ts'
import type { Attempts } from '../upstream/attempts.ts'
import type { UpstreamStream } from '../upstream/upstream-stream.ts'
import type { FinishedRequest, RequestOutcome } from './finished-request.ts'
import type { Size } from './measure.ts'
import type { PluginRun } from './plugin-run.ts'
import type { ReplayPlan, ResponseKeeper } from './lookup.ts'
import type { Optimization, CacheMarkers, PromptCounts } from './optimization.ts'

export interface ExchangeStart {
  /** The value of x-request-id. */
  readonly id: string
  /** In milliseconds since 1970. */
  readonly startedAt: number
  readonly request: HttpRequest
  readonly sink: ResponseSink
  readonly format: ClientFormat
  readonly context?: Call['context']
}

export interface ExchangeCaller {
  /** False for work that no client waits for, such as an item of a batch. */
  readonly hasClient: boolean
  readonly isDetached: boolean
  readonly cancellation?: Cancellation
  /** Settles the request. @default at its end */
  readonly settlement?: PostponedSettlement
  /** True if the request is planned, but not reserved, sent and settled. @default false */
  readonly isDryRun?: boolean
}

/** Receives the end of a request whose result must be stored before it is settled. */
export interface PostponedSettlement {
  /** Throws if the request must not continue with this reservation. */
  accept(reservation: Reservation): void
  settle(reservation: Reservation, used: RequestUsage, entries: readonly SettlementRecord[]): void
  /** Receives a function that runs the hooks for the end of the request. */
  observe(outcome: RequestOutcome, observe: () => MaybePromise<void>): void
}

/** Initializes all fields, because V8 is slower for objects whose shape changes. */
export class Exchange {
  readonly id: string
  readonly startedAt: number
  readonly request: HttpRequest
  sink: ResponseSink
  readonly format: ClientFormat
  readonly cancellation: Cancellation
  /** Those who wait for the response: the client, and followers of its stream. Undefined without a client. */
  readonly subscribers: Subscribers | undefined
  /** True if the request continues after its caller disconnects. */
  isDetached: boolean
  /** True after the caller has disconnected, even if others still read the response. */
  isDisconnected = false
  onDisconnect: (() => void) | undefined = undefined
  /** Ends a stream with an error event. Set if its headers have left before the response is known. */
  endStream: ((failure: GatewayError) => void) | undefined = undefined

  /** What the application says about the caller. */
  readonly context: Call['context']
  /** The key of the caller. */
  key: VirtualKey | undefined = undefined
  caller: Caller | undefined = undefined
  /** The parsed body before earlier turns are inserted. */
  requestBody: JsonObject | undefined = undefined
  prompt: Prompt | undefined = undefined
  resolved: ResolvedModel | undefined = undefined
  size: Size | undefined = undefined
  /** True if the request has headers that may steer the gateway or a plugin. */
  readonly isSteered: boolean
  margin = 0
  capacity: OccupiedCapacity | undefined = undefined
  /** What the request may use. */
  grant: Grant | undefined = undefined
  /** Undefined for a dry run. */
  reservation: Reservation | undefined = undefined
  plan: Plan | undefined = undefined
  response: ModelResponse | undefined = undefined
  /** When the headers of a stream must leave, in milliseconds since 1970. Set if the request waits for an identical one. */
  headersDueAt: number | undefined = undefined
  /** Undefined for a replayed response. */
  route: Route | undefined = undefined
  ignoredFields: readonly string[] = []
  /** True if the body is so long that other requests run between the steps of this one. */
  needsPauses = false
  /** Total time spent in `waitForStore`, in milliseconds. */
  storeMs = 0
  finished: FinishedRequest | undefined = undefined
  /** Undefined if the gateway has no plugins. */
  plugins: PluginRun | undefined = undefined
  readonly settlement: PostponedSettlement | undefined
  isDryRun: boolean
  isEnded = false

  constructor(start: ExchangeStart, caller: ExchangeCaller) {
    this.id = start.id
    this.startedAt = start.startedAt
    this.request = start.request
    this.sink = start.sink
    this.format = start.format
    this.context = start.context
    this.isSteered = mayHaveSteeringHeader(start.request.headerNames())
    this.cancellation = caller.cancellation ?? new Cancellation()
    this.isDetached = caller.isDetached
    this.settlement = caller.settlement
    this.isDryRun = caller.isDryRun === true
    this.subscribers = caller.hasClient ? this.#subscribe() : undefined
  }

  /** False for work that no client waits for, such as an item of a batch. Remains true after a disconnect. */
  get hasClient(): boolean {
    return this.subscribers !== undefined
  }

  detach(): void {
    if (this.isDetached) return
    this.isDetached = true
    this.subscribers?.join()
  }

  #subscribe(): Subscribers {
    const subscribers = new Subscribers(() => this.cancellation.cancel(new Error('The caller disconnected.')))
    const leave = subscribers.join()
    // This subscription never ends, so a disconnect does not cancel the request.
    if (this.isDetached) subscribers.join()
    this.request.onDisconnect(() => {
      this.isDisconnected = true
      this.onDisconnect?.()
      leave()
    })
    return subscribers
  }
}

export type Authenticated = Exchange & { readonly key: VirtualKey; readonly caller: Caller }

export type Parsed = Authenticated & {
  readonly requestBody: JsonObject
  readonly prompt: Prompt
  readonly resolved: ResolvedModel
  readonly size: Size
}

/** The part of a reservation on which plans and bills are based. A forecast has the same fields. */
export type Grant = Pick<Reservation, 'quote' | 'outputTokens' | 'rate'>

export type Reserved = Parsed & { readonly grant: Grant }

export type Planned = Reserved & { readonly plan: Plan }

export type Responded = Planned & { readonly response: ModelResponse }

/** What the call of an upstream adds to an exchange. */
export type Called = Pick<Responded, 'response' | 'route' | 'ignoredFields'>

export interface ResolvedModel {
  readonly name: string
  readonly routes: readonly [Route, ...Route[]]
}

export type Plan = ReplayPlan | UpstreamPlan

export interface UpstreamPlan {
  readonly kind: 'upstream'
  readonly prompt: Prompt
  readonly optimization: Optimization
  readonly counts: PromptCounts
  readonly keeper: ResponseKeeper
  readonly attempts: Attempts
  /** Present if the gateway has added markers for the vendor's prompt cache. */
  readonly markers?: CacheMarkers
  /** Present if the headers of a stream leave before it is known whether the request is a cache hit. */
  readonly planning?: Promise<Planned>
}

export type ModelResponse =
  | { readonly kind: 'whole'; readonly completion: Completion }
  | { readonly kind: 'streamed'; readonly stream: UpstreamStream }
  /** The response begins before a provider has opened its stream. */
  | { readonly kind: 'opening'; readonly opening: Promise<OpenedStream> }

export interface OpenedStream {
  readonly stream: UpstreamStream
  readonly route: Route | undefined
  readonly ignoredFields: readonly string[]
}

/** Maximum time that the headers of a stream wait for its content, in milliseconds. Starts at the vendor call. */
export const MAX_HEADER_WAIT_MS = 5000
