import type { Completion, SseEvent, StreamChunk, StreamFormat } from '../core/completion.ts'
import { GatewayError } from '../core/errors.ts'
import { decodeUtf8 } from '../core/http.ts'
import type { ByteSearch } from '../core/byte-search.ts'
import type { Json, JsonObject } from '../core/json.ts'
import { elementTexts, memberText, replaceMembers } from '../core/splice-json.ts'
import type {
  Dialect,
  DocumentPart,
  Native,
  Part,
  Prompt,
  ReceivedBody,
  Settings,
  Source,
  Tool,
  UpstreamDialect,
} from '../core/prompt.ts'
import type { Steps } from '../core/steps.ts'
import type { BodyChanges } from './settings.ts'
import { arrayAt, fieldError } from './read-fields.ts'
import { replaceModel } from './replace-model.ts'

export type WriteMetrics = (kind: 'summary' | 'details') => JsonObject

export interface WriteContext {
  readonly prompt: Prompt
  /** Seconds since 1970. */
  readonly createdSeconds: number
  /** Returns milliseconds since 1970. @default the time at which the response was created */
  readonly now?: () => number
  /** Source of the response's id in formats whose ids the gateway generates. @default the upstream's id */
  readonly requestId?: string
  /** The caller's body before references to earlier turns are resolved. @default the prompt's body */
  readonly requestBody?: JsonObject
}

export interface WrittenPrompt {
  readonly body: string | Uint8Array
  readonly ignored: readonly string[]
}

export interface StreamWriter {
  write(chunk: StreamChunk): readonly SseEvent[]
  /** Called with complete events that are forwarded without `write`. */
  observeForwarded?(events: ByteSearch): void
  /** Returns the final events of a complete stream, including the bill. */
  end(writeMetrics: WriteMetrics): readonly SseEvent[]
  /** @default the event that `writeFailureEvent` returns */
  fail?(failure: GatewayError): readonly SseEvent[]
}

export interface StoredTurn {
  readonly id: string
  /** The entire conversation of the request, as items of the format. */
  readonly input: readonly Json[]
  readonly response: JsonObject
  /** The JSON texts of `input` and `response`. They keep numbers that the values cannot represent. */
  readonly texts: { readonly input: string; readonly response: string }
}

export interface References {
  readonly previousTurnId: string | undefined
  /** The turns whose responses contain referenced items. */
  readonly referencedTurnIds: readonly string[]
  /** Referenced items whose ids the gateway did not create. The upstream may store these items. */
  readonly foreignItemIds: readonly string[]
}

export interface RecalledTurns {
  readonly previousTurn: StoredTurn | undefined
  /** Answers by turn id. */
  readonly referencedResponses: ReadonlyMap<string, JsonObject>
  /** Referenced ids of responses and items that an upstream stores for the key. These references are forwarded. */
  readonly upstreamIds: ReadonlySet<string>
}

export interface TurnFormat {
  /** Invalid fields are ignored, because `readPrompt` reports them. */
  referencesIn(body: JsonObject): References
  /** Throws `invalid-request` for an unknown reference. */
  resolveReferences(body: JsonObject, turns: RecalledTurns): JsonObject
  /** `serialized` is the body of the response, or the data of its last event. */
  turnToStore(context: WriteContext, serialized: string): StoredTurn | undefined
  idsOf(response: JsonObject): readonly string[]
  readCompletion(body: JsonObject): Completion
  isUnfinished(completion: Completion): boolean
  responseId(requestId: string): string
  /** Returns true if the prompt refers to data that only the upstream has. */
  refersToUpstream(prompt: Prompt): boolean
}

type WriteInSteps = (prompt: Prompt, model: string) => Steps<WrittenPrompt>

export interface UpstreamFormat extends StreamFormat {
  /** Throws `invalid-request` for content that this format cannot express. */
  writePrompt(prompt: Prompt, model: string): WrittenPrompt
  /** As `writePrompt`, for long prompts. @default one step */
  readonly writeInSteps?: WriteInSteps
  readCompletion(body: JsonObject, text?: string): Completion
  /** `body` is undefined if it is not a JSON object. */
  readFailure(status: number, body: JsonObject | undefined): GatewayError
}

export interface UpstreamFormatModule {
  readonly dialect: UpstreamDialect
  readonly load: () => Promise<UpstreamFormat>
}

export type WriteFailure = (failure: GatewayError, requestId: string) => JsonObject

export interface ClientFormat {
  readonly dialect: Dialect
  /** Validates the fields that the gateway uses. Throws `invalid-request`. */
  readPrompt(body: JsonObject, received?: ReceivedBody): Prompt
  writeCompletion(completion: Completion, writeMetrics: WriteMetrics, context: WriteContext): string
  /** Returns the names of the content of another format that this one cannot contain. @default none */
  readonly omittedContent?: (completion: Completion) => readonly string[]
  createStreamWriter(context: WriteContext): StreamWriter
  readonly writeFailure: WriteFailure
  writeFailureEvent(failure: GatewayError, requestId: string): SseEvent
  readonly heartbeat: SseEvent | 'comment'
  /** Returns the id of a stream that can be resumed. Idempotent. Absent if streams cannot be resumed. */
  readonly responseId?: (id: string) => string
  readonly turns?: TurnFormat
}

