import type { Cancellation, MaybePromise } from './async.ts'
import type { Completion, StreamChunk, ResponseSource } from './completion.ts'
import type { JsonObject } from './json.ts'
import type { Price, NanoUsd } from './money.ts'
import type { Dialect, Message, Prompt, ReceivedBody, Settings, UpstreamDialect } from './prompt.ts'

/** Counts tokens in linear time. Special tokens count as plain text. */
export interface Tokenizer {
  estimate(text: string): number
  /** Yields to the event loop while counting a long text. `vocabulary` is `o200k` by default. */
  count(text: string, signal?: AbortSignal, vocabulary?: Vocabulary): Promise<number>
}

export interface Meter {
  readonly tokenizer: Tokenizer
  /** Caches the estimates of the messages and tools. Yields to the event loop. */
  cacheEstimates(prompt: Prompt, signal?: AbortSignal): Promise<void>
  /** Call `cacheEstimates` first. Otherwise, estimating a long prompt blocks the event loop. */
  estimatePrompt(prompt: Prompt): number
  /** Content other than text, and the overhead of messages and tools, are estimated by fixed rules. */
  countPrompt(prompt: Prompt, signal?: AbortSignal): Promise<number>
  /** Counts exactly if the estimate cannot show whether the prompt exceeds a threshold. */
  countNearThresholds(prompt: Prompt, thresholds: readonly number[], signal?: AbortSignal): Promise<number>
  estimateMessage(message: Message): number
  /** Identifies the text of a message within this process. Returns undefined for a short text. */
  fingerprintOf(message: Message): number | undefined
  /** Sets what `fingerprintOf` has returned for an equal message, so that its text is not read again. */
  recognize(message: Message, fingerprint: number): void
  countMessage(message: Message, signal?: AbortSignal): MaybePromise<number>
  /** Counts all text in the body, including unknown fields. Excludes base64 images and overhead. */
  countBody(prompt: Prompt, vocabulary: Vocabulary, signal?: AbortSignal): Promise<number>
}

/** An HTTP request to an upstream. */
export interface TransportRequest {
  readonly method: 'GET' | 'POST' | 'DELETE'
  readonly url: string
  /** Names in lowercase. */
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string | Uint8Array
  /** Maximum time to connect, in milliseconds. Some transports ignore it. */
  readonly connectMs?: number
}

/** Receives either `onHead` once, `onData` for each chunk, and then `onEnd` or `onError`, or only `onError`. */
export interface TransportHandler {
  /** `header` returns a value by its lowercase name. */
  onHead(status: number, header: (name: string) => string | undefined): void
  onData(bytes: Uint8Array): void
  onEnd(): void
  onError(error: unknown): void
}

/** A running call to an upstream. */
export interface TransportCall {
  pause(): void
  resume(): void
  /** Ends the call. The handler is not called again. */
  abort(): void
}

/** Starts a call to an upstream. Does not follow redirects. Never throws. */
export type Transport = (request: TransportRequest, handler: TransportHandler) => TransportCall

export type ClosableTransport = Transport & { readonly close: () => Promise<void> }

/** Time, randomness and network. Tests replace them. */
export interface Runtime {
  readonly now: () => number
  readonly random: () => number
  readonly uuid: () => string
  readonly transport: Transport
  /** The returned function cancels the timer. A timer keeps the process alive unless `isBackground` is true. */
  readonly after: (ms: number, callback: () => void, options?: { readonly isBackground?: boolean }) => () => void
}

/** A vocabulary of a tokenizer. */
export type Vocabulary = 'o200k' | 'cl100k'

