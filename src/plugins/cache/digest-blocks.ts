import { sha256 } from '#hash'
import { digestWithPauses, longBlockDigests } from '../../core/cache.ts'
import type { Prompt } from '../../core/prompt.ts'
import { yieldToEventLoop } from '../../tokens/event-loop.ts'

export function digestBlocks(prompt: Prompt): Promise<void> {
  return digestWithPauses(longBlockDigests(prompt, sha256), yieldToEventLoop)
}