/** `description` completes "… cannot be sent". */
export type CreateContentError = (param: string, description: string, details?: Json) => GatewayError

export function contentErrorFor(target: string): CreateContentError {
  return (param, description, details) =>
    new GatewayError(
      'invalid-request',
      `${param}: ${description} cannot be sent to ${target}. Remove it, or choose a model that supports it.`,
      { param, ...(details === undefined ? {} : { details }) },
    )
}

const MAX_PARTS = 1000

export function readContentParts(
  content: Json | undefined,
  param: string,
  readPart: (value: Json, param: string) => Part,
): readonly Part[] {
  if (typeof content === 'string') return [{ type: 'text', text: content }]
  if (!Array.isArray(content)) throw fieldError(param, content, 'a string or an array of content parts')
  return arrayAt(content, param, MAX_PARTS).map((part, index) => readPart(part, `${param}[${index}]`))
}

const MAX_MESSAGES = 10_000

export function readMessageList<T>(value: Json | undefined, read: (item: Json, param: string) => T): readonly T[] {
  const items = arrayAt(value, 'messages', MAX_MESSAGES)
  if (items.length === 0) throw fieldError('messages', value, 'at least one message')
  return items.map((item, index) => read(item, `messages[${index}]`))
}

const BASE64_SUFFIX = ';base64'

export function urlSource(url: string): Source {
  if (!url.startsWith('data:')) return { type: 'url', url }
  const comma = url.indexOf(',')
  const head = url.slice('data:'.length, comma)
  if (comma === -1 || !head.endsWith(BASE64_SUFFIX)) return { type: 'url', url }
  const mediaType = head.slice(0, -BASE64_SUFFIX.length).split(';')[0] ?? ''
  return { type: 'base64', mediaType, data: url.slice(comma + 1) }
}

/** Rejects the id of a stored file, because only the vendor that issued the id accepts it. */
export function urlOf(source: Source, param: string, createError: CreateContentError): string {
  switch (source.type) {
    case 'base64':
      return `data:${source.mediaType};base64,${source.data}`
    case 'url':
      return source.url
    case 'file':
      throw createError(param, 'a file id from another vendor')
  }
}

export function documentText({ source, title }: DocumentPart): string | undefined {
  if (source.type !== 'text') return undefined
  return title === undefined ? source.text : `${title}\n\n${source.text}`
}

export function isAsReceived(items: readonly { readonly native?: Native }[], receivedValues: readonly Json[]): boolean {
  return (
    items.length === receivedValues.length &&
    items.every(({ native }, index) => native?.value === receivedValues[index])
  )
}

export function changedTools(
  before: readonly Json[],
  tools: readonly Tool[],
  write: (tool: Tool) => Json,
): BodyChanges {
  if (isAsReceived(tools, before)) return {}
  return { tools: tools.length === 0 ? undefined : tools.map(write) }
}

/** An object literal with several spreads is many times slower. */
export function mergeChanges(...changes: readonly BodyChanges[]): BodyChanges {
  return Object.assign({}, ...changes)
}

export function writeNativeBody({ native, settings: now }: Prompt, model: string, changes: BodyChanges): WrittenPrompt {
  const { value, received, settings } = native
  const onlyAddsFields = Object.keys(changes).every((name) => changes[name] !== undefined && value[name] === undefined)
  const ignored = settings === undefined || settings === now ? [] : droppedSamplers(settings, now)
  if (received !== undefined && onlyAddsFields) return { body: replaceModel(received, model, changes), ignored }
  const body = spliceBody(native, { ...changes, model }) ?? JSON.stringify({ ...value, ...changes, model })
  return { body, ignored }
}

function droppedSamplers(before: Settings, after: Settings): readonly string[] {
  const isDropped = (name: 'temperature' | 'topP' | 'topK'): boolean =>
    before[name] !== undefined && after[name] === undefined
  return [
    ...(isDropped('temperature') ? ['temperature'] : []),
    ...(isDropped('topP') ? ['top_p'] : []),
    ...(isDropped('topK') ? ['top_k'] : []),
  ]
}

function spliceBody({ value, received }: Native, changes: BodyChanges): string | undefined {
  if (received === undefined) return undefined
  const text = received.text ?? decodeUtf8(received.bytes)
  const raw: Record<string, string | undefined> = {}
  for (const [name, after] of Object.entries(changes)) {
    const before = value[name]
    const isList = Array.isArray(after) && Array.isArray(before)
    raw[name] = isList
      ? spliceList(after, before, memberText(text, name))
      : after === undefined
        ? after
        : JSON.stringify(after)
  }
  return replaceMembers(text, raw)
}

/** Writes the elements that are in both lists as received. */
function spliceList(after: readonly Json[], before: readonly Json[], text = ''): string {
  const texts = elementTexts(text) ?? []
  const received = new Map(before.map((element, index) => [element, texts[index]]))
  return `[${after.map((element) => received.get(element) ?? JSON.stringify(element)).join(',')}]`
}
