import type { Meter } from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import { breathe } from './breathe.ts'

/** The number of characters that are estimated without a pause: a few milliseconds. */
const SLICE = 131_072

/**
 * Estimates the messages of a prompt with pauses for the event loop. The meter remembers each estimate, so `estimateOf`
 * only adds afterwards: thousands of texts would otherwise be estimated within one turn.
 */
export async function estimateInTurns({ messages }: Pick<Prompt, 'messages'>, meter: Meter): Promise<void> {
  let estimated = 0
  for (const message of messages) {
    meter.estimateOfMessage(message)
    for (const part of message.parts) estimated += part.type === 'text' ? part.text.length : 0
    if (estimated < SLICE) continue
    estimated = 0
    await breathe()
  }
}
