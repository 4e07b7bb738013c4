import { asArray, asCount, isJsonObject, parseJson } from '../core/json.ts'
import { type Message, type Part, type Prompt, type TextPart, type ToolResultPart, withParts } from '../core/prompt.ts'
import type { Conversation, Segment, SplitConversation } from './conversation.ts'

export interface TextLocation {
  readonly message: number
  readonly part: number
  /** Index in the content of a tool result, or -1 for other parts. */
  readonly piece: number
}

/** Consecutive lines of a text, the smallest unit of an excerpt. */
export interface Snippet {
  readonly location: TextLocation
  /** Range in the text, in UTF-16 code units. */
  readonly start: number
  readonly end: number
  readonly tokens: number
  readonly terms: Int32Array
  /** Hash of the text. Prevents the selection of repeated text. */
  readonly fingerprint: number
}

/** The messages to send for each segment, unchanged or excerpted. Segments without an entry are omitted. */
export type Selection = ReadonlyMap<Segment, readonly Message[]>

export interface Selected {
  readonly selection: Selection
  readonly picks: ReadonlyMap<Segment, readonly number[]>
  readonly matches: number
}

const GAP = '[…]'

/**
 * Reduces the long texts of a segment to the given snippets. Keeps tool calls and reasoning, and drops images in
 * shortened tool results. Without snippets, only the tool calls remain.
 */
export function excerptSegment(segment: Segment, snippets: readonly Snippet[]): readonly Message[] {
  return segment.messages.map((message, index) => {
    const own = snippets.filter((snippet) => snippet.location.message === index)
    return excerptMessage(message, own, segment.kind)
  })
}

function excerptMessage(message: Message, snippets: readonly Snippet[], kind: Segment['kind']): Message {
  if (kind === 'user' && snippets.length === 0) return message
  const parts = message.parts.flatMap((part, at): readonly Part[] => {
    const own = snippets.filter((snippet) => snippet.location.part === at)
    if (part.type === 'text' && message.role !== 'tool') return shortenText(part, own, message)
    return part.type === 'tool-result' ? [shortenResult(part, own)] : [part]
  })
  if (parts.length === message.parts.length && parts.every((part, at) => part === message.parts[at])) return message
  return withParts(message, parts.length > 0 ? parts : [{ type: 'text', text: GAP }])
}

/** Keeps user text next to tool results unchanged. Drops other text without snippets. */
function shortenText(part: TextPart, snippets: readonly Snippet[], message: Message): readonly Part[] {
  if (message.role === 'user' && message.parts.some((other) => other.type === 'tool-result')) return [part]
  if (snippets.length === 0) return []
  const text = joinSnippets(part.text, snippets)
  return [text === part.text ? part : { type: 'text', text }]
}

function shortenResult(part: ToolResultPart, snippets: readonly Snippet[]): ToolResultPart {
  const remaining = part.content.flatMap((piece, inner): readonly Part[] => {
    const own = snippets.filter((snippet) => snippet.location.piece === inner)
    if (piece.type !== 'text' || own.length === 0) return []
    const text = joinSnippets(piece.text, own)
    return [text === piece.text ? piece : { type: 'text', text }]
  })
  if (remaining.length === part.content.length && remaining.every((piece, at) => piece === part.content[at]))
    return part
  const content: readonly Part[] = remaining.length > 0 ? remaining : [{ type: 'text', text: GAP }]
  return { type: 'tool-result', callId: part.callId, content, failed: part.failed }
}

