import type { Cancellation } from './async.ts'
import type { Completion, Step, AnswerSource } from './answer.ts'
import type { JsonObject } from './json.ts'
import type { Model, Vocabulary } from './model.ts'
import type { Dialect, Message, Prompt, UpstreamDialect, ReceivedBody } from './prompt.ts'

// ─── Tokens ──────────────────────────────────────────────────────────────────

/** Counts the tokens of a text in linear time. Special tokens are counted as plain text. */
export interface Tokenizer {
  /** Returns an estimate from length and script, with an error of a few percent on prose and code. */
  estimate(text: string): number
  /**
   * Returns the exact count. The first call loads the vocabulary. Long texts yield to the event loop.
   *
   * @param vocabulary @default 'o200k'
   */
  count(text: string, signal?: AbortSignal, vocabulary?: Vocabulary): Promise<number>
}

/** Returns sizes of prompts in tokens. Counts of messages are cached. */
export interface Meter {
  readonly tokenizer: Tokenizer
  /** Estimates messages that are not cached, with pauses, so that `estimateOf` is fast. */
  prepare(prompt: Prompt, signal?: AbortSignal): Promise<void>
  /** Requires `prepare`: otherwise a long prompt blocks the event loop. */
  estimateOf(prompt: Prompt): number
  /** Returns the exact count of the texts. Images, documents and the overhead of messages and tools follow fixed rules. */
  countOf(prompt: Prompt, signal?: AbortSignal): Promise<number>
  /** Returns the estimate if it is far above, or the bytes are below, every threshold. Otherwise returns the exact count. */
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
  /** Stops reading from the upstream until `resume`, because the handler's reader is too slow. */
  pause(): void
  resume(): void
  /** Closes the connection. The handler is not called again. */
  abort(): void
}

/** Starts a call to an upstream. Does not follow redirects. Never throws. */
export type Transport = (request: TransportRequest, handler: TransportHandler) => TransportCall

/** A transport that keeps connections. `close` ends all of them, including those in use. */
export type ClosableTransport = Transport & { readonly close: () => Promise<void> }

/** Clock, randomness, network and timers. Tests replace them. */
export interface Runtime {
  /** Milliseconds since 1970. */
  readonly now: () => number
  /** From 0 up to 1, like Math.random. */
  readonly random: () => number
  /** A version 4 UUID from a cryptographic source. */
  readonly uuid: () => string
  readonly transport: Transport
  /**
   * Calls back once after `ms` milliseconds, unless the returned function is called before. A timer keeps the process
   * alive, unless it is in the background.
   */
  readonly after: (ms: number, callback: () => void, options?: { readonly isBackground?: boolean }) => () => void
}

// ─── Providers ───────────────────────────────────────────────────────────────

/** One call of a provider that answers a prompt. */
export interface ProviderCall {
  readonly prompt: Prompt
  readonly model: Model
  /** Cancels the call, before and after its first byte. Created when it is first read. */
  readonly signal: AbortSignal
  /** The cancellation of the signal, for code that needs no signal. @default that of the signal */
  readonly cancellation?: Cancellation
  readonly runtime: Runtime
  readonly timeouts: Timeouts
  /** Caller headers that are part of the format (`anthropic-version`, `anthropic-beta`). */
  readonly headers: Readonly<Record<string, string>>
  /** Called once when the upstream has accepted the call (status 200). The vendor bills accepted calls. */
  readonly onAccepted?: () => void
}

/** Timeouts of calls to upstreams, in milliseconds. */
export interface Timeouts {
  readonly connect: number
  /** From the request to the first byte of a stream. Whole answers are limited by `total` alone. */
  readonly firstByte: number
  /** Between two chunks of a stream. */
  readonly idle: number
  /** A whole request with all retries and fallbacks. In a `ProviderCall`: the rest of it. */
  readonly total: number
}

/** An answer, and the request fields that were dropped. */
export interface Sent<answer> {
  readonly answer: answer
  /** Names of optional request fields that the upstream's format does not support. */
  readonly ignored: readonly string[]
}

