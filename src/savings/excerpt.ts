import { asArray, asCount, isJsonObject, parseJson } from '../core/json.ts'
import { type Message, type Part, type Prompt, type TextPart, type ToolResultPart, withParts } from '../core/prompt.ts'
import {
  type Conversation,
  type ConversationMemory,
  conversationOf,
  recallLatest,
  rememberLatest,
  type Segment,
} from './conversation.ts'
import type { TierJob } from './tier.ts'

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

export interface SelectionResult {
  readonly selection: Selection
  /** Indexes of the selected snippets of each excerpted segment. */
  readonly picks: ReadonlyMap<Segment, readonly number[]>
  /** Number of segments that match the query. */
  readonly matches: number
}

const GAP = '[…]'

/**
 * Reduces the long texts of a segment to the given snippets. Keeps tool calls and reasoning, and drops images in tool
 * results. Without snippets, drops all texts. Exception: a user segment without snippets stays unchanged.
 */
export function excerptSegment(segment: Segment, snippets: readonly Snippet[]): readonly Message[] {
  return segment.messages.map((message, index) => {
    const messageSnippets = snippets.filter((snippet) => snippet.location.message === index)
    return excerptMessage(message, messageSnippets, segment.kind)
  })
}

function excerptMessage(message: Message, snippets: readonly Snippet[], kind: Segment['kind']): Message {
  if (kind === 'user' && snippets.length === 0) return message
  const hasToolResult = message.parts.some((part) => part.type === 'tool-result')
  const parts = message.parts.flatMap((part, partIndex): readonly Part[] => {
    const partSnippets = snippets.filter((snippet) => snippet.location.part === partIndex)
    if (part.type === 'tool-result') return [shortenResult(part, partSnippets)]
    if (part.type === 'thinking') return isDetached(partIndex, message, snippets) ? [] : [part]
    // User text next to tool results stays unchanged.
    if (part.type !== 'text' || message.role === 'tool' || (message.role === 'user' && hasToolResult)) return [part]
    return shortenText(part, partSnippets)
  })
  if (hasSameParts(parts, message.parts)) return message
  return withParts(message, parts.length > 0 ? parts : [{ type: 'text', text: GAP }])
}

/**
 * Returns true for reasoning in the responses format if the excerpt omits all texts up to the next reasoning or the end.
 * The vendor rejects reasoning that is not followed by its text or call.
 */
function isDetached(index: number, { role, parts }: Message, snippets: readonly Snippet[]): boolean {
  if (role !== 'assistant' || parts[index]?.native?.dialect !== 'responses') return false
  const next = parts.findIndex(({ type }, at) => {
    return at > index && (type !== 'text' || snippets.some(({ location }) => location.part === at))
  })
  return next !== index + 1 && (next === -1 ? index + 1 < parts.length : parts[next]?.type === 'thinking')
}

function shortenText(part: TextPart, snippets: readonly Snippet[]): readonly Part[] {
  if (snippets.length === 0) return []
  const text = joinSnippets(part.text, snippets)
  return [text === part.text ? part : { type: 'text', text }]
}

function hasSameParts(parts: readonly Part[], others: readonly Part[]): boolean {
  return parts.length === others.length && parts.every((part, index) => part === others[index])
}

function shortenResult(part: ToolResultPart, snippets: readonly Snippet[]): ToolResultPart {
  const remaining = part.content.flatMap((piece, pieceIndex): readonly Part[] => {
    const pieceSnippets = snippets.filter((snippet) => snippet.location.piece === pieceIndex)
    return piece.type === 'text' ? shortenText(piece, pieceSnippets) : []
  })
  if (hasSameParts(remaining, part.content)) return part
  const content: readonly Part[] = remaining.length > 0 ? remaining : [{ type: 'text', text: GAP }]
  return { type: 'tool-result', callId: part.callId, content, failed: part.failed }
}

function joinSnippets(text: string, snippets: readonly Snippet[]): string {
  const pieces: string[] = []
  let position = 0
  for (const { start, end } of snippets.toSorted((a, b) => a.start - b.start)) {
    if (start > position) pieces.push(position === 0 ? `${GAP}\n` : `\n${GAP}\n`)
    pieces.push(text.slice(start, end))
    position = end
  }
  const remainder = text.slice(position)
  pieces.push(remainder.trim() === '' ? remainder : `\n${GAP}`)
  return pieces.join('')
}

/** `index` is the index in the original prompt, or -1 for an inserted message. */
interface IndexedMessage {
  readonly message: Message
  readonly index: number
}

/** Earlier parts of the conversation, inserted before the message with the index `before`. */
export interface Block {
  readonly before: number
  readonly text: string
}

/**
 * Returns the prompt reduced to the selection. System messages stay in place. In a format with alternating roles,
 * messages with the same role that become adjacent are merged. The last user message is never merged.
 */
