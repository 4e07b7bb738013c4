import { NO_USAGE, type Completion, type Finish, type Step, type Usage } from '../core/answer.ts'
import type { Model } from '../core/model.ts'
import type { ProviderCall } from '../core/ports.ts'
import { lastUserIndex, textOfMessage, type Part, type Prompt, type Tool } from '../core/prompt.ts'
import { stepsOf } from '../core/steps.ts'
import { extractAnswer, extractDigest, splitSentences } from './extract-sentences.ts'
import { fillSchema } from './fill-schema.ts'

/** Answers with the sentences of the prompt that fit the last question best, or with the tool that the caller demands. */
export function answer(call: ProviderCall): Completion {
  const { prompt, model, runtime } = call
  const head = { id: `chatcmpl-${runtime.uuid()}`, model: model.id }
  const tool = demandedTool(prompt)
  if (tool !== undefined) {
    const input = JSON.stringify(fillSchema(tool.parameters, questionOf(prompt)))
    const parts: readonly Part[] = [{ type: 'tool-call', id: `call_${runtime.uuid()}`, name: tool.name, input }]
    return { ...head, parts, finish: 'tool-call', usage: usageOf(prompt, tool.name + input) }
  }
  const { text, ...end } = cut(compose(prompt, model), prompt, model)
  return { ...head, parts: [{ type: 'text', text }], ...end, usage: usageOf(prompt, text) }
}

/** The tool that the caller insists on. */
function demandedTool(prompt: Prompt): Tool | undefined {
  const choice = prompt.settings.toolChoice
  const callable = prompt.tools.filter((tool) => tool.parameters !== undefined)
  if (choice?.type === 'required') return callable[0]
  return choice?.type === 'tool' ? callable.find((tool) => tool.name === choice.name) : undefined
}

function compose(prompt: Prompt, model: Model): string {
  const { shape } = prompt.settings
  if (shape?.type === 'schema') return JSON.stringify(fillSchema(shape.schema, questionOf(prompt)))
  const words = sentencesFor(prompt, model)
  return shape?.type === 'json' ? JSON.stringify({ answer: words }) : words
}

/** A last message that is longer than this and asks nothing is a text to be digested. */
const MAX_QUESTION_LENGTH = 2000
const SENTENCES = 5
/** A digest keeps at most this share of its text. */
const DIGEST_SHARE = 0.25
const CHARACTERS_PER_TOKEN = 4

function sentencesFor(prompt: Prompt, model: Model): string {
  const question = questionOf(prompt)
  const texts = prompt.messages.map(textOfMessage)
  const room = (prompt.settings.maxTokens ?? model.maxOutputTokens) * CHARACTERS_PER_TOKEN
  const sentences = splitSentences(question)
  const query = sentences.findLast((sentence) => /[?？]$/.test(sentence))
  if (query === undefined && question.length > MAX_QUESTION_LENGTH) {
    const characters = Math.min(room, question.length * DIGEST_SHARE)
    return extractDigest([question], { sentences: Infinity, characters }).join(' ')
  }
  const asked = query ?? sentences.at(-1) ?? ''
  const found = extractAnswer(texts, asked, { sentences: SENTENCES, characters: room })
  if (found.length > 0) return found.join(' ')
  return `The conversation says nothing about this: ${asked.slice(0, 200)}`
}

function questionOf(prompt: Prompt): string {
  const message = prompt.messages[lastUserIndex(prompt.messages)]
  return message === undefined ? '' : textOfMessage(message)
}

interface Cut {
  readonly text: string
  readonly finish: Finish
  readonly stopSequence?: string
}

/** Stops before the first stop sequence, or at the answer's limit, whichever comes first. */
function cut(text: string, prompt: Prompt, model: Model): Cut {
  const { stop = [], maxTokens = model.maxOutputTokens } = prompt.settings
  const most = Math.min(maxTokens, model.maxOutputTokens) * CHARACTERS_PER_TOKEN
  const limited = text.length > most ? text.slice(0, most).replace(/[\uD800-\uDBFF]$/, '') : text
  const first = stop
    .map((sequence) => ({ sequence, at: sequence === '' ? -1 : limited.indexOf(sequence) }))
    .filter(({ at }) => at >= 0)
    .toSorted((one, other) => one.at - other.at)[0]
  if (first !== undefined) {
    return { text: limited.slice(0, first.at), finish: 'stop-sequence', stopSequence: first.sequence }
  }
  return { text: limited, finish: limited.length < text.length ? 'length' : 'stop' }
}

/** Four characters a token: the same count for what goes in and what comes out. */
function usageOf(prompt: Prompt, said: string): Usage {
  const texts = [
    ...prompt.messages.map(textOfMessage),
    ...prompt.tools.map((tool) => JSON.stringify(tool.native.value)),
  ]
  const inputTokens = texts.reduce((sum, text) => sum + tokens(text), 0)
  return { ...NO_USAGE, inputTokens: Math.max(1, inputTokens), outputTokens: tokens(said) }
}

export function tokens(text: string): number {
  return Math.ceil(text.length / CHARACTERS_PER_TOKEN)
}

/** The steps of an answer with their text in groups of words, as a model would say it. */
export async function* pieceByPiece(
  completion: Completion,
  signal: AbortSignal,
): AsyncGenerator<Step, void, undefined> {
  for (const step of stepsOf(completion).flatMap(inGroups)) {
    signal.throwIfAborted()
    yield step
  }
}

function inGroups(step: Step): readonly Step[] {
  return step.events.flatMap((event): readonly Step[] => {
    if (event.type !== 'text-delta') return [{ events: [event] }]
    const groups = event.text.match(/(?:\s*\S{1,40}){1,4}\s*/gu) ?? [event.text]
    return groups.map((text) => ({ events: [{ type: 'text-delta', text }] }))
  })
}
