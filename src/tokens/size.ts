import { LRUCache } from 'lru-cache'
import type { Meter, Tokenizer } from '../core/ports.ts'
import type { Message, Prompt, Tool } from '../core/prompt.ts'
import { breathe } from './breathe.ts'
import { createPause, measureInSlices } from '../core/pause.ts'
import { cautiousTokens } from './estimate.ts'
import { fingerprintOf } from '../core/fingerprint.ts'
import { countedText, fixedTokens, IMAGE_BOUND, IMAGE_TOKENS, TOOL_FRAME, toolText } from './weights.ts'

/** Exact counts remembered over requests: a conversation comes again with every turn. */
const REMEMBERED_COUNTS = 50_000
/** Below this length counting is as cheap as looking up. */
const SHORTEST_REMEMBERED = 64
/** An estimate this many times above a threshold decides without a count. */
const SURE_ABOVE = 1.6
/** Other vocabularies need at most so many times the tokens of o200k, unless the model says otherwise. */
const TOKEN_FACTOR = 1.5
/** Every upstream opens the answer with a few tokens, and adds an instruction of its own when there are tools. */
const ANSWER_FRAME = 3
/** What upstreams add to a prompt at the most: their own counts of one short message differ by about so much. */
const ANSWER_BOUND = 16
const TOOL_INSTRUCTION_BOUND = 600

/** What is known of one text. */
interface Sizes {
  estimate?: number
  exact?: number
  bytes?: number
}

/** The default meter over a tokenizer. Nothing is counted exactly before somebody asks for it. */
export function createMeter(tokenizer: Tokenizer): Meter {
  const pause = createPause(breathe)
  const seen = new WeakMap<Message | Tool, Sizes>()
  const remembered = new LRUCache<number, Sizes>({ max: REMEMBERED_COUNTS })

  const sizesOf = (thing: Message | Tool): Sizes => {
    const known = seen.get(thing)
    if (known !== undefined) return known
    const text = textOf(thing)
    const key = text.length < SHORTEST_REMEMBERED ? undefined : fingerprintOf(text)
    const sizes: Sizes = (key === undefined ? undefined : remembered.get(key)) ?? {}
    if (key !== undefined) remembered.set(key, sizes)
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
      const sizes = sizesOf(thing)
      const text = textOf(thing)
      if (sizes.exact === undefined) sizes.estimate ??= await measureInSlices(text, tokenizer.estimate, pause)
      sizes.bytes ??= utf8Length(text)
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
    boundOf(prompt, model) {
      const factor = model.tokenFactor ?? TOKEN_FACTOR
      let sum = ANSWER_BOUND
      for (const message of prompt.messages) {
        sum += textBound(textOf(message), estimateText(message), factor) + 2 * fixedTokens(message, IMAGE_BOUND)
      }
      for (const tool of prompt.tools) sum += textBound(textOf(tool), estimateText(tool), factor) + 2 * TOOL_FRAME
      return prompt.tools.length > 0 ? sum + TOOL_INSTRUCTION_BOUND : sum
    },
  }
}

function textOf(thing: Message | Tool): string {
  return 'parts' in thing ? countedText(thing) : toolText(thing)
}

/** No text has more tokens than bytes. */
function textBound(text: string, estimate: number, factor: number): number {
  const bytes = utf8Length(text)
  return Math.min(bytes, Math.ceil(factor * Math.max(estimate, cautiousTokens(text))))
}

function utf8Length(text: string): number {
  let bytes = text.length
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code < 0x80) continue
    bytes += code < 0x800 || (code >= 0xd800 && code < 0xe000) ? 1 : 2
  }
  return bytes
}
