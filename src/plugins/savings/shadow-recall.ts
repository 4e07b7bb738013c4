import { createPause } from '../../core/async.ts'
import type { Part, Prompt } from '../../core/prompt.ts'
import { type EvidenceLoss, measureLoss, type SentResponse } from './evidence.ts'

/** Measures the evidence that shadow trials would have lost, one trial at a time. */
export interface RecallMeter {
  /** Resolves with undefined if too many trials wait or the prompt is too long. Such work is dropped. */
  measure(trial: SentResponse): Promise<EvidenceLoss | undefined>
}

const MAX_WAITING = 16
/** Maximum length of the texts of a prompt, in characters. */
const MAX_PROMPT_CHARS = 4_000_000

export function createRecallMeter(yieldToEventLoop: () => Promise<void>): RecallMeter {
  const pause = createPause(yieldToEventLoop)
  let last: Promise<unknown> = Promise.resolve()
  let waiting = 0
  return {
    measure: async (trial) => {
      if (waiting >= MAX_WAITING || lengthOf(trial.received) > MAX_PROMPT_CHARS) return undefined
      waiting += 1
      // The response leaves first.
      const measured = last.then(yieldToEventLoop).then(() => measureLoss(trial, pause))
      last = measured.catch(() => {})
      try {
        return await measured
      } finally {
        waiting -= 1
      }
    },
  }
}

function lengthOf({ messages }: Prompt): number {
  return messages.reduce((sum, { parts }) => sum + parts.reduce((length, part) => length + lengthOfPart(part), 0), 0)
}

function lengthOfPart(part: Part): number {
  switch (part.type) {
    case 'text':
      return part.text.length
    case 'tool-call':
      return part.input.length
    case 'tool-result':
      return part.content.reduce((length, inner) => length + lengthOfPart(inner), 0)
    case 'document':
      return part.source.type === 'text' ? part.source.text.length : 0
    default:
      return 0
  }
}
