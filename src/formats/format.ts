import type { ByteSearch } from '../core/byte-search.ts'
import type { IsPlain, StepReader } from '../core/answer-source.ts'
import type { Completion, Frame, Step } from '../core/answer.ts'
import type { GatewayError } from '../core/errors.ts'
import type { Json, JsonObject } from '../core/json.ts'
import type { Dialect, Prompt, ReceivedBody, UpstreamDialect } from '../core/prompt.ts'

/**
 * The bill as the wire shows it: the fields of `svc_metrics`. Money is dollars with six fraction digits.
 * The message format shows the first three, a chat stream the others.
 */
export interface SvcMetrics {
  readonly savingsPercent: number
  readonly originalCost: number
  readonly yourCost: number
  readonly originalTokens: number
  readonly optimizedTokens: number
  readonly tokensSaved: number
  readonly reductionPct: number
  readonly strategy: string
  readonly cache: 'HIT' | 'MISS'
  readonly theoreticalCost: number
  readonly actualCost: number
  readonly billedAmount: number
  readonly savingsUsd: number
  readonly profitMargin: number
}

/** What a writer must know besides the answer. */
export interface WriteContext {
  /** The caller's prompt. It decides, for example, whether a chat stream ends in a usage chunk. */
  readonly prompt: Prompt
  /** Seconds since 1970. */
  readonly created: number
  /** Names the answer in formats whose ids are the gateway's own. @default the upstream's id of the answer */
  readonly requestId?: string
  /** The caller's body as it came, before earlier turns took their place in it. @default the prompt's native */
  readonly asked?: JsonObject
}

/** The body for an upstream, and the names of hints that its format does not have. */
export interface WrittenPrompt {
  readonly body: string | Uint8Array
  readonly ignored: readonly string[]
}

/** Writes one stream for a caller. */
export interface StepWriter {
  /** Frames that can leave now; the frame that must carry the bill is held back. */
  write(step: Step): readonly Frame[]
  /** Notified of whole events that leave as received, past this writer. */
  passed?(events: ByteSearch): void
  /** The frames that close a whole stream, with the bill on the frame that has the finish reason. */
  end(metrics: SvcMetrics): readonly Frame[]
  /** The frames that end a stream which broke, where they depend on what was written. @default writeFailureFrame */
  fail?(failure: GatewayError): readonly Frame[]
}

/** One answered request as it is kept for those that refer to it. */
export interface KeptTurn {
  readonly id: string
  /** The whole conversation that was asked with, in the format's own items. */
  readonly input: readonly Json[]
  /** The answer as it was sent. */
  readonly answer: JsonObject
}

/** The ids of the turns that a body refers to. */
export interface References {
  /** The turn whose conversation goes on. */
  readonly continued: string | undefined
  /** The turns of whose answers it takes parts, each once. */
  readonly quoted: readonly string[]
  /** Items that no turn of the gateway holds, each once: the upstream that wrote them may. */
  readonly foreign: readonly string[]
}

/** What was found of them. */
export interface RecalledTurns {
  readonly continued: KeptTurn | undefined
  /** Answers by the ids of their turns. */
  readonly quoted: ReadonlyMap<string, JsonObject>
  /** The ids of responses and items that an upstream holds for the key: references to them stay as they are. */
  readonly held: ReadonlySet<string>
}

/** What a format must say whose servers keep answered requests, so that later ones refer to them by their ids. */
export interface TurnFormat {
  /** Reads loosely: `readPrompt` reports errors. */
  refersTo(body: JsonObject): References
  /** The body with what it refers to in its place. Throws `invalid-request` for what is not there. */
  recall(body: JsonObject, found: RecalledTurns): JsonObject
  /** What to keep, or undefined where the caller wants nothing kept. `serialized` is the whole body, or the last frame's data. */
  keep(context: WriteContext, serialized: string): KeptTurn | undefined
  /** The ids of an answer by which later requests can refer to it: its own, and those of its items. */
  idsOf(answer: JsonObject): readonly string[]
  /** Reads an answer that its upstream holds. Throws `upstream` when the body is no answer. */
  readCompletion(body: JsonObject): Completion
  /** True for an answer that its upstream has accepted and not yet generated. */
  isUnfinished(completion: Completion): boolean
  /** The id of an answer that the gateway gives to a request itself. */
  answerId(requestId: string): string
  /** True when the prompt refers to what an upstream holds, so that the gateway does not see all of it. */
  refersToUpstream(prompt: Prompt): boolean
}

/** The side of a wire format that faces upstreams. Pure: no clock, no network, no store. */
export interface UpstreamFormat {
  readonly dialect: UpstreamDialect
  /**
   * library → provider, for the upstream model `model`. Throws `invalid-request` for content of another
   * dialect that this format cannot express.
   */
  writePrompt(prompt: Prompt, model: string): WrittenPrompt
  /** provider → library. Throws `upstream` when the body is no answer. */
  readCompletion(body: JsonObject, text?: string): Completion
  /** provider → library */
  stepReader(): StepReader
  /** Which events of a stream may pass unparsed between two sides of this format. @default none */
  readonly isPlain?: IsPlain
  /** provider → library: what an upstream's error body says, for any status. `body` is undefined when it was no JSON. */
  readFailure(status: number, body: JsonObject | undefined): GatewayError
}

/** A format whose code is loaded with the first request to an upstream that uses it. */
export interface UpstreamFormatModule {
  readonly dialect: UpstreamDialect
  readonly load: () => Promise<UpstreamFormat>
}

/** Writes the body of a refused request. */
export type WriteFailure = (failure: GatewayError, requestId: string) => JsonObject

/** The side of a wire format that faces callers. Pure like the other one. */
export interface ClientFormat {
  readonly dialect: Dialect
  /** caller → library. Throws `invalid-request` with `param`. `received` is that of `parseBody`. */
  readPrompt(body: JsonObject, received?: ReceivedBody): Prompt
  /** library → caller: the JSON text of a whole answer. */
  writeCompletion(completion: Completion, metrics: SvcMetrics, context: WriteContext): string
  /** library → caller */
  stepWriter(context: WriteContext): StepWriter
  /** library → caller */
  readonly writeFailure: WriteFailure
  /** library → caller: the event that ends a stream which broke. */
  writeFailureFrame(failure: GatewayError, requestId: string): Frame
  /** An event that only says that the line is alive. */
  readonly heartbeat: Frame | 'comment'
  /**
   * How an answer's id is written, for formats whose streams can be had again: their events carry ids. Written twice it
   * stays the same. Absent: streams cannot be resumed.
   */
  readonly answerId?: (id: string) => string
  /** Absent: each request says all that it means. */
  readonly turns?: TurnFormat
}
