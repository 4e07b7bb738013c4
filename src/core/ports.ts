import type { Cancellation } from './async.ts'
import type { Completion, Step, AnswerSource } from './answer.ts'
import type { JsonObject } from './json.ts'
import type { Model, Vocabulary } from './model.ts'
import type { Dialect, Message, Prompt, UpstreamDialect, ReceivedBody } from './prompt.ts'

// ─── Tokens ──────────────────────────────────────────────────────────────────

/** Counts tokens in linear time. Special tokens are counted as text. */
export interface Tokenizer {
  /** Returns an estimate from length and script, with an error of a few percent for prose and code. */
  estimate(text: string): number
  /**
   * Returns the exact count. The first call loads the vocabulary. Long texts yield to the event loop.
   *
   * @param vocabulary @default 'o200k'
   */
  count(text: string, signal?: AbortSignal, vocabulary?: Vocabulary): Promise<number>
}

/** Measures prompts in tokens. Counts of messages are cached. */
export interface Meter {
  readonly tokenizer: Tokenizer
  /** Estimates messages that are not cached, with pauses. */
  prepare(prompt: Prompt, signal?: AbortSignal): Promise<void>
  /** Requires `prepare`. Otherwise a long prompt blocks the event loop. */
  estimateOf(prompt: Prompt): number
  /**
   * Returns the exact count of the texts. Images, documents, and the overhead of messages and tools are estimated by
   * fixed rules.
   */
  countOf(prompt: Prompt, signal?: AbortSignal): Promise<number>
  /** Returns the estimate if it is far above, or the bytes are below, every threshold, else the exact count. */
  sizeNear(prompt: Prompt, thresholds: readonly number[], signal?: AbortSignal): Promise<number>
  estimateOfMessage(message: Message): number
  countOfMessage(message: Message, signal?: AbortSignal): Promise<number>
  /** Returns the exact count of all texts of the body, unknown fields included. Images and overhead are not counted. */
  countOfBody(prompt: Prompt, vocabulary: Vocabulary, signal?: AbortSignal): Promise<number>
}

// ─── The network ─────────────────────────────────────────────────────────────

export interface TransportRequest {
  readonly method: 'GET' | 'POST' | 'DELETE'
  readonly url: string
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string | Uint8Array
  /** Maximum time for connecting in milliseconds, for transports that support it. */
  readonly connectMs?: number
}

/** Receives a response: `onHead` once, `onData` for each chunk, then `onEnd` or `onError`. `onError` may come first. */
export interface TransportHandler {
  /** `header` returns a value by its lower-case name. */
  onHead(status: number, header: (name: string) => string | undefined): void
  onData(bytes: Uint8Array): void
  onEnd(): void
  onError(error: unknown): void
}

export interface TransportCall {
  /** Stops reading from the upstream until `resume`. */
  pause(): void
  resume(): void
  /** Closes the connection. The handler is not called again. */
  abort(): void
}

/** Starts a call to an upstream. Does not follow redirects. Never throws. */
export type Transport = (request: TransportRequest, handler: TransportHandler) => TransportCall

/** A transport that reuses connections. `close` ends all of them, including active ones. */
export type ClosableTransport = Transport & { readonly close: () => Promise<void> }

/** Clock, randomness, network and timers. Tests replace them. */
export interface Runtime {
  /** Milliseconds since 1970. */
  readonly now: () => number
  /** From 0 up to, but not including, 1. */
  readonly random: () => number
  /** A version 4 UUID from a cryptographic source. */
  readonly uuid: () => string
  readonly transport: Transport
  /**
   * Calls back after `ms` milliseconds, unless the returned function is called first. Timers keep the process alive,
   * except in the background.
   */
  readonly after: (ms: number, callback: () => void, options?: { readonly isBackground?: boolean }) => () => void
}

// ─── Providers ───────────────────────────────────────────────────────────────

/** A request to a provider. */
export interface ProviderCall {
  readonly prompt: Prompt
  readonly model: Model
  /** Cancels the call. Created when it is first read. */
  readonly signal: AbortSignal
  /** The cancellation of the signal, for code that needs no signal. @default that of the signal */
  readonly cancellation?: Cancellation
  readonly runtime: Runtime
  readonly timeouts: Timeouts
  /** Headers of the client that belong to the format, such as `anthropic-version`. */
  readonly headers: Readonly<Record<string, string>>
  /** Called once when the upstream has responded with status 200. Vendors bill these calls. */
  readonly onAccepted?: () => void
}

/** Timeouts of calls to upstreams, in milliseconds. */
export interface Timeouts {
  readonly connect: number
  /** From the request to the first byte of a stream. Whole answers are limited by `total` alone. */
  readonly firstByte: number
  /** Between two chunks of a stream. */
  readonly idle: number
  /** A whole request with all retries and fallbacks, or the remaining time in a `ProviderCall`. */
  readonly total: number
}

