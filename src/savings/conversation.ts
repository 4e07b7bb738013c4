import {
  holdsOnlyToolResults,
  lastUserIndex,
  type Message,
  type Part,
  type Prompt,
  type Source,
  type TextSource,
} from '../core/prompt.ts'
import { digestOf } from '../core/digest.ts'
import { sha256 } from '#hash'

/**
 * Messages that stay together: a user message, an answer, or an answer with its tool calls and their results. A segment
 * is kept, excerpted or dropped as a whole, so that no call loses its result.
 */
export interface Segment {
  readonly kind: 'user' | 'assistant' | 'exchange'
  readonly messages: readonly Message[]
  /** The index of each of its messages among the prompt's messages. */
  readonly places: readonly number[]
}

/** A prompt's messages, cut where they may be cut. System messages are in no segment: they always stay. */
export interface SplitConversation {
  /** Everything before the live turn, oldest first. */
  readonly old: readonly Segment[]
  /** The last user message and all that came after it. The first segment holds that message. */
  readonly live: readonly Segment[]
}

/**
 * Cuts a conversation into segments. The live turn begins with the last user message, or, when that message also answers
 * tool calls, with the message that made them. Without any user message the last segment is the live turn.
 */
export function splitConversation(messages: readonly Message[]): SplitConversation {
  const segments = unitsOf(messages)
  const asked = lastUserIndex(messages)
  const live =
    asked === -1 ? segments.length - 1 : segments.findLastIndex((segment) => (segment.places[0] ?? 0) <= asked)
  return { old: segments.slice(0, Math.max(0, live)), live: segments.slice(Math.max(0, live)) }
}

function unitsOf(messages: readonly Message[]): Segment[] {
  const segments: { kind: Segment['kind']; messages: Message[]; places: number[] }[] = []
  for (const [place, message] of messages.entries()) {
    if (message.role === 'system') continue
    const last = segments.at(-1)
    if (last?.kind === 'exchange' && answersCalls(message)) {
      last.messages.push(message)
      last.places.push(place)
    } else segments.push({ kind: kindOf(message), messages: [message], places: [place] })
  }
  return segments
}

function answersCalls(message: Message): boolean {
  return message.role !== 'assistant' && message.parts.some((part) => part.type === 'tool-result')
}

function kindOf(message: Message): Segment['kind'] {
  if (message.parts.some((part) => part.type === 'tool-call')) return 'exchange'
  if (message.role === 'user' && !holdsOnlyToolResults(message)) return 'user'
  return message.role === 'assistant' ? 'assistant' : 'exchange'
}

/** Returns true when the segment contains a message written by a user. */
export function holdsUserWords(segment: Segment): boolean {
  return segment.messages.some((message) => message.role === 'user' && !holdsOnlyToolResults(message))
}

/** A conversation as segments from the first to the last, including the live turn. */
export interface Conversation {
  readonly prompt: Prompt
  readonly turns: SplitConversation
  readonly segments: readonly Segment[]
  readonly chain: Chain
}

const conversations = new WeakMap<Prompt, Conversation>()

/** Returns the conversation of a prompt. Cached, because one request needs it several times. */
export function conversationOf(prompt: Prompt): Conversation {
  const known = conversations.get(prompt)
  if (known !== undefined) return known
  const turns = splitConversation(prompt.messages)
  const segments = [...turns.old, ...turns.live]
  const system = prompt.messages.filter((message) => message.role === 'system')
  const conversation = { prompt, turns, segments, chain: createChain(system, segments) }
  conversations.set(prompt, conversation)
  return conversation
}

/** Hashes the prefixes of a conversation. A prefix has the same hash on every turn, and no other prefix has it. */
export interface Chain {
  /** Returns the hash of the system prompt and the first `segments` segments: 64 hex digits. */
  at(segments: number): string
}

/** Prefixes are hashed in links of about this many characters, from the oldest end. */
const LINK = 8000

/** SHA-256 over links: each character is hashed once per turn, regardless of the number of prefixes. */
export function createChain(system: readonly Message[], segments: readonly Pick<Segment, 'messages'>[]): Chain {
  const traces = segments.map((segment) => segment.messages.map(traceOf).join('\u0001'))
  const links: { readonly segments: number; readonly name: string }[] = []

  const build = (): void => {
    let name = sha256(system.map(traceOf).join('\u0001'))
    links.push({ segments: 0, name })
    let held: string[] = []
    let length = 0
    for (const [index, trace] of traces.entries()) {
      held.push(trace)
      length += trace.length
      if (length < LINK) continue
      name = follow(name, held)
      links.push({ segments: index + 1, name })
      held = []
      length = 0
    }
  }

  return {
    at(count) {
      if (links.length === 0) build()
      const link = links.findLast((one) => one.segments <= count)
      if (link === undefined) return ''
      return link.segments === count ? link.name : follow(link.name, traces.slice(link.segments, count))
    },
  }
}

function follow(before: string, traces: readonly string[]): string {
  return sha256(`${before}\u0002${traces.join('\u0002')}`)
}

/** Returns everything of a message that a model sees, as one text. */
function traceOf(message: Message): string {
  return `${message.role}\u0003${message.parts.map(traceOfPart).join('\u0003')}`
}

function traceOfPart(part: Part): string {
  switch (part.type) {
    case 'text':
    case 'thinking':
      return `${part.type}\u0004${part.text}`
    case 'image':
    case 'document':
      return `${part.type}\u0004${traceOfSource(part.source)}`
    case 'tool-call':
      return `call\u0004${part.id}\u0004${part.name}\u0004${part.input}`
    case 'tool-result':
      return `result\u0004${part.callId}\u0004${part.content.map(traceOfPart).join('\u0005')}`
    case 'opaque':
      return `opaque\u0004${JSON.stringify(part.native.value)}`
  }
}

function traceOfSource(source: Source | TextSource): string {
  switch (source.type) {
    case 'base64':
      return digestOf(source, source.data, sha256)
    case 'url':
      return source.url
    case 'file':
      return source.id
    case 'text':
      return source.text
  }
}
