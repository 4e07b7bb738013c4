import { asArray, isJsonObject, type Json, type JsonObject } from './json.ts'

/** Wire formats of clients. */
export type Dialect = 'chat' | 'messages' | 'responses'

/** Wire formats of upstreams. */
export type UpstreamDialect = Dialect | 'gemini'

/** `end` is exclusive. */
export interface Span {
  readonly start: number
  readonly end: number
}

/** The received bytes of a request, in which only the model is replaced. */
export interface ReceivedBody {
  readonly bytes: Uint8Array
  /** The bytes as text, for a short ASCII body. */
  readonly text?: string
  readonly modelSpan: Span
  /** True if numbers in the bytes may differ from those in the parsed value. @default false */
  readonly hasLongNumbers?: boolean
}

/** The received JSON of a prompt, a message, a part or a response, with its format. Fields that the gateway does not understand are kept in it. */
export interface Native {
  readonly dialect: Dialect
  readonly value: JsonObject
  /** The JSON text of `value`, if it was received whole and is unchanged. */
  readonly text?: string
  /** Absent if the body must be serialized again. */
  readonly received?: ReceivedBody | undefined
  /** The settings of `value`. If `Prompt.settings` is this same object, the settings are unchanged. */
  readonly settings?: Settings
}

/** Where the content of a file is. */
export type Source =
  | { readonly type: 'base64'; readonly mediaType: string; readonly data: string }
  | { readonly type: 'url'; readonly url: string }
  /** An id that is valid only with the vendor that issued it. */
  | { readonly type: 'file'; readonly id: string }

/**
 * One part of a message. `native` is the block that the part was read from. Writers of the same dialect send `native`,
 * so an edited part has no `native`. An `opaque` part has only its native form.
 */
export type Part =
  | TextPart
  | ImagePart
  | DocumentPart
  | ToolCallPart
  | ToolResultPart
  | ThinkingPart
  | { readonly type: 'opaque'; readonly native: Native }

/** A text. */
export interface TextPart {
  readonly type: 'text'
  readonly text: string
  /** True for the model's refusal to answer. Set only in answers. */
  readonly isRefusal?: boolean
  readonly native?: Native
}

/** An image. */
export interface ImagePart {
  readonly type: 'image'
  readonly source: Source
  readonly native?: Native
}

/** A document as text. */
export interface TextSource {
  readonly type: 'text'
  readonly text: string
}

/** A document or another file that is not an image. */
export interface DocumentPart {
  readonly type: 'document'
  readonly source: Source | TextSource
  readonly title?: string
  readonly native?: Native
}

/** A call of a tool by the model. */
export interface ToolCallPart {
  readonly type: 'tool-call'
  readonly id: string
  readonly name: string
  /** The JSON text of the arguments, or the text of a custom tool. May be invalid JSON, because models write it. */
  readonly input: string
  readonly native?: Native
}

/** The result of a tool call. */
export interface ToolResultPart {
  readonly type: 'tool-result'
  readonly callId: string
  readonly content: readonly Part[]
  readonly failed: boolean
  readonly native?: Native
}

/** A model's reasoning. The vendor issues `signature`. If `redacted` is true, `text` is encrypted. */
export interface ThinkingPart {
  readonly type: 'thinking'
  readonly text: string
  readonly signature?: string
  readonly redacted?: boolean
  readonly native?: Native
}

/** The author of a message. */
export type Role = 'system' | 'user' | 'assistant' | 'tool'

/**
 * One message. The system prompt of the messages format becomes the first message, as do the instructions of the
 * responses format. Tool results are in messages of role `tool` (chat and responses formats, one result each) or `user`
 * (messages format).
 */
export interface Message {
  readonly role: Role
  readonly parts: readonly Part[]
  /** The received message, which writers of the same dialect send instead of `parts`. */
  readonly native?: Native
}

/** A tool that the model may call. */
export interface Tool {
  readonly name: string
  readonly description?: string
  /** JSON schema of a function's arguments. Absent for other tools. */
  readonly parameters?: JsonObject
  readonly strict?: boolean
  readonly native: Native
}

/** Whether the model may, must or must not call tools. */
export type ToolChoice =
  | { readonly type: 'auto' | 'none' | 'required' }
  | { readonly type: 'tool'; readonly name: string }

/** The format that the caller requests: any JSON, or JSON that fulfills a schema. */
export type ResponseShape =
  | { readonly type: 'json' }
  | { readonly type: 'schema'; readonly name?: string; readonly schema: Json; readonly strict?: boolean }

