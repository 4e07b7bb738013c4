import { withParts } from '../../core/messages.ts'
import { type Dialect, type Message, type Native, type Part, type Prompt, type TextPart } from '../../core/prompt.ts'
import { asObject, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { Meter, Model } from '../../core/ports.ts'
import {
  add,
  costOf,
  costOfTokens,
  type NanoUsd,
  NO_USAGE,
  promptTokens,
  scale,
  subtract,
  toNanoUsd,
  type Usage,
  ZERO,
} from '../../core/money.ts'
import { MIN_GAIN_RATIO, turnsAhead, turnsSoFar } from './choose-tiers.ts'
import { messageHashesOf } from './conversation.ts'
import {
  type Cacheable,
  cacheScopeOf,
  type ConversationMemory,
  isWarm,
  parseSent,
  recallFirst,
  type SentPrompt,
  UPSTREAM_CACHE_MS,
} from './memory.ts'
import { isBlock } from './running-cut.ts'

export interface CacheableRequest {
  readonly prompt: Prompt
  readonly model: Model
  readonly tokens: number
  readonly owner: string
  readonly now: number
}

export interface MarkedPrompt {
  readonly prompt: Prompt
  readonly markerCount: number
  /** Stores the markers' cost, based on the usage that the vendor reported. Never rejects. */
  report(usage: Usage): Promise<void>
}

/** `tokens` is the size of the prefix that the vendor is assumed to have cached. */
interface CachedTurn extends SentPrompt {
  /** Cost of the markers in this conversation. Negative if they saved money. */
  readonly debt: NanoUsd
}

const KIND = 'prompt-cache'
const MAX_ADDED_MESSAGES = 8
const MARKER: JsonObject = { type: 'ephemeral' }

/** Minimum size of a cached prefix in tokens, as documented by the vendor. */
const MIN_PREFIX_TOKENS: readonly (readonly [RegExp, number])[] = [
  [/sonnet|opus-4(-1|-0)?(-\d{8})?$/, 1024],
  [/haiku-3|3-5-haiku|3-haiku/, 2048],
]
const DEFAULT_MIN_PREFIX_TOKENS = 4096

/** Marks the prompt of a continued conversation if the markers are expected to save money. */
export async function markForCache(
  memory: ConversationMemory,
  request: CacheableRequest,
): Promise<MarkedPrompt | undefined> {
  const { prompt, model, tokens, owner, now } = request
  if (tokens < minPrefixTokens(model) || isMarkedByCaller(prompt)) return undefined
  const kind = `${KIND}:${cacheScopeOf(model, prompt)}`
  const hashes = messageHashesOf(prompt)
  const keyAt = (count: number): string => `${kind}:${hashes.at(count)}`
  const { length } = prompt.messages
  const remember = (turn: CachedTurn): Promise<void> => memory.remember(owner, keyAt(length), JSON.stringify(turn))
  const counts = Array.from({ length: Math.min(MAX_ADDED_MESSAGES, length - 1) }, (_, index) => length - 1 - index)
  const earlier = parseTurn(await recallFirst(memory, owner, counts.map(keyAt)))
  const debt = earlier?.debt ?? ZERO
  const isWorthMarking = earlier !== undefined && mayMark(request, earlier)
  const marked = isWorthMarking ? addMarkers(prompt) : undefined
  if (marked === undefined || marked.markerCount === 0) {
    await remember({ at: now, tokens: 0, debt })
    return undefined
  }
  // Until the vendor reports its usage, all tokens count as written to the cache.
  await remember({ at: now, tokens, debt: add(debt, writePremium(model, tokens)) })
  const report = (usage: Usage): Promise<void> => {
    const isCached = usage.cacheReadTokens + usage.cacheWriteTokens > 0
    const uncachedCost = costOfTokens(model.price, promptTokens(usage), usage.outputTokens)
    const extraCost = subtract(costOf(usage, model.price), uncachedCost)
    return remember({ at: now, tokens: isCached ? promptTokens(usage) : 0, debt: add(debt, extraCost) })
  }
  return { ...marked, report }
}

/** Limits the expected loss to one write premium, in case the conversation ends with this turn. */
function mayMark({ prompt, model, tokens, now }: CacheableRequest, earlier: CachedTurn): boolean {
  if (!isWarm(earlier, now)) return false
  const cachedTokens = Math.min(earlier.tokens, tokens)
  const turns = turnsAhead(turnsSoFar(prompt))
  const loss = subtract(writePremium(model, tokens - cachedTokens), readSaving(model, cachedTokens))
  const gain = subtract(scale(readSaving(model, tokens), turns), writePremium(model, tokens - cachedTokens))
  if (loss > 0 && gain < scale(loss, MIN_GAIN_RATIO)) return false
  return add(earlier.debt, loss) <= writePremium(model, tokens)
}

function writePremium({ price }: Model, tokens: number): NanoUsd {
  return subtract(costOf({ ...NO_USAGE, cacheWriteTokens: tokens }, price), costOfTokens(price, tokens, 0))
}

function readSaving({ price }: Model, tokens: number): NanoUsd {
  return subtract(costOfTokens(price, tokens, 0), costOf({ ...NO_USAGE, cacheReadTokens: tokens }, price))
}

function minPrefixTokens({ id }: Model): number {
  return MIN_PREFIX_TOKENS.find(([pattern]) => pattern.test(id))?.[1] ?? DEFAULT_MIN_PREFIX_TOKENS
}

function markerOf(native: Native | undefined): JsonObject | undefined {
  return asObject(native?.value['cache_control'])
}

function markerOfMessage({ parts, native }: Message): JsonObject | undefined {
  const part = parts.findLast((candidate) => markerOfPart(candidate) !== undefined)
  return part === undefined ? markerOf(native) : markerOfPart(part)
}

function markerOfPart(part: Part): JsonObject | undefined {
  const marker = markerOf(part.native)
  if (marker !== undefined || part.type !== 'tool-result') return marker
  const inner = part.content.findLast((piece) => markerOf(piece.native) !== undefined)
  return markerOf(inner?.native)
}

const TTLS: ReadonlyMap<unknown, number> = new Map([['1h', 60 * 60 * 1000]])

/** The prefix up to the last message with a marker of the caller, and how long the vendor caches it. */
export interface MarkedPrefix {
  /** Number of messages. 0 if only tools are marked. */
  readonly count: number
  readonly ttlMs: number
}

const markedPrefixes = new WeakMap<Prompt, { readonly prefix: MarkedPrefix | undefined }>()

/** Returns undefined for a prompt without markers. Cached per prompt, because each tier asks. */
export function markedPrefixOf(prompt: Prompt): MarkedPrefix | undefined {
  let known = markedPrefixes.get(prompt)
  if (known === undefined) markedPrefixes.set(prompt, (known = { prefix: findMarkedPrefix(prompt) }))
  return known.prefix
}

/** The field `cache_control` of the body makes the vendor place markers. */
function findMarkedPrefix({ native, tools, messages }: Prompt): MarkedPrefix | undefined {
  const automatic = markerOf(native)
  const toolMarkers = tools.flatMap((tool) => markerOf(tool.native) ?? [])
  const messageMarkers = messages.map(markerOfMessage)
  const markers: readonly JsonObject[] = [automatic, ...toolMarkers, ...messageMarkers].filter(isJsonObject)
  if (markers.length === 0) return undefined
  const ttlMs = Math.max(...markers.map(({ ttl }) => TTLS.get(ttl) ?? UPSTREAM_CACHE_MS))
  const lastIndex = messageMarkers.findLastIndex((marker) => marker !== undefined)
  return { count: automatic === undefined ? lastIndex + 1 : messages.length, ttlMs }
}

export function isMarkedByCaller(prompt: Prompt): boolean {
  return markedPrefixOf(prompt) !== undefined
}

/** Returns the size of the prefix that the caller marked, or undefined for a prompt without markers. */
export function cacheableOf(prompt: Prompt, meter: Pick<Meter, 'estimatePrompt'>): Cacheable | undefined {
  const marked = markedPrefixOf(prompt)
  if (marked === undefined) return undefined
  const { count, ttlMs } = marked
  if (count === prompt.messages.length) return { tokens: Number.MAX_SAFE_INTEGER, ttlMs }
  return { tokens: meter.estimatePrompt({ ...prompt, messages: prompt.messages.slice(0, count) }), ttlMs }
}

/** The vendor allows four markers. It looks back at most 20 blocks, so the previous turn needs its own marker. */
function addMarkers(prompt: Prompt): { readonly prompt: Prompt; readonly markerCount: number } {
  const { messages } = prompt
  // The next turn replaces the block of a shortened prompt, so only what precedes the block is read again.
  const blockIndex = messages.findLastIndex(isBlock)
  const stable = blockIndex === -1 ? messages : messages.slice(0, blockIndex)
  const lastIndex = stable.length - 1
  const responseIndex = stable.findLastIndex(({ role }) => role === 'assistant')
  const systemIndex = messages[0]?.role === 'system' ? 0 : -1
  const markedIndexes = new Set([systemIndex, responseIndex - 1, lastIndex].filter((index) => index >= 0))
  let markerCount = 0
  const marked = messages.map((message, index) => {
    const markedMessage = markedIndexes.has(index) ? markEnd(message, prompt) : undefined
    if (markedMessage !== undefined) markerCount++
    return markedMessage ?? message
  })
  return { prompt: { ...prompt, messages: marked }, markerCount }
}

function markEnd(message: Message, { native }: Prompt): Message | undefined {
  const lastPart = message.parts.at(-1)
  const marked = lastPart === undefined ? undefined : markPart(lastPart, native.dialect)
  if (marked === undefined) return undefined
  const parts = [...message.parts.slice(0, -1), marked]
  if (native.dialect !== 'messages' || message.native === undefined || message.role === 'system') {
    return withParts(message, parts)
  }
  const content = parts.map((part) => (part.type === 'text' ? textBlock(part) : (part.native?.value ?? {})))
  return { ...message, parts, native: { dialect: 'messages', value: { ...message.native.value, content } } }
}

/** The vendor rejects markers on empty text and on reasoning. */
function markPart(part: Part, dialect: Dialect): Part | undefined {
  if (part.type === 'text') {
    if (part.text.trim() === '') return undefined
    return { ...part, native: { dialect, value: { ...textBlock(part), cache_control: MARKER } } }
  }
  if (part.type === 'tool-result' && part.native === undefined) {
    const lastPart = part.content.at(-1)
    const marked = lastPart === undefined ? undefined : markPart(lastPart, dialect)
    return marked && { ...part, content: [...part.content.slice(0, -1), marked] }
  }
  const isMarkable = part.type === 'tool-result' || part.type === 'image' || part.type === 'document'
  if (!isMarkable || part.native === undefined) return undefined
  return { ...part, native: { dialect, value: { ...part.native.value, cache_control: MARKER } } }
}

function textBlock({ text, native }: TextPart): JsonObject {
  return native?.value ?? { type: 'text', text }
}

function parseTurn(value: Json | undefined): CachedTurn | undefined {
  const sent = parseSent(value)
  const debt = asObject(value)?.['debt']
  return sent === undefined || typeof debt !== 'number' ? undefined : { ...sent, debt: toNanoUsd(debt) }
}