/** A model of a provider. */
export interface Model {
  /** The id in requests to the upstream. May contain `/`. */
  readonly id: string
  /** The vendor's model family, such as `claude`, `gpt` or `llama`. */
  readonly family: string
  readonly displayName?: string
  /** The kind of requests that the model accepts. @default both: the upstream decides */
  readonly kind?: 'chat' | 'embedding'
  /** Publication date, in seconds since 1970. */
  readonly created?: number
  /** Maximum number of prompt and output tokens together. */
  readonly contextWindowTokens: number
  /** Maximum number of output tokens. Requests without max_tokens reserve up to this number per response. */
  readonly maxOutputTokens: number
  /** True if the upstream enforces `maxOutputTokens`. Otherwise, requests without a limit get one. @default true */
  readonly enforcesMaxOutput?: boolean
  readonly price: Price
  /** YYYY-MM-DD. */
  readonly pricedAt?: string
  /** The id of a cheaper model of this family at the same provider, for tiers 2, 3 and 4 and `smallModelVerifier()`. */
  readonly small?: string
  /** Each is sent unless the caller sets the same parameter, or the model rejects it with the caller's parameters. */
  readonly defaults?: Pick<Settings, 'temperature' | 'topP'>
  /** True if the upstream rejects temperature with top_p. If the caller sets both, only temperature is sent. */
  readonly rejectsTemperatureWithTopP?: boolean
  /** True if the upstream rejects temperature, top_p and top_k unless they have their default values. */
  readonly rejectsSamplingParameters?: boolean
  /**
   * Reasoning efforts, as the vendor names them.
   * @default unknown: translations to and from the messages format drop the effort
   */
  readonly efforts?: readonly string[]
  /**
   * Fields of the provider's format that disable reasoning. Sent in calls to this model as a `small` model, except in
   * the gemini format.
   */
  readonly withoutThinking?: JsonObject
  /** Factor for the thresholds of the automatic tiers. @default 1 */
  readonly thresholdFactor?: number
  /** The vocabulary for an exact token count. @default none */
  readonly tokenizer?: Vocabulary
  /**
   * Upper bound on the ratio of the model's token count to the o200k count. Lowers the reservation if the model
   * has no `tokenizer` and the upstream returns no token count.
   * @default the reservation is based on the size of the prompt in bytes
   */
  readonly tokenFactor?: number
  /** Maximum number of tokens for one image. @default 9600 */
  readonly imageTokens?: number
  /** The upstream's context window, if an alias has a smaller `contextWindowTokens`. @default contextWindowTokens */
  readonly upstreamWindowTokens?: number
  /** Overrides `cache.similar`. @default the setting of the cache */
  readonly cacheSimilar?: boolean
}

/** A request to a provider. */
export interface ProviderCall {
  readonly prompt: Prompt
  readonly model: Model
  /** Cancels the call. */
  readonly signal: AbortSignal
  /** The cancellation of the call, for code that does not need an AbortSignal. @default the cancellation of `signal` */
  readonly cancellation?: Cancellation
  readonly runtime: Runtime
  readonly timeouts: Timeouts
  /** Client headers that are part of the wire format, such as `anthropic-version`. */
  readonly headers: Readonly<Record<string, string>>
  /** Who makes the call. @default the gateway itself */
  readonly caller?: UpstreamCaller | undefined
  /** Called once when the upstream responds with status 200. Vendors bill such calls. */
  readonly onAccepted?: () => void
  /** Called before the request is sent, with the names that `ProviderResponse.ignored` will contain. */
  readonly onIgnored?: (names: readonly string[]) => void
}

/** Who makes a call, for the `apiKey` function of a provider. */
export interface UpstreamCaller {
  /** Id of the virtual key. `application` for requests in process without one. Empty for calls of the gateway itself. */
  readonly keyId: string
  readonly customer?: string | undefined
  readonly user?: string | undefined
  /** Who pays the vendor. With `customer`, the vendor key must be that of the customer. */
  readonly payer: 'operator' | 'customer'
}

/** Timeouts for upstream calls, in milliseconds. */
export interface Timeouts {
  readonly connectMs: number
  /** Maximum time from a streaming request to the response headers. Does not apply to other requests. */
  readonly firstByteMs: number
  /** Maximum time without data after the response headers of a streamed or passthrough answer. */
  readonly idleMs: number
  /** Maximum time for a request, including all retries and fallbacks. In a `ProviderCall`, the remaining time. */
  readonly totalMs: number
}

/** A response, and what of the request could not be sent. */
export interface ProviderResponse<T> {
  readonly response: T
  /** Names of optional request fields that the upstream's format does not support. */
  readonly ignored: readonly string[]
}

/** Arrays of numbers, or base64 strings of little-endian 32-bit floats. */
export type Encoding = 'float' | 'base64'

/** A text, or a text as token ids. */
export type EmbedInput = string | readonly number[]

/** A vector in the requested encoding. */
export type Embedding = readonly number[] | string

/** A parsed embeddings request. */
export interface EmbeddingRequest {
  /** The received body. Only the model is replaced for the upstream. */
  readonly native: JsonObject
  /** The received bytes, in which the model name can be replaced. @default the body is serialized again */
  readonly received?: ReceivedBody
  readonly model: string
  /** At least one. */
  readonly inputs: readonly EmbedInput[]
  readonly encoding: Encoding
  /** Length of the vectors. @default the model's default */
  readonly dimensions?: number
}

/** An embeddings request to a provider. */
export interface EmbedCall extends Omit<ProviderCall, 'prompt'> {
  readonly request: EmbeddingRequest
}

