import { NO_USAGE, promptTokens, type Usage } from '../core/answer.ts'
import { fingerprintOf } from '../core/digest.ts'
import { asCount, isJsonObject, type JsonObject } from '../core/json.ts'
import type { Model } from '../core/model.ts'
import { add, costOf, nano, subtract, times, ZERO, type NanoUsd } from '../core/money.ts'
import { withParts, type Dialect, type Message, type Part, type Prompt, type TextPart } from '../core/prompt.ts'
import { turnsSoFar } from './choose-tiers.ts'
import { createChain } from './conversation.ts'
import type { ConversationMemory } from './memory.ts'
import { hasCacheMarks, turnsAhead } from './net.ts'

/** A prompt as it is about to leave. */
export interface CacheableRequest {
  readonly prompt: Prompt
  readonly model: Model
  /** By the gateway's own count. */
  readonly tokens: number
  /** Whose conversation it is. */
  readonly owner: string
  /** Milliseconds since 1970. */
  readonly now: number
}

/** A prompt with markers for the vendor's prompt cache. */
export interface MarkedPrompt {
  readonly prompt: Prompt
  readonly markers: number
  /** Takes the usage that the vendor reported, so that later turns know what the markers have cost. Never rejects. */
  report(usage: Usage): Promise<void>
}

/** What is known of an earlier turn of a conversation. */
export interface CachedTurn {
  readonly at: number
  /** Tokens at the beginning that the vendor has cached. */
  readonly tokens: number
  /** What markers have cost this conversation so far; negative when they have saved money. */
  readonly debt: NanoUsd
}

const KIND = 'prompt-cache'
/** How long the vendor keeps a marked prefix after its last use. */
const CACHE_MS = 5 * 60 * 1000
/** Messages that one turn adds, at the most: an answer, the results of its calls, and a question. */
const MESSAGES_BACK = 8
/** The expected gain must be this many times the price of writing. */
const MIN_ODDS = 2
const MARK: JsonObject = { type: 'ephemeral' }

/** The vendor caches no shorter prefixes, by its documentation; markers in a shorter prompt have no effect. */
const SHORTEST: readonly (readonly [RegExp, number])[] = [
  [/sonnet|opus-4(-1|-0)?(-\d{8})?$/, 1024],
  [/haiku-3|3-5-haiku|3-haiku/, 2048],
]
/** For all other models. */
const MIN_OTHERWISE = 4096
/**
 * Places markers where the conversation is expected to go on: the price of writing is paid once, and the following turns
 * read at a tenth of the price. The first turn of a conversation is only noted. Returns undefined where no marker pays.
 */
export async function markForCache(
  memory: ConversationMemory,
  request: CacheableRequest,
): Promise<MarkedPrompt | undefined> {
  const { prompt, model, tokens, owner, now } = request
  if (tokens < shortestPrefix(model) || isMarkedByCaller(prompt)) return undefined
  const kind = `${KIND}:${model.id}:${fingerprintOf(JSON.stringify(prompt.tools.map(({ native }) => native.value)))}`
  const chain = createChain(
    [],
    prompt.messages.map((message) => ({ messages: [message] })),
  )
  const nameAt = (count: number): string => `${kind}:${chain.at(count)}`
  const { length } = prompt.messages
  const remember = (turn: CachedTurn): Promise<void> => memory.remember(owner, nameAt(length), JSON.stringify(turn))
  const counts = Array.from({ length: MESSAGES_BACK }, (_, back) => length - 1 - back).filter((count) => count > 0)
  const found = await Promise.all(counts.map((count) => memory.recall(owner, nameAt(count))))
  const earlier = parseTurn(found.find((value) => value !== undefined))
  const debt = earlier?.debt ?? ZERO
  const pays = earlier !== undefined && mayMark(request, earlier)
  const marked = pays ? withMarkers(prompt) : undefined
  if (marked === undefined || marked.markers === 0) {
    await remember({ at: now, tokens: 0, debt })
    return undefined
  }
  // Until the vendor reports: everything was written, and nothing read.
  await remember({ at: now, tokens, debt: add(debt, writePremium(model, tokens)) })
  const report = (usage: Usage): Promise<void> => {
    const isCached = usage.cacheReadTokens + usage.cacheWriteTokens > 0
    const extra = subtract(costOf(usage, model.price), costOf(withoutCache(usage), model.price))
    return remember({ at: now, tokens: isCached ? promptTokens(usage) : 0, debt: add(debt, extra) })
  }
  return { ...marked, report }
}

/**
 * Returns true when writing pays over the turns ahead, and when the conversation would cost at most the premium of one
 * write more than without markers if it ended with this turn.
 */
