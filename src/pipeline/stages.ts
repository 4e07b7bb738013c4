import type { SemanticCache } from '../cache/semantic-cache.ts'
import type { SingleFlight } from '../cache/single-flight.ts'
import type { Completion, Step } from '../core/answer.ts'
import type { Bill } from '../billing/bill.ts'
import type { GatewayError } from '../core/errors.ts'
import type { JsonObject } from '../core/json.ts'
import type { EmbedCall, Embedded, Meter, ProviderCall, Runtime, Sent, Timeouts } from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import type { Format } from '../formats/format.ts'
import type { Forecast } from '../governance/forecast.ts'
import type { Quote, RateStatus, Reservation, Used } from '../governance/reservation.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import type { Audience } from '../replay/audience.ts'
import type { Detached } from '../replay/detached.ts'
import type { First, Idempotency, Repeated } from '../replay/idempotency.ts'
import type { Recordings } from '../replay/recordings.ts'
import type { Optimized, SmallModel, Waterfall, Wishes } from '../savings/tier.ts'
import type { Route } from './route.ts'
import type { Tries } from './tries.ts'

/** What a model name stands for: the first route is asked first, the others are its fallbacks. */
export interface Resolved {
  /** As the caller wrote it. */
  readonly name: string
  readonly routes: readonly [Route, ...Route[]]
}

/** A request as it reached an endpoint. */
export interface Received {
  readonly id: string
  readonly startedAt: number
  readonly request: Request
  readonly format: Format
  /** Fires when the caller leaves or the request's deadline passes. */
  readonly signal: AbortSignal
  /** Ends everything that this request still has under way. */
  readonly abort: (reason: unknown) => void
  /** Absent: nobody is connected, as with the items of a batch. */
  readonly caller?: Caller
}

/** Whoever is connected and waits for the answer. */
export interface Caller {
  /** The request is aborted when the last of them leaves. */
  readonly audience: Audience
  /** The caller itself leaves. */
  readonly leave: () => void
  /** The request goes on without anyone. */
  readonly isDetached: boolean
}

export interface Admitted extends Received {
  readonly key: VirtualKey
}

/** The first stage: whose request it is. */
export type Admitting = (received: Received, parts: Parts) => Promise<Admitted>

/** The size of a prompt, in tokens. Nothing of it is reckoned before it is read. */
export interface Size {
  /** By our own count. */
  readonly estimate: number
  /** The bound by bytes, for token limits. */
  readonly bound: number
  /** The most that is reserved for a route: the bound, or the model's window where that is less or work of the vendor is asked for. */
  readonly reserved: (route: Route) => number
  /** The most that a route's upstream can report of the prompt as it is sent. */
  readonly reportable: (route: Route) => number
  /** Exact for a route; undefined where the count failed. Absent: no exact counter exists. */
  readonly counter: (route: Route) => Counter | undefined
  /** The gateway's own exact count, for token limits. */
  readonly count: () => Promise<number>
}

/** A way to count a prompt exactly. */
export interface Counter {
  readonly count: () => Promise<number | undefined>
  /** True when it calls an upstream. */
  readonly asksUpstream: boolean
}

export interface Understood extends Admitted {
  /** The body as the caller wrote it: what it refers to has taken its place in the prompt. */
  readonly asked: JsonObject
  readonly prompt: Prompt
  readonly resolved: Resolved
  readonly size: Size
  readonly wishes: Wishes
  readonly margin: number
}

export interface Claimed extends Understood {
  /** Present where the request carries an Idempotency-Key: is told how it ended. */
  readonly first?: First
}

/** A request that was answered before, or is being answered, under the same Idempotency-Key. */
export interface Repetition extends Understood {
  readonly repeated: Repeated
}

export interface Reserved extends Claimed {
  readonly reservation: Reservation
}

/** How the request will be answered. */
export type Plan =
  | { readonly kind: 'replay'; readonly completion: Completion; readonly bill: Bill }
  | {
      readonly kind: 'ask'
      readonly prompt: Prompt
      readonly optimized: Optimized
      readonly counted: Counted
      readonly keep: Keep
      readonly tries: Tries
    }

/** Told once, when the request has ended: what may be stored, and whether those who ask the same may have it. */
export interface Keep {
  finish(outcome: Outcome): void
}

/** Our own counts of the prompt as it came and as it is sent; equal where nothing was rewritten. */
export interface Counted {
  readonly original: number
  readonly sent: number
}

export interface Planned extends Reserved {
  readonly plan: Plan
}

export type Answer =
  | { readonly kind: 'whole'; readonly completion: Completion }
  | { readonly kind: 'streamed'; readonly steps: AsyncIterable<Step> }

export interface Answered extends Planned {
  readonly answer: Answer
  /** Who answered; undefined for a replay. */
  readonly route: Route | undefined
  /** Hints that the upstream's format could not carry. */
  readonly ignored: readonly string[]
}

/** How far a request came, for the one place that turns failures into responses. */
export type Reached = Received | Admitted | Understood | Claimed | Repetition | Reserved | Planned | Answered

/** How a request ended, for the records. */
export interface Outcome {
  /** The HTTP status that the caller saw. */
  readonly status: number
  readonly bill?: Bill
  /** The whole answer; absent for one that broke off or was left. */
  readonly completion?: Completion
  readonly failure?: GatewayError
}

/** Finds what a model name stands for, for a key; throws `invalid-model`. */
export type Resolve = (name: string, key: VirtualKey) => Resolved