/** The vectors and token usage of an embeddings call. */
export interface EmbeddingResult {
  /** The model name that the upstream reported, or an empty string. */
  readonly model: string
  /** One vector per input, in order. */
  readonly embeddings: readonly Embedding[]
  /** Absent if the upstream reported no usage. */
  readonly inputTokens?: number
}

/** A call about a response that the upstream stores. */
export interface StoredResponseCall extends Pick<
  ProviderCall,
  'signal' | 'cancellation' | 'runtime' | 'timeouts' | 'caller'
> {
  readonly method: 'GET' | 'POST' | 'DELETE'
  /** The path below `/responses`, such as `/resp_1/input_items?limit=2`. */
  readonly path: string
}

/** A call whose body and answer the provider does not parse. */
export interface PassthroughCall extends Pick<
  ProviderCall,
  'signal' | 'cancellation' | 'runtime' | 'timeouts' | 'caller'
> {
  readonly method: 'GET' | 'POST' | 'DELETE'
  /** The path below the base URL, such as `/images/generations`. */
  readonly path: string
  readonly body?: string | Uint8Array
  /** @default 'application/json' */
  readonly contentType?: string
}

/** The successful response to a passthrough call. */
export interface PassthroughResponse {
  /** From 200 to 299. */
  readonly status: number
  /** Returns a header by its lowercase name. */
  readonly header: (name: string) => string | undefined
  readonly source: ResponseSource
}

/** An upstream service. */
export interface Provider {
  /** The first part of `<provider>/<model_id>`. */
  readonly name: string
  readonly dialect: UpstreamDialect
  /** A second dialect, whose requests are not translated either. @default none */
  readonly secondDialect?: Dialect
  /**
   * Client headers that change the response, such as `anthropic-version`, with the values that are sent without them.
   * @default all of `ProviderCall.headers`
   */
  readonly varyHeaders?: Readonly<Record<string, string | undefined>>
  /** True if calls use the vendor key of `ProviderCall.caller`. Other providers cannot be paid by customers. @default false */
  readonly usesCallerKeys?: boolean
  /** True if the provider ends calls that are canceled or time out. @default false: the gateway ends such calls */
  readonly endsCalls?: boolean
  /** The models that GET /v1/models lists. */
  readonly models: readonly Model[]
  /** Returns undefined for a model that is not served. Some providers serve models that are not listed. */
  readonly model: (id: string) => Model | undefined
  complete(call: ProviderCall): Promise<ProviderResponse<Completion>>
  /** Resolves when the upstream has accepted the call. After a rejection, another route can be tried. */
  stream(call: ProviderCall): Promise<ProviderResponse<AsyncIterable<StreamChunk> | ResponseSource>>
  /** Absent if the upstream has no embeddings endpoint. */
  embed?(call: EmbedCall): Promise<EmbeddingResult>
  /** Reads, cancels or deletes a response that the upstream stores. Resolves with the JSON text of the response. */
  storedResponse?(call: StoredResponseCall): Promise<string>
  /** Calls any other endpoint. Resolves when the upstream has accepted the call. Absent if the provider has none. */
  passThrough?(call: PassthroughCall): Promise<PassthroughResponse>
  /** Returns the upstream's token count for a prompt. Absent if the upstream has no such endpoint. */
  countTokens?(call: ProviderCall): Promise<number>
  /** Resolves if the upstream is reachable. */
  ping?(call: Pick<ProviderCall, 'signal' | 'runtime' | 'timeouts'>): Promise<void>
}

export interface Route {
  readonly provider: Provider
  readonly model: Model
}

/**
 * `degraded`: at least one circuit of the provider is not closed. `unavailable`: the circuits of all recently used
 * models are open for all keys.
 */
export type ProviderState = 'healthy' | 'degraded' | 'unavailable'

export type ProviderStates = Readonly<Record<string, ProviderState>>

/** A cheaper model of the requested model's family. */
export interface SmallModel {
  readonly name: string
  ask(question: {
    readonly instruction: string
    readonly text: string
    readonly maxTokens: number
    readonly signal: AbortSignal
  }): Promise<{ readonly text: string; readonly spent: NanoUsd }>
  /** Returns the expected cost of a call, or zero while the model is paused. */
  price(promptTokens: number, outputTokens: number): NanoUsd
  /** Reports whether a reply was usable. Failed calls need no report: they count as unusable. @default ignored */
  report?(isUsable: boolean): void
  isPaused?(): boolean
  /** Returns true if the last reply in this conversation was usable. @default false */
  isProven?(): boolean
}
