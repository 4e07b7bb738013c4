import type { Json, JsonObject } from './json.ts'

/** The wire formats of callers. */
export type Dialect = 'openai' | 'anthropic' | 'responses'

/** The wire formats of upstreams. */
export type UpstreamDialect = Dialect | 'gemini'

/** A piece of some bytes: from `start` up to, but not including, `end`. */
export interface Span {
  readonly start: number
  readonly end: number
}

/** The bytes of a JSON body, and where they hold the value of the top-level `model`. */
export interface ReceivedBody {
  readonly bytes: Uint8Array
  /** The bytes as text, for a short body in which each character is one byte. */
  readonly text?: string
  readonly modelSpan: Span
}

/** Something exactly as it arrived, kept so that it can leave unchanged. */
export interface Native {
  readonly dialect: Dialect
  readonly value: JsonObject
  /** The JSON text of `value` as it came over the wire, where it is a whole answer. */
  readonly text?: string
  /** The body as it came over the wire. Present only where replacing its model alone is safe. */
  readonly received?: ReceivedBody | undefined
  /** The settings as read from `value`: a prompt that holds the same object has changed none of them. */
  readonly settings?: Settings
}

/** Where the bytes of an image or a document are. */
export type Source =
  | { readonly type: 'base64'; readonly mediaType: string; readonly data: string }
  | { readonly type: 'url'; readonly url: string }
  /** An id that only the vendor of the native part can resolve. */
  | { readonly type: 'file'; readonly id: string }

/**
 * One piece of a message. Every part may remember the native block that it was read from; a writer of the same
 * dialect sends that block, so an edited part is a new part without `native`.
 * `opaque` parts are carried, never edited: what this library does not know.
 */
export type Part =
  | TextPart
  | ImagePart
  | DocumentPart
  | ToolCallPart
  | ToolResultPart
  | ThinkingPart
  | { readonly type: 'opaque'; readonly native: Native }

export interface TextPart {
  readonly type: 'text'
  readonly text: string
  readonly native?: Native
}

export interface ImagePart {
  readonly type: 'image'
  readonly source: Source
  readonly native?: Native
}

/** A document of plain text: its words are counted, searched and translated as words, not as bytes. */
export interface TextSource {
  readonly type: 'text'
  readonly text: string
}

export interface DocumentPart {
  readonly type: 'document'
  readonly source: Source | TextSource
  readonly title?: string
  readonly native?: Native
}

export interface ToolCallPart {
  readonly type: 'tool-call'
  readonly id: string
  readonly name: string
  /** The arguments as JSON text, exactly as the model wrote them. */
  readonly input: string
  readonly native?: Native
}

export interface ToolResultPart {
  readonly type: 'tool-result'
  readonly callId: string
  /** Text, images, documents or opaque parts. */
  readonly content: readonly Part[]
  readonly failed: boolean
  readonly native?: Native
}

/** What a model thought before it answered. `signature` is the vendor's seal; `redacted` thoughts are the vendor's cipher text. */
export interface ThinkingPart {
  readonly type: 'thinking'
  readonly text: string
  readonly signature?: string
  readonly redacted?: boolean
  readonly native?: Native
}

export type Role = 'system' | 'user' | 'assistant' | 'tool'

/**
 * One message, in the caller's own order: message n here is message n of the body. A system text outside
 * the messages (message format) is the first message here. Tool results are in messages of role `tool` (chat format,
 * one result each) or `user` (message format).
 */
export interface Message {
  readonly role: Role
  readonly parts: readonly Part[]
  /** Present until a tier rewrites the message; a writer of the same dialect sends it as it is. */
  readonly native?: Native
}

/** A function that the model may call. Vendor-side tools (web search and the like) have no `parameters`. */
export interface Tool {
  readonly name: string
  readonly description?: string
  /** JSON schema of the arguments; undefined for a tool that the vendor runs itself. */
  readonly parameters?: JsonObject
  readonly strict?: boolean
  readonly native: Native
}

export type ToolChoice =
  | { readonly type: 'auto' | 'none' | 'required' }
  | { readonly type: 'tool'; readonly name: string }

/** The shape that the answer must have. */
export type AnswerShape =
  | { readonly type: 'json' }
  | { readonly type: 'schema'; readonly name?: string; readonly schema: Json; readonly strict?: boolean }

/** The parameters that more than one format knows. Absent means that the caller did not set it. */
export interface Settings {
  readonly maxTokens?: number
  readonly temperature?: number
  readonly topP?: number
  readonly topK?: number
  readonly stop?: readonly string[]
  readonly toolChoice?: ToolChoice
  readonly parallelToolCalls?: boolean
  readonly shape?: AnswerShape
  /** How many answers at once. */
  readonly choices?: number
  /** The reasoning effort, in the vendor's own word: `low`, `medium`, `high` … */
  readonly effort?: string
  /** The stable name of the caller's own user, by which a vendor recognizes abuse. */
  readonly user?: string
}

/** A model request in no dialect: what the savings tiers read and rewrite. */
export interface Prompt {
  /** The body as received; an upstream of the same dialect gets it with only model and what was rewritten replaced. */
  readonly native: Native
  readonly model: string
  readonly messages: readonly Message[]
  readonly settings: Settings
  readonly tools: readonly Tool[]
  readonly stream: boolean
  /** What is done with the conversation: `compact` has the vendor shorten it. @default it is answered */
  readonly operation?: 'compact'
  /** True: what the upstream's format cannot say is left out and named. @default it is refused */
  readonly isLossy?: boolean
}

/** The text of one part that a model reads as words: text, thinking, tool calls and results, documents of plain text. Images, other documents and opaque parts have none. */
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

/** The text of a message, its parts one below the other. */
export function textOfMessage(message: Message): string {
  return message.parts.map(textOfPart).join('\n')
}

/** The message with other parts: it no longer leaves as it came, though parts that kept their `native` do. */
export function withParts(message: Message, parts: readonly Part[]): Message {
  return { role: message.role, parts }
}

/** True when a message holds nothing but tool results: the answer of a machine, not the word of a person. */
export function holdsOnlyToolResults(message: Message): boolean {
  return message.parts.length > 0 && message.parts.every((part) => part.type === 'tool-result')
}

/** The index of the last message of role user that holds more than tool results, or -1. */
export function lastUserIndex(messages: readonly Message[]): number {
  return messages.findLastIndex((message) => message.role === 'user' && !holdsOnlyToolResults(message))
}
