import { LRUCache } from 'lru-cache'
import { createPause, lazy, measureInSlices } from '../core/async.ts'
import {
  fingerprintOf,
  textOfPart,
  type DocumentPart,
  type Message,
  type Part,
  type Prompt,
  type Tool,
} from '../core/prompt.ts'
import type { Meter, Tokenizer, Vocabulary } from '../core/ports.ts'
import { textsOfBody, utf8Length } from './bound.ts'
import { estimateTokens } from './estimate.ts'
import { yieldToEventLoop } from './event-loop.ts'
import type { ExactCounter } from './exact.ts'

/** Counts are cached, because each turn sends the conversation again. */
const MAX_CACHED_COUNTS = 50_000
/** Counting a shorter string is as fast as a cache lookup. */
const MIN_CACHED_LENGTH = 64
/** An estimate of at least this multiple of a threshold needs no exact count. */
const CERTAIN_MULTIPLE = 1.6
const ANSWER_OVERHEAD_TOKENS = 3

/** Overhead in tokens of each message (role and separators), tool call and tool. */
const MESSAGE_OVERHEAD_TOKENS = 4
const TOOL_CALL_OVERHEAD_TOKENS = 4
const TOOL_OVERHEAD_TOKENS = 8
/** Estimated tokens of an image. The messages format charges this for 1,092 × 1,092 pixels. */
export const IMAGE_TOKENS = 1600
/** Estimated tokens of a document page, including its image, and its length in base64 characters. */
const PAGE_TOKENS = 2500
const PAGE_CHARACTERS = 50_000
/** Maximum length of an unknown part's JSON that counts as text. The rest counts as document pages. */
const MAX_UNKNOWN_LENGTH = 8000

/** The sizes of one string. `exact` is the count in o200k. */
interface Sizes {
  estimate?: number
  exact?: number
  cl100k?: number
  bytes?: number
}

type CountedItem = Message | Tool

/**
 * Creates the default meter.
 *
 * @param seed Returns a secret number that keys the shared cache of counts. Called on the first count, because Workers
 * provide no random numbers before the first request.
 */
export function createMeter(tokenizer: Tokenizer, seed: () => number = () => 0): Meter {
  const pause = createPause(yieldToEventLoop)
  const sizesByItem = new WeakMap<CountedItem, Sizes>()
  const sizesByFingerprint = new LRUCache<number, Sizes>({ max: MAX_CACHED_COUNTS })
  let seedValue: number | undefined

  const sizesOfText = (text: string): Sizes => {
    if (text.length < MIN_CACHED_LENGTH) return {}
    const key = fingerprintOf(text, (seedValue ??= seed()))
    const known = sizesByFingerprint.get(key)
    if (known !== undefined) return known
    const sizes: Sizes = {}
    sizesByFingerprint.set(key, sizes)
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
    return (sizes.exact ?? (sizes.estimate ??= tokenizer.estimate(textOf(item)))) + fixedTokens(item)
  }

  const count = async (item: CountedItem, signal?: AbortSignal): Promise<number> => {
    const sizes = sizesOf(item)
    return (sizes.exact ??= await tokenizer.count(textOf(item), signal)) + fixedTokens(item)
  }

  /** An upper bound, because a string never has more tokens than bytes. The estimate is too low for rare words. */
  const upperBoundOf = (item: CountedItem): number =>
    (sizesOf(item).bytes ??= utf8Length(textOf(item))) + fixedTokens(item)

  const sumOf = (prompt: Prompt, measure: (item: CountedItem) => number): number => {
    let sum = ANSWER_OVERHEAD_TOKENS
    for (const message of prompt.messages) sum += measure(message)
    for (const tool of prompt.tools) sum += measure(tool)
    return sum
  }

  const countPrompt = async (prompt: Prompt, signal?: AbortSignal): Promise<number> => {
    let sum = ANSWER_OVERHEAD_TOKENS
    for (const item of [...prompt.messages, ...prompt.tools]) {
      sum += await count(item, signal)
      const pausing = pause()
      if (pausing !== undefined) await pausing
    }
    return sum
  }

  const prepare = async (prompt: Prompt, signal?: AbortSignal): Promise<void> => {
    for (const item of [...prompt.messages, ...prompt.tools]) {
      const known = sizesByItem.get(item)
      if (known !== undefined && hasEstimate(known)) continue
      const text = textOf(item)
      const sizes = known ?? sizesOfText(text)
      sizesByItem.set(item, sizes)
      if (!hasEstimate(sizes)) sizes.estimate = await measureInSlices(text, tokenizer.estimate, pause)
      const pausing = pause()
      if (pausing === undefined) continue
      await pausing
      signal?.throwIfAborted()
    }
  }

  return {
    tokenizer,
    prepare,
    estimatePrompt: (prompt) => sumOf(prompt, estimate),
    countPrompt,
    async countNearThresholds(prompt, thresholds, signal) {
      await prepare(prompt, signal)
      const estimated = sumOf(prompt, estimate)
      const uncertainThresholds = thresholds.filter((threshold) => estimated < threshold * CERTAIN_MULTIPLE)
      if (uncertainThresholds.length === 0) return estimated
      const upperBound = sumOf(prompt, upperBoundOf)
      return uncertainThresholds.some((threshold) => upperBound > threshold) ? countPrompt(prompt, signal) : estimated
    },
    estimateMessage: estimate,
    countMessage: count,
    async countBody(prompt, vocabulary, signal) {
      const field = vocabulary === 'o200k' ? 'exact' : vocabulary
      let sum = 0
      for (const text of textsOfBody(prompt)) {
        const sizes = sizesOfText(text)
        sum += sizes[field] ??= await tokenizer.count(text, signal, vocabulary)
      }
      return sum
    },
  }
}

function hasEstimate({ estimate, exact }: Sizes): boolean {
  return estimate !== undefined || exact !== undefined
}

function textOf(item: CountedItem): string {
  return 'parts' in item ? item.parts.map(countedTextOf).join('\n') : jsonOf(item.native.value)
}

function countedTextOf(part: Part): string {
  if (part.type === 'opaque') return jsonOf(part.native.value).slice(0, MAX_UNKNOWN_LENGTH)
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
        Math.max(0, jsonOf(part.native.value).length - MAX_UNKNOWN_LENGTH) / (PAGE_CHARACTERS / PAGE_TOKENS),
      )
  }
}

function documentTokens(source: DocumentPart['source']): number {
  if (source.type === 'text') return 0
  if (source.type !== 'base64') return PAGE_TOKENS
  if (source.mediaType.startsWith('text/')) return Math.ceil(source.data.length / 3)
  return Math.ceil(source.data.length / PAGE_CHARACTERS) * PAGE_TOKENS
}

function jsonOf(value: unknown): string {
  return JSON.stringify(value) ?? ''
}

/** Creates the default tokenizer. The exact counter and a vocabulary (1 to 2 MB) are loaded on the first count. */
export function createTokenizer(): Tokenizer {
  const counters = { o200k: lazy(() => loadCounter('o200k')), cl100k: lazy(() => loadCounter('cl100k')) }
  return {
    estimate: estimateTokens,
    count: async (text, signal, vocabulary = 'o200k') => {
      const count = await counters[vocabulary]()
      return count(text, signal)
    },
  }
}

async function loadCounter(vocabulary: Vocabulary): Promise<ExactCounter> {
  const { createExactCounter } = await import('./exact.ts')
  return createExactCounter(vocabulary)
}
