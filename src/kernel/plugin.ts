import type { FinishReason, StreamPart } from '../core/completion.ts'
import type { MaybePromise } from '../core/async.ts'
import type { CallerContext } from '../core/caller-context.ts'
import type { FailureKind } from '../core/errors.ts'
import type { NanoUsd, Usage } from '../core/money.ts'
import type { Message, Part, Settings, Tool } from '../core/prompt.ts'
import type { DurationCode } from '../core/store.ts'

/**
 * A part of the gateway that sees each request: a guardrail, a redactor, an observer. Each hook is optional.
 *
 * The deciding hooks `onRequest`, `onLookup`, `transformPrompt` and `transformResponse` can change or reject a request.
 * They reject by throwing a `GatewayError` with a 4xx kind, such as `invalid-request`. The observing hooks `onAttempt`,
 * `onEnd` and `onBudget` can neither delay nor fail a request. See docs/guides/write-a-plugin.md for the endpoints of each hook.
 *
 * @example
 * const stamp: Plugin = {
 *   name: 'stamp',
 *   transformPrompt: (_exchange, { messages }) => ({
 *     messages: [{ role: 'system', parts: [{ type: 'text', text: 'Answer in English.' }] }, ...messages],
 *   }),
 * }
 * createGateway({ providers, plugins: [stamp] })
 */
export interface Plugin {
  /** 1 to 64 letters, digits and the characters `.`, `_`, `/`, `@` and `-`. Unique in the gateway. For errors and the log. */
  readonly name: string
  /**
   * How to handle a request whose deciding hook throws, times out or returns an invalid value. `reject` answers with 500.
   * `skip` continues as if the plugin did not have the hook. @default 'reject'
   */
  readonly onFailure?: 'reject' | 'skip'
  /** Maximum time of each call of `onRequest`, `onLookup` and `transformPrompt`, in milliseconds. At most 30,000. @default 1,000 */
  readonly timeoutMs?: number
  /** Called after authentication and parsing, before any work that costs money. May reply instead of the upstream. */
  onRequest?(exchange: PluginExchange): MaybePromise<PluginReply | void>
  /** Called before the gateway's own cache. The first reply is used, and no upstream is called. */
  onLookup?(exchange: PluginExchange, prompt: PluginPrompt): MaybePromise<PluginReply | void>
  /** Changes the prompt that is sent. Called before the reservation, so that budgets cover the changed prompt. */
  transformPrompt?(exchange: PluginExchange, prompt: PluginPrompt): MaybePromise<PromptChange | void>
  /** Returns an object that receives the parts of one response, or nothing to leave the response unchanged. */
  transformResponse?(exchange: PluginExchange): ResponseTransformer | void
  /** Called before each call of an upstream. The returned function receives the result. */
  onAttempt?(exchange: PluginExchange, attempt: PluginAttempt): ((result: AttemptResult) => void) | void
  /** Called once after each request has ended and has been settled. */
  onEnd?(exchange: EndedExchange, outcome: PluginOutcome): MaybePromise<void>
  /**
   * Called when the billed amount of a budget has reached a share of its maximum: at least once for each share and window,
   * by one of the processes that share the store. Repetitions have the same `id`. A call that fails, or that takes longer
   * than 10 seconds, is repeated for up to 3 days. Requests do not wait for it.
   *
   * @example
   * const alerts: Plugin = {
   *   name: 'alerts',
   *   onBudget: ({ customer, share }) => console.log(`${customer} has used ${share * 100} % of a budget`),
   * }
   */
  onBudget?(event: BudgetEvent): MaybePromise<void>
  /** Records that are stored with each settlement in one transaction, and delivered later. See docs/guides/write-a-plugin.md. */
  readonly outbox?: Outbox
  /** Called by `gateway.close()`, which waits at most 10 seconds for it. */
  close?(): MaybePromise<void>
}

/** The billed amount of a budget has reached a share of its maximum, or the budget did not cover a request. */
export interface BudgetEvent {
  /** The same in each delivery of the event. */
  readonly id: string
  readonly type: 'budget'
  /** Whose budget it is. `parent`: of a customer that is the parent of others. `shared`: several keys share it. */
  readonly level: 'key' | 'shared' | 'customer' | 'parent' | 'user' | 'session'
  /** For budgets of a key, and of users and sessions without a customer. */
  readonly keyId?: string
  /** The `budgetId` of a shared budget. */
  readonly budgetId?: string
  readonly customer?: string
  readonly user?: string
  readonly session?: string
  /** The models to which the budget applies. @default all models */
  readonly models?: readonly string[]
  /** The share that was reached, from 0 (exclusive) to 1. Also 1 if the budget did not cover a request. */
  readonly share: number
  readonly limitUsd: number
  /** The billed amount in the window when the event was recorded. */
  readonly spentUsd: number
  /** `session`: until the session is idle. `rolling`: the time before now, with 30 days for a month. */
  readonly window: DurationCode | `rolling ${DurationCode}` | 'session'
  /** When the window began, in milliseconds since 1970. Absent for sessions. */
  readonly windowStart?: number
  /** When amounts leave the budget next, in milliseconds since 1970. */
  readonly resetsAt: number
  /** When the event was recorded, in milliseconds since 1970. */
  readonly at: number
}

