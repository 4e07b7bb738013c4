import { type Message, type Part, type Prompt, type TextPart, type ToolResultPart, withParts } from '../core/prompt.ts'
import type { Segment, SplitConversation } from './conversation.ts'

/** The position of a text in a segment: message, part, and the piece of a tool result's content (-1 elsewhere). */
export interface Spot {
  readonly message: number
  readonly part: number
  readonly piece: number
}

/** Lines of a text that are readable alone in an excerpt. */
export interface Snippet {
  readonly spot: Spot
  /** Range in UTF-16 units of the text. */
  readonly start: number
  readonly end: number
  /** An estimate. */
  readonly tokens: number
  /** Distinct terms. */
  readonly terms: Int32Array
  /** Equal for snippets with the same text, so that repeated texts are shown once. */
  readonly mark: number
}

/** The messages that replace a segment: its own, or an excerpt. An absent segment is left out. */
export type Selection = ReadonlyMap<Segment, readonly Message[]>

/** Replaces the text that an excerpt leaves out. */
const GAP = '[…]'

/**
 * Returns a segment with only these snippets of its long texts. Ids, arguments and reasoning stay unchanged. Images in
 * a shortened tool result are dropped. Without snippets only the skeleton is left: the tool calls.
 */
export function excerptSegment(segment: Segment, snippets: readonly Snippet[]): readonly Message[] {
  return segment.messages.map((message, index) => {
    const mine = snippets.filter((snippet) => snippet.spot.message === index)
    return excerptMessage(message, mine, segment.kind)
  })
}

function excerptMessage(message: Message, snippets: readonly Snippet[], kind: Segment['kind']): Message {
  if (kind === 'user' && snippets.length === 0) return message
  const parts = message.parts.flatMap((part, at): readonly Part[] => {
    const mine = snippets.filter((snippet) => snippet.spot.part === at)
    if (part.type === 'text' && message.role !== 'tool') return shortenedText(part, mine, message)
    return part.type === 'tool-result' ? [shortenedResult(part, mine)] : [part]
  })
  if (parts.length === message.parts.length && parts.every((part, at) => part === message.parts[at])) return message
  return withParts(message, parts.length > 0 ? parts : [{ type: 'text', text: GAP }])
}

/**
 * User text next to tool results stays. Other text without a snippet is dropped, or replaced by a gap when it was the
 * whole message.
 */
function shortenedText(part: TextPart, snippets: readonly Snippet[], message: Message): readonly Part[] {
  if (message.role === 'user' && message.parts.some((other) => other.type === 'tool-result')) return [part]
  if (snippets.length === 0) return []
  const text = joined(part.text, snippets)
  return [text === part.text ? part : { type: 'text', text }]
}

function shortenedResult(part: ToolResultPart, snippets: readonly Snippet[]): ToolResultPart {
  const kept = part.content.flatMap((piece, inner): readonly Part[] => {
    const mine = snippets.filter((snippet) => snippet.spot.piece === inner)
    if (piece.type !== 'text' || mine.length === 0) return []
    const text = joined(piece.text, mine)
    return [text === piece.text ? piece : { type: 'text', text }]
  })
  const whole = kept.length === part.content.length && kept.every((piece, at) => piece === part.content[at])
  if (whole) return part
  const content: readonly Part[] = kept.length > 0 ? kept : [{ type: 'text', text: GAP }]
  return { type: 'tool-result', callId: part.callId, content, failed: part.failed }
}

function joined(text: string, snippets: readonly Snippet[]): string {
  const ordered = snippets.toSorted((a, b) => a.start - b.start)
  const pieces: string[] = []
  let at = 0
  for (const { start, end } of ordered) {
    if (start > at) pieces.push(at === 0 ? `${GAP}\n` : `\n${GAP}\n`)
    pieces.push(text.slice(start, end))
    at = end
  }
  if (at < text.length && text.slice(at).trim() !== '') pieces.push(`\n${GAP}`)
  else pieces.push(text.slice(at))
  return pieces.join('')
}

/** A message of a rewritten prompt and its position in the original; -1 for a new message. */
interface Placed {
  readonly message: Message
  readonly place: number
}

/** The content that replaces what is left out. */
interface Gap {
  /** The text; empty for none. */
  readonly notice: string
  /** Position of the message that was the last user message when the cut was made. */
  readonly asked?: number
  readonly blocks?: readonly Block[]
}

/** Earlier parts of the conversation, inserted before the message at a position. */
export interface Block {
  readonly before: number
  readonly text: string
}

/**
 * Returns the prompt reduced to the selection. System messages and messages outside of segments stay in place. The
 * notice is inserted before the first cut segment. When the format requires alternating roles, new neighbors of one
 * role are joined, except with the last user message.
 */
export function rebuild(prompt: Prompt, turns: SplitConversation, selection: Selection, gap: Gap): Prompt {
  const instead = new Map<number, Message | undefined>()
  const segments = [...turns.old, ...turns.live]
  for (const segment of segments) {
    const messages = selection.get(segment)
    for (const [index, place] of segment.places.entries()) instead.set(place, messages?.[index])
  }
  const missing = placeOfNotice(segments, turns, selection)
  const blocks = new Map(gap.blocks?.map((block) => [block.before, block.text]))
  const placed: Placed[] = []
  for (const [place, message] of prompt.messages.entries()) {
    if (place === missing && gap.notice !== '') placed.push(added(gap.notice))
    const block = blocks.get(place)
    if (block !== undefined) placed.push(added(block))
    const kept = instead.has(place) ? instead.get(place) : message
    if (kept !== undefined) placed.push({ message: kept, place })
  }
  const asked = new Set([turns.live[0]?.places[0], gap.asked, ...blocks.keys()])
  const messages = prompt.native.dialect === 'anthropic' ? alternate(placed, asked) : placed.map((one) => one.message)
  return { ...prompt, messages }
}

/** Returns true when the segment is left out or excerpted. */
export function isCut(segment: Segment, selection: Selection): boolean {
  const messages = selection.get(segment)
  return messages === undefined || segment.messages.some((message, at) => message !== messages[at])
}

/** Returns the position before the first cut segment, but never after the last user message. */
function placeOfNotice(
  segments: readonly Segment[],
  turns: SplitConversation,
  selection: Selection,
): number | undefined {
  const missing = segments.find((segment) => isCut(segment, selection))?.places[0]
  const asked = turns.live[0]?.places[0]
  return missing === undefined || asked === undefined ? missing : Math.min(missing, asked)
}

function added(text: string): Placed {
  return { message: { role: 'user', parts: [{ type: 'text', text }] }, place: -1 }
}

function alternate(placed: readonly Placed[], asked: ReadonlySet<number | undefined>): readonly Message[] {
  const out: Placed[] = []
  for (const next of placed) {
    const last = out.at(-1)
    const wereNeighbors = last !== undefined && last.place >= 0 && next.place === last.place + 1
    const broken = last !== undefined && last.message.role === next.message.role && !wereNeighbors
    if (!broken || next.message.role === 'system') out.push(next)
    else if (asked.has(next.place)) out.push({ message: bridgeTo(next.message), place: -1 }, next)
    else out[out.length - 1] = { message: join(last.message, next.message), place: next.place }
  }
  return out.map((one) => one.message)
}

/**
 * Roles must alternate and the last user message stays unchanged, so a message of the other role is inserted before it.
 */
function bridgeTo(message: Message): Message {
  return { role: message.role === 'user' ? 'assistant' : 'user', parts: [{ type: 'text', text: GAP }] }
}

function join(first: Message, second: Message): Message {
  return { role: first.role, parts: [...first.parts, ...second.parts] }
}
