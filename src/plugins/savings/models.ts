import { LRUCache } from 'lru-cache'
import { Cancellation, type Pause, withTimeout } from '../../core/async.ts'
import type { Embedder } from '../../core/cache.ts'
import { add, costOfTokens, type NanoUsd, ZERO } from '../../core/money.ts'
import type { Runtime, SmallModel } from '../../core/ports.ts'
import { fingerprintOf } from '../../core/prompt.ts'
import type { Conversation } from './conversation.ts'
import { mapWithPauses } from './keywords.ts'
import {
  inEmbeddingOrder,
  normalizeVector,
  productOf,
  type Similarities,
  similaritiesOf,
  textsOf,
} from './similarities.ts'

export const EXTRACTIVE = 'extractive'

export function authorOf(small: SmallModel | undefined): string {
  return small === undefined || small.isPaused?.() === true ? EXTRACTIVE : small.name
}

/** A failing small model may read a whole conversation per call. */
const MAX_MODEL_FAILURES = 1
const MAX_EMBEDDER_FAILURES = 2
const PAUSE_MS = 5 * 60 * 1000
const MAX_CONVERSATIONS = 10_000

/** Without a pause, each turn would wait for a failing call. After a pause, one failure starts the next pause. */
export class FailurePauses {
  readonly #maxFailures: number
  readonly #results = new LRUCache<string, { readonly failures: number; readonly at: number }>({
    max: MAX_CONVERSATIONS,
  })
  readonly #now: () => number

  constructor(now: () => number, maxFailures: number = MAX_MODEL_FAILURES) {
    this.#now = now
    this.#maxFailures = maxFailures
  }

  isPaused(pauseKey: string): boolean {
    const last = this.#results.get(pauseKey)
    return last !== undefined && last.failures >= this.#maxFailures && this.#now() - last.at < PAUSE_MS
  }

  isProven(pauseKey: string): boolean {
    return this.#results.get(pauseKey)?.failures === 0
  }

  report(pauseKey: string, isUsable: boolean): void {
    const failures = isUsable ? 0 : (this.#results.get(pauseKey)?.failures ?? 0) + 1
    this.#results.set(pauseKey, { failures, at: this.#now() })
  }
}

/** Identifies the conversation by its system prompt and its first segment. */
export function pauseKeyOf({ prefixHashes, segments }: Conversation, owner: string): string {
  return `${owner} ${prefixHashes.at(Math.min(1, segments.length))}`
}

export function pauseAfterFailures(
  small: SmallModel,
  pauses: FailurePauses,
  pauseKey: string,
  signal: AbortSignal,
): SmallModel {
  const isPaused = (): boolean => pauses.isPaused(pauseKey)
  const report = (isUsable: boolean): void => pauses.report(pauseKey, isUsable)
  const ask: SmallModel['ask'] = async (question) => {
    if (isPaused())
      throw new Error('The small model is paused, because calls failed or replies were unusable in this conversation.')
    try {
      return await small.ask(question)
    } catch (error) {
      if (!signal.aborted) report(false)
      throw error
    }
  }
  const price: SmallModel['price'] = (input, output) => (isPaused() ? ZERO : small.price(input, output))
  return { name: small.name, ask, price, report, isPaused, isProven: () => pauses.isProven(pauseKey) }
}

const CHARACTERS_PER_TOKEN = 4

/** Includes the calls of a tier that throws later, and the prompts of aborted calls, which the vendor may bill. */
export function trackSpending(small: SmallModel | undefined): {
  readonly small: SmallModel | undefined
  readonly spent: () => NanoUsd
} {
  let spent: NanoUsd = ZERO
  if (small === undefined) return { small, spent: () => spent }
  const ask: SmallModel['ask'] = async (question) => {
    const { instruction, text, signal } = question
    const wasAborted = signal.aborted
    try {
      const reply = await small.ask(question)
      spent = add(spent, reply.spent)
      return reply
    } catch (error) {
      const tokens = Math.ceil((instruction.length + text.length) / CHARACTERS_PER_TOKEN)
      if (signal.aborted && !wasAborted) spent = add(spent, small.price(tokens, 0))
      throw error
    }
  }
  return { small: { ...small, ask }, spent: () => spent }
}

interface CompareOptions {
  readonly owner: string
  readonly signal: AbortSignal
  readonly onSpent: (cost: NanoUsd) => void
}

interface SemanticRankerOptions {
  readonly embedder: Embedder
  readonly now: Runtime['now']
  readonly after: Runtime['after']
  readonly estimate: (text: string) => number
  readonly pause: Pause
}

const TIMEOUT_MS = 3000
const TEXTS_PER_CALL = 128
const MAX_CACHED_BYTES = 64 * 1024 * 1024
/** The earlier question often names the topic of a follow-up. */
const EARLIER_QUESTION_WEIGHT = 0.3

