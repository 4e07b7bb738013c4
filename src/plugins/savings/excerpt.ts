import { LRUCache } from 'lru-cache'
import { type MaybePromise, measureInSlices, type Pause } from '../../core/async.ts'
import type { Meter } from '../../core/ports.ts'
import { hasOnlyToolResults, textOfMessage, editText } from '../../core/messages.ts'
import {
  fingerprintOf,
  type Message,
  type Part,
  textOfPart,
  type TextPart,
  type ToolResultPart,
} from '../../core/prompt.ts'
import { hasStandingInstruction, type Segment } from './conversation.ts'
import { editMessage, editResult, isEditable } from './edit-message.ts'
import { termsOf } from './keywords.ts'
import { TermCollector, type TermCounts, type TermParts } from './term-counts.ts'

interface TextLocation {
  readonly message: number
  readonly part: number
  /** Index in the content of a tool result, or -1 for other parts. */
  readonly piece: number
}

export interface Snippet {
  readonly location: TextLocation
  readonly start: number
  readonly end: number
  readonly tokens: number
  /** Prevents the selection of repeated text. */
  readonly fingerprint: number
}

export interface SegmentAnalysis {
  readonly counts: TermCounts
  readonly snippets: readonly Snippet[]
  /** Indexes of the snippets that contain each term of `counts`. */
  readonly termSnippets: TermParts
  /** Estimated tokens of an excerpt without snippets: calls, arguments and overhead. */
  readonly skeletonTokens: number
  readonly hasStandingInstruction: boolean
}

export type AnalyzeSegment = (segment: Segment, owner: string) => MaybePromise<SegmentAnalysis>

const SNIPPET_TOKENS = 80
const MULTI_TEXT_SNIPPET_TOKENS = 512
const MAX_LINE_LENGTH = 400
/** Longer user messages are pasted documents, which may be excerpted. */
const MAX_UNDIVIDED_LENGTH = 4000
const MAX_CACHED_BYTES = 48 * 1024 * 1024
const BYTES_PER_SNIPPET = 160
const BYTES_PER_ANALYSIS = 800
/** Four numbers of `TermCounts` and `TermParts`. */
const BYTES_PER_TERM = 16

export function createSegmentAnalyzer(meter: Pick<Meter, 'tokenizer' | 'fingerprintOf'>, pause: Pause): AnalyzeSegment {
  const { estimate } = meter.tokenizer
  const cache = new LRUCache<string, SegmentAnalysis>({
    maxSize: MAX_CACHED_BYTES,
    sizeCalculation: ({ snippets, counts, termSnippets }) =>
      BYTES_PER_ANALYSIS +
      BYTES_PER_SNIPPET * snippets.length +
      BYTES_PER_TERM * counts.terms.length +
      4 * termSnippets.parts.length,
  })
  const analyze = async (segment: Segment, key: string): Promise<SegmentAnalysis> => {
    const analysis = await analyzeSegment(segment, estimate, pause)
    cache.set(key, analysis)
    return analysis
  }
  return (segment, owner) => {
    const key = `${owner} ${segment.messages.map((message) => cacheKeyOf(message, meter)).join(';')}`
    return cache.get(key) ?? analyze(segment, key)
  }
}

function cacheKeyOf(message: Message, meter: Pick<Meter, 'fingerprintOf'>): string {
  const parts = message.parts.map((part) => {
    const pieces = part.type === 'tool-result' ? part.content : [part]
    return `${part.type}${pieces.map((piece) => `${piece.type}${textOfPart(piece).length}`).join('+')}`
  })
  return `${message.role}${parts.join()} ${meter.fingerprintOf(message) ?? fingerprintOf(textOfMessage(message))}`
}

interface AnalysisInProgress {
  readonly snippets: Snippet[]
  readonly terms: TermCollector
}

async function analyzeSegment(
  segment: Segment,
  estimate: (text: string) => number,
  pause: Pause,
): Promise<SegmentAnalysis> {
  const texts = segment.messages.flatMap(textsOf)
  const textLength = texts.reduce((sum, { text }) => sum + text.length, 0)
  const analysis: AnalysisInProgress = { snippets: [], terms: new TermCollector(textLength) }
  for (const { text, location, maxTokens } of texts) {
    const tokensPerUnit = (await measureInSlices(text, estimate, pause)) / Math.max(1, text.length)
    for (let start = 0; start < text.length;) {
      await pause()
      const end = toCharacterBoundary(text, Math.min(text.length, start + SLICE_LENGTH))
      if (maxTokens > 0) addSnippets({ text, from: start, to: end, location, tokensPerUnit, maxTokens }, analysis)
      else analysis.terms.add(termsOf(text.slice(start, end)))
      start = end
    }
  }
  const { counts, termParts } = await analysis.terms.countWithPauses(pause)
  return {
    counts,
    termSnippets: termParts,
    snippets: analysis.snippets,
    skeletonTokens: skeletonTokens(segment, estimate),
    hasStandingInstruction: hasStandingInstruction(segment),
  }
}

const SLICE_LENGTH = 16_384

/** Moves the end back by one if it would split a surrogate pair. */
export function toCharacterBoundary(text: string, end: number): number {
  const unit = text.charCodeAt(end)
  return unit >= 0xdc00 && unit < 0xe000 ? end - 1 : end
}

