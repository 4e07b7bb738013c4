import type { Meter } from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import { turnsAhead, type Outlook } from './net.ts'
import type { TierJob } from './tier.ts'
import { isWarm, type History } from './upstream-cache.ts'

/** What is expected of the rest of the conversation, judged by what it was so far. */
export function outlookOf(job: TierJob, history: History, meter: Meter): Outlook {
  return {
    model: job.model,
    turns: turnsAhead(turnsSoFar(job.prompt)),
    growth: growthOf(job, meter),
    staysWarm: history.at === 0 || isWarm(history, job.now),
  }
}

/** Tokens that each turn has added so far. */
export function growthOf({ prompt, tokens }: Pick<TierJob, 'prompt' | 'tokens'>, meter: Meter): number {
  const added = tokens - openingTokens(prompt, meter)
  return Math.max(0, added) / Math.max(1, turnsSoFar(prompt))
}

function turnsSoFar({ messages }: Prompt): number {
  return messages.filter((message) => message.role === 'assistant').length
}

/** Everything before the first answer. */
function openingTokens({ messages }: Prompt, meter: Meter): number {
  const answered = messages.findIndex((message) => message.role === 'assistant')
  const opening = answered === -1 ? messages : messages.slice(0, answered)
  return opening.reduce((sum, message) => sum + meter.estimateOfMessage(message), 0)
}