export function rebuildPrompt(
  { prompt, segments, turns }: Conversation,
  selection: Selection,
  { notice, questionIndexAtCut, blocks = [] }: Pick<Snapshot, 'notice'> & Partial<Snapshot>,
): Prompt {
  const replacements = new Map<number, Message | undefined>()
  for (const segment of segments) {
    const messages = selection.get(segment)
    for (const [position, index] of segment.indexes.entries()) replacements.set(index, messages?.[position])
  }
  const questionIndex = turns.live[0]?.indexes[0]
  const firstCut = segments.find((segment) => isCut(segment, selection))?.indexes[0]
  /** Never after the last user message. */
  const noticeIndex =
    firstCut === undefined || questionIndex === undefined ? firstCut : Math.min(firstCut, questionIndex)
  const blockTexts = new Map(blocks.map((block) => [block.before, block.text]))
  const indexed: IndexedMessage[] = []
  for (const [index, message] of prompt.messages.entries()) {
    if (index === noticeIndex && notice !== '') indexed.push(toInsertion(notice))
    const block = blockTexts.get(index)
    if (block !== undefined) indexed.push(toInsertion(block))
    const sent = replacements.has(index) ? replacements.get(index) : message
    if (sent !== undefined) indexed.push({ message: sent, index })
  }
  const unchanged = new Set([questionIndex, questionIndexAtCut, ...blockTexts.keys()])
  const messages =
    prompt.native.dialect === 'anthropic' ? alternateRoles(indexed, unchanged) : indexed.map(({ message }) => message)
  return { ...prompt, messages }
}

export function isCut(segment: Segment, selection: Selection): boolean {
  const messages = selection.get(segment)
  return messages === undefined || segment.messages.some((message, index) => message !== messages[index])
}

function toInsertion(text: string): IndexedMessage {
  return { message: { role: 'user', parts: [{ type: 'text', text }] }, index: -1 }
}

/**
 * Merges messages with the same role that become adjacent. A message that must stay unchanged is separated by a message
 * with the other role instead.
 */
function alternateRoles(
  indexed: readonly IndexedMessage[],
  unchanged: ReadonlySet<number | undefined>,
): readonly Message[] {
  const merged: IndexedMessage[] = []
  for (const next of indexed) {
    const last = merged.at(-1)
    const wereNeighbors = last !== undefined && last.index >= 0 && next.index === last.index + 1
    const isRepeated = last !== undefined && last.message.role === next.message.role && !wereNeighbors
    if (!isRepeated || next.message.role === 'system') merged.push(next)
    else if (unchanged.has(next.index)) {
      const role = next.message.role === 'user' ? 'assistant' : 'user'
      merged.push({ message: { role, parts: [{ type: 'text', text: GAP }] }, index: -1 }, next)
    } else {
      const parts = [...last.message.parts, ...next.message.parts]
      merged[merged.length - 1] = { message: { role: last.message.role, parts }, index: next.index }
    }
  }
  return merged.map(({ message }) => message)
}

/**
 * A cut that later turns repeat, so that the upstream can read the prompt prefix from its cache. Segments from index
 * `from` on are sent unchanged.
 */
export interface Snapshot {
  readonly from: number
  /** One list per sent segment: its index, then -1 if the segment is unchanged, otherwise its snippets' indexes. */
  readonly picks: readonly (readonly number[])[]
  readonly notice: string
  /** Index of the last user message at the time of the cut. A separator inserted before it stays there. */
  readonly questionIndexAtCut: number
  /** Blocks selected for individual questions. Never removed, so that the prefix stays the same. */
  readonly blocks: readonly Block[]
  /** Time of the last use, in milliseconds since 1970. */
  readonly at: number
}

export async function rememberCut(
  memory: ConversationMemory,
  job: TierJob,
  kind: string,
  { result, notice }: { readonly result: SelectionResult; readonly notice: string },
): Promise<void> {
  const { segments, turns } = conversationOf(job.prompt)
  const picks = segments.flatMap((segment, index) =>
    result.selection.has(segment) ? [[index, ...(result.picks.get(segment) ?? [-1])]] : [],
  )
  const questionIndexAtCut = turns.live[0]?.indexes[0] ?? -1
  const snapshot: Snapshot = { from: segments.length, picks, notice, questionIndexAtCut, blocks: [], at: job.now }
  await rememberLatest(memory, job, kind, JSON.stringify(snapshot))
}

/** The first segment of the live turn is always unchanged. */
export async function restoreSelection(
  { segments, turns }: Conversation,
  snapshot: Snapshot,
  analyze: (segment: Segment) => Promise<{ readonly snippets: readonly Snippet[] }>,
): Promise<Selection> {
  const selection = new Map<Segment, readonly Message[]>()
  for (const [segmentIndex, ...snippetIndexes] of snapshot.picks) {
    const segment = segments[segmentIndex ?? -1]
    if (segment === undefined) continue
    if (snippetIndexes[0] === -1) selection.set(segment, segment.messages)
    else {
      const { snippets } = await analyze(segment)
      const picked = snippets.filter((_, index) => snippetIndexes.includes(index))
      selection.set(segment, excerptSegment(segment, picked))
    }
  }
  const question = turns.live.slice(0, 1)
  for (const segment of [...segments.slice(snapshot.from), ...question]) selection.set(segment, segment.messages)
  return selection
}

export async function recallSnapshot(
  memory: ConversationMemory,
  job: TierJob,
  kind: string,
): Promise<Snapshot | undefined> {
  const text = await recallLatest(memory, job, kind)
  const value = text === undefined ? undefined : parseJson(text)
  if (!isJsonObject(value)) return undefined
  const from = asCount(value['from'])
  const { notice, questionIndexAtCut } = value
  if (from === undefined || typeof notice !== 'string' || typeof questionIndexAtCut !== 'number') return undefined
  const picks = asArray(value['picks']).map((pick) => asArray(pick).filter((index) => typeof index === 'number'))
  const blocks = asArray(value['blocks']).flatMap((block) => {
    const { before, text: blockText } = isJsonObject(block) ? block : {}
    return typeof before === 'number' && typeof blockText === 'string' ? [{ before, text: blockText }] : []
  })
  return { from, picks, notice, questionIndexAtCut, blocks, at: asCount(value['at']) ?? 0 }
}
