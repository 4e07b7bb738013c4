/**
 * What the stages of a request use, and the port of the built-in plugins. It has the hooks of `Plugin` (plugin.ts), which
 * is its form for users: plugins/custom calls users' hooks with frozen copies and deadlines, and checks what they return.
 * The kernel imports no plugin. gateway.ts has the list of plugins; its order is the order of the hooks.
 */
import type { Bill } from '../billing/bill.ts'
import type { Completion } from '../core/completion.ts'
import type { MaybePromise } from '../core/async.ts'
import type { GatewayError } from '../core/errors.ts'
import type { LogEventFields } from '../core/failure-log.ts'
import type { HeaderRecord, HttpRequest } from '../core/http.ts'
import type { JsonObject } from '../core/json.ts'
import type { Meter, Provider, Route, Runtime, SmallModel, Timeouts } from '../core/ports.ts'
import type { Message, ReceivedBody } from '../core/prompt.ts'
import type { SettledEntry } from '../core/store.ts'
import type { TurnFormat, WriteMetrics } from '../formats/format.ts'
import type { Ledger } from '../governance/ledger.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import type { BodyCapacity } from '../http/body.ts'
import type { Endpoint } from '../http/router.ts'
import type { EventCapacity } from '../streams/capacity.ts'
import type { EventBuffer } from '../streams/event-buffer.ts'
import type { DetachedWork } from '../streams/shared-work.ts'
import type { Upstream } from '../upstream/attempts.ts'
import type { Handler } from './call.ts'
import type {
  Responded,
  Authenticated,
  Exchange,
  Parsed,
  RecallResult,
  RequestOutcome,
  ResolvedModel,
  Reserved,
  UpstreamPlan,
} from './exchange.ts'
import type { FinishedRequest } from './finished-request.ts'
import type { Limits, Policies, RequestBodyLimits } from './limits.ts'
import type { PromptChange } from './plugin.ts'
import type { RequestTracker } from './request-tracker.ts'

export type Resolve = (name: string, key: VirtualKey) => ResolvedModel

export type FindKey = (secret: string) => MaybePromise<VirtualKey | undefined>

export type FindKeyById = (id: string) => Promise<VirtualKey | undefined>

/** Writes to the log of the gateway. */
export interface EventLog {
  /** Reports an error that does not affect the current request. */
  failure(event: string, cause: unknown, fields?: LogEventFields): void
  warning(event: string, fields?: LogEventFields): void
  info(event: string, fields: LogEventFields): void
}

/**
 * The output tokens of the last answered requests by key id and model name, oldest first. Each map has its least recently
 * used entry first. Each process has its own.
 */
export type RecentOutputs = Map<string, Map<string, number[]>>

/** What the stages of a request use. */
export interface Services {
  readonly findKey: FindKey
  readonly resolve: Resolve
  readonly provider: (name: string) => Provider | undefined
  readonly ledger: Pick<Ledger, 'reserve' | 'status' | 'forecast'>
  readonly hooks: Hooks
  readonly upstream: Upstream
  readonly smallModel: (route: Route) => SmallModel | undefined
  readonly meter: Meter
  readonly margin: (key: VirtualKey, modelName: string, route: Route | undefined) => number
  /** The expected amounts of a stream depend on them. */
  readonly recentOutputs: RecentOutputs
  /** True if the theoretical cost ignores the vendor's prompt cache. */
  readonly billsListPrice: boolean
  /** False if responses to virtual keys omit the margin, the theoretical and actual cost, and the savings. */
  readonly showsMargin: boolean
  readonly log: EventLog
  readonly limits: Limits
  readonly policies: Policies
  readonly bodyLimits: RequestBodyLimits
  readonly bodyCapacity: BodyCapacity
  /** For the events of streams that others may read. */
  readonly eventCapacity: EventCapacity
  /** Work that continues after its caller disconnects. */
  readonly detached: DetachedWork
  /** Lets optional work wait while many requests are in progress. */
  readonly requestTracker: RequestTracker
  readonly timeouts: Timeouts
  /** Maximum total time that one request spends in `waitForStore`, in milliseconds. */
  readonly storeTimeoutMs: number
  readonly runtime: Runtime
}

