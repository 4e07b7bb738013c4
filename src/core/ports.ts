import type { MaybePromise } from './maybe-promise.ts'
import type { Cancellation } from './cancellation.ts'
import type { Completion, Step } from './answer.ts'
import type { AnswerSource } from './answer-source.ts'
import type { JsonObject } from './json.ts'
import type { Model, Vocabulary } from './model.ts'
import type { Dialect, Message, Prompt, UpstreamDialect, ReceivedBody } from './prompt.ts'

// ─── Store ───────────────────────────────────────────────────────────────────

/** One counter that a reservation touches. Amounts are whole numbers: requests, tokens or nano-dollars. */
export interface Claim {
  /** Contains the start of its window, so that nothing is ever reset. */
  readonly counter: string
  readonly amount: number
  /** The counter's spent and held amounts together never pass this by a reservation. */
  readonly max: number
  /** When the counter may be forgotten, milliseconds since 1970. */
  readonly expiresAt: number
  /** Elastic claims may be granted in part; all elastic claims of one request have the same amount and get the same grant. */
  readonly elastic?: boolean
}

export interface ReserveRequest {
  /** Names the reservation; unique for ever. */
  readonly reservationId: string
  readonly claims: readonly Claim[]
  /** The smallest grant of the elastic claims that is of use. @default their amount */
  readonly least?: number
  /** How long the amounts are held when they are not settled because the process died. */
  readonly expiresAfterMs: number
}

/** `levels[i]` is spent + held of claim i's counter: after the step when accepted, as found when refused. */
export type ReserveResult =
  | { readonly accepted: true; readonly granted: number; readonly levels: readonly number[] }
  | {
      readonly accepted: false
      /** The index of the first claim that did not fit. */
      readonly refused: number
      readonly levels: readonly number[]
    }

/** What was really used of one counter. */
export interface Charge {
  readonly counter: string
  readonly amount: number
  readonly expiresAt: number
}

/** Sums kept for reports: each field is added to the field of the same name. */
export interface Tally {
  readonly name: string
  readonly amounts: Readonly<Record<string, number>>
  /** @default never */
  readonly expiresAt?: number
}

export interface Settlement {
  readonly reservationId: string
  readonly charges: readonly Charge[]
  readonly tallies: readonly Tally[]
  /**
   * Appended in the same step: the audit record of the request, which then needs no third call. An entry that is larger
   * than its quota is left out.
   * @default none
   */
  readonly entries?: readonly SettledEntry[]
}

/** A log entry that a settlement carries. */
export interface SettledEntry extends NewLogEntry {
  readonly log: string
}

export interface Level {
  readonly spent: number
  readonly held: number
}

export interface LogEntry {
  /** Where a reader continues: entries of one log have ascending cursors. */
  readonly cursor: string
  readonly at: number
  readonly value: string
}

export interface LogQuery {
  /** The first moment, inclusive, milliseconds since 1970. */
  readonly from?: number
  /** The last moment, exclusive. */
  readonly to?: number
  /** Entries after this cursor. */
  readonly after?: string
  readonly limit: number
}

/**
 * How much one virtual key may keep of one kind of value. Everything that a key can make the gateway store is written
 * with the key's quota, so that one key cannot use up the store for the others. Values without a quota belong to the
 * operator: keys, budgets, rate limits.
 *
 * A full quota affects its own values only. A value with `ttlMs` replaces the least recently used values of the same
 * quota; a value without is refused with `quota-exceeded`. A value that is larger than the quota is always refused.
 * The values of one quota either all have `ttlMs` or all have none.
 */
export interface Quota {
  /** Identifies the quota: `<kind>:<key id>`. Values written under the same name count together. */
  readonly name: string
  /** Maximum number of values or log entries. */
  readonly maxEntries: number
  /** Maximum size of all keys and values in bytes. The store may count up to 2 per UTF-16 unit and 256 per value. */
  readonly maxBytes: number
}

export interface WriteOptions {
  /** Milliseconds after which the value is gone. @default it stays until it is deleted */
  readonly ttlMs?: number
  /** The quota that the value counts against, until it is replaced, deleted or expired. @default none */
  readonly quota?: Quota
  /**
   * Writes even where the quota is full. For small values whose number is bounded by values that the quota took before.
   * @default false
   */
  readonly mustFit?: boolean
}

export interface NewLogEntry {
  readonly at: number
  readonly value: string
  readonly ttlMs?: number
  /** A full quota drops its own oldest entries, in whichever logs they are. @default none */
  readonly quota?: Quota
}

