import type { NanoUsd } from '../core/money.ts'
import type { Bill } from '../billing/bill.ts'
import type { ResponseSource, Completion, FinishReason } from '../core/completion.ts'
import { Cancellation, isPromise, type MaybePromise } from '../core/async.ts'
import { type GatewayError, storeError } from '../core/errors.ts'
import type { HttpRequest, ResponseSink } from '../core/http.ts'
import type { JsonObject } from '../core/json.ts'
import type { CacheWrites, Usage } from '../core/money.ts'
import type { Model, Route, Runtime } from '../core/ports.ts'
import type { Part, Prompt } from '../core/prompt.ts'
import type { SettledEntry } from '../core/store.ts'
import type { ClientFormat, StreamWriter, WriteContext } from '../formats/format.ts'
import type { Reservation, RequestUsage } from '../governance/reservation.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import type { OccupiedCapacity } from '../http/body.ts'
import type { Recording } from '../streams/event-buffer.ts'
import type { LiveStream } from '../streams/live-stream.ts'
import { Subscribers } from '../streams/shared-work.ts'
import type { Attempts } from '../upstream/attempts.ts'
import type { UpstreamStream } from '../upstream/upstream-stream.ts'
import type { FinishedRequest, TierOutcome } from './finished-request.ts'

export interface ExchangeStart {
  /** The value of x-request-id. */
  readonly id: string
  /** In milliseconds since 1970. */
  readonly startedAt: number
  readonly request: HttpRequest
  readonly sink: ResponseSink
  readonly format: ClientFormat
}

export interface ExchangeCaller {
  /** False for work without a client connection, such as an item of a batch. */
  readonly isConnected: boolean
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
  settle(reservation: Reservation, used: RequestUsage, entries: readonly SettledEntry[]): void
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
  /** Undefined for work without a client connection. */
  readonly subscribers: Subscribers | undefined
  /** True if the request continues after its caller disconnects. */
  isDetached: boolean
  /** True after the caller has disconnected, even if others still read the response. */
  isDisconnected = false
  onDisconnect: (() => void) | undefined = undefined
  /** Ends a stream with an error event. Set if its headers have left before the response is known. */
  endStream: ((failure: GatewayError) => void) | undefined = undefined