/** An answer and the fields that were not sent. */
export interface Sent<T> {
  readonly answer: T
  /** Names of optional fields that the upstream's format does not support. */
  readonly ignored: readonly string[]
}

/** Numbers, or the base64 of little-endian 32-bit floats. */
export type Encoding = 'float' | 'base64'

/** A text or its tokens. */
export type EmbedInput = string | readonly number[]

export type Embedding = readonly number[] | string

/** A parsed request for embeddings. */
export interface EmbeddingRequest {
  /** The body as received. Only the model is replaced for the upstream. */
  readonly native: JsonObject
  /** The bytes in which the model can be replaced. @default none: the body is serialized again */
  readonly received?: ReceivedBody
  readonly model: string
  /** At least one. */
  readonly inputs: readonly EmbedInput[]
  readonly encoding: Encoding
  /** The length of the vectors. @default that of the model */
  readonly dimensions?: number
}

/** A request for embeddings to a provider. */
export interface EmbedCall extends Omit<ProviderCall, 'prompt'> {
  readonly request: EmbeddingRequest
}

/** The vectors and the usage of a call. */
export interface Embedded {
  /** The name that the upstream reported. */
  readonly model: string
  /** One vector per input, in order. */
  readonly embeddings: readonly Embedding[]
  /** Absent if the upstream reported none. */
  readonly inputTokens?: number
}

/** A call about a response that the upstream stores. */
export interface HeldResponseCall extends Pick<ProviderCall, 'signal' | 'cancellation' | 'runtime' | 'timeouts'> {
  readonly method: 'GET' | 'POST' | 'DELETE'
  /** The path below `/responses`, such as `/resp_1/input_items?limit=2`. */
  readonly path: string
}

/** A call whose request and answer are forwarded without parsing. */
export interface PassthroughCall extends Pick<ProviderCall, 'signal' | 'cancellation' | 'runtime' | 'timeouts'> {
  readonly method: 'GET' | 'POST' | 'DELETE'
  /** The path below the base URL, such as `/images/generations`. */
  readonly path: string
  readonly body?: string | Uint8Array
  /** @default 'application/json' */
  readonly contentType?: string
}

/** An answer with a status from 200 to 299. */
export interface PassedAnswer {
  readonly status: number
  /** Returns a header by its lower-case name. */
  readonly header: (name: string) => string | undefined
  /** The unchanged body. */
  readonly source: AnswerSource
}

/** An upstream service. */
export interface Provider {
  /** The first part of `<provider>/<model_id>`. */
  readonly name: string
  readonly dialect: UpstreamDialect
  /** Another dialect of the upstream, for requests without translation. @default none */
  readonly secondDialect?: Dialect
  /** True if the provider ends calls that are cancelled or time out. @default the gateway ends them */
  readonly endsCalls?: boolean
  /** The models that GET /v1/models lists. */
  readonly models: readonly Model[]
  /** Returns undefined for a model that is not served. Some providers serve models that are not listed. */
  readonly model: (id: string) => Model | undefined
  complete(call: ProviderCall): Promise<Sent<Completion>>
  /**
   * Resolves when the upstream has accepted the call. Rejects if the upstream refuses, before any header is sent to
   * the client.
   */
  stream(call: ProviderCall): Promise<Sent<AsyncIterable<Step> | AnswerSource>>
  /** Absent if the upstream has no embeddings endpoint. */
  embed?(call: EmbedCall): Promise<Embedded>
  /** Reads, cancels or deletes a response that the upstream stores. Resolves with the JSON text of the answer. */
  heldResponse?(call: HeldResponseCall): Promise<string>
  /**
   * Calls any other endpoint. Resolves when the upstream has accepted the call. Absent if there are no other
   * endpoints.
   */
  passThrough?(call: PassthroughCall): Promise<PassedAnswer>
  /** Returns the upstream's token count of a prompt. Absent if the upstream has no such endpoint. */
  countTokens?(call: ProviderCall): Promise<number>
  /** Resolves when the upstream can be reached. */
  ping?(call: Pick<ProviderCall, 'signal' | 'runtime' | 'timeouts'>): Promise<void>
}

/**
 * `degraded`: some circuit of the provider is not closed. `away`: the circuits of all recently used models are open
 * for all keys.
 */
export type ProviderState = 'healthy' | 'degraded' | 'away'

export type ProviderStates = Readonly<Record<string, ProviderState>>

/** Returns true if prompts of this dialect need no translation. */
export function speaks(provider: Pick<Provider, 'dialect' | 'secondDialect'>, dialect: Dialect): boolean {
  return provider.dialect === dialect || provider.secondDialect === dialect
}
