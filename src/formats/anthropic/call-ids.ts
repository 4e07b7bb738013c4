import type { Message, Part } from '../../core/prompt.ts'

/**
 * The messages with ids of tool calls as this format wants them: letters, digits, `_` and `-` only, and never the same
 * id for two calls of a conversation. Chat clients number their calls anew in each turn, or name them by the function.
 */
export function withUniqueCalls(messages: readonly Message[]): readonly Message[] {
  const taken = new Set<string>()
  /** From an id as the caller wrote it to the one of its latest call. */
  const latest = new Map<string, string>()
  return messages.map((message) => {
    const parts = message.parts.map((part) => renamed(part, taken, latest))
    return parts.every((part, index) => part === message.parts[index]) ? message : { ...message, parts }
  })
}

function renamed(part: Part, taken: Set<string>, latest: Map<string, string>): Part {
  if (part.type === 'tool-call') {
    const id = freeId(part.id, taken)
    taken.add(id)
    latest.set(part.id, id)
    return id === part.id ? part : { ...part, id }
  }
  if (part.type !== 'tool-result') return part
  const callId = latest.get(part.callId) ?? part.callId
  return callId === part.callId ? part : { ...part, callId }
}

function freeId(id: string, taken: ReadonlySet<string>): string {
  const safe = id.replace(/[^\w-]/g, '_') || 'call'
  if (!taken.has(safe)) return safe
  let next = 2
  while (taken.has(`${safe}_${next}`)) next++
  return `${safe}_${next}`
}
