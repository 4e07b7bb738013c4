import type { SemanticCache } from '../plugins/cache/semantic-cache.ts'
import type { Completion } from '../core/answer.ts'
import type { MaybePromise } from '../core/async.ts'
import type { BodyLimits } from '../core/http.ts'
import type { JsonObject } from '../core/json.ts'
import type { Meter, Provider, Route, Runtime, Timeouts, SmallModel } from '../core/ports.ts'
import type { SettledEntry } from '../core/store.ts'
import type { ReceivedBody } from '../core/prompt.ts'
import type { ClientFormat } from '../formats/format.ts'
import type { ParseLimits } from '../formats/scan-json.ts'
import type { Ledger } from '../governance/ledger.ts'
import type { RequestUsage } from '../governance/reservation.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import type { BodyCapacity } from '../http/body.ts'
import type { Plugin } from './plugin.ts'
import type { Idempotency } from '../plugins/idempotency/idempotency.ts'
import type { Recordings } from '../plugins/recordings/recordings.ts'
import type { DetachedWork } from '../streams/shared-work.ts'
import type { SingleFlight } from '../plugins/cache/single-flight.ts'
import type { CacheableRequest, MarkedPrompt } from '../plugins/savings/prompt-cache.ts'
import type { Waterfall } from '../plugins/savings/tier.ts'
import type { Upstream } from '../upstream/attempts.ts'
import type { Answered, Exchange, PublishedAnswer, RequestOutcome, Reserved, ResolvedModel } from './exchange.ts'
import type { LogEventFields } from '../core/failure-log.ts'

export type Resolve = (name: string, key: VirtualKey) => ResolvedModel

export type FindKey = (secret: string) => MaybePromise<VirtualKey | undefined>

export type FindKeyById = (id: string) => Promise<VirtualKey | undefined>

export interface Observers {
  /** Appends the audit record unless the settlement contains it or the key is unknown. */
  observeRequest(exchange: Exchange, outcome: RequestOutcome): MaybePromise<void>
  auditEntries(exchange: Exchange, outcome: RequestOutcome): readonly SettledEntry[]
  reportUnsettled(reserved: Reserved, used: RequestUsage, cause: unknown): void
  reportFailure(event: string, cause: unknown, fields?: LogEventFields): void
}

/** Limits on requests. */
export interface Limits {
  /** Maximum size of a body, in bytes. @default 33_554_432 (32 MiB) */
  readonly bodyBytes: number
  /**
   * Maximum total size of the bodies above 1 MiB that one key has in progress, in bytes. A body is in progress from its
   * arrival to the end of its answer. Further bodies wait, and are rejected with 429 after `bodyReadMs`, or immediately
   * if 100 are waiting. A key without such bodies in progress may send one that is larger.
   * @default 134_217_728 (128 MiB)
   */
  readonly bodyBytesPerKey: number
  /** Maximum time to receive a body, in milliseconds. @default 15_000 */
  readonly bodyReadMs: number
  /** Maximum nesting depth of a JSON body. @default 64 */
  readonly jsonDepth: number
  /** Maximum number of object keys and array elements in a JSON body, except numbers in arrays. @default 100_000 */
  readonly jsonKeys: number
  /** Maximum number of keys of each object in a JSON body. @default 10_000 */
  readonly jsonObjectKeys: number
  /**
   * Maximum count of numbers in the arrays of a JSON body, such as embedding inputs sent as tokens. Each counts four
   * times, except integers of up to 9 digits. @default 500_000
   */
  readonly jsonNumbers: number
  /**
   * Maximum size of a JSON body without its strings, in bytes: whitespace, numbers, literals and punctuation.
   * @default 4_194_304 (4 MiB)
   */
  readonly jsonSyntaxBytes: number
  /**
   * Maximum size of the text in a model request, in bytes: all strings in its body except long base64 data. Does not
   * apply to embeddings. The default is about 2 million tokens of prose, more than any model in the catalog accepts.
   * @default 8_388_608 (8 MiB)
   */
  readonly promptBytes: number
  /** Maximum `temperature` in the chat and responses formats. @default 1 */
  readonly maxTemperature: number
  /**
   * How to handle requests that make the vendor read content outside their body or run tools, such as server tools, MCP
   * servers, and images and documents by URL or id. `reserve` reserves the model's whole context window. `refuse`
   * responds with 403. `allow` reserves only the cost of the body and the answer, so a request can exceed the budget.
   * @default 'reserve'
   */
  readonly vendorTools: 'reserve' | 'refuse' | 'allow'
  /**
   * How to handle fields that make the vendor charge more than the list price, such as `service_tier: 'priority'`.
   * `refuse` responds with 400. `allow` bills the list price; the operator pays the difference. @default 'refuse'
   */
  readonly surcharges: 'refuse' | 'allow'
  /** Idle time on a stream after which a heartbeat is sent, in milliseconds. @default 15_000 */
  readonly heartbeatMs: number
}

