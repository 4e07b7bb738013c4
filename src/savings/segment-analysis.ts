import { LRUCache } from 'lru-cache'
import { fingerprintOf } from '../core/digest.ts'
import { measureInSlices, type Pause } from '../core/async.ts'
import { holdsOnlyToolResults, textOfMessage, textOfPart, type Message } from '../core/prompt.ts'
import { excerptSegment, type Snippet, type Spot } from './excerpt.ts'
import { countTerms, type TermCounts } from './keywords.ts'
import { holdsStandingInstruction } from './query.ts'
import { termsOf } from './terms.ts'
import type { Segment } from './conversation.ts'

/** The data of a segment that ranking needs. */
export interface SegmentAnalysis {
  readonly counts: TermCounts
  /** Snippets of the texts that may be excerpted, in order. */
  readonly snippets: readonly Snippet[]
  /** Estimated tokens of an excerpt besides its snippets: calls, arguments and frames. */
  readonly skeletonTokens: number
  /** True if the segment contains a standing instruction. */
  readonly standing: boolean
}

/** Analyzes a segment. Results are cached. */
export type AnalyzeSegment = (segment: Segment, owner: string) => Promise<SegmentAnalysis>

const SNIPPET_TOKENS = 80
/** Maximum tokens of a text that is one snippet in a message of many texts. */
const BLOCK_TOKENS = 512
/** A longer line is cut at the end of a sentence or word if possible. */
const MAX_LINE_LENGTH = 400
/** A user text up to this length is kept whole. A longer text is a pasted document. */
const MAX_WORDS_LENGTH = 4000
const REMEMBERED_BYTES = 48 * 1024 * 1024
const BYTES_PER_SNIPPET = 160

export function createSegmentAnalyzer(estimate: (text: string) => number, pause: Pause): AnalyzeSegment {
  const remembered = new LRUCache<string, SegmentAnalysis>({
    maxSize: REMEMBERED_BYTES,
    sizeCalculation: (analysis) =>
      analysis.snippets.reduce(
        (sum, one) => sum + BYTES_PER_SNIPPET + 4 * one.terms.length,
        200 + 8 * analysis.counts.terms.length,
      ),
  })
  return async (segment, owner) => {
    const key = `${owner} ${segment.messages.map(markOf).join(';')}`
    const known = remembered.get(key)
    if (known !== undefined) return known
    const analysis = await analyzeSegment(segment, estimate, pause)
    remembered.set(key, analysis)
    return analysis
  }
}

/** Differs for messages whose analyses differ, by their texts or by how the texts are divided. */
function markOf(message: Message): string {
  const parts = message.parts.map((part) => {
    const pieces = part.type === 'tool-result' ? part.content : [part]
    return `${part.type}${pieces.map((piece) => `${piece.type}${textOfPart(piece).length}`).join('+')}`
  })
  return `${message.role}${parts.join()} ${fingerprintOf(textOfMessage(message))}`
}

/** Results of an analysis in progress. */
interface Notes {
  readonly snippets: Snippet[]
  readonly terms: number[]
}

/** Each text is tokenized once: the terms of a segment are those of its snippets and of the remaining text. */
async function analyzeSegment(
  segment: Segment,
  estimate: (text: string) => number,
  pause: Pause,
): Promise<SegmentAnalysis> {
  const notes: Notes = { snippets: [], terms: [] }
  for (const { text, spot, most } of segment.messages.flatMap(textsOf)) {
    const perCharacter = (await measureInSlices(text, estimate, pause)) / Math.max(1, text.length)
    for (let at = 0; at < text.length;) {
      await pause()
      const end = endOfSlice(text, at)
      if (most > 0) cutText({ text, from: at, to: end, spot, perCharacter, most }, notes)
      else append(notes.terms, termsOf(text.slice(at, end)))
      at = end
    }
  }
  return {
    counts: countTerms(notes.terms),
    snippets: notes.snippets,
    skeletonTokens: skeletonTokens(segment, estimate),
    standing: holdsStandingInstruction(segment),
  }
}

/** Characters that are read between two pauses. */
const SLICE = 16_384

