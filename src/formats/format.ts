import type { ByteSearch, Completion, Frame, IsPlain, Step, StepReader } from '../core/answer.ts'
import { GatewayError } from '../core/errors.ts'
import type { Json, JsonObject } from '../core/json.ts'
import type {
  Dialect,
  DocumentPart,
  Native,
  Prompt,
  ReceivedBody,
  Source,
  Tool,
  UpstreamDialect,
} from '../core/prompt.ts'
import { replaceModel } from './parse-body.ts'
import type { Changes } from './settings.ts'

/**
 * The bill on the wire: the fields of `svc_metrics`. Money is in dollars with six decimals. The message format contains
 * the first three fields, a chat stream the others.
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

/** Context of a writer of answers. */
export interface WriteContext {
  /** The caller's prompt. Determines, for example, whether a chat stream ends with a usage chunk. */
  readonly prompt: Prompt
  /** Time of creation in seconds since 1970. */
  readonly created: number
  /** The id of the answer in formats whose ids the gateway creates. @default the upstream's id */
  readonly requestId?: string
  /** The caller's body as received, before references to earlier turns were resolved. @default the prompt's native */
  readonly requestBody?: JsonObject
}

/** The body for an upstream, and the names of hints that its format does not support. */
export interface WrittenPrompt {
  readonly body: string | Uint8Array
  readonly ignored: readonly string[]
}

/** Writes one stream for a caller. */
export interface StepWriter {
  /** Returns the frames that can be sent now. The frame that carries the bill is held back. */
  write(step: Step): readonly Frame[]
  /** Called with whole events that are sent as received, without passing through `write`. */
  passed?(events: ByteSearch): void
  /** Returns the frames that end a complete stream. The frame with the finish reason contains the bill. */
  end(metrics: SvcMetrics): readonly Frame[]
  /** Returns the frames that end a broken stream, if they depend on earlier frames. @default writeFailureFrame */
  fail?(failure: GatewayError): readonly Frame[]
}

/** One answered request, stored for later requests that refer to it. */
export interface StoredTurn {
  readonly id: string
  /** The whole conversation of the request, as items of the format. */
  readonly input: readonly Json[]
  /** The answer as sent. */
  readonly answer: JsonObject
}

/** The ids of the turns that a body refers to. */
export interface References {
  /** The turn that the request continues. */
  readonly continued: string | undefined
  /** The turns whose answers contain referenced items, without duplicates. */
  readonly quoted: readonly string[]
  /** Items that no stored turn contains, without duplicates. The upstream that created them may still store them. */
  readonly foreign: readonly string[]
}

/** The stored turns that were found. */
export interface RecalledTurns {
  readonly continued: StoredTurn | undefined
  /** Answers by the ids of their turns. */
  readonly quoted: ReadonlyMap<string, JsonObject>
  /** The ids of responses and items that an upstream stores for the key. References to them are not changed. */
  readonly storedUpstream: ReadonlySet<string>
}

/** Implemented by formats whose servers store answered requests. Later requests can refer to these by id. */
export interface TurnFormat {
  /** Returns the references of a body. Ignores invalid fields, which `readPrompt` reports. */
  refersTo(body: JsonObject): References
  /** Returns the body with every reference resolved. Throws `invalid-request` for an unknown reference. */
  recall(body: JsonObject, found: RecalledTurns): JsonObject
  /**
   * Returns the turn to store, or undefined if the caller opts out. `serialized` is the whole body, or the data of the
   * last frame.
   */
  keep(context: WriteContext, serialized: string): StoredTurn | undefined
  /** Returns the ids by which later requests can refer to an answer: its own, and those of its items. */
  idsOf(answer: JsonObject): readonly string[]
  /** Reads an answer that its upstream stores. Throws `upstream` if the body is not an answer. */
  readCompletion(body: JsonObject): Completion
  /** Returns true for an answer that the upstream has accepted but not generated yet. */
  isUnfinished(completion: Completion): boolean
  /** Returns the id that the gateway gives to the answer of a request. */
  answerId(requestId: string): string
  /**
   * Returns true when the prompt refers to data that only the upstream has, so that the gateway does not see the whole
   * prompt.
   */
  refersToUpstream(prompt: Prompt): boolean
}

/** The upstream side of a wire format. Pure: no clock, no network, no store. */
export interface UpstreamFormat {
  readonly dialect: UpstreamDialect
  /**
   * library → provider, for the upstream model `model`. Throws `invalid-request` for content of another
   * dialect that this format cannot express.
   */
  writePrompt(prompt: Prompt, model: string): WrittenPrompt
  /** provider → library. Throws `upstream` when the body is not an answer. */
  readCompletion(body: JsonObject, text?: string): Completion
  /** provider → library: returns a reader of stream events. */
  stepReader(): StepReader
  /** Decides which stream events may pass unparsed between two sides of this format. @default none */
  readonly isPlain?: IsPlain
  /** provider → library: reads an error of any status. `body` is undefined when it was not JSON. */
  readFailure(status: number, body: JsonObject | undefined): GatewayError
}