/** Asks routes in their order, with retries, before the first byte only. */
export interface Upstream {
  complete(routes: readonly Route[], call: UpstreamCall): Promise<UpstreamAnswer<Completion>>
  stream(routes: readonly Route[], call: UpstreamCall): Promise<UpstreamAnswer<AsyncIterable<Step>>>
  embed(routes: readonly Route[], call: UpstreamEmbedding): Promise<UpstreamAnswer<Embedded>>
}

/** What the calls of one request have in common. */
export interface UpstreamRequest extends Pick<ProviderCall, 'headers' | 'signal'> {
  readonly keyId: string
  /** When `timeouts.total` began, in milliseconds since 1970. */
  readonly startedAt: number
}

export interface UpstreamCall extends UpstreamRequest {
  /** Ends the request, also while its stream has no reader. */
  readonly abort: (reason: unknown) => void
  /** The prompt for one route: providers differ in what must be said. */
  readonly promptFor: (route: Route) => Prompt
}

export type UpstreamEmbedding = UpstreamRequest & Pick<EmbedCall, 'request'>

export interface UpstreamAnswer<answer> extends Sent<answer> {
  readonly route: Route
}

/** A key by its secret. Rejects `overloaded` when the store cannot tell. */
export type FindKey = (secret: string) => Promise<VirtualKey | undefined>

/** Takes places and money in advance; see governance/ledger. */
export interface Ledger {
  reserve(key: VirtualKey, quote: Quote): Promise<Reservation>
  status(key: VirtualKey | undefined): Promise<RateStatus>
  forecast(key: VirtualKey, quote: Quote): Promise<Forecast>
}

/** Where finished requests and failures are written down. Never rejects or throws. */
export interface Records {
  record(reached: Reached, outcome: Outcome): Promise<void>
  /** A settlement that the store did not take: what was used is told here, so that no amount is lost unseen. */
  unsettled(reserved: Reserved, used: Used, cause: unknown): void
  /** Logs a failure that no caller sees the cause of. */
  failed(event: string, cause: unknown, fields?: JsonObject): void
}

/** Greatest sizes, and the waits that belong to them. */
export interface Limits {
  /** The body of a request, in bytes. @default 33_554_432 (32 MiB) */
  readonly bodyBytes: number
  /** How long a caller may take to send a body, in milliseconds. @default 15_000 */
  readonly bodyReadMs: number
  /** Nesting of a JSON body. @default 64 */
  readonly jsonDepth: number
  /** Keys of all objects and elements of all arrays of a JSON body, numbers in arrays excepted. @default 100_000 */
  readonly jsonKeys: number
  /** Numbers in the arrays of a JSON body, such as embeddings inputs given as tokens. @default 500_000 */
  readonly jsonNumbers: number
  /** Bytes of a JSON body outside of its strings: blanks, numbers, punctuation. @default 4_194_304 (4 MiB) */
  readonly jsonSyntaxBytes: number
  /**
   * Bytes of the text of a model request: all strings of its body except base64 data. The default is above 2 million
   * tokens of prose, more than any context window. @default 8_388_608 (8 MiB)
   */
  readonly promptBytes: number
  /** The greatest `temperature` of the chat format. @default 1 */
  readonly maxTemperature: number
  /**
   * Requests that make the vendor read or do more than their body holds: server tools, MCP servers, images and documents
   * by URL or id. `reserve` takes the model's whole context window from the budget, `refuse` answers 403, `allow` reserves
   * the body alone, so that such requests can cost more than the budget has left. @default 'reserve'
   */
  readonly vendorTools: 'reserve' | 'refuse' | 'allow'
  /** Silence on a stream after which a sign of life is sent, in milliseconds. @default 15_000 */
  readonly heartbeatMs: number
}

/** Tier 1: stored answers, and one upstream call for identical requests at the same time. */
export interface Memory {
  readonly cache: SemanticCache
  readonly singleFlight: SingleFlight<Remembered>
}

/** An answer that others may have, and the tokens of its prompt as it came. */
export interface Remembered {
  readonly completion: Completion
  readonly promptTokens: number
}

/** Answered requests that later ones refer to by their ids. Each key finds its own only. */
export interface Turns {
  /** The body with what it refers to in its place; the body itself where it refers to nothing. */
  recall(format: Format, key: VirtualKey, body: JsonObject): Promise<JsonObject>
  /** Keeps an answered request, where its format and its caller want that. Never rejects: the answer is there. */
  keep(answered: Answered, told: string | undefined): Promise<void>
  /** The answer of a turn, as it was told. */
  find(key: VirtualKey, id: string): Promise<JsonObject | undefined>
  /** True when there was something to forget. */
  forget(key: VirtualKey, id: string): Promise<boolean>
}

/** What every stage may lean on. Made once, by createGateway. */
export interface Parts {
  readonly findKey: FindKey
  readonly resolve: Resolve
  readonly ledger: Ledger
  /** Absent: no answer is ever stored. */
  readonly memory?: Memory
  readonly turns: Turns
  readonly idempotency: Idempotency
  readonly recordings: Recordings
  readonly detached: Detached
  readonly waterfall: Waterfall
  /** Another waterfall of the same options, which leaves nothing behind. */
  readonly rehearsal: () => Waterfall
  readonly smallModel: (route: Route) => SmallModel | undefined
  readonly upstream: Upstream
  readonly meter: Meter
  readonly margin: (key: VirtualKey, modelName: string) => number
  readonly records: Records
  readonly limits: Limits
  readonly timeouts: Timeouts
  readonly runtime: Runtime
}
