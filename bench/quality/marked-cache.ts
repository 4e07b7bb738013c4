import { NO_USAGE, type Usage } from '../../src/core/answer.ts'
import { textOfMessage, type Part, type Prompt } from '../../src/core/prompt.ts'
import { meter } from './lab.ts'

/** How long the vendor keeps a prefix after its last use. */
const CACHE_MS = 5 * 60 * 1000
/** Shorter prefixes are not cached. */
const SHORTEST = 1024

/** A vendor that caches marked prefixes only, each until five minutes after its last use. */
export interface MarkedCache {
  /** The usage of a prompt's tokens, by the gateway's own estimate. */
  usageOf(sent: Prompt, now: number): Usage
}

export function createMarkedCache(): MarkedCache {
  const usedAt = new Map<string, number>()
  return {
    usageOf: (sent, now) => {
      let name = ''
      let size = 0
      let read = 0
      let written = 0
      for (const message of sent.messages) {
        name = `${name}\u0000${message.role}\u0001${textOfMessage(message)}`
        size += meter.estimateOfMessage(message)
        if (!message.parts.some(isMarked) || size < SHORTEST) continue
        if (now - (usedAt.get(name) ?? -Infinity) <= CACHE_MS) read = size
        else written = size
        usedAt.set(name, now)
      }
      const cached = Math.max(read, written)
      return { ...NO_USAGE, cacheReadTokens: read, cacheWriteTokens: cached - read, inputTokens: size - cached }
    },
  }
}

function isMarked(part: Part): boolean {
  if (part.type === 'tool-result' && part.content.some(isMarked)) return true
  return part.native?.value['cache_control'] !== undefined
}