/** Never cuts a surrogate pair. */
function endOfSlice(text: string, start: number): number {
  const end = Math.min(text.length, start + SLICE)
  const cut = text.charCodeAt(end)
  return cut >= 0xdc00 && cut < 0xe000 ? end - 1 : end
}

interface Found {
  readonly text: string
  readonly spot: Spot
  /** Tokens of a snippet; 0 for a text that is not divided. */
  readonly most: number
}

/** The texts of a message that are searched. Old thoughts are not: hardly any upstream shows them to its model again. */
function textsOf(message: Message, index: number): readonly Found[] {
  const most = passageTokens(message)
  return message.parts.flatMap((part, at) => {
    const inResult = part.type === 'tool-result'
    const pieces = inResult ? part.content : [part]
    return pieces.flatMap((piece, inner) => {
      const spot = { message: index, part: at, piece: inResult ? inner : -1 }
      const found = { text: textOfPart(piece), spot, most: piece.type === 'text' ? most : 0 }
      return piece.type === 'thinking' || found.text === '' ? [] : [found]
    })
  })
}

/** A loop, because a spread call would put every term on the stack. */
function append(terms: number[], more: readonly number[]): void {
  for (const term of more) terms.push(term)
}

const MESSAGE_FRAME = 8

function skeletonTokens(segment: Segment, estimate: (text: string) => number): number {
  const frames = MESSAGE_FRAME * segment.messages.length
  if (segment.kind === 'user') return frames
  return excerptSegment(segment, []).reduce((sum, message) => sum + estimate(textOfMessage(message)), frames)
}

/** Returns the maximum tokens of the snippets of a message; 0 for a text that is kept whole or not at all. */
function passageTokens(message: Message): number {
  if (message.role !== 'user' || holdsOnlyToolResults(message)) return SNIPPET_TOKENS
  if (message.parts.some((part) => part.type === 'tool-result')) return 0
  const texts = message.parts.flatMap((part) => (part.type === 'text' ? [part.text.length] : []))
  if (Math.max(0, ...texts) > MAX_WORDS_LENGTH) return SNIPPET_TOKENS
  return texts.reduce((sum, length) => sum + length, 0) > MAX_WORDS_LENGTH ? BLOCK_TOKENS : 0
}

interface Stretch {
  readonly text: string
  readonly from: number
  readonly to: number
  readonly spot: Spot
  readonly perCharacter: number
  readonly most: number
}

function cutText({ text, from, to, spot, perCharacter, most }: Stretch, notes: Notes): void {
  let start = from
  let tokens = 0
  const close = (end: number): void => {
    const lines = text.slice(start, end)
    const said = termsOf(lines)
    append(notes.terms, said)
    const terms = Int32Array.from(new Set(said))
    if (terms.length > 0) notes.snippets.push({ spot, start, end, tokens, terms, mark: fingerprintOf(lines.trim()) })
    start = end
    tokens = 0
  }
  for (let at = from; at < to;) {
    const end = Math.min(to, endOfLine(text, at))
    const size = Math.ceil((end - at) * perCharacter)
    if (tokens > 0 && tokens + size > most) close(at)
    tokens += size
    at = end
  }
  close(to)
}

function endOfLine(text: string, start: number): number {
  const piece = text.slice(start, start + MAX_LINE_LENGTH)
  const lineEnd = piece.indexOf('\n')
  if (lineEnd !== -1) return start + lineEnd + 1
  if (start + MAX_LINE_LENGTH >= text.length) return text.length
  const sentence = Math.max(
    piece.lastIndexOf('. '),
    piece.lastIndexOf('? '),
    piece.lastIndexOf('! '),
    piece.lastIndexOf('。'),
  )
  if (sentence > MAX_LINE_LENGTH / 4) return start + sentence + 1
  const blank = piece.lastIndexOf(' ')
  if (blank > MAX_LINE_LENGTH / 4) return start + blank + 1
  const cut = text.charCodeAt(start + MAX_LINE_LENGTH)
  return start + MAX_LINE_LENGTH - (cut >= 0xdc00 && cut < 0xe000 ? 1 : 0)
}
