import { withParts, type Message, type Part, type TextPart, type ToolResultPart } from '../core/prompt.ts'
import type { Unit } from './turns.ts'

/** The position of a text in a unit: message, part, and the piece of a tool result's content (-1 elsewhere). */
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
  /** Equal for passages of the same text: repeated texts are shown once. */
  readonly mark: number
}

/** Replaces the text that an excerpt leaves out. */
export const GAP = '[…]'

/**
 * A unit with only these passages of its long texts. Ids, arguments, thoughts and the rest stay as they are; pictures
 * within a shortened tool result go with what was cut. Without passages only the skeleton is left: who called what.
 */
export function excerptUnit(unit: Unit, passages: readonly Passage[]): readonly Message[] {
  return unit.messages.map((message, index) => {
    const mine = passages.filter((passage) => passage.spot.message === index)
    return excerptMessage(message, mine, unit.kind)
  })
}

function excerptMessage(message: Message, passages: readonly Passage[], kind: Unit['kind']): Message {
  if (kind === 'user' && passages.length === 0) return message
  const parts = message.parts.flatMap((part, at): readonly Part[] => {
    const mine = passages.filter((passage) => passage.spot.part === at)
    if (part.type === 'text' && message.role !== 'tool') return shortenedText(part, mine, message)
    return part.type === 'tool-result' ? [shortenedResult(part, mine)] : [part]
  })
  if (parts.length === message.parts.length && parts.every((part, at) => part === message.parts[at])) return message
  return withParts(message, parts.length > 0 ? parts : [{ type: 'text', text: GAP }])
}

/** A person's words beside tool results stay; other text without a passage goes, or leaves a sign where it was all. */
function shortenedText(part: TextPart, passages: readonly Passage[], message: Message): readonly Part[] {
  if (message.role === 'user' && message.parts.some((other) => other.type === 'tool-result')) return [part]
  if (passages.length === 0) return []
  const text = joined(part.text, passages)
  return [text === part.text ? part : { type: 'text', text }]
}

function shortenedResult(part: ToolResultPart, passages: readonly Passage[]): ToolResultPart {
  const kept = part.content.flatMap((piece, inner): readonly Part[] => {
    const mine = passages.filter((passage) => passage.spot.piece === inner)
    if (piece.type !== 'text' || mine.length === 0) return []
    const text = joined(piece.text, mine)
    return [text === piece.text ? piece : { type: 'text', text }]
  })
  const whole = kept.length === part.content.length && kept.every((piece, at) => piece === part.content[at])
  if (whole) return part
  const content: readonly Part[] = kept.length > 0 ? kept : [{ type: 'text', text: GAP }]
  return { type: 'tool-result', callId: part.callId, content, failed: part.failed }
}

function joined(text: string, passages: readonly Passage[]): string {
  const ordered = passages.toSorted((a, b) => a.start - b.start)
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
