import { createPause, lazy, type MaybePromise, measureInSlices } from '../core/async.ts'
import { isJsonObject, MAX_DATA_URL_PREFIX_BYTES, type Json, type JsonObject } from '../core/json.ts'
import { RecentMap } from '../core/recent-map.ts'
import {
  fingerprintOf,
  textOfPart,
  type DocumentPart,
  type Message,
  type Part,
  type Prompt,
  type Tool,
} from '../core/prompt.ts'
import type { Vocabulary, Meter, Tokenizer } from '../core/ports.ts'
import { estimateTokens, imageData, utf8Length } from './estimate.ts'
import { yieldToEventLoop } from './event-loop.ts'
import type { ExactCounter } from './exact.ts'

/** Counts are cached, because each turn sends the conversation again. */
const MAX_CACHED_COUNTS = 50_000
/** Counting a shorter string takes about as long as a cache lookup. */
const MIN_CACHED_LENGTH = 64
/** An estimate of at least this multiple of a threshold needs no exact count. */
const CERTAIN_MULTIPLE = 1.6
const RESPONSE_OVERHEAD_TOKENS = 3

const MESSAGE_OVERHEAD_TOKENS = 4
const TOOL_CALL_OVERHEAD_TOKENS = 4
const TOOL_OVERHEAD_TOKENS = 8
/** A typical charge for about one megapixel. */
export const IMAGE_TOKENS = 1600
/** Estimates for one page of a document: its tokens, including its image, and its base64 characters. */
const PAGE_TOKENS = 2500
const PAGE_CHARACTERS = 50_000
/** Maximum length of an unknown part's JSON that counts as text. The rest counts as document pages. */
const MAX_UNKNOWN_LENGTH = 8000

/** `fingerprint` is missing for a short text. */
type Sizes = { [Size in 'estimate' | Vocabulary | 'bytes' | 'fingerprint']?: number }

type CountedItem = Message | Tool

/** @param seed Returns a secret. Called lazily, because Cloudflare Workers have no random values before a request. */
export function createMeter(tokenizer: Tokenizer, seed: () => number = () => 0): Meter {
  const pause = createPause(yieldToEventLoop)
  const sizesByItem = new WeakMap<CountedItem, Sizes>()
  const sizesByFingerprint = new RecentMap<number, Sizes>(MAX_CACHED_COUNTS)
  let seedValue: number | undefined

  const sizesOfText = (text: string): Sizes => {
    if (text.length < MIN_CACHED_LENGTH) return {}
    return sizesOfFingerprint(fingerprintOf(text, (seedValue ??= seed())))
  }

  const sizesOfFingerprint = (fingerprint: number): Sizes => {
    const known = sizesByFingerprint.get(fingerprint)
    if (known !== undefined) return known
    const sizes: Sizes = { fingerprint }
    sizesByFingerprint.set(fingerprint, sizes)
    return sizes
  }

  const sizesOf = (item: CountedItem): Sizes => {
    const known = sizesByItem.get(item)
    if (known !== undefined) return known
    const sizes = sizesOfText(textOf(item))
    sizesByItem.set(item, sizes)
    return sizes
  }

  const estimate = (item: CountedItem): number => {
    const sizes = sizesOf(item)
    return (sizes.o200k ?? (sizes.estimate ??= tokenizer.estimate(textOf(item)))) + fixedTokens(item)
  }

  const count = (item: CountedItem, signal?: AbortSignal): MaybePromise<number> => {
    const sizes = sizesOf(item)
    return sizes.o200k === undefined ? countExactly(item, sizes, signal) : sizes.o200k + fixedTokens(item)
  }

  const countExactly = async (item: CountedItem, sizes: Sizes, signal?: AbortSignal): Promise<number> =>
    (sizes.o200k = await tokenizer.count(textOf(item), signal)) + fixedTokens(item)

  /** Uses bytes, because a string never has more tokens than bytes. The estimate can be too low. */
  const upperBoundOf = (item: CountedItem): number =>
    (sizesOf(item).bytes ??= utf8Length(textOf(item))) + fixedTokens(item)

  const sumOf = (prompt: Prompt, measure: (item: CountedItem) => number): number => {
    let sum = RESPONSE_OVERHEAD_TOKENS
    for (const message of prompt.messages) sum += measure(message)
    for (const tool of prompt.tools) sum += measure(tool)
    return sum
  }

  const countPrompt = async (prompt: Prompt, signal?: AbortSignal): Promise<number> => {
    let sum = RESPONSE_OVERHEAD_TOKENS
    for (const item of [...prompt.messages, ...prompt.tools]) {
      sum += await count(item, signal)
      const pausing = pause()
      if (pausing !== undefined) await pausing
    }
    return sum
  }

  const cacheEstimates = async (prompt: Prompt, signal?: AbortSignal): Promise<void> => {
    for (const item of [...prompt.messages, ...prompt.tools]) {
      const known = sizesByItem.get(item)
      if (known !== undefined && hasEstimate(known)) continue
      const sizes = sizesOf(item)
      if (!hasEstimate(sizes)) sizes.estimate = await measureInSlices(textOf(item), tokenizer.estimate, pause)
      const pausing = pause()
      if (pausing === undefined) continue
      await pausing
      signal?.throwIfAborted()
    }
  }

  return {
    tokenizer,
    cacheEstimates,
    estimatePrompt: (prompt) => sumOf(prompt, estimate),
    countPrompt,
    async countNearThresholds(prompt, thresholds, signal) {
      await cacheEstimates(prompt, signal)
      const estimated = sumOf(prompt, estimate)
      const uncertainThresholds = thresholds.filter((threshold) => estimated < threshold * CERTAIN_MULTIPLE)
      if (uncertainThresholds.length === 0) return estimated
      const upperBound = sumOf(prompt, upperBoundOf)
      return uncertainThresholds.some((threshold) => upperBound > threshold) ? countPrompt(prompt, signal) : estimated
    },
    estimateMessage: estimate,
    countMessage: count,
    fingerprintOf: (message) => sizesOf(message).fingerprint,
    recognize: (message, fingerprint) => void sizesByItem.set(message, sizesOfFingerprint(fingerprint)),
    async countBody(prompt, vocabulary, signal) {
      let sum = 0
      for (const text of textsOfBody(prompt)) {
        sum += sizesOfText(text)[vocabulary] ??= await tokenizer.count(text, signal, vocabulary)
      }
      return sum
    },
  }
}

