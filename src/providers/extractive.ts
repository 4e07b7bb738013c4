import * as z from 'zod/mini'
import { NO_USAGE, type Completion, type Finish, type Step, type Usage } from '../core/answer.ts'
import type { Model } from '../core/model.ts'
import type { Price } from '../core/money.ts'
import type { Provider, ProviderCall } from '../core/ports.ts'
import { lastUserIndex, textOfMessage, type Part, type Prompt, type Tool } from '../core/prompt.ts'
import { stepsOf } from '../core/steps.ts'
import { extractAnswer, extractDigest, splitSentences } from './extract-sentences.ts'
import { fillSchema } from './fill-schema.ts'
import { parseOptions, priceSchema, providerName } from './provider-options.ts'

export interface ExtractiveOptions {
  /** @default 'extractive' */
  readonly name?: string
  /** Dollars per million tokens of `extractive`. @default { input: 0.5, output: 2 } */
  readonly price?: Price
  /** Dollars per million tokens of `extractive-small`. @default { input: 0.05, output: 0.2 } */
  readonly smallPrice?: Price
}

const schema: z.ZodMiniType<ExtractiveOptions> = z.strictObject({
  name: z.exactOptional(providerName),
  price: z.exactOptional(priceSchema),
  smallPrice: z.exactOptional(priceSchema),
})

/**
 * A provider without a network, a key or chance: it answers with the sentences of the prompt that fit the last question
 * best, and calls a tool when `tool_choice` demands one. For trying the gateway out, for tests and for demonstrations;
 * it is no language model. Nothing is paid for it, yet it has list prices, so that bills, budgets and savings show what
 * they would show with a real provider.
 *
 * Models: `extractive` and, as the small model of its family, `extractive-small`; `extractive-embedding` turns texts into
 * vectors of 1024 dimensions.
 */
export function extractive(options: ExtractiveOptions = {}): Provider {
  const { name = 'extractive', price, smallPrice } = parseOptions('extractive', schema, options)
  const models = [
    describe('extractive', price ?? { input: 0.5, output: 2 }, { small: 'extractive-small' }),
    describe('extractive-small', smallPrice ?? { input: 0.05, output: 0.2 }, {}),
    describe('extractive-embedding', { input: 0.02, output: 0 }, { kind: 'embedding', maxOutputTokens: 0 }),
  ]
  return {
    name,
    dialect: 'openai',
    models,
    model: (id) => models.find((model) => model.id === id),
    async complete(call) {
      call.signal.throwIfAborted()
      return { answer: answer(call), ignored: [] }
    },
    async stream(call) {
      call.signal.throwIfAborted()
      return { answer: pieceByPiece(stepsOf(answer(call)), call.signal), ignored: [] }
    },
    async embed(call) {
      call.signal.throwIfAborted()
      const { embedOffline } = await import('./offline-embeddings.ts')
      return embedOffline(call, tokens)
    },
    async ping() {
      // There is nothing to reach.
    },
  }
}

function describe(id: string, price: Price, more: Partial<Model>): Model {
  const size = { contextWindow: 1_000_000, maxOutputTokens: 8192 }
  return { id, family: 'extractive', kind: 'chat', ...size, price, ...more }
}

function answer(call: ProviderCall): Completion {
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
const LONGEST_QUESTION = 2000
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
  if (query === undefined && question.length > LONGEST_QUESTION) {
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

function tokens(text: string): number {
  return Math.ceil(text.length / CHARACTERS_PER_TOKEN)
}

/** The steps with their text in groups of words, as a model would say it. */
async function* pieceByPiece(steps: readonly Step[], signal: AbortSignal): AsyncGenerator<Step, void, undefined> {
  for (const step of steps.flatMap(inGroups)) {
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
