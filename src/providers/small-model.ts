import { NO_USAGE, type Completion, type Usage } from '../core/answer.ts'
import { costOf } from '../core/money.ts'
import type { Runtime, Timeouts } from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import type { SmallModel } from '../savings/tier.ts'
import type { Candidate } from './retry.ts'

export interface SmallModelOptions {
  readonly runtime: Runtime
  readonly timeouts: Timeouts
  /** The longest a question may take, in milliseconds; a tier that cannot wait so long gives a signal. @default 30_000 */
  readonly deadlineMs?: number
}

type Question = Parameters<SmallModel['ask']>[0]

/**
 * The cheap model that the tiers ask beside a request's own: one of the same family at the same provider, so that data
 * never leaves the family. Undefined where there is none.
 */
export function smallModelFor(route: Candidate, options: SmallModelOptions): SmallModel | undefined {
  const { provider, model } = route
  const small = model.small === undefined ? undefined : provider.model(model.small)
  if (small === undefined || small.family !== model.family) return undefined
  return createSmallModel({ provider, model: small }, options)
}

/** A model as a tier sees it: an instruction and a text in, words and what they cost out. */
export function createSmallModel(route: Candidate, options: SmallModelOptions): SmallModel {
  const { provider, model } = route
  const { runtime, timeouts, deadlineMs = 30_000 } = options
  return {
    name: `${provider.name}/${model.id}`,
    async ask(question) {
      const { answer } = await provider.complete({
        prompt: promptFor(question, route),
        model,
        runtime,
        signal: question.signal,
        timeouts: { ...timeouts, total: Math.min(timeouts.total, deadlineMs) },
        headers: {},
      })
      const text = textOf(answer)
      return { text, spent: costOf(answer.usage ?? estimate(question, text), model.price) }
    },
    price: (promptTokens, outputTokens) =>
      costOf({ ...NO_USAGE, inputTokens: promptTokens, outputTokens }, model.price),
  }
}

/**
 * The instruction as system text, the text as the user's. Short answers leave no room for thinking, so that is switched
 * off where the model says how.
 */
function promptFor(question: Question, { provider, model }: Candidate): Prompt {
  return {
    // A format that no caller speaks is written from the canonical prompt alone.
    native:
      provider.dialect === 'gemini'
        ? { dialect: 'openai', value: {} }
        : { dialect: provider.dialect, value: { ...model.withoutThinking } },
    model: model.id,
    messages: [
      { role: 'system', parts: [{ type: 'text', text: question.instruction }] },
      { role: 'user', parts: [{ type: 'text', text: question.text }] },
    ],
    settings: { maxTokens: question.maxTokens, ...(model.refusesSamplers !== true && { temperature: 0 }) },
    tools: [],
    stream: false,
  }
}

function textOf(completion: Completion): string {
  return completion.parts.map((part) => (part.type === 'text' ? part.text : '')).join('')
}

/** For upstreams that do not tell: four characters a token, which is rather too many than too few for prose. */
function estimate(question: Question, text: string): Usage {
  return {
    ...NO_USAGE,
    inputTokens: Math.ceil((question.instruction.length + question.text.length) / 4),
    outputTokens: Math.ceil(text.length / 4),
  }
}
