import type { Completion } from '../core/completion.ts'
import type { MaybePromise } from '../core/async.ts'
import type { LogEventFields } from '../core/failure-log.ts'
import type { HttpRequest } from '../core/http.ts'
import type { Meter, Provider, Route, Runtime, SmallModel, Timeouts } from '../core/ports.ts'
import type { Message } from '../core/prompt.ts'
import type { Store } from '../core/store.ts'
import type { TurnFormat } from '../formats/format.ts'
import type { Caller, CallerContext } from '../governance/caller.ts'
import type { Ledger } from '../governance/ledger.ts'
import type { RequestUsage, SettlementRecord } from '../governance/reservation.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import type { BodyCapacity } from '../http/body.ts'
import type { Endpoint } from '../http/router.ts'
import type { EventCapacity } from '../streams/capacity.ts'
import type { DetachedWork } from '../streams/shared-work.ts'
import type { Upstream } from '../upstream/attempts.ts'
import type { Handler } from './call.ts'
import type { Responded, Authenticated, Exchange, Parsed, ResolvedModel, Reserved, UpstreamPlan } from './exchange.ts'
import type { FinishedRequest, RequestOutcome } from './finished-request.ts'
import type { Limits, RequestBodyLimits } from './limits.ts'
import type { RecentOutputs } from './recent-outputs.ts'
import type { RequestTracker } from './request-tracker.ts'
import type { Policies } from './policies.ts'
import type { RecallResult } from './lookup.ts'
import type {
  ChangeableInputs,
  ReadBody,
  CompletedBody,
  WholeResponse,
  StreamedResponse,
  StreamObserver,
  FailedResponse,
} from './hooks.ts'

export type Resolve = (name: string, key: VirtualKey) => ResolvedModel

export type FindKey = (secret: string) => MaybePromise<VirtualKey | undefined>

/**
 * Returns the caller of a request, with what its context, key and headers say about it. `request` is undefined for stored
 * work, whose context is complete.
 */
export type Identify = (request: {
  readonly key: VirtualKey | undefined
  readonly context: CallerContext | undefined
  readonly request: Pick<HttpRequest, 'header'> | undefined
}) => MaybePromise<Caller>

export type FindKeyById = (id: string) => Promise<VirtualKey | undefined>

/** Writes to the log of the gateway. */
export interface EventLog {
  /** Reports an error that does not affect the current request. */
  failure(event: string, cause: unknown, fields?: LogEventFields): void
  warning(event: string, fields?: LogEventFields): void
  info(event: string, fields: LogEventFields): void
}

/** What the stages of a request use. */
export interface Services {
  readonly findKey: FindKey
  readonly identify: Identify
  readonly resolve: Resolve
  readonly provider: (name: string) => Provider | undefined
  readonly ledger: Pick<Ledger, 'reserve' | 'status' | 'forecast'>
  readonly hooks: Hooks
  readonly upstream: Upstream
  readonly smallModel: (route: Route, caller: Caller) => SmallModel | undefined
  readonly meter: Meter
  readonly margin: (key: VirtualKey, modelName: string, route: Route | undefined) => number
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
  readonly completeBody?: (
    turns: TurnFormat,
    caller: Pick<Caller, 'scope'>,
    received: ReadBody,
  ) => Promise<CompletedBody>
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
  readonly settledEntries?: (
    finished: FinishedRequest,
    exchange: Exchange,
    used: RequestUsage,
  ) => readonly SettlementRecord[]
  /** Once for each request, when it ends. Its settlement may still be running. */
  readonly onEnd?: (finished: FinishedRequest, exchange: Exchange, outcome: RequestOutcome) => MaybePromise<void>
  /** Deletes what the plugin stores for the callers of a scope. May be called again after a failure. */
  readonly purge?: (scope: string, store: Store, services: Services) => Promise<void>
  /** Called by `gateway.close()`. */
  readonly close?: () => Promise<unknown>
}

/** Resolves with false if it has answered the request. */
export type RequestHook<Current extends Exchange> = (current: Current, services: Services) => MaybePromise<boolean>

/** Hooks that only one plugin can have, because their result is not passed on to another. */
type SingleHook = 'completeBody' | 'onUnfinished'
type ListedHook = Exclude<keyof BuiltInPlugin, SingleHook>

/** For each hook, the functions of all plugins in order. An empty array is the whole cost of a feature that is off. */
export type Hooks = { readonly [Name in ListedHook]: readonly NonNullable<BuiltInPlugin[Name]>[] } & {
  readonly [Name in SingleHook]: BuiltInPlugin[Name] | undefined
}

export function collectHooks(plugins: readonly BuiltInPlugin[]): Hooks {
  const all = <Name extends ListedHook>(name: Name): readonly NonNullable<BuiltInPlugin[Name]>[] =>
    plugins.flatMap((plugin) => plugin[name] ?? [])
  const only = <Name extends SingleHook>(name: Name): BuiltInPlugin[Name] | undefined =>
    plugins.find((plugin) => plugin[name] !== undefined)?.[name]
  return {
    endpoints: all('endpoints'),
    checkHeaders: all('checkHeaders'),
    completeBody: only('completeBody'),
    onRequest: all('onRequest'),
    deduplicate: all('deduplicate'),
    checkRequest: all('checkRequest'),
    changePrompt: all('changePrompt'),
    changeInputs: all('changeInputs'),
    onLookup: all('onLookup'),
    optimizePrompt: all('optimizePrompt'),
    checkResponse: all('checkResponse'),
    onUnfinished: only('onUnfinished'),
    onResponse: all('onResponse'),
    storesEvents: all('storesEvents'),
    onStream: all('onStream'),
    onFailure: all('onFailure'),
    settledEntries: all('settledEntries'),
    onEnd: all('onEnd'),
    purge: all('purge'),
    close: all('close'),
  }
}
