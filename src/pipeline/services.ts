import type { Completion, AnswerSource } from '../core/answer.ts'
import type { Cancellation, MaybePromise } from '../core/async.ts'
import type { BodyLimits } from '../core/http.ts'
import type { Json, JsonObject } from '../core/json.ts'
import type { Embedded, EmbeddingRequest, Meter, Provider, Runtime, Sent, Timeouts } from '../core/ports.ts'
import type { SettledEntry } from '../core/store.ts'
import type { Prompt } from '../core/prompt.ts'
import type { SingleFlight } from '../cache/single-flight.ts'
import type { SemanticCache } from '../cache/semantic-cache.ts'
import type { AnswerTranslator } from '../upstream/answer-translator.ts'
import type { ClientFormat } from '../formats/format.ts'
import type { ParseLimits } from '../formats/scan-json.ts'
import type { Forecast } from '../governance/forecast.ts'
import type { Quote, RateStatus, Reservation, Used, WaitForStore } from '../governance/reservation.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import type { Attempts } from '../upstream/attempts.ts'
import type { UpstreamStream } from '../upstream/upstream-stream.ts'
import type { LogEventFields } from '../records/request-log.ts'
import type { Detached } from '../replay/subscribers.ts'
import type { Idempotency } from '../replay/idempotency.ts'
import type { Recordings } from '../replay/recordings.ts'
import type { CacheableRequest, MarkedPrompt } from '../savings/prompt-cache.ts'
import type { Waterfall } from '../savings/tier.ts'
import type { BodyCapacity } from './body-capacity.ts'
import type { SmallModel } from '../savings/models.ts'
import type { Answered, Exchange, PublishedAnswer, RequestOutcome, Reserved, Resolved, Route } from './exchange.ts'

/** Finds what a model name resolves to, for a key; throws `invalid-model`. */
export type Resolve = (name: string, key: VirtualKey) => Resolved

/** Calls routes in their order, with retries, until the first content has come. */
export interface Upstream {
  complete(routes: readonly Route[], call: UpstreamCall): Promise<UpstreamAnswer<Completion>>
  stream(routes: readonly Route[], call: UpstreamStreamCall): Promise<UpstreamAnswer<UpstreamStream>>
  embed(routes: readonly Route[], call: UpstreamEmbedding): Promise<UpstreamAnswer<Embedded>>
}

/** What the calls of one request have in common. */
export interface UpstreamRequest {
  readonly headers: Readonly<Record<string, string>>
  readonly cancellation: Cancellation
  readonly keyId: string
  /** When `timeouts.total` began, in milliseconds since 1970. */
  readonly startedAt: number
  /** Counts every call, for the bill. */
  readonly attempts: Attempts
}

export interface UpstreamCall extends UpstreamRequest {
  /** The prompt for one route: providers differ in what must be stated. */
  readonly promptFor: (route: Route) => Prompt
}

export interface UpstreamStreamCall extends UpstreamCall {
  /** A new translator for each try. */
  readonly translatorFor: (route: Route, source: AnswerSource) => AnswerTranslator
}

export interface UpstreamEmbedding extends UpstreamRequest {
  readonly request: EmbeddingRequest
}

export interface UpstreamAnswer<answer> extends Sent<answer> {
  readonly route: Route
}

/** A key by its secret. Fails with `overloaded` when the store cannot answer. */
export type FindKey = (secret: string) => MaybePromise<VirtualKey | undefined>

/** Reserves places and money in advance; see governance/ledger. */
export interface RequestLedger {
  reserve(key: VirtualKey, quote: Quote, wait?: WaitForStore): MaybePromise<Reservation>
  status(key: VirtualKey | undefined): MaybePromise<RateStatus>
  forecast(key: VirtualKey, quote: Quote): Promise<Forecast>
}

/** Observes finished requests: audit, metrics, log. Never rejects and never throws. */
export interface Observers {
  /** Records metrics and the log line. Appends the audit record too, unless the request has a settlement to carry it. */
  observeRequest(exchange: Exchange, outcome: RequestOutcome): MaybePromise<void>
  /** The audit record of a request, for its settlement to carry. */
  auditEntries(exchange: Exchange, outcome: RequestOutcome): readonly SettledEntry[]
  /** A settlement that the store did not take: its amounts are logged, so that none is lost unseen. */
  unsettled(reserved: Reserved, used: Used, cause: unknown): void
  /** Logs a failure whose cause no caller sees. */
  failed(event: string, cause: unknown, fields?: LogEventFields): void
}

