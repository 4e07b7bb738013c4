import type { Message, Part } from '../../core/prompt.ts'

/**
 * The messages with ids of tool calls as this format wants them: letters, digits, `_` and `-` only, and never the same
 * id for two calls of a conversation. Chat clients number their calls from the start in each turn, or name them by the function.
 */
export function withUniqueCalls(messages: readonly Message[]): readonly Message[] {
  const names: Names = { taken: new Set(), latest: new Map(), numbers: new Map() }
  return messages.map((message) => {
    const parts = message.parts.map((part) => renamed(part, names))
    return parts.every((part, index) => part === message.parts[index]) ? message : { ...message, parts }
  })
}

interface Names {
  readonly taken: Set<string>
  /** From an id as the caller wrote it to the one of its latest call. */
  readonly latest: Map<string, string>
  /** The last number that was added to an id: a conversation of thousands of equal ones stays linear. */
  readonly numbers: Map<string, number>
}

function renamed(part: Part, names: Names): Part {
  if (part.type === 'tool-call') {
    const id = freeId(part.id, names)
    names.taken.add(id)
    names.latest.set(part.id, id)
    return id === part.id ? part : { ...part, id }
  }
  if (part.type !== 'tool-result') return part
  const callId = names.latest.get(part.callId) ?? part.callId
  return callId === part.callId ? part : { ...part, callId }
}

function freeId(id: string, { taken, numbers }: Names): string {
  const safe = id.replace(/[^\w-]/g, '_') || 'call'
  if (!taken.has(safe)) return safe
  let next = numbers.get(safe) ?? 2
  while (taken.has(`${safe}_${next}`)) next++
  numbers.set(safe, next)
  return `${safe}_${next}`
}
