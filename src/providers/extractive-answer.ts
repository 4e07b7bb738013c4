import { hashEmbedding } from '../cache/vector-search.ts'
import { type Completion, type StreamChunk, toStreamChunks } from '../core/answer.ts'
import { NO_USAGE, type Usage } from '../core/money.ts'
import { GatewayError } from '../core/errors.ts'
import type { EmbedCall, EmbeddingResult, EmbedInput, ProviderCall, Model } from '../core/ports.ts'
import { lastUserIndex, type Part, type Prompt, textOfMessage, type Tool } from '../core/prompt.ts'
import { fillSchema } from './fill-schema.ts'

export function composeCompletion(call: ProviderCall): Completion {
  const { prompt, model, runtime } = call
  const identity = { id: `chatcmpl-${runtime.uuid()}`, model: model.id }
  const tool = requiredTool(prompt)
  if (tool !== undefined) {
    const input = JSON.stringify(fillSchema(tool.parameters, questionOf(prompt)))
    const parts: readonly Part[] = [{ type: 'tool-call', id: `call_${runtime.uuid()}`, name: tool.name, input }]
    return { ...identity, parts, finish: 'tool-call', usage: usageOf(prompt, tool.name + input) }
  }
  const { text, ...end } = truncateAnswer(composeText(prompt, model), prompt, model)
  return { ...identity, parts: [{ type: 'text', text }], ...end, usage: usageOf(prompt, text) }
}

function requiredTool(prompt: Prompt): Tool | undefined {
  const choice = prompt.settings.toolChoice
  const callable = prompt.tools.filter((tool) => tool.parameters !== undefined)
  if (choice?.type === 'required') return callable[0]
  return choice?.type === 'tool' ? callable.find((tool) => tool.name === choice.name) : undefined
}

function composeText(prompt: Prompt, model: Model): string {
  const { shape } = prompt.settings
  if (shape?.type === 'schema') return JSON.stringify(fillSchema(shape.schema, questionOf(prompt)))
  const text = extractText(prompt, model)
  return shape?.type === 'json' ? JSON.stringify({ answer: text }) : text
}

/** A last message that asks no question and is longer than this, in characters, is summarized instead of answered. */
const MAX_QUESTION_LENGTH = 2000
const MAX_SUMMARY_SHARE = 0.25
const CHARS_PER_TOKEN = 4

function extractText(prompt: Prompt, model: Model): string {
  const question = questionOf(prompt)
  const texts = prompt.messages.map(textOfMessage)
  const maxChars = (prompt.settings.maxTokens ?? model.maxOutputTokens) * CHARS_PER_TOKEN
  const sentences = splitSentences(question)
  const lastQuestion = sentences.findLast((sentence) => /[?？]$/.test(sentence))
  if (lastQuestion === undefined && question.length > MAX_QUESTION_LENGTH) {
    return extractSummary(question, Math.min(maxChars, question.length * MAX_SUMMARY_SHARE)).join(' ')
  }
  const query = lastQuestion ?? sentences.at(-1) ?? ''
  const matching = extractAnswer(texts, query, maxChars)
  if (matching.length > 0) return matching.join(' ')
  return `The conversation contains no answer to: ${query.slice(0, 200)}`
}

function questionOf(prompt: Prompt): string {
  const message = prompt.messages[lastUserIndex(prompt.messages)]
  return message === undefined ? '' : textOfMessage(message)
}