/**
 * Where the gateway keeps what must outlive one request. Everything that must be right when many requests run at once
 * is one atomic step: `swap`, `reserve`, `settle`. Values are text. The contract suite (`testStore` of
 * `sluice/testing`) specifies each method. The methods of the request path may return their value at once. A method
 * that cannot reach its storage rejects or throws.
 */
export interface Store {
  get(key: string): MaybePromise<string | undefined>
  set(key: string, value: string, options?: WriteOptions): Promise<void>
  /**
   * Writes `value` (undefined: deletes) when the present value is `expected` (undefined: absent), and says whether it
   * did. Without `ttlMs` the value stays until it is deleted. Without `quota` it counts against none.
   */
  swap(key: string, expected: string | undefined, value: string | undefined, options?: WriteOptions): Promise<boolean>
  /** True when there was something to delete. */
  delete(key: string): Promise<boolean>
  /** Keys with this prefix in ascending order, those after `after`, at most `limit`. */
  list(prefix: string, options: { readonly after?: string; readonly limit: number }): Promise<readonly string[]>
  /** Takes all claims or none. */
  reserve(request: ReserveRequest): MaybePromise<ReserveResult>
  /**
   * Gives back what the reservation holds, adds the charges, tallies and log entries. Only the first call for a reservation does anything and
   * answers true; a reservation whose hold has lapsed can still be settled, for an hour at least.
   */
  settle(settlement: Settlement): MaybePromise<boolean>
  levels(counters: readonly string[]): MaybePromise<readonly Level[]>
  tallies(names: readonly string[]): Promise<readonly Readonly<Record<string, number>>[]>
  /** Adds to an append-only log, or to each of several logs in one step. */
  append(log: string | readonly string[], entry: NewLogEntry): MaybePromise<void>
  /** Entries of a log in the order they were appended. */
  entries(log: string, query: LogQuery): Promise<readonly LogEntry[]>
  /** True for a store that is part of this process and never waits: its calls need no deadline. @default false */
  readonly local?: boolean
  /** Resolves when the storage answers. */
  ping(): Promise<void>
  /** Promises that the storage cannot keep as it is configured, one sentence each. */
  warnings?(): Promise<readonly string[]>
  close(): Promise<void>
}

// ─── Meaning ─────────────────────────────────────────────────────────────────

/** Turns texts into vectors of one length. A result that is ready is returned without a promise. */
export interface Embedder {
  readonly name: string
  readonly dimensions: number
  embed(texts: readonly string[], signal?: AbortSignal): readonly Float32Array[] | Promise<readonly Float32Array[]>
}

/** A stored vector that is similar to the one asked for. */
export interface Neighbor {
  readonly id: string
  /** Cosine similarity, -1 to 1. */
  readonly similarity: number
}

/** Finds the stored vectors nearest to another within one scope. Vectors have length 1. Methods may return promises. */
export interface VectorIndex {
  add(entry: {
    readonly id: string
    readonly scope: string
    /** The key whose request stored the entry. An index that several keys share may bound what each of them adds. */
    readonly owner?: string
    readonly vector: Float32Array
    readonly expiresAt: number
  }): void | Promise<void>
  /** Returns vectors of at least `least` similarity, nearest first, at most `limit`. */
  nearest(
    scope: string,
    vector: Float32Array,
    options: { readonly least: number; readonly limit: number },
  ): readonly Neighbor[] | Promise<readonly Neighbor[]>
  remove(id: string): void | Promise<void>
  clear(): void | Promise<void>
  /** Promises that the storage cannot keep as it is configured, one sentence each. */
  warnings?(): Promise<readonly string[]>
}

// ─── Tokens ──────────────────────────────────────────────────────────────────

/** Counts the tokens of plain text: linear in time on any input, special-token spellings are plain text. */
export interface Tokenizer {
  /** Cheap, from length and script; off by a few percent on prose and code. */
  estimate(text: string): number
  /**
   * Exact; the first call loads the ranks. Long texts yield to the event loop.
   *
   * @param vocabulary @default 'o200k'
   */
  count(text: string, signal?: AbortSignal, vocabulary?: Vocabulary): Promise<number>
}

