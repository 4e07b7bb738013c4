import { LRUCache } from 'lru-cache'
import { fingerprintOf } from '../core/fingerprint.ts'
import { holdsOnlyToolResults, textOfPart, type Message, type Part } from '../core/prompt.ts'
import { countTerms, type TermCounts } from './keywords.ts'
import { termsOf } from './terms.ts'
import type { Unit } from './turns.ts'

/** Where a text stands in a unit: message, part, and the piece of a tool result's content (-1 elsewhere). */
export interface Spot {
  readonly message: number
  readonly part: number
  readonly piece: number
}

/** Some lines of a text that may stand alone in an excerpt. */
export interface Passage {
  readonly spot: Spot
  /** From which to which UTF-16 unit of the text. */
  readonly start: number
  readonly end: number
  /** An estimate. */
  readonly tokens: number
  /** Each term once. */
  readonly terms: Int32Array
  /** Tells passages of the same text: what was read twice is shown once. */
  readonly mark: number
}

/** What ranking must know of a unit. */
export interface Reading {
  readonly counts: TermCounts
  /** Of the texts that may be excerpted, in their order. */
  readonly passages: readonly Passage[]
}

/** Reads units; what it has read once it remembers for a while. */
export type Reader = (unit: Unit, owner: string) => Reading

const PASSAGE_TOKENS = 80
/** A longer line is cut: at the end of a sentence, of a word, or where it must be. */
const LONGEST_LINE = 400
/** A user's words are kept whole; what is longer is a pasted document. */
const LONGEST_WORDS = 4000
const REMEMBERED_BYTES = 48 * 1024 * 1024
const BYTES_PER_PASSAGE = 160

export function createReader(estimate: (text: string) => number): Reader {
  const remembered = new LRUCache<string, Reading>({
    maxSize: REMEMBERED_BYTES,
    sizeCalculation: (reading) =>
      reading.passages.reduce(
        (sum, one) => sum + BYTES_PER_PASSAGE + 4 * one.terms.length,
        200 + 8 * reading.counts.terms.length,
      ),
  })
  return (unit, owner) => {
    const texts = unit.messages.map((message) => message.parts.map(textOfRanked).join('\n'))
    const shape = unit.messages
      .map((message) => `${message.role}${message.parts.map((part) => part.type).join()}`)
      .join(';')
    const key = `${owner} ${shape} ${texts.map(fingerprintOf).join()}`
    const known = remembered.get(key)
    if (known !== undefined) return known
    const reading = readUnit(unit, texts.join('\n'), estimate)
    remembered.set(key, reading)
    return reading
  }
}

/** Old thoughts are not searched: hardly any upstream shows them to its model again. */
function textOfRanked(part: Part): string {
  return part.type === 'thinking' ? '' : textOfPart(part)
}

function readUnit(unit: Unit, text: string, estimate: (text: string) => number): Reading {
  const passages = unit.messages.flatMap((message, index) =>
    mayBeExcerpted(message) ? passagesOf(message, index, estimate) : [],
  )
  return { counts: countTerms(termsOf(text)), passages }
}

function mayBeExcerpted(message: Message): boolean {
  if (message.role !== 'user' || holdsOnlyToolResults(message)) return true
  const longest = Math.max(...message.parts.map((part) => (part.type === 'text' ? part.text.length : 0)))
  return longest > LONGEST_WORDS && message.parts.every((part) => part.type !== 'tool-result')
}

function passagesOf(message: Message, index: number, estimate: (text: string) => number): Passage[] {
  return message.parts.flatMap((part, at) => {
    if (part.type === 'text') return cutText(part.text, { message: index, part: at, piece: -1 }, estimate)
    if (part.type !== 'tool-result') return []
    return part.content.flatMap((piece, inner) =>
      piece.type === 'text' ? cutText(piece.text, { message: index, part: at, piece: inner }, estimate) : [],
    )
  })
}

function cutText(text: string, spot: Spot, estimate: (text: string) => number): Passage[] {
  const passages: Passage[] = []
  let start = 0
  let tokens = 0
  const close = (end: number): void => {
    const lines = text.slice(start, end)
    const terms = Int32Array.from(new Set(termsOf(lines)))
    if (terms.length > 0) passages.push({ spot, start, end, tokens, terms, mark: fingerprintOf(lines.trim()) })
    start = end
    tokens = 0
  }
  for (let at = 0; at < text.length;) {
    const end = endOfLine(text, at)
    const size = estimate(text.slice(at, end))
    if (tokens > 0 && tokens + size > PASSAGE_TOKENS) close(at)
    tokens += size
    at = end
  }
  close(text.length)
  return passages
}

function endOfLine(text: string, start: number): number {
  const lineEnd = text.indexOf('\n', start)
  const end = lineEnd === -1 ? text.length : lineEnd + 1
  if (end - start <= LONGEST_LINE) return end
  const piece = text.slice(start, start + LONGEST_LINE)
  const sentence = Math.max(
    piece.lastIndexOf('. '),
    piece.lastIndexOf('? '),
    piece.lastIndexOf('! '),
    piece.lastIndexOf('。'),
  )
  if (sentence > LONGEST_LINE / 4) return start + sentence + 1
  const blank = piece.lastIndexOf(' ')
  if (blank > LONGEST_LINE / 4) return start + blank + 1
  const cut = text.charCodeAt(start + LONGEST_LINE)
  return start + LONGEST_LINE - (cut >= 0xdc00 && cut < 0xe000 ? 1 : 0)
}
