import { hashEmbedding } from '../cache/hashing.ts'
import { NO_USAGE, type Completion, type Finish, type Step, type Usage } from '../core/answer.ts'
import { GatewayError } from '../core/errors.ts'
import type { Model } from '../core/model.ts'
import type { EmbedCall, Embedded, EmbedInput, ProviderCall } from '../core/ports.ts'
import { lastUserIndex, textOfMessage, type Part, type Prompt, type Tool } from '../core/prompt.ts'
import { stepsOf } from '../core/steps.ts'
import { extractAnswer, extractSummary, splitSentences } from './extract-sentences.ts'
import { fillSchema } from './fill-schema.ts'

/** Returns the sentences of the prompt that match the last question best, or a call of the required tool. */
export function answer(call: ProviderCall): Completion {
  const { prompt, model, runtime } = call
  const head = { id: `chatcmpl-${runtime.uuid()}`, model: model.id }
  const tool = requiredTool(prompt)
  if (tool !== undefined) {
    const input = JSON.stringify(fillSchema(tool.parameters, questionOf(prompt)))
    const parts: readonly Part[] = [{ type: 'tool-call', id: `call_${runtime.uuid()}`, name: tool.name, input }]
    return { ...head, parts, finish: 'tool-call', usage: usageOf(prompt, tool.name + input) }
  }
  const { text, ...end } = truncateAnswer(compose(prompt, model), prompt, model)
  return { ...head, parts: [{ type: 'text', text }], ...end, usage: usageOf(prompt, text) }
}

function requiredTool(prompt: Prompt): Tool | undefined {
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

/** A last message that is longer than this and contains no question is summarized. */
const MAX_QUESTION_LENGTH = 2000
const SENTENCES = 5
/** Maximum length of a summary, as a share of the text. */
const SUMMARY_SHARE = 0.25
const CHARACTERS_PER_TOKEN = 4

function sentencesFor(prompt: Prompt, model: Model): string {
  const question = questionOf(prompt)
  const texts = prompt.messages.map(textOfMessage)
  const characters = (prompt.settings.maxTokens ?? model.maxOutputTokens) * CHARACTERS_PER_TOKEN
  const sentences = splitSentences(question)
  const query = sentences.findLast((sentence) => /[?？]$/.test(sentence))
  if (query === undefined && question.length > MAX_QUESTION_LENGTH) {
    const limit = Math.min(characters, question.length * SUMMARY_SHARE)
    return extractSummary([question], { sentences: Infinity, characters: limit }).join(' ')
  }
  const asked = query ?? sentences.at(-1) ?? ''
  const found = extractAnswer(texts, asked, { sentences: SENTENCES, characters })
  if (found.length > 0) return found.join(' ')
  return `The conversation contains no answer to: ${asked.slice(0, 200)}`
}

function questionOf(prompt: Prompt): string {
  const message = prompt.messages[lastUserIndex(prompt.messages)]
  return message === undefined ? '' : textOfMessage(message)
}

interface Truncated {
  readonly text: string
  readonly finish: Finish
  readonly stopSequence?: string
}

/** Truncates a text at the first stop sequence or at the maximum output. */
function truncateAnswer(text: string, prompt: Prompt, model: Model): Truncated {
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

function usageOf(prompt: Prompt, output: string): Usage {
  const texts = [
    ...prompt.messages.map(textOfMessage),
    ...prompt.tools.map((tool) => JSON.stringify(tool.native.value)),
  ]
  const inputTokens = texts.reduce((sum, text) => sum + tokens(text), 0)
  return { ...NO_USAGE, inputTokens: Math.max(1, inputTokens), outputTokens: tokens(output) }
}

function tokens(text: string): number {
  return Math.ceil(text.length / CHARACTERS_PER_TOKEN)
}

/** Yields the steps of an answer, with its text in groups of words. */
export async function* streamAnswer(
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

/** The length of the vectors of the hashing embedder. */
const DIMENSIONS = 1024

/**
 * Embeds texts offline, by their spelling: texts with similar words have similar vectors. For fewer dimensions, the
 * vector is truncated and normalized to length 1.
 */
export function embedOffline({ request, model }: EmbedCall): Embedded {
  const { dimensions = DIMENSIONS, inputs } = request
  if (dimensions > DIMENSIONS) {
    throw new GatewayError('invalid-request', `dimensions is ${dimensions}; this model has at most ${DIMENSIONS}.`, {
      param: 'dimensions',
    })
  }
  return {
    model: model.id,
    embeddings: inputs.map((input) => truncate(hashEmbedding(wordsOf(input)), dimensions)),
    inputTokens: inputs.reduce((sum, input) => sum + (typeof input === 'string' ? tokens(input) : input.length), 0),
  }
}

/** Tokens cannot be decoded offline, so each token is a word of its own. */
function wordsOf(input: EmbedInput): string {
  return typeof input === 'string' ? input : input.map((token) => `t${token}`).join(' ')
}

function truncate(vector: Float32Array, dimensions: number): readonly number[] {
  const numbers = [...vector.subarray(0, dimensions)]
  const length = Math.hypot(...numbers)
  return length === 0 ? numbers : numbers.map((number) => number / length)
}
