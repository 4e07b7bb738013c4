import type { Pause } from '../../core/async.ts'
import { type Completion, type StreamChunk, toStreamChunks } from '../../core/completion.ts'
import { NO_USAGE, type Usage } from '../../core/money.ts'
import { GatewayError } from '../../core/errors.ts'
import type { EmbedCall, EmbeddingResult, EmbedInput, ProviderCall, Model } from '../../core/ports.ts'
import { lastUserIndex, textOfMessage } from '../../core/messages.ts'
import { type Part, type Prompt, type Tool } from '../../core/prompt.ts'
import { extractResponse, extractSummary, forEachSentence, sharedPause } from './sentences.ts'
import { fillSchema } from './fill-schema.ts'
import { hashEmbedding } from '../../plugins/cache/hashing-embedder.ts'

export async function composeCompletion(call: ProviderCall, pause: Pause = sharedPause): Promise<Completion> {
  const { prompt, model, runtime } = call
  const identity = { id: `chatcmpl-${runtime.uuid()}`, model: model.id }
  const tool = requiredTool(prompt)
  if (tool !== undefined) {
    const input = JSON.stringify(fillSchema(tool.parameters, questionOf(prompt)))
    const parts: readonly Part[] = [{ type: 'tool-call', id: `call_${runtime.uuid()}`, name: tool.name, input }]
    return { ...identity, parts, finish: 'tool-call', usage: await usageOf(prompt, tool.name + input, pause) }
  }
  const { text, ...end } = truncateResponse(await composeText(prompt, model, pause), prompt, model)
  const usage = await usageOf(prompt, text, pause)
  call.signal.throwIfAborted()
  return { ...identity, parts: [{ type: 'text', text }], ...end, usage }
}

function requiredTool(prompt: Prompt): Tool | undefined {
  const choice = prompt.settings.toolChoice
  const callable = prompt.tools.filter((tool) => tool.parameters !== undefined)
  if (choice?.type === 'required') return callable[0]
  return choice?.type === 'tool' ? callable.find((tool) => tool.name === choice.name) : undefined
}

async function composeText(prompt: Prompt, model: Model, pause: Pause): Promise<string> {
  const { shape } = prompt.settings
  if (shape?.type === 'schema') return JSON.stringify(fillSchema(shape.schema, questionOf(prompt)))
  const text = await extractText(prompt, model, pause)
  return shape?.type === 'json' ? JSON.stringify({ response: text }) : text
}

/** A last message that asks no question and is longer than this, in characters, is summarized instead of answered. */
const MAX_QUESTION_LENGTH = 2000
const MAX_SUMMARY_SHARE = 0.25
const CHARS_PER_TOKEN = 4

async function extractText(prompt: Prompt, model: Model, pause: Pause): Promise<string> {
  const question = questionOf(prompt)
  const maxChars = (prompt.settings.maxTokens ?? model.maxOutputTokens) * CHARS_PER_TOKEN
  let lastSentence = ''
  let lastQuestion: string | undefined
  const visit = (sentence: string): void => {
    lastSentence = sentence
    if (/[?？]$/.test(sentence)) lastQuestion = sentence
  }
  await forEachSentence(question, visit, pause)
  if (lastQuestion === undefined && question.length > MAX_QUESTION_LENGTH) {
    const summary = await extractSummary(question, Math.min(maxChars, question.length * MAX_SUMMARY_SHARE), pause)
    return summary.join(' ')
  }
  const query = lastQuestion ?? lastSentence
  const matching = await extractResponse(prompt.messages.map(textOfMessage), query, maxChars, pause)
  if (matching.length > 0) return matching.join(' ')
  return `The conversation contains no answer to: ${query.slice(0, 200)}`
}

function questionOf(prompt: Prompt): string {
  const message = prompt.messages[lastUserIndex(prompt.messages)]
  return message === undefined ? '' : textOfMessage(message)
}

function truncateResponse(
  text: string,
  prompt: Prompt,
  model: Model,
): { text: string } & Pick<Completion, 'finish' | 'stopSequence'> {
  const { stop = [], maxTokens = model.maxOutputTokens } = prompt.settings
  const maxLength = Math.min(maxTokens, model.maxOutputTokens) * CHARS_PER_TOKEN
  const truncated = text.length > maxLength ? text.slice(0, maxLength).replace(/[\uD800-\uDBFF]$/, '') : text
  const firstStop = stop
    .map((sequence) => ({ sequence, index: sequence === '' ? -1 : truncated.indexOf(sequence) }))
    .filter(({ index }) => index >= 0)
    .toSorted((a, b) => a.index - b.index)[0]
  if (firstStop !== undefined) {
    return { text: truncated.slice(0, firstStop.index), finish: 'stop-sequence', stopSequence: firstStop.sequence }
  }
  return { text: truncated, finish: truncated.length < text.length ? 'length' : 'stop' }
}

async function usageOf(prompt: Prompt, output: string, pause: Pause): Promise<Usage> {
  let inputTokens = 0
  for (const message of prompt.messages) {
    inputTokens += countTokens(textOfMessage(message))
    await pause()
  }
  for (const tool of prompt.tools) {
    inputTokens += countTokens(JSON.stringify(tool.native.value))
    await pause()
  }
  return { ...NO_USAGE, inputTokens: Math.max(1, inputTokens), outputTokens: countTokens(output) }
}

function countTokens(text: string): number {
  return Math.ceil(text.length / CHARS_PER_TOKEN)
}

export async function* streamCompletion(
  completion: Completion,
  signal: AbortSignal,
): AsyncGenerator<StreamChunk, void, undefined> {
  for (const chunk of toStreamChunks(completion).flatMap(splitIntoGroups)) {
    signal.throwIfAborted()
    yield chunk
  }
}

function splitIntoGroups(chunk: StreamChunk): readonly StreamChunk[] {
  return chunk.parts.flatMap((part): readonly StreamChunk[] => {
    if (part.type !== 'text-delta') return [{ parts: [part] }]
    const groups = part.text.match(/(?:\s*\S{1,40}){1,4}\s*/gu) ?? [part.text]
    return groups.map((text) => ({ parts: [{ type: 'text-delta', text }] }))
  })
}

const DIMENSIONS = 1024

export async function embedOffline(
  { request, model, signal }: EmbedCall,
  pause: Pause = sharedPause,
): Promise<EmbeddingResult> {
  const { dimensions = DIMENSIONS, inputs } = request
  if (dimensions > DIMENSIONS) {
    throw new GatewayError('invalid-request', `dimensions is ${dimensions}; expected at most ${DIMENSIONS}.`, {
      param: 'dimensions',
    })
  }
  const embeddings: (readonly number[])[] = []
  let inputTokens = 0
  for (const input of inputs) {
    embeddings.push(truncateVector(hashEmbedding(wordsOf(input)), dimensions))
    inputTokens += typeof input === 'string' ? countTokens(input) : input.length
    await pause()
  }
  signal.throwIfAborted()
  return { model: model.id, embeddings, inputTokens }
}

/** Tokens are not decoded. Each token counts as one word. */
function wordsOf(input: EmbedInput): string {
  return typeof input === 'string' ? input : input.map((token) => `t${token}`).join(' ')
}

function truncateVector(vector: Float32Array, dimensions: number): readonly number[] {
  const numbers = [...vector.subarray(0, dimensions)]
  const length = Math.hypot(...numbers)
  return length === 0 ? numbers : numbers.map((number) => number / length)
}
