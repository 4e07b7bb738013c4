import { createPause, lazy, type MaybePromise, measureInSlices } from '../core/async.ts'
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
import { estimateTokens, utf8Length } from './estimate.ts'
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

/** Counts the tokens of prompts. Caches the sizes of messages and tools, because each turn sends them again. */
export class PromptMeter implements Meter {
  readonly tokenizer: Tokenizer
  readonly #seed: () => number
  #seedValue: number | undefined
  readonly #pause = createPause(yieldToEventLoop)
  readonly #sizesByItem = new WeakMap<CountedItem, Sizes>()
  readonly #sizesByFingerprint = new RecentMap<number, Sizes>(MAX_CACHED_COUNTS)

  /** @param seed Returns a secret. Called lazily, because Cloudflare Workers have no random values before a request. */
  constructor(tokenizer: Tokenizer, seed: () => number = () => 0) {
    this.tokenizer = tokenizer
    this.#seed = seed
  }

  async cacheEstimates(prompt: Prompt, signal?: AbortSignal): Promise<void> {
    const { estimate } = this.tokenizer
    for (const item of [...prompt.messages, ...prompt.tools]) {
      const known = this.#sizesByItem.get(item)
      if (known !== undefined && hasEstimate(known)) continue
      const sizes = this.#sizesOf(item)
      if (!hasEstimate(sizes)) sizes.estimate = await measureInSlices(textOf(item), estimate, this.#pause)
      const pausing = this.#pause()
      if (pausing === undefined) continue
      await pausing
      signal?.throwIfAborted()
    }
  }

  estimatePrompt(prompt: Prompt): number {
    return sumOf(prompt, (item) => this.#estimate(item))
  }

  async countPrompt(prompt: Prompt, signal?: AbortSignal): Promise<number> {
    let sum = RESPONSE_OVERHEAD_TOKENS
    for (const item of [...prompt.messages, ...prompt.tools]) {
      sum += await this.#count(item, signal)
      const pausing = this.#pause()
      if (pausing !== undefined) await pausing
    }
    return sum
  }

  async countNearThresholds(prompt: Prompt, thresholds: readonly number[], signal?: AbortSignal): Promise<number> {
    await this.cacheEstimates(prompt, signal)
    const estimated = this.estimatePrompt(prompt)
    const uncertainThresholds = thresholds.filter((threshold) => estimated < threshold * CERTAIN_MULTIPLE)
    if (uncertainThresholds.length === 0) return estimated
    const upperBound = sumOf(prompt, (item) => this.#upperBoundOf(item))
    return uncertainThresholds.some((threshold) => upperBound > threshold)
      ? this.countPrompt(prompt, signal)
      : estimated
  }

  estimateMessage(message: Message): number {
    return this.#estimate(message)
  }

  countMessage(message: Message, signal?: AbortSignal): MaybePromise<number> {
    return this.#count(message, signal)
  }

  fingerprintOf(message: Message): number | undefined {
    return this.#sizesOf(message).fingerprint
  }

  recognize(message: Message, fingerprint: number): void {
    this.#sizesByItem.set(message, this.#sizesOfFingerprint(fingerprint))
  }

  async countBody(prompt: Prompt, vocabulary: Vocabulary, signal?: AbortSignal): Promise<number> {
    const { textsOfBody } = await import('./texts-of-body.ts')
    let sum = 0
    for (const text of textsOfBody(prompt)) {
      sum += this.#sizesOfText(text)[vocabulary] ??= await this.tokenizer.count(text, signal, vocabulary)
    }
    return sum
  }

  #sizesOf(item: CountedItem): Sizes {
    const known = this.#sizesByItem.get(item)
    if (known !== undefined) return known
    const sizes = this.#sizesOfText(textOf(item))
    this.#sizesByItem.set(item, sizes)
    return sizes
  }

  #sizesOfText(text: string): Sizes {
    if (text.length < MIN_CACHED_LENGTH) return {}
    return this.#sizesOfFingerprint(fingerprintOf(text, (this.#seedValue ??= this.#seed())))
  }

  #sizesOfFingerprint(fingerprint: number): Sizes {
    const known = this.#sizesByFingerprint.get(fingerprint)
    if (known !== undefined) return known
    const sizes: Sizes = { fingerprint }
    this.#sizesByFingerprint.set(fingerprint, sizes)
    return sizes
  }

  #estimate(item: CountedItem): number {
    const sizes = this.#sizesOf(item)
    return (sizes.o200k ?? (sizes.estimate ??= this.tokenizer.estimate(textOf(item)))) + fixedTokens(item)
  }

  #count(item: CountedItem, signal?: AbortSignal): MaybePromise<number> {
    const sizes = this.#sizesOf(item)
    return sizes.o200k === undefined ? this.#countExactly(item, sizes, signal) : sizes.o200k + fixedTokens(item)
  }

  async #countExactly(item: CountedItem, sizes: Sizes, signal?: AbortSignal): Promise<number> {
    return (sizes.o200k = await this.tokenizer.count(textOf(item), signal)) + fixedTokens(item)
  }

  /** Uses bytes, because a string never has more tokens than bytes. The estimate can be too low. */
  #upperBoundOf(item: CountedItem): number {
    return (this.#sizesOf(item).bytes ??= utf8Length(textOf(item))) + fixedTokens(item)
  }
}

function sumOf(prompt: Prompt, measure: (item: CountedItem) => number): number {
  let sum = RESPONSE_OVERHEAD_TOKENS
  for (const message of prompt.messages) sum += measure(message)
  for (const tool of prompt.tools) sum += measure(tool)
  return sum
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
