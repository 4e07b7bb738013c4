/** The digest of the last turn, for limits on its repetition. */
import { sha256 } from '#hash'
import type { Message, Part } from '../core/prompt.ts'

const DIGEST_LENGTH = 24

/**
 * Returns a digest of what the last response called and received, or of what it said and the user answered. Ids differ on
 * each repetition, so they are left out.
 */
export function digestLastTurn(messages: readonly Message[]): string {
  const start = messages.findLastIndex(({ role }) => role === 'assistant')
  const turn = messages.slice(Math.max(0, start))
  const isToolTurn = turn.some(({ parts }) => parts.some(({ type }) => type === 'tool-result'))
  return sha256(JSON.stringify(turn.map((message) => contentOf(message, isToolTurn)))).slice(0, DIGEST_LENGTH)
}

function contentOf({ role, parts }: Message, isToolTurn: boolean): readonly unknown[] {
  const isCallsOnly = isToolTurn && role === 'assistant'
  return parts.filter(({ type }) => type !== 'thinking' && (!isCallsOnly || type === 'tool-call')).map(withoutIds)
}

function withoutIds(part: Part): unknown {
  if (part.type === 'tool-call') return [part.type, part.name, part.input]
  if (part.type === 'tool-result') return [part.type, part.failed, part.content.map(withoutIds)]
  if (part.type === 'text') return part.text
  if (part.type === 'image' || part.type === 'document') return [part.type, part.source]
  const { id: _, call_id: __, ...content } = part.type === 'opaque' ? part.native.value : {}
  return content
}
