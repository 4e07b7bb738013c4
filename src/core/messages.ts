import { type Message, type Part, textOfPart, type Native, type TextPart } from './prompt.ts'
import type { JsonObject } from './json.ts'

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

/** Keeps a marker of the vendor's prompt cache. */
export function editText({ native }: TextPart, text: string): TextPart {
  const marker = native?.value['cache_control']
  if (native === undefined || marker === undefined) return { type: 'text', text }
  return { type: 'text', text, native: nativeOf(native, { type: 'text', text, cache_control: marker }) }
}

export function nativeOf({ dialect }: Native, value: JsonObject): Native {
  return { dialect, value }
}