/** Sizes of prompts in tokens. The same rule counts before and after a tier; messages are counted once and remembered. */
export interface Meter {
  readonly tokenizer: Tokenizer
  /** Estimates every message that is new, with pauses: afterwards `estimateOf` only adds up. */
  prepare(prompt: Prompt, signal?: AbortSignal): Promise<void>
  /** Cheap after `prepare`; without it a long prompt blocks the event loop. */
  estimateOf(prompt: Prompt): number
  /** Exact for the texts; images, documents and the frame of messages and tools by fixed rules. */
  countOf(prompt: Prompt, signal?: AbortSignal): Promise<number>
  /** The exact count unless the estimate is far above every threshold or the bytes are below it; then the estimate. */
  sizeNear(prompt: Prompt, thresholds: readonly number[], signal?: AbortSignal): Promise<number>
  estimateOfMessage(message: Message): number
  countOfMessage(message: Message, signal?: AbortSignal): Promise<number>
  /** Exact for every text of the body, fields that no format knows included; images and the frame are not counted. */
  countOfBody(prompt: Prompt, vocabulary: Vocabulary, signal?: AbortSignal): Promise<number>
}

// ─── The network ─────────────────────────────────────────────────────────────

export interface TransportRequest {
  readonly method: 'GET' | 'POST' | 'DELETE'
  readonly url: string
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string | Uint8Array
  /** Milliseconds for connecting, for transports that can tell it from waiting for the response. */
  readonly connectMs?: number
}

/** Receives one response: `onHead` once, `onData` for each piece, then `onEnd` or `onError`. `onError` may come first. */
export interface TransportHandler {
  /** `header` returns a value by its lower-case name. */
  onHead(status: number, header: (name: string) => string | undefined): void
  onData(bytes: Uint8Array): void
  onEnd(): void
  onError(error: unknown): void
}

/** A call under way. */
export interface TransportCall {
  /** Stops reading from the upstream until `resume`: the handler's reader is too slow. */
  pause(): void
  resume(): void
  /** Closes the connection; the handler is not called again. */
  abort(): void
}

/** Starts one call to an upstream, as cheaply as the platform allows. Redirects are not followed. Never throws. */
export type Transport = (request: TransportRequest, handler: TransportHandler) => TransportCall

/** A transport that keeps connections; `close` ends them, also those with a call under way. */
export type ClosableTransport = Transport & { readonly close: () => Promise<void> }

/** The world outside, so that tests can hold it still. */
export interface Runtime {
  /** Milliseconds since 1970. */
  readonly now: () => number
  /** From 0 up to 1, like Math.random. */
  readonly random: () => number
  /** A version 4 UUID from a cryptographic source. */
  readonly uuid: () => string
  readonly transport: Transport
  /**
   * Calls back once after so many milliseconds, unless the returned function is called before. A timer keeps the process
   * alive, because a caller waits for its effect. Exception: a timer in the background does not.
   */
  readonly after: (ms: number, callback: () => void, options?: { readonly isBackground?: boolean }) => () => void
}

// ─── Providers ───────────────────────────────────────────────────────────────

/** One call of a provider that answers a prompt. */
export interface ProviderCall {
  readonly prompt: Prompt
  readonly model: Model
  /** Ends the call, before and after its first byte. Created when it is first read. */
  readonly signal: AbortSignal
  /** The same for code that needs no signal. @default the signal's */
  readonly cancellation?: Cancellation
  readonly runtime: Runtime
  readonly timeouts: Timeouts
  /** Caller headers that the upstream's own format knows (`anthropic-version`, `anthropic-beta`). */
  readonly headers: Readonly<Record<string, string>>
  /** Called once when the upstream has accepted the call (status 200): from then on the vendor is paid for it. */
  readonly onAccepted?: () => void
}

/** Timeouts of calls to upstreams, in milliseconds. */
export interface Timeouts {
  readonly connect: number
  /** From the request to the first byte of a stream. Whole answers are bounded by `total` alone. */
  readonly firstByte: number
  /** Between two pieces of a stream. */
  readonly idle: number
  /** A request from its start to its end, over all tries and fallbacks. In a `ProviderCall`: what is left of it. */
  readonly total: number
}

/** Something that an upstream answered, and what of the request its format could not carry and did not need. */
export interface Sent<answer> {
  readonly answer: answer
  /** Names of request fields that were left out because the upstream's format has no such hint. */
  readonly ignored: readonly string[]
}

/** How vectors are written: as numbers, or as the base64 of their 32-bit floats, least byte first. */
export type Encoding = 'float' | 'base64'

/** A text, or the tokens of one. */
export type EmbedInput = string | readonly number[]

