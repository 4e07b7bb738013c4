import type { Pause } from '../../core/async.ts'
import { type Conversation, type Segment, textOfSegment } from './conversation.ts'
import { inverseFrequency, mapWithPauses, termsOf } from './keywords.ts'

/** Similarity of earlier segments to the question, from 0 to 1: the cosine divided by the highest cosine. */
export type Similarities = ReadonlyMap<Segment, number>

const HEAD_LENGTH = 800
const MAX_SEGMENTS = 2048
const MAX_EARLIER_LENGTH = 500

export interface EmbeddedTexts {
  readonly heads: ReadonlyMap<Segment, string>
  readonly question: string
  readonly earlier: string
}

/** Returns undefined for a meeting transcript, which has no responses, because its turns are too short to compare. */
export function textsOf({ turns }: Conversation): EmbeddedTexts | undefined {
  const [first] = turns.live
  const question = first === undefined ? '' : headOf(first)
  if (question === '' || turns.old.every((segment) => segment.kind === 'user')) return undefined
  const heads = new Map<Segment, string>()
  for (const segment of turns.old.slice(-MAX_SEGMENTS)) {
    const head = headOf(segment)
    if (head !== '') heads.set(segment, head)
  }
  const earlier = [...heads].findLast(([{ kind }, head]) => kind === 'user' && head.length < MAX_EARLIER_LENGTH)
  return { heads, question, earlier: earlier?.[1] ?? '' }
}

function headOf(segment: Segment): string {
  return textOfSegment(segment).slice(0, HEAD_LENGTH).trim()
}

/**
 * Returns the question, then the exchanges that share the rarest words with it, because a slow model embeds only the
 * first texts before the timeout.
 */
export async function inEmbeddingOrder(texts: EmbeddedTexts, pause: Pause): Promise<readonly string[]> {
  const { heads, question, earlier } = texts
  const query = new Set(termsOf(question))
  const entries = [...heads]
  const matches = await mapWithPauses(entries, pause, ([, head]) => {
    return new Set(termsOf(head).filter((term) => query.has(term)))
  })
  const frequency = new Map<number, number>()
  for (const terms of matches) for (const term of terms) frequency.set(term, (frequency.get(term) ?? 0) + 1)
  const weightOf = (term: number): number => inverseFrequency(entries.length, frequency.get(term) ?? 0)
  const scores = matches.map((terms) => [...terms].reduce((sum, term) => sum + weightOf(term), 0))
  const ranked = entries.map(([{ kind }, head], index) => {
    const partner = kind === 'user' ? index + 1 : index - 1
    return { head, score: (scores[index] ?? 0) + (scores[partner] ?? 0) }
  })
  const bestFirst = ranked.toReversed().sort((one, other) => other.score - one.score)
  return [question, earlier, ...bestFirst.map(({ head }) => head)]
}

/** Returns the cosine, or 0 if it is negative. */
export function productOf(vector: Float32Array | undefined, query: Float32Array): number | undefined {
  if (vector === undefined) return undefined
  let product = 0
  for (let index = 0; index < query.length; index++) product += (vector[index] ?? 0) * (query[index] ?? 0)
  return Math.max(0, product)
}

/** A segment without a vector has the mean, because it must not rank below all others. */
export function similaritiesOf(segments: readonly Segment[], products: readonly (number | undefined)[]): Similarities {
  const known = products.filter((product) => product !== undefined)
  const max = known.reduce((highest, product) => Math.max(highest, product), 1e-9)
  const mean = known.reduce((sum, product) => sum + product, 0) / Math.max(1, known.length)
  return new Map(segments.map((segment, index) => [segment, (products[index] ?? mean) / max]))
}

export function normalizeVector(vector: Float32Array | undefined, dimensions: number): Float32Array | undefined {
  if (vector === undefined || vector.length !== dimensions) return undefined
  let sum = 0
  for (const value of vector) sum += value * value
  const norm = Math.sqrt(sum)
  return Number.isFinite(norm) && norm > 0 ? vector.map((value) => value / norm) : undefined
}