/** A built-in plugin. Each hook is optional. */
export interface BuiltInPlugin {
  /** Endpoints besides those of model requests. Called with the first request to one of them. */
  readonly endpoints?: (services: Services) => MaybePromise<readonly Endpoint<Handler>[]>
  /** Throws for an invalid header. Called before the body is read, if the request has headers that may steer plugins. */
  readonly checkHeaders?: (request: Pick<HttpRequest, 'header'>, endpoint: { readonly canExplain: boolean }) => void
  /** Inserts what the body refers to, before it is read as a prompt. Called for formats that can refer to earlier turns. */
  readonly completeBody?: (turns: TurnFormat, key: VirtualKey, received: ReadBody) => Promise<CompletedBody>
  /** After parsing, before any work that costs money. Resolves with false if it has answered the request. */
  readonly onRequest?: RequestHook<Parsed>
  /** The same for a repetition of an earlier request. Runs after `onRequest`, and for embeddings. */
  readonly deduplicate?: RequestHook<Parsed>
  /** Like `onRequest`, for a request without a prompt that could be answered: embeddings, counts and passthrough. */
  readonly checkRequest?: (authenticated: Authenticated, services: Services, model?: string) => Promise<void>
  /** Changes the prompt before the reservation, after all of `deduplicate`: `transformPrompt` of users' plugins. */
  readonly changePrompt?: RequestHook<Parsed>
  /** The same for the inputs of embeddings, before `deduplicate`. Resolves with undefined if nothing may be changed. */
  readonly changeInputs?: (
    parsed: Parsed,
    inputs: ChangeableInputs,
    services: Services,
  ) => Promise<readonly Message[] | undefined>
  /** Finds the response without an upstream. The first one that returns a result decides. */
  readonly onLookup?: (reserved: Reserved, services: Services) => MaybePromise<RecallResult | undefined>
  /** Returns the plan with the prompt that is sent, after the reservation. Its cost is part of the bill. */
  readonly optimizePrompt?: (
    reserved: Reserved,
    plan: UpstreamPlan,
    services: Services,
  ) => MaybePromise<UpstreamPlan | undefined>
  /** Throws to reject a whole response. Streams pass `PluginRun.createWriter`. */
  readonly checkResponse?: RequestHook<Responded>
  /** Responds and settles later. Called for a response that the vendor continues to generate. */
  readonly onUnfinished?: (responded: Responded, completion: Completion, services: Services) => Promise<void>
  /** Receives a whole response after its settlement and before it is sent. */
  readonly onResponse?: (responded: Responded, response: WholeResponse, services: Services) => MaybePromise<void>
  /** True if the events of the stream must be stored. */
  readonly storesEvents?: (responded: Responded, services: Services) => boolean
  /** Receives a stream when its headers have left. */
  readonly onStream?: (responded: Responded, stream: StreamedResponse, services: Services) => StreamObserver | undefined
  /** Receives the failure of a request whose response has not begun. */
  readonly onFailure?: (exchange: Exchange, response: FailedResponse) => MaybePromise<void>
  /** Entries that the store appends together with the settlement. */
  readonly settledEntries?: (finished: FinishedRequest) => readonly SettledEntry[]
  /** Once for each request, when it ends. Its settlement may still be running. */
  readonly onEnd?: (finished: FinishedRequest, exchange: Exchange, outcome: RequestOutcome) => MaybePromise<void>
  /** Called by `gateway.close()`. */
  readonly close?: () => Promise<unknown>
}

/** Resolves with false if it has answered the request. */
export type RequestHook<Current extends Exchange> = (current: Current, services: Services) => MaybePromise<boolean>

export interface ChangeableInputs {
  /** Throws if plugins could not read the inputs. */
  checkReadable(): void
  /** Throws for an invalid change. */
  read(change: PromptChange): readonly Message[]
}

export interface ReadBody {
  readonly body: JsonObject
  /** Absent if the body must be serialized again. */
  readonly received?: ReceivedBody | undefined
}

export interface CompletedBody extends ReadBody {
  /** Present if only some providers have what the body refers to. */
  readonly restrictRoutes?: (resolved: ResolvedModel) => ResolvedModel
}

export interface WholeResponse {
  /** Headers that are repeated when the response is replayed. */
  readonly headers: Readonly<HeaderRecord>
  readonly body: string
  readonly id: string
  readonly writeMetrics?: WriteMetrics
}

export interface StreamedResponse {
  /** Headers that are repeated when the response is replayed. */
  readonly headers: Readonly<HeaderRecord>
  readonly buffer: EventBuffer
}

/** Follows one stream. */
export interface StreamObserver {
  /** Called with each chunk from the one that contains the id of the response. */
  onChunk?(id: string): void
  /** Settles later and returns true if the vendor continues to generate a response whose stream has been interrupted. */
  takeOver?(id: string, streamedBill: () => Bill | undefined): boolean
  /** Receives the data of the last event of a complete stream. */
  onComplete?(lastData: string | undefined): void
}

export interface FailedResponse {
  readonly failure: GatewayError
  readonly headers: Readonly<HeaderRecord>
  readonly body: string
}

type HookName = keyof BuiltInPlugin

/** For each hook, the functions of all plugins in order. An empty array is the whole cost of a feature that is off. */
export type Hooks = { readonly [Name in HookName]: readonly NonNullable<BuiltInPlugin[Name]>[] }

export function collectHooks(plugins: readonly BuiltInPlugin[]): Hooks {
  const all = <Name extends HookName>(name: Name): readonly NonNullable<BuiltInPlugin[Name]>[] =>
    plugins.flatMap((plugin) => plugin[name] ?? [])
  return {
    endpoints: all('endpoints'),
    checkHeaders: all('checkHeaders'),
    completeBody: all('completeBody'),
    onRequest: all('onRequest'),
    deduplicate: all('deduplicate'),
    checkRequest: all('checkRequest'),
    changePrompt: all('changePrompt'),
    changeInputs: all('changeInputs'),
    onLookup: all('onLookup'),
    optimizePrompt: all('optimizePrompt'),
    checkResponse: all('checkResponse'),
    onUnfinished: all('onUnfinished'),
    onResponse: all('onResponse'),
    storesEvents: all('storesEvents'),
    onStream: all('onStream'),
    onFailure: all('onFailure'),
    settledEntries: all('settledEntries'),
    onEnd: all('onEnd'),
    close: all('close'),
  }
}