function joinSnippets(text: string, snippets: readonly Snippet[]): string {
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

/** `index` is the position in the original prompt, or -1 for an inserted message. */
interface IndexedMessage {
  readonly message: Message
  readonly index: number
}

interface Insertions {
  /** Inserted before the first cut segment. Not inserted if empty. */
  readonly notice: string
  /** Index of the last user message at the time of the cut. @default none */
  readonly asked?: number
  readonly blocks?: readonly Block[]
}

/** Earlier parts of the conversation, inserted before the message with the index `before`. */
export interface Block {
  readonly before: number
  readonly text: string
}

/**
 * Returns the prompt reduced to the selection. System messages stay in place. In a format with alternating roles,
 * messages with the same role that become adjacent are joined, except with the last user message.
 */
export function rebuild(prompt: Prompt, turns: SplitConversation, selection: Selection, inserted: Insertions): Prompt {
  const replacements = new Map<number, Message | undefined>()
  const segments = [...turns.old, ...turns.live]
  for (const segment of segments) {
    const messages = selection.get(segment)
    for (const [at, index] of segment.indexes.entries()) replacements.set(index, messages?.[at])
  }
  const noticeIndex = noticeIndexOf(segments, turns, selection)
  const blocks = new Map(inserted.blocks?.map((block) => [block.before, block.text]))
  const indexed: IndexedMessage[] = []
  for (const [index, message] of prompt.messages.entries()) {
    if (index === noticeIndex && inserted.notice !== '') indexed.push(insertedText(inserted.notice))
    const block = blocks.get(index)
    if (block !== undefined) indexed.push(insertedText(block))
    const sent = replacements.has(index) ? replacements.get(index) : message
    if (sent !== undefined) indexed.push({ message: sent, index })
  }
  const unchanged = new Set([turns.live[0]?.indexes[0], inserted.asked, ...blocks.keys()])
  const messages =
    prompt.native.dialect === 'anthropic' ? alternateRoles(indexed, unchanged) : indexed.map(({ message }) => message)
  return { ...prompt, messages }
}

export function isCut(segment: Segment, selection: Selection): boolean {
  const messages = selection.get(segment)
  return messages === undefined || segment.messages.some((message, at) => message !== messages[at])
}

/** Returns the index of the first cut segment, but never after the last user message. */
function noticeIndexOf(
  segments: readonly Segment[],
  turns: SplitConversation,
  selection: Selection,
): number | undefined {
  const firstCut = segments.find((segment) => isCut(segment, selection))?.indexes[0]
  const question = turns.live[0]?.indexes[0]
  return firstCut === undefined || question === undefined ? firstCut : Math.min(firstCut, question)
}

function insertedText(text: string): IndexedMessage {
  return { message: { role: 'user', parts: [{ type: 'text', text }] }, index: -1 }
}

/**
 * Joins messages with the same role that become adjacent. A message that must stay unchanged is separated by a message
 * with the other role instead.
 */
function alternateRoles(
  indexed: readonly IndexedMessage[],
  unchanged: ReadonlySet<number | undefined>,
): readonly Message[] {
  const joined: IndexedMessage[] = []
  for (const next of indexed) {
    const last = joined.at(-1)
    const wereNeighbors = last !== undefined && last.index >= 0 && next.index === last.index + 1
    const isRepeated = last !== undefined && last.message.role === next.message.role && !wereNeighbors
    if (!isRepeated || next.message.role === 'system') joined.push(next)
    else if (unchanged.has(next.index)) joined.push({ message: separatorBefore(next.message), index: -1 }, next)
    else {
      const parts = [...last.message.parts, ...next.message.parts]
      joined[joined.length - 1] = { message: { role: last.message.role, parts }, index: next.index }
    }
  }
  return joined.map(({ message }) => message)
}

function separatorBefore({ role }: Message): Message {
  return { role: role === 'user' ? 'assistant' : 'user', parts: [{ type: 'text', text: GAP }] }
}

/**
 * A cut that later turns repeat, so that the upstream can read the prompt prefix from its cache. Segments from index
 * `from` on are sent unchanged.
 */
export interface Snapshot {
  readonly from: number
  /**
   * One list per sent segment: its index, then -1 if the segment is unchanged, otherwise the indexes of its snippets.
   */
  readonly picks: readonly (readonly number[])[]
  readonly notice: string
  /** Index of the last user message at the time of the cut. A separator inserted before it stays there. */
  readonly asked: number
  /** Blocks selected for individual questions. Never removed, so that the prefix stays the same. */
  readonly blocks: readonly Block[]
  readonly at: number
}

export function snapshotOf(conversation: Conversation, selected: Selected, notice: string, at: number): Snapshot {
  const { segments, turns } = conversation
  const picks = segments.flatMap((segment, index) =>
    selected.selection.has(segment) ? [[index, ...(selected.picks.get(segment) ?? [-1])]] : [],
  )
  return { from: segments.length, picks, notice, asked: turns.live[0]?.indexes[0] ?? -1, blocks: [], at }
}

/** The first segment of the live turn is always unchanged. */
export async function restoreSelection(
  { segments, turns }: Conversation,
  snapshot: Snapshot,
  analyze: (segment: Segment) => Promise<{ readonly snippets: readonly Snippet[] }>,
): Promise<Selection> {
  const selection = new Map<Segment, readonly Message[]>()
  for (const [at, ...picked] of snapshot.picks) {
    const segment = segments[at ?? -1]
    if (segment === undefined) continue
    const snippets = picked[0] === -1 ? undefined : (await analyze(segment)).snippets
    const own = snippets?.filter((_, index) => picked.includes(index))
    selection.set(segment, own === undefined ? segment.messages : excerptSegment(segment, own))
  }
  const question = turns.live.slice(0, 1)
  for (const segment of [...segments.slice(snapshot.from), ...question]) selection.set(segment, segment.messages)
  return selection
}

export function parseSnapshot(text: string | undefined): Snapshot | undefined {
  const value = text === undefined ? undefined : parseJson(text)
  if (!isJsonObject(value)) return undefined
  const from = asCount(value['from'])
  const { notice, asked } = value
  if (from === undefined || typeof notice !== 'string' || typeof asked !== 'number') return undefined
  const picks = asArray(value['picks']).map((pick) => asArray(pick).filter((index) => typeof index === 'number'))
  const blocks = asArray(value['blocks']).flatMap((block) => {
    const { before, text: words } = isJsonObject(block) ? block : {}
    return typeof before === 'number' && typeof words === 'string' ? [{ before, text: words }] : []
  })
  return { from, picks, notice, asked, blocks, at: asCount(value['at']) ?? 0 }
}