/** Settings that several formats have. Others are in `Prompt.native`. */
export interface Settings {
  readonly maxTokens?: number
  readonly temperature?: number
  readonly topP?: number
  readonly topK?: number
  readonly stop?: readonly string[]
  readonly toolChoice?: ToolChoice
  readonly parallelToolCalls?: boolean
  readonly shape?: ResponseShape
  /** Number of responses (`n`). */
  readonly choices?: number
  /** The reasoning effort in the vendor's terms, such as `low`. */
  readonly effort?: string
  /** A stable id of the end user or session, for the vendor's abuse detection. */
  readonly user?: string
}

/** A request in a form that is independent of its format. */
export interface Prompt {
  /** The body, with references to earlier turns resolved. Writers of the same dialect replace only what has changed. */
  readonly native: Native
  readonly model: string
  readonly messages: readonly Message[]
  readonly settings: Settings
  readonly tools: readonly Tool[]
  readonly stream: boolean
  /** With `compact`, the vendor shortens the conversation instead of answering it. */
  readonly operation?: 'compact'
  /** True if unsupported fields are dropped and reported. @default false */
  readonly isLossy?: boolean
}

export function textOfPart(part: Part): string {
  switch (part.type) {
    case 'text':
      return part.text
    case 'thinking':
      return part.redacted === true ? '' : part.text
    case 'tool-call':
      return `${part.name} ${part.input}`
    case 'tool-result':
      return part.content.map(textOfPart).join('\n')
    case 'document':
      return part.source.type === 'text' ? `${part.title ?? ''}\n${part.source.text}`.trimStart() : ''
    case 'image':
    case 'opaque':
      return ''
  }
}

/** A cache that several tenants share needs a secret `seed`, because collisions can be constructed. */
export function fingerprintOf(text: string, seed: number = 0): number {
  let low = 0xdeadbeef ^ text.length ^ seed
  let high = 0x41c6ce57 ^ text.length ^ Math.imul(seed, 0x9e3779b1)
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index)
    low = Math.imul(low ^ code, 0x85ebca77)
    high = Math.imul(high ^ code, 0xc2b2ae3d)
  }
  low = Math.imul(low ^ (low >>> 16), 0x735a2d97) ^ Math.imul(high ^ (high >>> 15), 0xcaf649a9)
  high = Math.imul(high ^ (high >>> 16), 0x735a2d97) ^ Math.imul(low ^ (low >>> 15), 0xcaf649a9)
  return 2097152 * (high >>> 0) + (low >>> 11)
}

export function splitModelName(name: string): { readonly provider: string; readonly id: string } | undefined {
  const slash = name.indexOf('/')
  if (slash <= 0 || slash === name.length - 1) return undefined
  return { provider: name.slice(0, slash), id: name.slice(slash + 1) }
}

const MAX_NAME_LENGTH = 200

/** Does not match the segments `.` and `..`, which URL parsers remove. */
const MODEL_NAME = /^(?!(?:.*\/)?\.{1,2}(?:\/|$))[\w.:@+/-]+$/

/** Returns true for a name that is safe in a header, a log line and a path. */
export function isSafeModelName(name: string): boolean {
  return name.length <= MAX_NAME_LENGTH && MODEL_NAME.test(name)
}

export function matchesModel(patterns: readonly string[], name: string): boolean {
  return patterns.some((pattern) => (pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : pattern === name))
}

/** The beta of the one-million-token window, which raises the price. Vendors may ignore the case of its name. */
export const LONG_CONTEXT_BETA: RegExp = /context-1m/i

/** The type of an input item. `fieldCostsOf` adds it to the names of the fields that can cost more. */
export const COMPACTION_TRIGGER = 'compaction_trigger'

/** Returns a model id without `-latest` or the date of its version. */
export function stemOf(id: string): string {
  return id.replace(/-(?:latest|\d{8}|\d{4}-\d{2}-\d{2})$/, '')
}

/** Returns the ids of the models that tools name, such as an adviser. The vendor bills their calls at their own prices. */
export function modelsOfTools({ tools, messages }: Pick<Prompt, 'tools' | 'messages'>): readonly string[] {
  const added = messages.flatMap(({ parts }) =>
    parts.flatMap((part) => (part.type === 'opaque' ? [part.native.value] : [])),
  )
  return [...tools.map(({ native }) => native.value), ...added].flatMap(modelsIn)
}

/** Reads a tool, a group of tools, or an item that adds tools to a conversation. */
function modelsIn({ model, tools, tool }: JsonObject): readonly string[] {
  const definition = isJsonObject(tool) ? tool['definition'] : undefined
  const nested = [...asArray(tools), definition].filter(isJsonObject)
  return [...(typeof model === 'string' ? [model] : []), ...nested.flatMap(modelsIn)]
}