function hasEstimate({ estimate, o200k }: Sizes): boolean {
  return estimate !== undefined || o200k !== undefined
}

function textOf(item: CountedItem): string {
  return 'parts' in item ? item.parts.map(countedTextOf).join('\n') : JSON.stringify(item.native.value)
}

function countedTextOf(part: Part): string {
  if (part.type === 'opaque') return JSON.stringify(part.native.value).slice(0, MAX_UNKNOWN_LENGTH)
  if (part.type === 'tool-result') return part.content.map(countedTextOf).join('\n')
  return textOfPart(part)
}

function fixedTokens(item: CountedItem): number {
  if (!('parts' in item)) return TOOL_OVERHEAD_TOKENS
  return item.parts.reduce((sum, part) => sum + fixedTokensOfPart(part), MESSAGE_OVERHEAD_TOKENS)
}

function fixedTokensOfPart(part: Part): number {
  switch (part.type) {
    case 'text':
      return 0
    case 'thinking':
      return part.redacted === true ? Math.ceil(part.text.length / 4) : 0
    case 'image':
      return IMAGE_TOKENS
    case 'document':
      return documentTokens(part.source)
    case 'tool-call':
      return TOOL_CALL_OVERHEAD_TOKENS
    case 'tool-result':
      return part.content.reduce((sum, inner) => sum + fixedTokensOfPart(inner), 0)
    case 'opaque':
      return Math.ceil(
        Math.max(0, JSON.stringify(part.native.value).length - MAX_UNKNOWN_LENGTH) / (PAGE_CHARACTERS / PAGE_TOKENS),
      )
  }
}

function documentTokens(source: DocumentPart['source']): number {
  if (source.type === 'text') return 0
  if (source.type !== 'base64') return PAGE_TOKENS
  if (source.mediaType.startsWith('text/')) return Math.ceil(source.data.length / 3)
  return Math.ceil(source.data.length / PAGE_CHARACTERS) * PAGE_TOKENS
}

/** Strings are unescaped, as in vendors' prompt templates, and base64 images are omitted. */
function* textsOfBody(prompt: Prompt): Generator<string> {
  const images = imageBlocks(prompt)
  for (const [name, value] of Object.entries(prompt.native.value)) {
    if (!Array.isArray(value)) yield toUnescapedText({ [name]: value }, images)
    else for (const element of value as readonly Json[]) yield toUnescapedText(element, images)
  }
}

/** Joins all pieces at once, because joining at each depth copies nested text once per depth. */
function toUnescapedText(value: Json | undefined, images: ReadonlyMap<JsonObject, string>): string {
  const pieces: string[] = []
  const write = (item: Json | undefined): void => {
    if (typeof item === 'string') {
      pieces.push('"', item, '"')
    } else if (isJsonObject(item)) {
      const data = images.get(item)
      pieces.push('{')
      for (const [name, field] of Object.entries(item)) {
        pieces.push('"', name, '":')
        write(data === undefined ? field : removeImage(field, data))
        pieces.push(',')
      }
      pieces.push('}')
    } else if (Array.isArray(item)) {
      pieces.push('[')
      for (const element of item as readonly Json[]) {
        write(element)
        pieces.push(',')
      }
      pieces.push(']')
    } else {
      pieces.push(String(item))
    }
  }
  write(value)
  return pieces.join('')
}

/** The data may be the value itself, part of a data URL, or nested in an object. */
function removeImage(field: Json | undefined, data: string): Json | undefined {
  if (typeof field === 'string') {
    const isImage = field.length - data.length <= MAX_DATA_URL_PREFIX_BYTES && field.endsWith(data)
    return isImage ? field.slice(0, field.length - data.length) : field
  }
  if (!isJsonObject(field)) return field
  return Object.fromEntries(Object.entries(field).map(([name, nested]) => [name, removeImage(nested, data)]))
}

function imageBlocks(prompt: Prompt): ReadonlyMap<JsonObject, string> {
  const blocks = new Map<JsonObject, string>()
  const visit = (part: Part): void => {
    if (part.type === 'tool-result') part.content.forEach(visit)
    if (part.type !== 'image' || part.native === undefined) return
    const data = imageData(part)
    if (data !== undefined) blocks.set(part.native.value, data)
  }
  for (const message of prompt.messages) message.parts.forEach(visit)
  return blocks
}

/** The exact counter and each vocabulary (1 to 2 MB) are loaded on first use. */
export function createTokenizer(): Tokenizer {
  const counterOf = (vocabulary: Vocabulary): (() => Promise<ExactCounter>) =>
    lazy(async () => (await import('./exact.ts')).createExactCounter(vocabulary))
  const counters = { o200k: counterOf('o200k'), cl100k: counterOf('cl100k') }
  return {
    estimate: estimateTokens,
    count: async (text, signal, vocabulary = 'o200k') => (await counters[vocabulary]())(text, signal),
  }
}