/** Maximum sizes, and the waits that belong to them. */
export interface Limits {
  /** The body of a request, in bytes. @default 33_554_432 (32 MiB) */
  readonly bodyBytes: number
  /**
   * Bytes of the bodies above 1 MiB that one key may have in progress at once, from their arrival to the end of their
   * answers. Further ones wait, and are refused with 429 after `bodyReadMs`. @default 134_217_728 (128 MiB)
   */
  readonly bodyBytesPerKey: number
  /** Milliseconds in which a body must arrive. @default 15_000 */
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
  /** Maximum `temperature` of the chat format. @default 1 */
  readonly maxTemperature: number
  /**
   * Requests that make the vendor read or do more than their body holds: server tools, MCP servers, images and documents
   * by URL or id. `reserve` takes the model's whole context window from the budget, `refuse` answers 403, `allow` reserves
   * the body alone, so that such requests can cost more than the budget has left. @default 'reserve'
   */
  readonly vendorTools: 'reserve' | 'refuse' | 'allow'
  /** Milliseconds of silence on a stream after which a heartbeat is sent. @default 15_000 */
  readonly heartbeatMs: number
}

/** Computed once from `Limits`. */
export interface RequestBodyLimits extends BodyLimits {
  readonly json: ParseLimits
}

/** Tier 1: stored answers, and one upstream call for identical requests at the same time. */
export interface AnswerCache {
  readonly cache: SemanticCache
  readonly singleFlight: SingleFlight<SharedAnswer, PublishedAnswer>
}

/** An answer that others may have, and the tokens of its prompt as received. */
export interface SharedAnswer {
  readonly completion: Completion
  readonly promptTokens: number
}

/** A body with what it refers to in its place. */
export interface RecalledBody {
  /** The body itself when it refers to nothing that the gateway keeps. */
  readonly body: JsonObject
  /** Leaves the routes of the provider that holds what the body refers to. @default every route can answer */
  readonly narrow?: (resolved: Resolved) => Resolved
}

/** Answered requests that later ones refer to by their ids. Each key finds its own only. */
export interface KeptRequests {
  recall(format: ClientFormat, key: VirtualKey, body: JsonObject): MaybePromise<RecalledBody>
  /** Keeps an answered request when its format and its caller want that. Never rejects. */
  keep(answered: Answered, serialized: string | undefined): MaybePromise<void>
  /** The answer of a turn, as it was sent. */
  find(key: VirtualKey, id: string): Promise<JsonObject | undefined>
  /** The conversation of a turn, as it was asked with. */
  findInput(key: VirtualKey, id: string): Promise<readonly Json[] | undefined>
  /** The name of the provider that holds a response or an item for the key. */
  findHolder(key: VirtualKey, id: string): Promise<string | undefined>
  /** Remembers that a provider holds responses and items for the key. */
  hold(key: VirtualKey, ids: readonly string[], provider: string): Promise<void>
  /** True when there was something to forget. */
  forget(key: VirtualKey, id: string): Promise<boolean>
}

/** Places markers for the vendor's prompt cache. Undefined: none pays. */
export type PromptCache = (request: CacheableRequest) => Promise<MarkedPrompt | undefined>

/** What every stage may use. Created once, by createGateway. */
export interface Services {
  readonly findKey: FindKey
  readonly resolve: Resolve
  readonly provider: (name: string) => Provider | undefined
  readonly ledger: RequestLedger
  /** Absent: no answer is ever stored. */
  readonly memory?: AnswerCache
  readonly turns: KeptRequests
  readonly idempotency: Pick<Idempotency, 'claim'>
  readonly recordings: Recordings
  readonly detached: Detached
  readonly waterfall: Waterfall
  /** Absent: no markers are placed. */
  readonly promptCache?: PromptCache | undefined
  /** The same savings, which leave nothing behind. */
  readonly dryRun: () => Pick<Services, 'waterfall' | 'promptCache'>
  readonly smallModel: (route: Route) => SmallModel | undefined
  readonly upstream: Upstream
  readonly meter: Meter
  readonly margin: (key: VirtualKey, modelName: string) => number
  readonly observers: Observers
  readonly limits: Limits
  readonly bodyLimits: RequestBodyLimits
  readonly bodyCapacity: BodyCapacity
  /** What an upstream's format cannot say is left out of a request instead of refused. */
  readonly isLossy: boolean
  readonly timeouts: Timeouts
  /** Maximum time that one request waits for the store, over all its calls, in milliseconds. */
  readonly storeTimeoutMs: number
  readonly runtime: Runtime
}