/** A format whose code is loaded with the first request to an upstream that uses it. */
export interface UpstreamFormatModule {
  readonly dialect: UpstreamDialect
  readonly load: () => Promise<UpstreamFormat>
}

/** Writes the body of a refused request. */
export type WriteFailure = (failure: GatewayError, requestId: string) => JsonObject

/** The client side of a wire format. Pure: no clock, no network, no store. */
export interface ClientFormat {
  readonly dialect: Dialect
  /** caller → library. Throws `invalid-request` with `param`. `received` is that of `parseBody`. */
  readPrompt(body: JsonObject, received?: ReceivedBody): Prompt
  /** library → caller: the JSON text of a whole answer. */
  writeCompletion(completion: Completion, metrics: SvcMetrics, context: WriteContext): string
  /** library → caller: returns a writer of stream events. */
  stepWriter(context: WriteContext): StepWriter
  /** library → caller: the body of a refused request. */
  readonly writeFailure: WriteFailure
  /** library → caller: the event that ends a broken stream. */
  writeFailureFrame(failure: GatewayError, requestId: string): Frame
  /** The event that keeps an idle connection open. */
  readonly heartbeat: Frame | 'comment'
  /**
   * Returns the id of an answer, for formats whose streams can be resumed. Idempotent. Absent when streams cannot be
   * resumed.
   */
  readonly answerId?: (id: string) => string
  /** Absent if requests cannot refer to earlier requests. */
  readonly turns?: TurnFormat
}

/** Formats with translation that is loaded on demand. Other writers always contain it. */
export type TranslatedDialect = 'openai' | 'anthropic'

/** Writes a prompt of another format. Throws `invalid-request` for required content that the format cannot express. */
export type TranslatePrompt = (prompt: Prompt, model: string) => WrittenPrompt

let translators: Readonly<Record<TranslatedDialect, TranslatePrompt>> | undefined

/** Sets the functions that `translate` calls. `translators.ts` calls this when it is loaded on demand. */
export function setTranslators(loaded: Readonly<Record<TranslatedDialect, TranslatePrompt>>): void {
  translators = loaded
}

export function translate(dialect: TranslatedDialect, prompt: Prompt, model: string): WrittenPrompt {
  if (translators === undefined) throw new GatewayError('internal', 'Translation is not loaded.')
  return translators[dialect](prompt, model)
}

/** Returns the error for content that the target format cannot express. `what` completes "… cannot be sent". */
export type RefuseContent = (param: string, what: string, details?: Json) => GatewayError

export function refuseContentFor(target: string): RefuseContent {
  return (param, what, details) =>
    new GatewayError(
      'invalid-request',
      `${param}: ${what} cannot be sent to ${target}. Remove it, or choose a model that supports it.`,
      { param, ...(details === undefined ? {} : { details }) },
    )
}

/** Returns the URL of a source, or a data URL for bytes. Throws the error of `refuse` for the id of a stored file. */
export function urlOf(source: Source, refuse: (what: string) => GatewayError): string {
  switch (source.type) {
    case 'base64':
      return `data:${source.mediaType};base64,${source.data}`
    case 'url':
      return source.url
    case 'file':
      throw refuse('a file id of another vendor')
  }
}

/** Returns the title and the text of a document, or undefined for a document that is not text. */
export function documentText({ source, title }: DocumentPart): string | undefined {
  if (source.type !== 'text') return undefined
  return title === undefined ? source.text : `${title}\n\n${source.text}`
}

/** Returns true if every item was read from the value at its index, so that the list is unchanged. */
export function isAsReceived(items: readonly { readonly native?: Native }[], before: readonly Json[]): boolean {
  return items.length === before.length && items.every(({ native }, index) => native?.value === before[index])
}

/** Returns the field `tools` if the tools of the prompt differ from the tools of the body. */
export function changedTools(before: readonly Json[], tools: readonly Tool[], write: (tool: Tool) => Json): Changes {
  if (isAsReceived(tools, before)) return {}
  return { tools: tools.length === 0 ? undefined : tools.map(write) }
}

/**
 * Writes the body of a prompt in its own format. Sends the received bytes with the model replaced and new fields added.
 * Serializes the body again if a received field changes.
 */
export function writeOwnBody({ native }: Prompt, model: string, changes: Changes): WrittenPrompt {
  const { value, received } = native
  const onlyAdds = Object.keys(changes).every((name) => changes[name] !== undefined && value[name] === undefined)
  const canSplice = received !== undefined && onlyAdds
  const body = canSplice ? replaceModel(received, model, changes) : JSON.stringify({ ...value, ...changes, model })
  return { body, ignored: [] }
}