interface SearchedText {
  readonly text: string
  readonly location: TextLocation
  readonly maxTokens: number
}

/** Excludes reasoning, because most upstreams drop it from later prompts. */
function textsOf(message: Message, index: number): readonly SearchedText[] {
  const maxTokens = maxSnippetTokens(message)
  return message.parts.flatMap((part, partIndex) => {
    const isToolResult = part.type === 'tool-result'
    const pieces = isToolResult ? part.content : [part]
    return pieces.flatMap((piece, pieceIndex) => {
      const location = { message: index, part: partIndex, piece: isToolResult ? pieceIndex : -1 }
      const text = textOfPart(piece)
      const isSearched = piece.type !== 'thinking' && text !== ''
      return isSearched ? [{ text, location, maxTokens: piece.type === 'text' ? maxTokens : 0 }] : []
    })
  })
}

const MESSAGE_OVERHEAD_TOKENS = 8

function skeletonTokens(segment: Segment, estimate: (text: string) => number): number {
  const overhead = MESSAGE_OVERHEAD_TOKENS * segment.messages.length
  if (segment.kind === 'user') return overhead
  return excerptSegment(segment, []).reduce((sum, message) => sum + estimate(textOfMessage(message)), overhead)
}

function maxSnippetTokens(message: Message): number {
  if (!isEditable(message)) return 0
  if (message.role !== 'user' || hasOnlyToolResults(message)) return SNIPPET_TOKENS
  if (message.parts.some((part) => part.type === 'tool-result')) return 0
  const lengths = message.parts.flatMap((part) => (part.type === 'text' ? [part.text.length] : []))
  if (Math.max(0, ...lengths) > MAX_UNDIVIDED_LENGTH) return SNIPPET_TOKENS
  return lengths.reduce((sum, length) => sum + length, 0) > MAX_UNDIVIDED_LENGTH ? MULTI_TEXT_SNIPPET_TOKENS : 0
}

interface TextSlice extends SearchedText {
  readonly from: number
  readonly to: number
  readonly tokensPerUnit: number
}

function addSnippets(slice: TextSlice, analysis: AnalysisInProgress): void {
  const { text, from, to, location, tokensPerUnit, maxTokens } = slice
  let start = from
  let tokens = 0
  const close = (end: number): void => {
    const lines = text.slice(start, end)
    const terms = termsOf(lines)
    if (terms.length > 0) {
      analysis.terms.add(terms, analysis.snippets.length)
      analysis.snippets.push({ location, start, end, tokens, fingerprint: fingerprintOf(lines.trim()) })
    }
    start = end
    tokens = 0
  }
  for (let position = from; position < to;) {
    const end = Math.min(to, endOfLine(text, position))
    const size = Math.ceil((end - position) * tokensPerUnit)
    if (tokens > 0 && tokens + size > maxTokens) close(position)
    tokens += size
    position = end
  }
  close(to)
}

function endOfLine(text: string, start: number): number {
  const piece = text.slice(start, start + MAX_LINE_LENGTH)
  const lineEnd = piece.indexOf('\n')
  if (lineEnd !== -1) return start + lineEnd + 1
  if (start + MAX_LINE_LENGTH >= text.length) return text.length
  const sentenceEnd = Math.max(...['. ', '? ', '! ', '。'].map((end) => piece.lastIndexOf(end)))
  if (sentenceEnd > MAX_LINE_LENGTH / 4) return start + sentenceEnd + 1
  const wordEnd = piece.lastIndexOf(' ')
  if (wordEnd > MAX_LINE_LENGTH / 4) return start + wordEnd + 1
  return toCharacterBoundary(text, start + MAX_LINE_LENGTH)
}

export const GAP = '[…]'

export function excerptSegment(segment: Segment, snippets: readonly Snippet[]): readonly Message[] {
  return segment.messages.map((message, index) => {
    const messageSnippets = snippets.filter((snippet) => snippet.location.message === index)
    return excerptMessage(message, messageSnippets, segment.kind)
  })
}

function excerptMessage(message: Message, snippets: readonly Snippet[], kind: Segment['kind']): Message {
  if ((kind === 'user' && snippets.length === 0) || !isEditable(message)) return message
  const hasToolResult = message.parts.some((part) => part.type === 'tool-result')
  const parts = message.parts.flatMap((part, partIndex): readonly Part[] => {
    const partSnippets = snippets.filter((snippet) => snippet.location.part === partIndex)
    if (part.type === 'tool-result') return [shortenResult(part, partSnippets)]
    if (part.type !== 'text' || message.role === 'tool' || (message.role === 'user' && hasToolResult)) return [part]
    return shortenText(part, partSnippets)
  })
  if (hasSameParts(parts, message.parts)) return message
  return editMessage(message, parts.length > 0 ? parts : [{ type: 'text', text: GAP }])
}

function shortenText(part: TextPart, snippets: readonly Snippet[]): readonly Part[] {
  if (snippets.length === 0) return []
  const text = joinSnippets(part.text, snippets)
  return [text === part.text ? part : editText(part, text)]
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
  return editResult(part, content)
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