/**
 * Records of settled requests, such as billing events. A record is stored in the transaction that settles the request, and
 * delivered at least once: in the order of settlement for each customer (for each key, if a request has no customer), by
 * one of the processes that share the store. Requests do not wait for deliveries.
 *
 * @example
 * const outbox: Outbox = {
 *   record: ({ customer, billed }) => JSON.stringify({ customer, billed }),
 *   deliver: async (records) => queue.sendBatch(records.map(({ id, value }) => ({ id, body: value }))),
 * }
 */
export interface Outbox {
  /**
   * Returns the record of a settlement, at most 16,384 characters, or nothing for none. Must not wait. If it throws, the
   * failure is logged, and the request is settled without a record.
   */
  record(request: SettledRequest): string | undefined
  /**
   * Receives records in order. If it throws, or takes longer than `timeoutMs`, all of them are delivered again: after 1
   * second, then 2, 4 and so on up to an hour, in smaller batches. A record whose delivery alone has failed for
   * `giveUpAfterMs` becomes a dead letter, so that it does not block later ones forever.
   */
  deliver(records: readonly OutboxRecord[], delivery: DeliveryOptions): MaybePromise<DeliveryResult | void>
  /** Maximum number of records of a call of `deliver`, 1 to 1,000. @default 100 */
  readonly maxRecords?: number
  /** Time from a settlement to its delivery, in which records are collected, in milliseconds. @default 1,000 */
  readonly delayMs?: number
  /** Maximum time of a call of `deliver`, in milliseconds, at most 50,000. @default 10,000 */
  readonly timeoutMs?: number
  /** @default 259,200,000 (3 days) */
  readonly giveUpAfterMs?: number
  /**
   * Maximum number of stored records, delivered ones included. Above it, the oldest are lost, which is logged and counted.
   * @default 100,000
   */
  readonly maxStored?: number
}

/** A stored record. */
export interface OutboxRecord {
  /** The id of the request. The same in each delivery of the record. */
  readonly id: string
  /** As `record` returned it. */
  readonly value: string
}

/** How records are delivered. */
export interface DeliveryOptions {
  /** When the delivery of these records was first tried, in milliseconds since 1970. */
  readonly firstTriedAt: number
  /** The current time of the gateway, in milliseconds since 1970. */
  readonly now: number
  /** Aborted after `timeoutMs`. A result that is returned within the next second counts. */
  readonly signal: AbortSignal
}

/** Which records were not delivered. The others were. */
export interface DeliveryResult {
  /** Records to deliver again later, by id. @default none */
  readonly retry?: readonly FailedDelivery[]
  /** Records that cannot be delivered. They become dead letters: stored, logged and reported by `usage.reconcile`. @default none */
  readonly rejected?: readonly FailedDelivery[]
}

/** A record that was not delivered. */
export interface FailedDelivery {
  readonly id: string
  /** Without secrets, because it is logged. */
  readonly reason: string
}

/** A settled request, with the amounts that were settled, in billionths of a dollar. */
export interface SettledRequest {
  /** The value of X-Request-Id. */
  readonly id: string
  /** When the request ended, in milliseconds since 1970. */
  readonly at: number
  /** The day in UTC on which usage reports count the request, YYYY-MM-DD: that of its reservation. */
  readonly day: string
  readonly keyId: string
  readonly customer?: string
  /** Of the context of the request, or as the request itself says. */
  readonly user?: string
  readonly session?: string
  readonly tags?: Readonly<Record<string, string>>
  /** Empty if the request ended before its model was known. */
  readonly model: string
  /** Absent if no provider has answered, for example for a response of the cache. */
  readonly provider?: string
  /** The HTTP status of the response; 499 if the caller disconnected before. */
  readonly status: number
  readonly billed: NanoUsd
  readonly theoretical: NanoUsd
  readonly actual: NanoUsd
  /** What the vendor bills the customer, who pays it with a key of its own. */
  readonly vendorCharge?: NanoUsd
  /** Tokens of the sent prompt and of the completion, and prompt tokens that were not sent. */
  readonly tokens: { readonly prompt: number; readonly completion: number; readonly saved: number }
  readonly isCacheHit: boolean
}

/** The endpoints that run hooks. `count` are the token counts of messages and responses. */
export type PluginEndpoint = 'chat' | 'messages' | 'responses' | 'compact' | 'embeddings' | 'count' | 'passthrough'

