import { LRUCache } from 'lru-cache'
import { costOfTokens, type NanoUsd } from '../core/money.ts'
import type { Embedder } from '../core/cache-ports.ts'
import type { Pause } from '../core/async.ts'
import { fingerprintOf } from '../core/digest.ts'
import type { Runtime } from '../core/ports.ts'
import { textOfMessage } from '../core/prompt.ts'
import type { Conversation, Segment } from './conversation.ts'
import type { Similarities, TierJob } from './tier.ts'
import type { FailurePauses } from './small-model.ts'

/** Compares the beginnings of segments with the question by an embedder. */
export interface MeaningRanker {
  /**
   * Returns undefined in a meeting, and when the embedder fails, is late or is paused. Never rejects. `onSpent` is called
   * with the cost of each call.
   */
  compare(conversation: Conversation, job: TierJob, onSpent: (cost: NanoUsd) => void): Promise<Similarities | undefined>
  /** Returns the cost of embedding what is not embedded yet. */
  price(conversation: Conversation, owner: string): NanoUsd
}

interface MeaningOptions {
  readonly embedder: Embedder
  readonly after: Runtime['after']
  readonly estimate: (text: string) => number
  readonly pauses: FailurePauses
  readonly pause: Pause
}

/** Maximum duration of all calls for one request. */
const DEADLINE_MS = 3000
/** The beginning of a segment that is embedded, in characters. */
const HEAD_LENGTH = 800
/** Maximum number of segments that are compared, the newest first. */
const MAX_SEGMENTS = 2048
const TEXTS_PER_CALL = 128
/** Maximum memory for vectors. A forgotten vector is embedded again. */
const REMEMBERED_BYTES = 64 * 1024 * 1024
/** The question before adds the topic of a follow-up. A longer message is a document. */
const EARLIER_QUESTION_SHARE = 0.3
const MAX_EARLIER_LENGTH = 500

export function createMeaningRanker({ embedder, after, estimate, pauses, pause }: MeaningOptions): MeaningRanker {
  const { dimensions, price: dollars = 0 } = embedder
  const vectors = new LRUCache<string, Float32Array>({
    maxSize: REMEMBERED_BYTES,
    sizeCalculation: (vector, key) => 4 * vector.length + 2 * key.length + 100,
  })
  const keyOf = (owner: string, text: string): string => `${owner} ${fingerprintOf(text)}`
  const costOf = (texts: readonly string[]): NanoUsd => {
    const tokens = texts.reduce((sum, text) => sum + estimate(text), 0)
    return costOfTokens({ input: dollars, output: 0 }, tokens, 0)
  }
  const missingOf = (texts: Iterable<string>, owner: string): readonly string[] =>
    [...new Set(texts)].filter((text) => !vectors.has(keyOf(owner, text)))

  const embed = async (texts: readonly string[], owner: string, signal: AbortSignal): Promise<NanoUsd> => {
    const found = await embedder.embed(texts, signal)
    for (const [at, text] of texts.entries()) {
      const vector = unitOf(found[at], dimensions)
      if (vector === undefined) throw new Error(`${embedder.name} returned a vector that cannot be compared`)
      vectors.set(keyOf(owner, text), vector)
    }
    return costOf(texts)
  }

  /** Embeds in calls of bounded size. The vectors of a call that succeeds are kept when another call fails. */
  const embedAll = async (texts: readonly string[], job: TierJob, onSpent: (cost: NanoUsd) => void): Promise<void> => {
    const late = new AbortController()
    const signal = AbortSignal.any([job.signal, late.signal])
    const callAll = async (): Promise<void> => {
      const calls: Promise<void>[] = []
      for (let from = 0; from < texts.length && !signal.aborted; from += TEXTS_PER_CALL) {
        const call = embed(texts.slice(from, from + TEXTS_PER_CALL), job.owner, signal).then(onSpent)
        // A failure is reported by Promise.all, which is not attached before the last call is made.
        call.catch(() => {})
        calls.push(call)
        await pause()
      }
      await Promise.all(calls)
    }
    const ended = new Promise<never>((_, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason), { once: true })
    })
    const cancel = after(DEADLINE_MS, () => late.abort(new Error(`The embedder took longer than ${DEADLINE_MS} ms.`)))
    try {
      await Promise.race([callAll(), ended])
    } finally {
      cancel()
      late.abort()
    }
  }

  const compare: MeaningRanker['compare'] = async (conversation, job, onSpent) => {
    const { owner, signal } = job
    const name = `${owner} ${conversation.chain.at(Math.min(1, conversation.segments.length))}`
    const texts = textsOf(conversation)
    if (texts === undefined || pauses.isPaused(name)) return undefined
    const { heads, question, earlier } = texts
    const missing = missingOf([question, ...(earlier === undefined ? [] : [earlier]), ...heads.values()], owner)
    try {
      if (missing.length > 0) await embedAll(missing, job, onSpent)
    } catch {
      if (!signal.aborted) pauses.report(name, false)
      return undefined
    }
    pauses.report(name, true)
    const vectorOf = (text: string): Float32Array | undefined => vectors.get(keyOf(owner, text))
    const query = vectorOf(question)
    if (query === undefined) return undefined
    const before = earlier === undefined ? undefined : vectorOf(earlier)
    const asked = query.map((value, at) => value + EARLIER_QUESTION_SHARE * (before?.[at] ?? 0))
    return similaritiesOf(heads, asked, vectorOf)
  }

  return {
    compare,
    price: (conversation, owner) => costOf(missingOf(textsOf(conversation)?.heads.values() ?? [], owner)),
  }
}

interface Texts {
  readonly heads: ReadonlyMap<Segment, string>
  readonly question: string
  readonly earlier: string | undefined
}

/** Returns undefined without a question, and in a meeting: a single turn of it is too short to compare. */
function textsOf({ turns }: Conversation): Texts | undefined {
  const [asking] = turns.live
  const question = asking === undefined ? '' : headOf(asking)
  if (question === '' || turns.old.every((segment) => segment.kind === 'user')) return undefined
  const heads = new Map<Segment, string>()
  for (const segment of turns.old.slice(-MAX_SEGMENTS)) {
    const head = headOf(segment)
    if (head !== '') heads.set(segment, head)
  }
  const earlier = turns.old.findLast(
    (segment) => segment.kind === 'user' && (heads.get(segment)?.length ?? MAX_EARLIER_LENGTH) < MAX_EARLIER_LENGTH,
  )
  return { heads, question, earlier: earlier === undefined ? undefined : heads.get(earlier) }
}

function headOf({ messages }: Segment): string {
  return messages.map(textOfMessage).join('\n').slice(0, HEAD_LENGTH).trim()
}

function similaritiesOf(
  heads: ReadonlyMap<Segment, string>,
  asked: Float32Array,
  vectorOf: (text: string) => Float32Array | undefined,
): Similarities {
  const similarities = new Map<Segment, number>()
  let greatest = 1e-9
  for (const [segment, head] of heads) {
    const vector = vectorOf(head)
    if (vector === undefined) continue
    const similarity = Math.max(
      0,
      vector.reduce((sum, value, at) => sum + value * (asked[at] ?? 0), 0),
    )
    similarities.set(segment, similarity)
    greatest = Math.max(greatest, similarity)
  }
  for (const [segment, similarity] of similarities) similarities.set(segment, similarity / greatest)
  return similarities
}

function unitOf(vector: Float32Array | undefined, dimensions: number): Float32Array | undefined {
  if (vector === undefined || vector.length !== dimensions) return undefined
  const length = Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0))
  return Number.isFinite(length) && length > 0 ? vector.map((value) => value / length) : undefined
}