function truncateAnswer(
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

function usageOf(prompt: Prompt, output: string): Usage {
  const texts = [
    ...prompt.messages.map(textOfMessage),
    ...prompt.tools.map((tool) => JSON.stringify(tool.native.value)),
  ]
  const inputTokens = texts.reduce((sum, text) => sum + countTokens(text), 0)
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

export function embedOffline({ request, model }: EmbedCall): EmbeddingResult {
  const { dimensions = DIMENSIONS, inputs } = request
  if (dimensions > DIMENSIONS) {
    throw new GatewayError('invalid-request', `dimensions is ${dimensions}; expected at most ${DIMENSIONS}.`, {
      param: 'dimensions',
    })
  }
  return {
    model: model.id,
    embeddings: inputs.map((input) => truncateVector(hashEmbedding(wordsOf(input)), dimensions)),
    inputTokens: inputs.reduce(
      (sum, input) => sum + (typeof input === 'string' ? countTokens(input) : input.length),
      0,
    ),
  }
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

interface Sentence {
  readonly text: string
  readonly position: number
  readonly terms: readonly string[]
}

interface SelectionLimits {
  readonly maxSentences: number
  readonly maxChars: number
  readonly minShare: number
}

const MAX_READ_SENTENCES = 100_000

const STOP_WORDS = new Set(
  (
    'a an and any are as at be been but by can could did do does for from had has have he her his how i if in is it its ' +
    'me my no not of on or our out please she should so some tell than that the their them then there these they this ' +
    'to us was we were what when where which who whom whose why will with would you your about'
  ).split(' '),
)

function extractAnswer(texts: readonly string[], question: string, maxChars: number): readonly string[] {
  const questionSentences = new Set(splitSentences(question))
  const sentences = readSentences(texts).filter(({ text }) => !questionSentences.has(text))
  return selectBest(sentences, new Set(termsOf(question)), { maxSentences: 5, maxChars, minShare: 0.35 })
}

function extractSummary(text: string, maxChars: number): readonly string[] {
  const sentences = readSentences([text])
  const counts = new Map<string, number>()
  for (const term of sentences.flatMap((sentence) => sentence.terms)) counts.set(term, (counts.get(term) ?? 0) + 1)
  const frequent = [...counts]
    .toSorted(([termA, countA], [termB, countB]) => countB - countA || (termA < termB ? -1 : 1))
    .slice(0, 12)
  const terms = new Set(frequent.map(([term]) => term))
  return selectBest(sentences, terms, { maxSentences: Infinity, maxChars, minShare: 0 })
}

function splitSentences(text: string): readonly string[] {
  return text.split(/(?<=[.!?。！？])\s+|\n+/u).flatMap((sentence) => sentence.trim().match(/[^]{1,500}/g) ?? [])
}

function readSentences(texts: readonly string[]): readonly Sentence[] {
  const unique = new Set(texts.flatMap(splitSentences))
  return [...unique]
    .slice(-MAX_READ_SENTENCES)
    .map((text, position) => ({ text, position, terms: termsOf(text) }))
    .filter((sentence) => sentence.terms.length > 0)
}

function termsOf(text: string): readonly string[] {
  const words = text.toLowerCase().match(/\p{Script=Han}|[\p{L}\p{N}]+/gu) ?? []
  const contentWords = words.filter((word) => !STOP_WORDS.has(word))
  return contentWords.map((word) => (word.length > 4 ? word.replace(/(?:ies|ing|ed|es|e|s|y)$/, '') : word))
}

function selectBest(
  sentences: readonly Sentence[],
  query: ReadonlySet<string>,
  { maxSentences, maxChars, minShare }: SelectionLimits,
): readonly string[] {
  const scoreOf = createScorer(sentences, query)
  const ranked = sentences
    .map((sentence) => ({ sentence, score: scoreOf(sentence) }))
    .filter(({ score }) => score > 0)
    .toSorted((a, b) => b.score - a.score || a.sentence.position - b.sentence.position)
  const minScore = (ranked[0]?.score ?? 0) * minShare
  const selected: Sentence[] = []
  let size = 0
  for (const { sentence, score } of ranked) {
    const fits = selected.length === 0 || size + sentence.text.length < maxChars
    if (selected.length === maxSentences || score < minScore || !fits) break
    selected.push(sentence)
    size += sentence.text.length + 1
  }
  return selected.toSorted((a, b) => a.position - b.position).map(({ text }) => text)
}

/** BM25 with k1 = 1.2 and b = 0.75. */
function createScorer(sentences: readonly Sentence[], query: ReadonlySet<string>): (sentence: Sentence) => number {
  const sentenceCounts = new Map<string, number>()
  let termCount = 0
  for (const { terms } of sentences) {
    termCount += terms.length
    for (const term of new Set(terms))
      if (query.has(term)) sentenceCounts.set(term, (sentenceCounts.get(term) ?? 0) + 1)
  }
  const averageLength = termCount / Math.max(1, sentences.length)
  return ({ terms }) => {
    const counts = new Map<string, number>()
    for (const term of terms) if (query.has(term)) counts.set(term, (counts.get(term) ?? 0) + 1)
    const norm = 1.2 * (0.25 + (0.75 * terms.length) / averageLength)
    return [...counts].reduce((score, [term, count]) => {
      const sentenceCount = sentenceCounts.get(term) ?? 0
      const idf = Math.log(1 + (sentences.length - sentenceCount + 0.5) / (sentenceCount + 0.5))
      return score + (idf * count * 2.2) / (count + norm)
    }, 0)
  }
}