/** A request as plugins see it. The same object in all hooks of a request, so it can be the key of a slot. */
export interface PluginExchange {
  /** The value of X-Request-Id. */
  readonly id: string
  readonly endpoint: PluginEndpoint
  /** False for an item of a batch. */
  readonly isConnected: boolean
  /** In milliseconds since 1970. */
  readonly startedAt: number
  readonly keyId: string
  readonly keyName: string
  /** The customer, user, session, tags and payer of the request. Empty if it has none. */
  readonly context: CallerContext
  /** The requested model. Undefined if a passthrough request names none. */
  readonly model: string | undefined
  /** The received prompt, with references to earlier turns resolved. Undefined for passthrough requests. */
  readonly prompt: PluginPrompt | undefined
  /** Headers of the request by lowercase name, without the caller's key and without cookies. */
  readonly headers: Readonly<Record<string, string>>
  /** Aborted when the request is canceled, for example because its caller disconnects. */
  readonly signal: AbortSignal
}

/** A request at its end. The key and the model are undefined if the request was rejected before they were known. */
export type EndedExchange = Omit<PluginExchange, 'keyId' | 'keyName'> &
  Readonly<Partial<Pick<PluginExchange, 'keyId' | 'keyName'>>>

/** A prompt in portable parts. Frozen, so that an assignment throws instead of being lost. */
export interface PluginPrompt {
  readonly model: string
  readonly messages: readonly Message[]
  readonly tools: readonly Tool[]
  readonly settings: Settings
  readonly stream: boolean
}

/**
 * The messages that replace those of the prompt. Messages and parts may be added, removed, and replaced by edited copies.
 * Tool calls must stay with their results, and reasoning can be removed but not edited.
 */
export interface PromptChange {
  readonly messages: readonly Message[]
}

/** A response that a plugin gives instead of the upstream. It is billed at zero. */
export interface PluginReply {
  /** A text, or parts of the types `text`, `thinking` and `tool-call`. */
  readonly content: string | readonly Part[]
  /** @default 'tool-call' if the content has a tool call, otherwise 'stop' */
  readonly finish?: FinishReason
}

/** The parts of a response that transformers receive. The gateway itself writes its start, usage and end. */
export type ContentPart = Exclude<StreamPart, { readonly type: 'response-start' | 'usage' | 'response-end' | 'done' }>

/** Ends the response after these parts. The upstream call is stopped and is billed as far as it came. */
export interface ResponseEnding {
  readonly parts?: readonly ContentPart[]
  readonly finish: FinishReason
}

/** Nothing leaves the part unchanged, and an empty list drops it, for example to hold back text. */
export type TransformedPart = ContentPart | readonly ContentPart[] | ResponseEnding | void

/** Receives the parts of one response. Whole responses are passed as the parts of a stream. Both methods are synchronous. */
export interface ResponseTransformer {
  /** Called for each part. Throws a `GatewayError` to end the response with an error. */
  write?(part: ContentPart): TransformedPart
  /** Called once after the last part. Returns parts that were held back, or an ending. */
  end?(): TransformedPart
}

/** A call of an upstream. */
export interface PluginAttempt {
  /** Position among the calls of the request, from 1. */
  readonly number: number
  readonly provider: string
  readonly model: string
}

/** The end of an upstream call. The result of the last call of a request is reported when the request ends. */
export interface AttemptResult {
  /** Absent if the call succeeded. */
  readonly failure?: PluginFailure
  readonly durationMs: number
}

/** A failure as the caller receives it. */
export interface PluginFailure {
  readonly kind: FailureKind
  readonly message: string
}

/** How a request ended. */
export interface PluginOutcome {
  readonly status: number
  /** Present for a failed request, including a stream that began with status 200. */
  readonly failure?: PluginFailure
  /** Absent if the request was not billed. */
  readonly bill?: PluginBill
  /** The upstream's usage. Undefined if the response is incomplete or its usage is unknown. */
  readonly usage: Usage | undefined
  /** The savings tier that shortened the prompt. */
  readonly tier: number | undefined
  readonly isCacheHit: boolean
  readonly durationMs: number
  /** Time that the request waited for the store, in milliseconds. */
  readonly storeMs: number
}

/** Amounts in billionths of a dollar. */
export interface PluginBill {
  readonly theoretical: NanoUsd
  readonly actual: NanoUsd
  readonly billed: NanoUsd
  readonly margin: number
  readonly strategy: string
  readonly originalTokens: number
  readonly sentTokens: number
  readonly completionTokens: number
}

/** A value of a plugin for each request. It is removed with the request. */
export interface Slot<T> {
  get(exchange: EndedExchange): T | undefined
  set(exchange: EndedExchange, value: T): void
}

/**
 * Creates a typed slot for the state of a plugin on a request.
 *
 * @example
 * const startedAt = createSlot<number>()
 * const timer: Plugin = {
 *   name: 'timer',
 *   onRequest: (exchange) => startedAt.set(exchange, performance.now()),
 *   onEnd: (exchange) => console.log(performance.now() - (startedAt.get(exchange) ?? 0)),
 * }
 */
export function createSlot<T>(): Slot<T> {
  const values = new WeakMap<EndedExchange, T>()
  return {
    get: (exchange) => values.get(exchange),
    set: (exchange, value) => void values.set(exchange, value),
  }
}
