import { LRUCache } from 'lru-cache'
import type { Meter, Tokenizer } from '../core/ports.ts'
import type { Message, Prompt, Tool } from '../core/prompt.ts'
import { yieldToEventLoop } from './yield.ts'
import { createPause, measureInSlices, lazy } from '../core/async.ts'
import { fingerprintOf } from '../core/digest.ts'
import { imageBlocks, utf8Length } from './bound.ts'
import { countedText, fixedTokens, IMAGE_TOKENS, rawPieces, TOOL_FRAME, toolText } from './counted-text.ts'
import type { Vocabulary } from '../core/model.ts'
import { estimateTokens } from './estimate.ts'
import type { ExactCount } from './exact.ts'

/** Number of exact counts that are cached. A conversation is sent again with every turn. */
const REMEMBERED_COUNTS = 50_000
/** Shorter texts are not cached: counting is as cheap as a lookup. */
const MIN_REMEMBERED_LENGTH = 64
/** An estimate this many times above a threshold decides without a count. */
const SURE_ABOVE = 1.6
/** Every upstream opens the answer with a few tokens, and adds an instruction of its own when there are tools. */
const ANSWER_FRAME = 3

/** The estimate of one text, and its exact count in each vocabulary. */
interface Sizes {
  estimate?: number
  exact?: number
  cl100k?: number
  bytes?: number
}

/**
 * The default meter over a tokenizer. Nothing is counted exactly before it is asked for.
 *
 * @param seed Returns a number that no caller can know: it keys the memory of counts, which all tenants share. It is called
 * once, by the first count, because a Worker draws no random numbers before its first request.
 */
export function createMeter(tokenizer: Tokenizer, seed: () => number = () => 0): Meter {
  const pause = createPause(yieldToEventLoop)
  const seen = new WeakMap<Message | Tool, Sizes>()
  const remembered = new LRUCache<number, Sizes>({ max: REMEMBERED_COUNTS })
  let seedValue: number | undefined

  const sizesOfText = (text: string): Sizes => {
    if (text.length < MIN_REMEMBERED_LENGTH) return {}
    const key = fingerprintOf(text, (seedValue ??= seed()))
    const known = remembered.get(key)
    if (known !== undefined) return known
    const sizes: Sizes = {}
    remembered.set(key, sizes)
    return sizes
  }

  const sizesOf = (thing: Message | Tool): Sizes => {
    const known = seen.get(thing)
    if (known !== undefined) return known
    const sizes = sizesOfText(textOf(thing))
    seen.set(thing, sizes)
    return sizes
  }

  const estimateText = (thing: Message | Tool): number => {
    const sizes = sizesOf(thing)
    return sizes.exact ?? (sizes.estimate ??= tokenizer.estimate(textOf(thing)))
  }

  const countText = async (thing: Message | Tool, signal?: AbortSignal): Promise<number> => {
    const sizes = sizesOf(thing)
    return (sizes.exact ??= await tokenizer.count(textOf(thing), signal))
  }

  const estimateOf = (prompt: Prompt): number => {
    let sum = ANSWER_FRAME
    for (const message of prompt.messages) sum += estimateText(message) + fixedTokens(message, IMAGE_TOKENS)
    for (const tool of prompt.tools) sum += estimateText(tool) + TOOL_FRAME
    return sum
  }

  const countOf = async (prompt: Prompt, signal?: AbortSignal): Promise<number> => {
    let sum = ANSWER_FRAME
    for (const message of prompt.messages) {
      sum += (await countText(message, signal)) + fixedTokens(message, IMAGE_TOKENS)
      const due = pause()
      if (due !== undefined) await due
    }
    for (const tool of prompt.tools) sum += (await countText(tool, signal)) + TOOL_FRAME
    return sum
  }

  const prepare = async (prompt: Prompt, signal?: AbortSignal): Promise<void> => {
    for (const thing of [...prompt.messages, ...prompt.tools]) {
      const known = seen.get(thing)
      if (known !== undefined && hasEstimate(known)) continue
      const text = textOf(thing)
      const sizes = known ?? sizesOfText(text)
      seen.set(thing, sizes)
      if (!hasEstimate(sizes)) sizes.estimate = await measureInSlices(text, tokenizer.estimate, pause)
      const due = pause()
      if (due === undefined) continue
      await due
      signal?.throwIfAborted()
    }
  }

  /** No text has more tokens than bytes: words of rare letters come near to that, and far above their estimate. */
  const mostTokensOf = (prompt: Prompt): number => {
    const bytesOf = (thing: Message | Tool): number => (sizesOf(thing).bytes ??= utf8Length(textOf(thing)))
    let sum = ANSWER_FRAME
    for (const message of prompt.messages) sum += bytesOf(message) + fixedTokens(message, IMAGE_TOKENS)
    for (const tool of prompt.tools) sum += bytesOf(tool) + TOOL_FRAME
    return sum
  }

  return {
    tokenizer,
    prepare,
    estimateOf,
    countOf,
    async sizeNear(prompt, thresholds, signal) {
      await prepare(prompt, signal)
      const estimate = estimateOf(prompt)
      const near = thresholds.filter((at) => estimate < at * SURE_ABOVE)
      if (near.length === 0) return estimate
      const most = mostTokensOf(prompt)
      return near.some((at) => most > at) ? countOf(prompt, signal) : estimate
    },
    estimateOfMessage: (message) => estimateText(message) + fixedTokens(message, IMAGE_TOKENS),
    async countOfMessage(message, signal) {
      return (await countText(message, signal)) + fixedTokens(message, IMAGE_TOKENS)
    },
    async countOfBody(prompt, vocabulary, signal) {
      const field = vocabulary === 'o200k' ? 'exact' : vocabulary
      let sum = 0
      for (const text of rawPieces(prompt.native.value, imageBlocks(prompt))) {
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

function textOf(thing: Message | Tool): string {
  return 'parts' in thing ? countedText(thing) : toolText(thing)
}

/**
 * The default tokenizer. The exact counter, and the ranks of a vocabulary (1 to 2 MB), are loaded at the first count that
 * needs them.
 */
export function createTokenizer(): Tokenizer {
  const counters = { o200k: lazy(() => counterOf('o200k')), cl100k: lazy(() => counterOf('cl100k')) }
  return {
    estimate: estimateTokens,
    count: async (text, signal, vocabulary = 'o200k') => {
      const count = await counters[vocabulary]()
      return count(text, signal)
    },
  }
}

async function counterOf(vocabulary: Vocabulary): Promise<ExactCount> {
  const { createExactCount } = await import('./exact.ts')
  return createExactCount(vocabulary)
}