export function mayMark({ prompt, model, tokens, now }: CacheableRequest, earlier: CachedTurn): boolean {
  if (now - earlier.at > CACHE_MS) return false
  const warm = Math.min(earlier.tokens, tokens)
  const turns = turnsAhead(turnsSoFar(prompt))
  const loss = subtract(writePremium(model, tokens - warm), readSaving(model, warm))
  const gain = subtract(times(readSaving(model, tokens), turns), writePremium(model, tokens - warm))
  if (loss > 0 && gain < times(loss, MIN_ODDS)) return false
  return add(earlier.debt, loss) <= writePremium(model, tokens)
}

/** What writing costs beyond sending. */
function writePremium({ price }: Model, tokens: number): NanoUsd {
  return subtract(
    costOf({ ...NO_USAGE, cacheWriteTokens: tokens }, price),
    costOf({ ...NO_USAGE, inputTokens: tokens }, price),
  )
}

function readSaving({ price }: Model, tokens: number): NanoUsd {
  return subtract(
    costOf({ ...NO_USAGE, inputTokens: tokens }, price),
    costOf({ ...NO_USAGE, cacheReadTokens: tokens }, price),
  )
}

function withoutCache(usage: Usage): Usage {
  const { outputTokens } = usage
  return { ...NO_USAGE, inputTokens: promptTokens(usage), outputTokens }
}

function shortestPrefix({ id }: Model): number {
  return SHORTEST.find(([pattern]) => pattern.test(id))?.[1] ?? MIN_OTHERWISE
}

/** The caller decides by itself what is cached: by a marker anywhere, or by the field that has the vendor place markers. */
function isMarkedByCaller(prompt: Prompt): boolean {
  if (prompt.native.value['cache_control'] !== undefined || hasCacheMarks(prompt)) return true
  const inner = prompt.messages.flatMap(({ parts }) => parts.flatMap(contentOf))
  return inner.some((part) => part.native?.value['cache_control'] !== undefined)
}

function contentOf(part: Part): readonly Part[] {
  return part.type === 'tool-result' ? part.content : []
}

/**
 * Marks the end of the system text, of the previous turn and of the prompt: at most three of the four markers that the
 * vendor allows. The vendor looks back a few blocks only, so that the end of the previous turn needs one of its own.
 */
function withMarkers(prompt: Prompt): { readonly prompt: Prompt; readonly markers: number } {
  const { messages } = prompt
  const last = messages.length - 1
  const answer = messages.findLastIndex(({ role }) => role === 'assistant')
  const system = messages[0]?.role === 'system' ? 0 : -1
  const ends = new Set([system, answer - 1, last].filter((at) => at >= 0))
  let markers = 0
  const marked = messages.map((message, at) => {
    const changed = ends.has(at) ? markEnd(message, prompt) : undefined
    if (changed !== undefined) markers++
    return changed ?? message
  })
  return { prompt: { ...prompt, messages: marked }, markers }
}

/** Undefined for a message whose last part takes no marker. */
function markEnd(message: Message, { native }: Prompt): Message | undefined {
  const end = message.parts.at(-1)
  const marked = end === undefined ? undefined : markPart(end, native.dialect)
  if (marked === undefined) return undefined
  const parts = [...message.parts.slice(0, -1), marked]
  if (native.dialect !== 'anthropic' || message.native === undefined || message.role === 'system') {
    return withParts(message, parts)
  }
  const content = parts.map((part) => (part.type === 'text' ? textBlock(part) : (part.native?.value ?? {})))
  return { ...message, parts, native: { dialect: 'anthropic', value: { ...message.native.value, content } } }
}

/** The format refuses markers on empty texts and on thoughts. The result of a tool in another format is marked within. */
function markPart(part: Part, dialect: Dialect): Part | undefined {
  if (part.type === 'text') {
    if (part.text.trim() === '') return undefined
    return { ...part, native: { dialect, value: { ...textBlock(part), cache_control: MARK } } }
  }
  if (part.type === 'tool-result' && part.native === undefined) {
    const end = part.content.at(-1)
    const marked = end === undefined ? undefined : markPart(end, dialect)
    return marked && { ...part, content: [...part.content.slice(0, -1), marked] }
  }
  const isMarkable = part.type === 'tool-result' || part.type === 'image' || part.type === 'document'
  if (!isMarkable || part.native === undefined) return undefined
  return { ...part, native: { dialect, value: { ...part.native.value, cache_control: MARK } } }
}

function textBlock({ text, native }: TextPart): JsonObject {
  return native?.value ?? { type: 'text', text }
}

function parseTurn(text: string | undefined): CachedTurn | undefined {
  const value: unknown = text === undefined ? undefined : JSON.parse(text)
  if (!isJsonObject(value)) return undefined
  const at = asCount(value['at'])
  const tokens = asCount(value['tokens'])
  const { debt } = value
  if (at === undefined || tokens === undefined || typeof debt !== 'number') return undefined
  return { at, tokens, debt: nano(debt) }
}