/** The encoding of vectors: numbers, or the base64 of little-endian 32-bit floats. */
export type Encoding = 'float' | 'base64'

/** A text, or its tokens. */
export type EmbedInput = string | readonly number[]

export type Embedding = readonly number[] | string

/** An embedding request. */
export interface EmbeddingRequest {
  /** The body as received. For an upstream, only the model is replaced. */
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

/** A call of a provider that embeds texts. */
export interface EmbedCall extends Omit<ProviderCall, 'prompt'> {
  readonly request: EmbeddingRequest
}

/** The vectors of a call, and its usage. */
export interface Embedded {
  /** The model as the upstream names it. */
  readonly model: string
  /** One vector per input, in order. */
  readonly embeddings: readonly Embedding[]
  /** Absent when the upstream reported none. */
  readonly inputTokens?: number
}

/** A call about a response that the upstream stores. */
export interface HeldResponseCall extends Pick<ProviderCall, 'signal' | 'cancellation' | 'runtime' | 'timeouts'> {
  readonly method: 'GET' | 'POST' | 'DELETE'
  /** The path below `/responses`, such as `/resp_1/input_items?limit=2`. */
  readonly path: string
}

/** A call of an endpoint whose requests and answers are forwarded without parsing. */
export interface PassthroughCall extends Pick<ProviderCall, 'signal' | 'cancellation' | 'runtime' | 'timeouts'> {
  readonly method: 'GET' | 'POST' | 'DELETE'
  /** The path below the base URL, such as `/images/generations`. */
  readonly path: string
  readonly body?: string | Uint8Array
  /** @default 'application/json' */
  readonly contentType?: string
}

/** The answer of an accepted call. Its status is 200 to 299. */
export interface PassedAnswer {
  readonly status: number
  /** The value of a header by its lower-case name. */
  readonly header: (name: string) => string | undefined
  /** The body, unchanged. */
  readonly source: AnswerSource
}

/** One upstream service. */
export interface Provider {
  /** The first part of `<provider>/<model_id>`. */
  readonly name: string
  readonly dialect: UpstreamDialect
  /** Another dialect of the upstream. Requests in it are not translated. @default none */
  readonly secondDialect?: Dialect
  /** True if the provider ends calls that are cancelled or time out. @default the gateway ends them */
  readonly endsCalls?: boolean
  /** The models that GET /v1/models lists. */
  readonly models: readonly Model[]
  /** Returns the model of an id, or undefined if it is not served. Some providers serve models that are not listed. */
  readonly model: (id: string) => Model | undefined
  complete(call: ProviderCall): Promise<Sent<Completion>>
  /** Resolves when the upstream has accepted the call. Rejects when it refuses, before any header is sent to the caller. */
  stream(call: ProviderCall): Promise<Sent<AsyncIterable<Step> | AnswerSource>>
  /** Embeds texts. Absent if the upstream cannot. */
  embed?(call: EmbedCall): Promise<Embedded>
  /** Reads, cancels or deletes a response that the upstream stores. Resolves with the JSON text of the upstream's answer. */
  heldResponse?(call: HeldResponseCall): Promise<string>
  /** Calls any endpoint. Resolves when the upstream has accepted the call. Absent if no other endpoint can be called. */
  passThrough?(call: PassthroughCall): Promise<PassedAnswer>
  /** Returns the upstream's count of the prompt's tokens. Absent if it has no such endpoint. */
  countTokens?(call: ProviderCall): Promise<number>
  /** Resolves when the upstream can be reached. */
  ping?(call: Pick<ProviderCall, 'signal' | 'runtime' | 'timeouts'>): Promise<void>
}

/**
 * `degraded`: a circuit of the provider is not closed, but requests reach the provider.
 * `away`: the circuits of all recently used models are open for all keys.
 */
export type ProviderState = 'healthy' | 'degraded' | 'away'

export type ProviderStates = Readonly<Record<string, ProviderState>>

/** Returns true when the provider needs no translation for prompts of this dialect. */
export function speaks(provider: Pick<Provider, 'dialect' | 'secondDialect'>, dialect: Dialect): boolean {
  return provider.dialect === dialect || provider.secondDialect === dialect
}
