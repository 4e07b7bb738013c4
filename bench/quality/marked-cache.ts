import { NO_USAGE, type Usage } from '../../src/core/money.ts'
import { textOfMessage } from '../../src/core/messages.ts'
import { type Part, type Prompt } from '../../src/core/prompt.ts'
import { meter } from './lab.ts'

/** Time for which the vendor keeps a prefix after its last use. */
const CACHE_MS = 5 * 60 * 1000
/** Minimum length of a cached prefix in tokens. */
const MIN_PREFIX_TOKENS = 1024

/** A simulated vendor that caches only marked prefixes, each until five minutes after its last use. */
export interface MarkedCache {
  /** Returns the usage of a prompt, by the gateway's token estimate. */
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
        size += meter.estimateMessage(message)
        if (!message.parts.some(isMarked) || size < MIN_PREFIX_TOKENS) continue
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
