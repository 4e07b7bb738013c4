import type { Json } from '../core/json.ts'
import type { Part, Prompt } from '../core/prompt.ts'
import { promptTooLong } from './scan-json.ts'

/**
 * Throws `invalid-request` for a prompt whose text is longer than `limit`, before anything counts its tokens. The scan of
 * the body lets base64 pass, because only the parsed prompt shows whether it is an image or a text.
 */
export function checkPromptLength({ messages, tools }: Prompt, limit: number): void {
  let length = 0
  for (const { parts } of messages) {
    for (const part of parts) length += lengthOf(part)
  }
  for (const { native } of tools) length += lengthInside(native.value)
  if (length > limit) throw promptTooLong(limit)
}

function lengthOf(part: Part): number {
  switch (part.type) {
    case 'text':
    case 'thinking':
      return part.text.length
    case 'tool-call':
      return part.input.length
    case 'tool-result':
      return part.content.reduce((sum, inner) => sum + lengthOf(inner), 0)
    case 'document':
      return part.source.type === 'text' ? part.source.text.length : 0
    case 'image':
    case 'opaque':
      return 0
  }
}

function lengthInside(value: Json | undefined): number {
  if (typeof value === 'string') return value.length
  if (typeof value !== 'object' || value === null) return 0
  const inner: readonly (Json | undefined)[] = Array.isArray(value) ? value : Object.values(value)
  return inner.reduce((sum: number, item) => sum + lengthInside(item), 0)
}