export interface RequestBodyLimits extends BodyLimits {
  readonly json: ParseLimits
}

export interface AnswerCache {
  readonly cache: SemanticCache
  /** Maximum time that a request waits for an identical one. @default unlimited */
  readonly followTimeout?: { readonly ms: number; readonly after: Runtime['after'] }
  /** Created with the first request that uses the cache. */
  singleFlight?: SingleFlight<SharedAnswer, PublishedAnswer>
}

export interface SharedAnswer {
  readonly completion: Completion
  /** Number of tokens of the received prompt. */
  readonly promptTokens: number
}

export interface BodyToRecall {
  readonly body: JsonObject
  /** Absent if the body must be serialized again. */
  readonly received?: ReceivedBody | undefined
}

export interface RecalledBody extends BodyToRecall {
  /** Present if a provider stores the referenced responses. */
  readonly restrictRoutes?: (resolved: ResolvedModel) => ResolvedModel
}

export interface Turns {
  recall(format: ClientFormat, key: VirtualKey, received: BodyToRecall): MaybePromise<RecalledBody>
  store(answered: Answered, serialized: string | undefined): MaybePromise<void>
  /** Returns the answer as JSON text, because its numbers may not be exact after parsing. */
  find(key: VirtualKey, id: string): Promise<string | undefined>
  /** Returns the conversation without the answer, as the JSON text of an array. */
  findInput(key: VirtualKey, id: string): Promise<string | undefined>
  findProvider(key: VirtualKey, id: string): Promise<string | undefined>
  storeProvider(key: VirtualKey, ids: readonly string[], provider: string): Promise<void>
  /** A background response is unsettled while its request waits for settlement. */
  setUnsettled(key: VirtualKey, id: string, isUnsettled: boolean): Promise<void>
  isUnsettled(key: VirtualKey, id: string): Promise<boolean>
  /** Resolves with true if a stored turn or provider name was deleted. */
  delete(key: VirtualKey, id: string): Promise<boolean>
}

/** Delays batch items while many requests are in progress. */
export interface RequestTracker {
  enter(id: string): void
  leave(id: string): void
  /** Resolves when few requests are in progress, when the maximum wait has passed, or when the signal is aborted. */
  waitForQuiet(signal: AbortSignal): Promise<void>
}

/**
 * The output tokens of the last answered requests by key id and model name, oldest first. Each map has its least recently
 * used entry first. Each process has its own.
 */
export type RecentOutputs = Map<string, Map<string, number[]>>

/** Resolves with undefined if no markers are added. */
export type MarkPrompt = (request: CacheableRequest) => Promise<MarkedPrompt | undefined>

export interface Services {
  readonly findKey: FindKey
  readonly resolve: Resolve
  readonly provider: (name: string) => Provider | undefined
  readonly ledger: Pick<Ledger, 'reserve' | 'status' | 'forecast'>
  /** Absent if the cache is disabled. */
  readonly answerCache?: AnswerCache
  readonly turns: Turns
  readonly idempotency: Pick<Idempotency, 'claim'>
  readonly recordings: Recordings
  readonly detached: DetachedWork
  readonly waterfall: Waterfall
  /** Absent if prompt cache markers are disabled. */
  readonly markPrompt?: MarkPrompt | undefined
  /** Returns a waterfall and a `markPrompt` that write nothing to the store and call no embedder. */
  readonly dryRun: () => Pick<Services, 'waterfall' | 'markPrompt'>
  readonly smallModel: (route: Route) => SmallModel | undefined
  readonly upstream: Upstream
  readonly meter: Meter
  readonly margin: (key: VirtualKey, modelName: string, route: Route | undefined) => number
  /** The expected amounts of a stream depend on them. */
  readonly recentOutputs: RecentOutputs
  /** True if the theoretical cost ignores the vendor's prompt cache. */
  readonly billsListPrice: boolean
  /** False if responses to virtual keys omit the margin, the theoretical and actual cost, and the savings. */
  readonly showsMargin: boolean
  readonly observers: Observers
  /** Absent if the gateway has no plugins. */
  readonly plugins?: readonly Plugin[] | undefined
  readonly limits: Limits
  readonly bodyLimits: RequestBodyLimits
  readonly bodyCapacity: BodyCapacity
  /** True if fields that an upstream's format does not support are dropped instead of rejected. */
  readonly isLossy: boolean
  readonly timeouts: Timeouts
  /** Maximum total time that one request spends in `waitForStore`, in milliseconds. */
  readonly storeTimeoutMs: number
  readonly runtime: Runtime
}
