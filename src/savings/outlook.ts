import type { Meter } from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import { turnsAhead, type Outlook } from './net.ts'
import type { TierJob } from './tier.ts'
import { isWarm, type History } from './upstream-cache.ts'

const RECENT_TURNS = 10

/** What is expected of the rest of the conversation, judged by what it was so far. */
export function outlookOf(job: TierJob, history: History, meter: Meter): Outlook {
  return {
    model: job.model,
    turns: turnsAhead(turnsSoFar(job.prompt)),
    growth: growthOf(job, meter),
    staysWarm: history.at === 0 || isWarm(history, job.now),
  }
}

/** Tokens that each of the last turns has added: what an agent reads differs from one part of its work to the next. */
export function growthOf({ prompt: { messages }, tokens }: Pick<TierJob, 'prompt' | 'tokens'>, meter: Meter): number {
  const answers = messages.flatMap(({ role }, at) => (role === 'assistant' ? [at] : []))
  const from = answers.at(-RECENT_TURNS)
  if (from === undefined && answers.length === 0) return 0
  const recent = messages.slice(from ?? answers[0])
  const added = recent.reduce((sum, message) => sum + meter.estimateOfMessage(message), 0)
  return Math.min(added, tokens) / Math.min(answers.length, RECENT_TURNS)
}

/** Answers in a conversation. */
export function turnsSoFar({ messages }: Prompt): number {
  return messages.filter((message) => message.role === 'assistant').length
}