export class SemanticRanker {
  readonly #options: SemanticRankerOptions
  readonly #pauses: FailurePauses
  readonly #vectors = new LRUCache<string, Float32Array>({
    maxSize: MAX_CACHED_BYTES,
    sizeCalculation: (vector, key) => 4 * vector.length + 2 * key.length + 100,
  })

  constructor(options: SemanticRankerOptions) {
    this.#options = options
    this.#pauses = new FailurePauses(options.now, MAX_EMBEDDER_FAILURES)
  }

  /** Never rejects. */
  async compare(conversation: Conversation, options: CompareOptions): Promise<Similarities | undefined> {
    const { owner, signal } = options
    const { pause } = this.#options
    const pauseKey = pauseKeyOf(conversation, owner)
    const texts = textsOf(conversation)
    if (texts === undefined || this.#pauses.isPaused(pauseKey)) return undefined
    const { heads, question, earlier } = texts
    const received = this.#findUncached([question, earlier, ...heads.values()], owner)
    const needsOrder = received.length > this.#textsPerCall
    const uncached = needsOrder ? this.#findUncached(await inEmbeddingOrder(texts, pause), owner) : received
    try {
      if (uncached.length > 0) await this.#embedAll(uncached, options)
    } catch {
      if (signal.aborted) return undefined
    }
    // After a timeout, the vectors that arrived in time are used. A slow model embeds the other texts on later turns.
    const isUsable = uncached.length === 0 || uncached.some((text) => this.#vectors.has(keyOf(owner, text)))
    this.#pauses.report(pauseKey, isUsable)
    if (!isUsable) return undefined
    const vectorOf = (text: string): Float32Array | undefined => this.#vectors.get(keyOf(owner, text))
    const query = vectorOf(question)
    if (query === undefined) return undefined
    const earlierVector = vectorOf(earlier)
    const combined = query.map((value, index) => value + EARLIER_QUESTION_WEIGHT * (earlierVector?.[index] ?? 0))
    const products = await mapWithPauses([...heads.values()], pause, (head) => productOf(vectorOf(head), combined))
    return similaritiesOf([...heads.keys()], products)
  }

  price(conversation: Conversation, owner: string): NanoUsd {
    return this.#costOf(this.#findUncached(textsOf(conversation)?.heads.values() ?? [], owner))
  }

  get #textsPerCall(): number {
    return Math.max(1, Math.floor(this.#options.embedder.textsPerCall ?? TEXTS_PER_CALL))
  }

  #costOf(texts: readonly string[]): NanoUsd {
    const { embedder, estimate } = this.#options
    const tokens = texts.reduce((sum, text) => sum + estimate(text), 0)
    return costOfTokens({ input: embedder.price ?? 0, output: 0 }, tokens, 0)
  }

  #findUncached(texts: Iterable<string>, owner: string): readonly string[] {
    return [...new Set(texts)].filter((text) => text !== '' && !this.#vectors.has(keyOf(owner, text)))
  }

  async #embedAll(texts: readonly string[], options: CompareOptions): Promise<void> {
    const { after, pause } = this.#options
    const textsPerCall = this.#textsPerCall
    const { owner, onSpent } = options
    const timeout = new AbortController()
    const signal = AbortSignal.any([options.signal, timeout.signal])
    const callAll = async (): Promise<void> => {
      const calls: Promise<void>[] = []
      for (let from = 0; from < texts.length && !signal.aborted; from += textsPerCall) {
        const call = this.#embed(texts.slice(from, from + textsPerCall), owner, signal).then(onSpent)
        // `Promise.all` is attached only after the last call, so an earlier failure would cause an unhandled rejection.
        call.catch(() => {})
        calls.push(call)
        await pause()
      }
      await Promise.all(calls)
    }
    const createError = (): Error => new Error(`The embedder took longer than ${TIMEOUT_MS} ms.`)
    const cancellation = Cancellation.of(options.signal)
    try {
      await withTimeout(callAll(), { ms: TIMEOUT_MS, after, createError, cancellation })
    } catch (error) {
      timeout.abort(error)
      throw error
    }
  }

  async #embed(texts: readonly string[], owner: string, signal: AbortSignal): Promise<NanoUsd> {
    const { embedder, pause } = this.#options
    const { name, dimensions } = embedder
    const embeddings = await embedder.embed(texts, signal)
    let usableCount = 0
    for (const [index, text] of texts.entries()) {
      const vector = normalizeVector(embeddings[index], dimensions)
      if (vector === undefined) continue
      this.#vectors.set(keyOf(owner, text), vector)
      usableCount++
      const pausing = pause()
      if (pausing !== undefined) await pausing
    }
    if (usableCount === 0)
      throw new Error(`${name} returned no usable vector. Expected ${dimensions} finite numbers, not all 0.`)
    return this.#costOf(texts)
  }
}

function keyOf(owner: string, text: string): string {
  return `${owner} ${fingerprintOf(text)}`
}