  key: VirtualKey | undefined = undefined
  /** The parsed body before earlier turns are inserted. */
  requestBody: JsonObject | undefined = undefined
  prompt: Prompt | undefined = undefined
  resolved: ResolvedModel | undefined = undefined
  size: Size | undefined = undefined
  /** True if the request has headers that may steer a plugin. */
  isSteered = false
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
    this.cancellation = caller.cancellation ?? new Cancellation()
    this.isDetached = caller.isDetached
    this.settlement = caller.settlement
    this.isDryRun = caller.isDryRun === true
    this.subscribers = caller.isConnected ? this.#subscribe() : undefined
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

/** The plugins of the gateway on one request. */
export interface PluginRun {
  /** The prompt before plugins changed it. Responses repeat its fields, and it is stored for later turns. */
  readonly receivedPrompt: Prompt | undefined
  /** True if a plugin may change the response. Then no other request may follow the stream. */
  readonly changesResponse: boolean
  /** The whole response as the plugins made it. @default the upstream's completion */
  completion?: Completion
  createWriter(writer: StreamWriter): StoppableWriter
  observeAttempts(attempts: Attempts): Attempts
}

/** A writer that can end the response before the upstream does. */
export interface StoppableWriter extends StreamWriter {
  readonly stop?: ResponseStop | undefined
  /** Called when `stop` is set. Present if the writer may set it. */
  onStop?: () => void
}

/** How a response ends early: with an error, or with what has been written. */
export type ResponseStop = { readonly failure: GatewayError } | { readonly finish: FinishReason }

export type Authenticated = Exchange & { readonly key: VirtualKey }

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

/** In tokens. */
export interface Size {
  /** Blocks the event loop for a long prompt, unless `prepare` has computed it. */
  readonly estimate: number
  /** Yields to the event loop while counting. Never rejects. */
  prepare(): MaybePromise<void>
  /** True if the body may be so long that its digest must be computed in slices. */
  readonly mayContainLargeMedia: boolean
  /** For token limits: an upper bound for text, and typical numbers for images. */
  readonly bound: number
  needsEstimate(route: Route): boolean
  tokensToReserve(route: Route): number
  /** Returns the cache writes that the caller may be billed. Undefined if bills use the list price of all tokens. */
  billedCacheWrites(route: Route): CacheWrites | undefined
  /** Returns the maximum number of prompt tokens that the route's upstream can plausibly report. */
  maxReportableTokens(route: Route): number
  /** Number of outputs that the vendor generates and bills. */
  readonly outputs: number
  /** Returns the output tokens that the vendor may bill in addition to the output limit. */
  extraOutputTokens(model: Model): number
  /** Ids of models that the vendor may call for the request besides its own, at their own prices. @default none */
  readonly otherModels?: readonly string[] | undefined
  counterFor(route: Route): TokenCounter | undefined
  /** Resolves with a local count for token limits. */
  count(): Promise<number>
}

export interface TokenCounter {
  /** Resolves with undefined if the vendor's count fails. */
  readonly count: () => Promise<number | undefined>
  readonly callsUpstream: boolean
}

export type Plan = ReplayPlan | UpstreamPlan

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

export interface ResponseKeeper {
  /** Called once, when the request ends. */
  finish(outcome: RequestOutcome): void
  /** Absent if other requests must not follow the stream. */
  share?(live: PublishedResponse): void
}

export interface PromptCounts {
  readonly original: number
  readonly sent: number
  /** Absent if both counts are known. */
  prepare?(): MaybePromise<void>
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

export interface RequestOutcome {
  readonly status: number
  readonly bill?: Bill
  /** Absent if the response is incomplete. */
  readonly completion?: () => Completion
  readonly failure?: GatewayError
}

/** Maximum time that the headers of a stream wait for its content, in milliseconds. Starts at the vendor call. */
export const MAX_HEADER_WAIT_MS = 5000

export function requestIdOf(uuid: string): string {
  return `req_${hexDigitsOf(uuid)}`
}

/** Slices are several times faster than `replaceAll`. */
export function hexDigitsOf(uuid: string): string {
  return uuid.slice(0, 8) + uuid.slice(9, 13) + uuid.slice(14, 18) + uuid.slice(19, 23) + uuid.slice(24)
}

/**
 * Rejects if the request has waited for its store calls for `storeTimeoutMs` in total. The store call itself is not
 * aborted.
 */
export function waitForStore<Value>(
  exchange: Exchange,
  pending: MaybePromise<Value>,
  { runtime, storeTimeoutMs }: { readonly runtime: Pick<Runtime, 'now' | 'after'>; readonly storeTimeoutMs: number },
): MaybePromise<Value> {
  if (!isPromise(pending)) return pending
  const startedAt = runtime.now()
  const remainingMs = Math.max(0, storeTimeoutMs - exchange.storeMs)
  return new Promise((resolve, reject) => {
    const expire = (): void => {
      exchange.storeMs = storeTimeoutMs
      reject(storeError(`did not answer within ${storeTimeoutMs} ms`))
    }
    if (remainingMs === 0) expire()
    const cancel = runtime.after(remainingMs, expire)
    const finish = (): void => {
      cancel()
      exchange.storeMs += Math.max(0, runtime.now() - startedAt)
    }
    pending.then(
      (value) => {
        finish()
        resolve(value)
      },
      (error: unknown) => {
        finish()
        reject(error)
      },
    )
  })
}

export function isBackground({ native }: Prompt): boolean {
  return native.dialect === 'responses' && native.value['background'] === true
}

/** Returns true if only an instruction requests JSON, because the upstream's format has no setting for it. */
export function requestsJsonByInstruction({ prompt, route }: Pick<Responded, 'prompt' | 'route'>): boolean {
  if (prompt.settings.shape?.type !== 'json' || prompt.native.dialect === 'messages') return false
  return route?.provider.dialect === 'messages'
}

export type WrittenExchange = Pick<Parsed, 'prompt' | 'startedAt' | 'id' | 'requestBody'> &
  Partial<Pick<Parsed, 'plugins'>>

export function createWriteContext(
  { prompt, startedAt, id, requestBody, plugins }: WrittenExchange,
  { now }: Pick<Runtime, 'now'>,
): WriteContext {
  return {
    prompt: plugins?.receivedPrompt ?? prompt,
    createdSeconds: Math.floor(startedAt / 1000),
    now,
    requestId: id,
    requestBody,
  }
}

export interface RecallMiss {
  readonly keeper: ResponseKeeper
  /** Cost of the cache's verifier. */
  readonly spent: NanoUsd
}

export type Recalled = { readonly replay: ReplayPlan } | RecallMiss
/** `recalling` resolves after the headers of the stream have left. */
export type RecallResult = Recalled | { readonly recalling: Promise<Recalled> }
