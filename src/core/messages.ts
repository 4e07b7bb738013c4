import { type Message, type Part, textOfPart } from './prompt.ts'

export function textOfMessage(message: Message): string {
  return message.parts.map(textOfPart).join('\n')
}

/** Removes `native`, which would be sent instead of the new parts. */
export function withParts(message: Message, parts: readonly Part[]): Message {
  return { role: message.role, parts }
}

export function hasOnlyToolResults(message: Message): boolean {
  return message.parts.length > 0 && message.parts.every((part) => part.type === 'tool-result')
}

export function lastUserIndex(messages: readonly Message[]): number {
  return messages.findLastIndex((message) => message.role === 'user' && !hasOnlyToolResults(message))
}