/** One vector in one of the encodings. */
export type Embedding = readonly number[] | string

/** A request for vectors, independent of the format of its caller. */
export interface EmbeddingRequest {
  /** The body as the caller wrote it; an upstream gets it with only the model replaced. */
  readonly native: JsonObject
  /** The bytes of the body, in which the model can be replaced. @default none: the body is serialized again */
  readonly received?: ReceivedBody
  readonly model: string
  /** At least one. */
  readonly inputs: readonly EmbedInput[]
  readonly encoding: Encoding
  /** The length of the vectors. @default the model's own */
  readonly dimensions?: number
}

/** One call of a provider that turns texts into vectors. */
export interface EmbedCall extends Omit<ProviderCall, 'prompt'> {
  readonly request: EmbeddingRequest
}

/** The vectors of the texts of one call, and its usage. */
export interface Embedded {
  /** The model as the upstream names it. */
  readonly model: string
  /** One for each input, in their order. */
  readonly embeddings: readonly Embedding[]
  /** Absent when the upstream reported none. */
  readonly inputTokens?: number
}

/** A call about a response that the upstream holds. */
export interface HeldResponseCall extends Pick<ProviderCall, 'signal' | 'cancellation' | 'runtime' | 'timeouts'> {
  readonly method: 'GET' | 'POST' | 'DELETE'
  /** Follows the address of all responses: `/resp_1/input_items?limit=2`. */
  readonly path: string
}

/** A call of an endpoint that the gateway does not read. */
export interface PassthroughCall extends Pick<ProviderCall, 'signal' | 'cancellation' | 'runtime' | 'timeouts'> {
  readonly method: 'GET' | 'POST' | 'DELETE'
  /** Follows the base address: `/images/generations`. */
  readonly path: string
  readonly body?: string | Uint8Array
  /** @default 'application/json' */
  readonly contentType?: string
}

/** An accepted call. Its status is 200 to 299; every other one is a failure. */
export interface PassedAnswer {
  readonly status: number
  /** The value of a header by its lower-case name. */
  readonly header: (name: string) => string | undefined
  /** The body, byte for byte. */
  readonly source: AnswerSource
}

/** One upstream service. */
export interface Provider {
  /** The first part of `<provider>/<model_id>`. */
  readonly name: string
  readonly dialect: UpstreamDialect
  /** Another dialect that the upstream speaks as well: requests in it are not translated. @default none */
  readonly secondDialect?: Dialect
  /** True: the provider itself ends each call when it is cancelled or its time is over. @default the gateway ends it */
  readonly endsCalls?: boolean
  /** The models that GET /v1/models lists. */
  readonly models: readonly Model[]
  /** The model of this id, listed or (open-ended providers) not; undefined for one that is not served. */
  readonly model: (id: string) => Model | undefined
  complete(call: ProviderCall): Promise<Sent<Completion>>
  /** Resolves when the upstream has accepted the call; fails when it refuses, so that no header has left yet. */
  stream(call: ProviderCall): Promise<Sent<AsyncIterable<Step> | AnswerSource>>
  /** Turns texts into vectors. Absent: the upstream cannot. */
  embed?(call: EmbedCall): Promise<Embedded>
  /** Reads, cancels or deletes a response that the upstream holds. Resolves with the JSON text of the upstream's answer. */
  heldResponse?(call: HeldResponseCall): Promise<string>
  /** Calls any endpoint of the upstream. Resolves when the upstream has accepted the call. Absent: none can be called. */
  passThrough?(call: PassthroughCall): Promise<PassedAnswer>
  /** Asks the upstream itself to count a prompt's tokens, where it can. */
  countTokens?(call: ProviderCall): Promise<number>
  /** Resolves when the upstream can be reached. */
  ping?(call: Pick<ProviderCall, 'signal' | 'runtime' | 'timeouts'>): Promise<void>
}

/**
 * `degraded`: a circuit of the provider is not closed, and requests still reach the provider.
 * `away`: every model that was used lately has a circuit that is open for all keys.
 */
export type ProviderState = 'healthy' | 'degraded' | 'away'

export type ProviderStates = Readonly<Record<string, ProviderState>>

/** True when the provider takes prompts of this dialect as they are. */
export function speaks(provider: Pick<Provider, 'dialect' | 'secondDialect'>, dialect: Dialect): boolean {
  return provider.dialect === dialect || provider.secondDialect === dialect
}
