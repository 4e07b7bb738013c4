import type { Cancellation } from './cancellation.ts'
import type { Completion, Step, AnswerSource } from './answer.ts'
import type { JsonObject } from './json.ts'
import type { Model, Vocabulary } from './model.ts'
import type { Dialect, Message, Prompt, UpstreamDialect, ReceivedBody } from './prompt.ts'

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
