import { NO_USAGE, type Completion, type Usage } from '../core/answer.ts'
import { costOf } from '../core/money.ts'
import type { Route, Runtime, Timeouts } from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import type { SmallModel } from '../savings/models.ts'

export interface SmallModelOptions {
  readonly runtime: Runtime
  readonly timeouts: Timeouts
  /** Maximum duration of a call in milliseconds. A tier with a shorter deadline passes a signal. @default 30_000 */
  readonly deadlineMs?: number
}

type Question = Parameters<SmallModel['ask']>[0]

export async function askSmallModel(
  question: Question,
  route: Route,
  { runtime, timeouts, deadlineMs = 30_000 }: SmallModelOptions,
): ReturnType<SmallModel['ask']> {
  const { provider, model } = route
  const { answer } = await provider.complete({
    prompt: promptFor(question, route),
    model,
    runtime,
    signal: question.signal,
    timeouts: { ...timeouts, total: Math.min(timeouts.total, deadlineMs) },
    headers: {},
  })
  const text = textOf(answer)
  return { text, spent: costOf(answer.usage ?? estimateUsage(question, text), model.price) }
}

/** Disables reasoning, because the short output limit leaves no tokens for it. */
function promptFor(question: Question, { provider, model }: Route): Prompt {
  return {
    // No client uses the gemini format, so prompts never have that dialect.
    native:
      provider.dialect === 'gemini'
        ? { dialect: 'openai', value: {} }
        : { dialect: provider.dialect, value: { ...model.withoutThinking } },
    model: model.id,
    messages: [
      { role: 'system', parts: [{ type: 'text', text: question.instruction }] },
      { role: 'user', parts: [{ type: 'text', text: question.text }] },
    ],
    settings: { maxTokens: question.maxTokens, ...(model.rejectsSamplingParameters !== true && { temperature: 0 }) },
    tools: [],
    stream: false,
  }
}

function textOf({ parts }: Completion): string {
  return parts.map((part) => (part.type === 'text' ? part.text : '')).join('')
}

/** Estimates the usage of an upstream that reports none, at four characters per token. */
function estimateUsage(question: Question, text: string): Usage {
  return {
    ...NO_USAGE,
    inputTokens: Math.ceil((question.instruction.length + question.text.length) / 4),
    outputTokens: Math.ceil(text.length / 4),
  }
}
