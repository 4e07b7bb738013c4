import type { Message } from '../../core/prompt.ts'
import { GAP } from './excerpt.ts'

/** `index` is the index in the original prompt, or -1 for an inserted message. */
export interface IndexedMessage {
  readonly message: Message
  readonly index: number
}

/**
 * Merges newly adjacent messages with the same role. Inserts a gap before one that must stay unchanged or begin with reasoning,
 * and around a system message in the conversation, which the vendor accepts only between a user message and a response.
 */
export function alternateRoles(
  indexed: readonly IndexedMessage[],
  unchanged: ReadonlySet<number | undefined>,
): Message[] {
  const merged: IndexedMessage[] = []
  for (const next of indexed) {
    const wereNeighbors = isNeighbor(merged.at(-1), next)
    if (!wereNeighbors) merged.push(...gapsBefore(merged.at(-1), next).map(gapOf))
    const last = merged.at(-1)
    const isRepeated = last !== undefined && last.message.role === next.message.role && !wereNeighbors
    if (!isRepeated || next.message.role === 'system') merged.push(next)
    else if (unchanged.has(next.index) || next.message.parts[0]?.type === 'thinking') {
      merged.push(gapOf(next.message.role === 'user' ? 'assistant' : 'user'), next)
    } else {
      const parts = [...last.message.parts, ...next.message.parts]
      merged[merged.length - 1] = { message: { role: last.message.role, parts }, index: next.index }
    }
  }
  return merged.map(({ message }) => message)
}

function isNeighbor(last: IndexedMessage | undefined, next: IndexedMessage): boolean {
  return last !== undefined && last.index >= 0 && next.index === last.index + 1
}

function gapOf(role: 'user' | 'assistant'): IndexedMessage {
  return { message: { role, parts: [{ type: 'text', text: GAP }] }, index: -1 }
}

/** The first message is the system prompt, which is not part of the conversation. */
function gapsBefore(last: IndexedMessage | undefined, next: IndexedMessage): readonly ('user' | 'assistant')[] {
  if (last === undefined) return []
  const gaps: ('user' | 'assistant')[] = []
  const isAfterSystem = last.message.role === 'system' && last.index !== 0
  if (isAfterSystem && next.message.role !== 'assistant') gaps.push('assistant')
  const isAfterUser = last.message.role === 'user' || last.message.role === 'tool'
  if (next.message.role === 'system' && !isAfterUser) gaps.push('user')
  return gaps
}
